"""What a tag promises, held before anything is built from it; prints the version's part of the changelog.

    python -m tests.support.changelog v0.1.0 [--tree FOLDER]

A tag is `v` and the version that the program tells. Its part of CHANGELOG.md has a date, `## 0.1.0 (2026-11-22)`, and
lines under it. What this version leaves on a device is kept for the versions after it (tests/upgrades).
"""

import argparse
import re
import sys
from pathlib import Path

from tests.support.paths import ROOT

_HEAD = re.compile(r"^## (\S+) \(([^)]*)\)$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def notes(changelog: str, version: str) -> tuple[str, str]:
    """A version's date and lines; both empty where it has none."""
    heads = list(_HEAD.finditer(changelog))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        if head[1] == version:
            return head[2], changelog[head.end() : following.start() if following else None].strip()
    return "", ""


def problems(tree: Path, tag: str) -> list[str]:
    """Why this tag is not to be released."""
    version = tag.removeprefix("v")
    found = []
    for path, pattern in (
        ("swarmd/__init__.py", r'^__version__ = "([^"]*)"'),
        ("pyproject.toml", r'^version = "([^"]*)"'),
    ):
        told = re.search(pattern, (tree / path).read_text(), re.MULTILINE)
        if told is None or told[1] != version or not tag.startswith("v"):
            found.append(f"{path} says {told[1] if told else 'no version'}; the tag is {tag}")
    date, lines = notes((tree / "CHANGELOG.md").read_text(), version)
    if not _DATE.fullmatch(date):
        found.append(f"CHANGELOG.md: '## {version} ({date or '…'})' has no date")
    if "- " not in lines:
        found.append(f"CHANGELOG.md says nothing of {version}")
    if not (tree / "tests/upgrades" / version).is_dir():
        found.append(f"tests/upgrades/{version} is not there: python -m tests.support.upgrade writes it")
    return found


def main() -> int:
    """Print the notes; 1, and why, where the tag is not to be released."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag")
    parser.add_argument("--tree", type=Path, default=ROOT)
    arguments = parser.parse_args()
    if found := problems(arguments.tree, arguments.tag):
        print("\n".join(f"release {arguments.tag}: {text}" for text in found), file=sys.stderr)
        return 1
    print(notes((arguments.tree / "CHANGELOG.md").read_text(), arguments.tag.removeprefix("v"))[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
