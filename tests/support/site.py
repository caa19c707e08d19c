"""`make docs`: what a built page loads by itself must come from the site, so that it can be read without a network."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_OUTSIDE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:@import\s+|url\()\s*['\"]?([^'\")\s;]+)", re.IGNORECASE)
_LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
"""Elements to the attribute whose address a browser asks for without a click."""
_NOT_LOADED = {"canonical", "next", "prev", "author", "license", "index", "search", "help"}
"""Relations of a <link> that a browser only notes."""


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "link" and set(told.get("rel", "").split()) & _NOT_LOADED:
            return
        self.found.append(told.get(_LOADS.get(tag, ""), ""))
        self.found += _IN_STYLE.findall(told.get("style", ""))


def asks_elsewhere(site: Path) -> list[str]:
    """Each address on another host that a page or a style of the site loads, as "FILE: ADDRESS"."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            reader = _Loads()
            reader.feed(path.read_text())
            addresses = reader.found
        elif path.suffix == ".css":
            addresses = _IN_STYLE.findall(path.read_text())
        else:
            continue
        found += [f"{path.relative_to(site)}: {address}" for address in addresses if _OUTSIDE.match(address)]
    return found


if __name__ == "__main__":
    problems = asks_elsewhere(Path(sys.argv[1]))
    print("\n".join(problems) or f"{sys.argv[1]} asks no other host")
    sys.exit(bool(problems))
