"""A real browser for tests of pages, driven over its own protocol by Playwright; it speaks to this machine only."""

import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.daemons import PATIENCE_S
from tests.support.ground import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
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
    with browsers(()) as (one,):
        yield one


@contextlib.contextmanager
def browsers(*prefixes: Sequence[str]) -> "Iterator[list[Browser]]":
    """Several of it, each begun by a command such as "ip netns exec NAME"; Playwright has one driver a thread."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver, contextlib.ExitStack() as ends:
        found: list[Browser] = []
        for number, prefix in enumerate(prefixes):
            script = Path(folder) / f"chromium-{number}"
            script.write_text(f'#!/bin/sh\nexec {shlex.join((*prefix, str(CHROMIUM)))} "$@"\n')
            script.chmod(0o755)
            found.append(driver.chromium.launch(executable_path=script if prefix else CHROMIUM, args=list(FLAGS)))
            ends.callback(found[-1].close)
        yield found


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


def heap_bytes(page: "Page") -> int:
    """Of the page's script, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = int(session.send("Runtime.getHeapUsage")["usedSize"])
    session.detach()
    return used


def renderer_cpu_s() -> float:
    """CPU of all renderers of browsers that this process started."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"--type=renderer" in command and _is_ours(int(folder.name)):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        except (OSError, ValueError):
            continue
    return total / _TICKS_PER_S


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def seconds_of(work: Callable[[], object]) -> float:
    """How long something took."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
