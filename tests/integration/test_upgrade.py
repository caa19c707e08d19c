"""A device of each earlier version, started with this one: its configuration, its journal, and its place in a swarm."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from swarmd import __version__
from tests.support import older, upgrade
from tests.support.daemons import PlainDaemon, all_see, wait_for

VERSIONS = sorted(path.name for path in upgrade.UPGRADES.iterdir() if path.is_dir())


def boot_of(folder: Path) -> int:
    """The node's boot number in its journal."""
    with sqlite3.connect(folder / "old" / "state" / "journal.sqlite") as base:
        (value,) = base.execute("select value from records where key = ?", (b"node/boot",)).fetchone()
    base.close()
    return int.from_bytes(value, "big")


def test_there_is_a_device_of_an_earlier_version() -> None:
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_its_configuration_holds(version: str) -> None:
    config = upgrade.UPGRADES / version / "swarmd.toml"
    command = [sys.executable, "-m", "swarmd", "check-config", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", VERSIONS)
def test_it_goes_on_from_its_journal_as_the_same_node(version: str, tmp_path: Path) -> None:
    told = upgrade.unpack(upgrade.UPGRADES / version, tmp_path)
    before = boot_of(tmp_path)
    old = upgrade.daemon(tmp_path).start()
    try:
        status = old.status()
        assert {key: status[key] for key in ("node", "node_id", "swarm")} == {
            key: told[key] for key in ("node", "node_id", "swarm")
        }
        assert status["version"] == __version__
        old.ask("observe", detections=[{"label": "crack", "score": 0.8, "east_m": 1.0, "north_m": 2.0}])
        wait_for(lambda: old.status()["detections"] >= 1, "a detection of the new version")
        assert not [path.name for path in (tmp_path / "old" / "state").iterdir() if "corrupt" in path.name]
        assert "journal_corrupt" not in old.log()
    finally:
        old.stop()
    assert boot_of(tmp_path) > before


class Renamed(PlainDaemon):
    """A daemon that says it is of another version of the same wire."""

    def __init__(self, folder: Path, version: str, *flags: str) -> None:
        super().__init__("other", folder / "other", ["--listen", "127.0.0.1:0", *flags])
        start = (
            f"import sys, swarmd; swarmd.__version__ = {version!r}; from swarmd.cli.main import main; sys.exit(main())"
        )
        at = self._command.index("-m")
        self._command[at : at + 2] = ["-c", start]


@pytest.mark.parametrize("version", VERSIONS)
def test_two_versions_of_one_wire_are_one_swarm(version: str, tmp_path: Path) -> None:
    upgrade.unpack(upgrade.UPGRADES / version, tmp_path)
    old = upgrade.daemon(tmp_path).start()
    other = Renamed(tmp_path, "9.9.9", "--dev-fleet", str(tmp_path / "fleet"), "--name", "other")
    try:
        other.start([old.address])
        all_see([old, other], {"old": "alive", "other": "alive"})
        shown = {row["name"]: row["version"] for row in old.ask("members")["members"]}
        assert shown == {"old": __version__, "other": "9.9.9"}
        old.ask("observe", detections=[{"label": "crack", "score": 0.8, "east_m": 1.0, "north_m": 2.0}])
        wait_for(lambda: other.status()["detections"] == old.status()["detections"] >= 1, "the same detections")
    finally:
        other.stop()
        old.stop()


def flags(folder: Path, name: str, listen: str = "127.0.0.1:0") -> list[str]:
    return ["--dev-fleet", str(folder / "fleet"), "--name", name, "--listen", listen]


def test_a_node_of_another_wire_is_named_and_the_swarm_goes_on(tmp_path: Path) -> None:
    """The newest program of another wire, at the address where a member was."""
    tree = older.lay_out(older.of_another_wire(), tmp_path / "tree")
    wire = older.wire_of(older.of_another_wire())
    one = PlainDaemon("one", tmp_path / "one", flags(tmp_path, "one")).start()
    two = PlainDaemon("two", tmp_path / "two", flags(tmp_path, "two")).start([one.address])
    (tmp_path / "elsewhere").mkdir()
    old = older.OlderDaemon(
        "two", tmp_path / "elsewhere" / "two", flags(tmp_path / "elsewhere", "two", two.address), tree
    )
    try:
        all_see([one, two], {"one": "alive", "two": "alive"})
        two.stop()
        old.start([one.address])
        (alert,) = wait_for(
            lambda: [row for row in one.status()["alerts"] if row["code"] == "wire-version"], "the alert", seen=one.log
        )
        assert f"two ({old.address}) speaks wire version {wire}; this node speaks" in alert["text"]
        assert one.status()["problems"] == [], "a warning: anybody can send such frames"
        all_see([one], {"one": "alive", "two": "left"})
        rows = one.ask("events", kinds=["alert-raised"], limit=10)["events"]
        assert "wire-version" in [row["subject"] for row in rows]
    finally:
        for daemon in (one, two, old):
            daemon.stop()
