"""The daemon's side of a plug-in: what it prints without end, and what it leaves."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from swarmd.bridges.plugins import bridge as module
from swarmd.bridges.plugins.bridge import PluginBridge
from swarmd.errors import PluginError
from tests.support.mutants import assert_found

LIMIT_S = 60
ORPHANS = """
import os, subprocess, sys, time, swarmd
swarmd.connect = lambda control: None

CHILD = (
    "import pathlib, select, sys; held = select.poll(); held.register(1, 0); pathlib.Path(sys.argv[1]).touch(); "
    "held.poll(); pathlib.Path(sys.argv[1]).unlink()"
)
SILENT = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"

def leaves_a_child(node, options):
    subprocess.Popen([sys.executable, "-c", CHILD, options["there"]], start_new_session=True)
    while not os.path.exists(options["there"]):
        time.sleep(0.01)
    raise ValueError("gone")

def leaves_a_silent_one(node, options):
    nothing = subprocess.DEVNULL
    child = subprocess.Popen([sys.executable, "-c", SILENT], stdin=nothing, stdout=nothing, stderr=nothing)
    with open(options["there"] + "~", "w") as file:
        file.write(str(child.pid))
    os.rename(options["there"] + "~", options["there"])
    while options["ends"] == "later":
        time.sleep(1)
    if options["ends"] == "ill":
        os._exit(7)
"""


class FakeDaemon:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def command(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if verb == "note_problem":
            self.told.append(arguments["text"])
        return {"control": "nowhere"}


def check_flood() -> None:
    daemon: Any = FakeDaemon()
    bridge = PluginBridge("swarmd.bridges", "floods", {})

    async def flood() -> None:
        output = asyncio.StreamReader()
        output.feed_data(b"y\n" * 100_000 + b"why it fails\n")
        output.feed_eof()
        await bridge._listen(output, daemon)

    asyncio.run(flood())
    assert bridge.counters()["lines"] == 100_001
    assert len(daemon.told) < 100
    assert daemon.told[-1] == "why it fails"


@pytest.fixture
def floods(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("floods", "hostile:floods", "swarmd.bridges")
    monkeypatch.setattr(module, "find", lambda group, name: entry)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)


@pytest.mark.usefixtures("floods")
def test_of_a_flood_of_lines_the_last_of_each_read_are_looked_at() -> None:
    check_flood()


def every_line_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 1 << 30)


@pytest.mark.usefixtures("floods")
def test_a_daemon_that_looks_at_every_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(every_line_is_looked_at, check_flood, monkeypatch)


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two plug-ins that leave something behind."""
    info = tmp_path / "acme_orphans-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-orphans\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(
        "[swarmd.bridges]\norphans = acme_orphans:leaves_a_child\nsilent = acme_orphans:leaves_a_silent_one\n"
    )
    (tmp_path / "acme_orphans.py").write_text(ORPHANS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def check_children(folder: Path, ends: str, wait_s: float = LIMIT_S) -> None:
    """Whatever a plug-in has started and left is over with it, however it ends."""
    there, daemon = folder / f"there-{ends}", FakeDaemon()
    bridge = PluginBridge("swarmd.bridges", "silent", {"there": str(there), "ends": ends})
    pid = 0

    async def life() -> None:
        nonlocal pid
        running = asyncio.create_task(bridge.run(daemon))  # type: ignore[arg-type]
        async with asyncio.timeout(LIMIT_S):
            await until(there.exists)
            pid = int(there.read_text())
            if ends == "later":
                running.cancel()
            await asyncio.wait({running})
        try:
            async with asyncio.timeout(wait_s):
                await until(lambda: not lives(pid))
        except TimeoutError:
            pytest.fail("what the plug-in has left lives on")

    try:
        asyncio.run(life())
    finally:
        if pid and lives(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("ends", ["well", "ill", "later"])
def test_what_a_plugin_has_started_ends_with_it(ends: str, acme: Path) -> None:
    check_children(acme, ends)


def test_a_daemon_that_ends_the_plugin_alone_is_found(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module.os, "killpg", lambda group, number: None)

    assert_found(alone, lambda: check_children(acme, "well", 0.2), monkeypatch)


def test_a_plugin_has_ended_though_what_it_started_holds_its_output(acme: Path) -> None:
    there = acme / "there"
    daemon: Any = FakeDaemon()
    bridge = PluginBridge("swarmd.bridges", "orphans", {"there": str(there)})

    async def life() -> None:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(PluginError, match=r"ended with status 1: acme-orphans 2\.0 .* raised ValueError: gone"):
                await bridge.run(daemon)
            # The daemon has let the output go, so nothing piles up with each start; the child sees that.
            await until(lambda: not there.exists())

    asyncio.run(life())
    assert (bridge.row()["pid"], bridge.counters()["failures"]) == (None, 1)
