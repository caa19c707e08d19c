"""Each tutorial as a newcomer types it: every block of commands runs, and what the page says comes is what comes.

A block whose title says "leave it running" stays until the tutorial ends. A page's `text` block stands below the
commands that print it: each of its lines must be found in the output, in this order, `…` being anything. What needs a
moment (a daemon that starts) is typed again, as a person would. Installation is what `.ci/run` has done already
(`tests/packaging/test_wheel.py` holds what is installed); of it only the extras' names are held here.
`make bench-tutorials` types the same pages, installation included, on a bare Debian.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exclusive import own_name
from tests.support.namespaces import marks
from tests.support.paths import ROOT
from tests.support.tutorials import PAGES, blocks, shows

pytestmark = marks(timeout_s=600)
_EXTRAS = re.compile(r"swarmd\[([\w,]+)\]")
_PATIENCE_S = 120.0
"""Seconds until what a page promises must have come, on a machine that does much else."""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """A network of its own, so that the ports of the pages are free; the prefix of a command that runs in it."""
    name = own_name("t")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up", "multicast", "on"], check=True)
        subprocess.run(["ip", "-n", name, "route", "add", "default", "dev", "lo"], check=False, capture_output=True)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_does_what_the_page_says(
    page: Path, device: tuple[str, ...], tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    places = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
    environment = os.environ | {"PATH": ":".join(places), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    stay: list[subprocess.Popen[bytes]] = []

    def typed(commands: str) -> str:
        line = [*device, "bash", "-e", "-o", "pipefail", "-c", commands]
        run = subprocess.run(
            line,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return run.stdout if run.returncode == 0 else f"exit {run.returncode}\n{run.stdout}"

    try:
        for block in blocks(page):
            if block.title == "install":
                _extras_exist(block.commands)
            elif block.title == "with ROS 2" and shutil.which("ros2") is None:
                continue  # A fact about this machine; test_ros2_bridge.py reads the topics as ROS 2 does.
            elif "leave it running" in block.title:
                line = [*device, "bash", "-c", f"exec {block.commands.strip()}"]
                with (tmp_path / f"terminal-{len(stay)}.log").open("w") as log:
                    stay.append(
                        subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=log, stderr=log, text=True)
                    )
            else:
                until_s = time.monotonic() + _PATIENCE_S
                while (said := typed(block.commands)).startswith("exit ") or not shows(said, block.expected):
                    logs = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("terminal-*.log")))
                    in_time = bool(stay) and time.monotonic() < until_s
                    assert in_time, f"{block.commands}\nsaid:\n{said[-4000:]}\n{logs}"
                    assert all(process.poll() is None for process in stay), logs
                    time.sleep(1.0)
    finally:
        for process in reversed(stay):
            process.send_signal(signal.SIGTERM)
        for process in stay:
            process.wait(timeout=60)


def _extras_exist(commands: str) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in _EXTRAS.findall(commands):
        assert set(names.split(",")) <= known.keys()


def test_what_a_page_promises_is_looked_for() -> None:
    said = "drone-1 alive\ndrone-2 alive 3 ms\n/swarm/objects  x Detection3DArray\n"
    assert shows(said, ("…drone-2…alive…", "…/swarm/objects…Detection3DArray…"))
    assert not shows(said, ("…/swarm/objects…", "…drone-2…")), "in this order"
    assert not shows(said, ("…drone-3…",))


def test_each_page_is_read_whole() -> None:
    assert {page.stem for page in PAGES} == {"autopilot", "laptop", "mqtt", "ros2"}
    for page in PAGES:
        found = blocks(page)
        assert any(block.expected for block in found), f"{page.name} says of no command what comes of it"
        assert page.read_text().count("```") == 2 * (len(found) + sum(bool(block.expected) for block in found))
