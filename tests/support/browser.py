"""A real browser for tests of pages, driven over its own protocol by Playwright; it speaks to this machine only."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.daemons import PATIENCE_S
from tests.support.ground import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--js-flags=--expose-gc")
"""Without a GPU, as many ground stations are; as root Chromium has no sandbox of its own."""


@dataclass(slots=True)
class Seen:
    """What the browser said while a page was open."""

    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for."""
    complaints: list[str] = field(default_factory=list)
    """Errors of scripts, and what the policy refused."""


@contextlib.contextmanager
def chromium() -> "Iterator[Browser]":
    """The browser that Debian ships."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(
    browser: "Browser", url: str, scheme: str = "dark", width: int = 1440, height: int = 900
) -> "Iterator[tuple[Page, Seen]]":
    """A page in a window of its own."""
    size: Any = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme="dark" if scheme == "dark" else "light")
    page, seen = context.new_page(), Seen()
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("console", lambda said: seen.complaints.append(said.text) if said.type == "error" else None)
    page.goto(url)
    try:
        yield page, seen
    finally:
        context.close()


def until(page: "Page", expression: str, what: str, seconds: float = PATIENCE_S) -> Any:
    """Poll an expression until it is true; `wait_for_function` would need an `eval` that the page's policy refuses."""
    deadline = time.monotonic() + seconds
    while not (found := page.evaluate(expression)):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}; the page says: {text(page)[:600]}"
        page.wait_for_timeout(50)
    return found


def has(page: "Page", words: str, seconds: float = PATIENCE_S) -> None:
    """Wait until the page says so."""
    deadline = time.monotonic() + seconds
    while words not in text(page):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {words!r}; the page says: {text(page)[:900]}"
        page.wait_for_timeout(50)


def text(page: "Page") -> str:
    """What a person reads, in one line."""
    return " ".join(str(page.inner_text("body")).split())


def picture(page: "Page", folder: Path, name: str) -> None:
    """Keep a picture for a person to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(folder / f"{name}.png"))


def seconds_of(work: Callable[[], object]) -> float:
    """How long something took."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
