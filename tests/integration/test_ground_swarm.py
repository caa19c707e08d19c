"""`swarmd ground` beside real daemons on loopback: it joins as a member without an eye and shows who is heard."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from tests.support.daemons import PATIENCE_S, Daemon, Running, wait_for

pytestmark = pytest.mark.slow
ORIGIN = "node.origin=48.0,11.0"


class GroundProcess(Running):
    """One `swarmd ground`."""

    def __init__(self, folder: Path, join: str, *flags: str) -> None:
        super().__init__("laptop", folder / "laptop.sock", folder / "laptop.out", folder / "laptop.err")
        self.command = [
            sys.executable, "-m", "swarmd", "ground", "--page", "127.0.0.1:0", "--dev-fleet", str(folder / "fleet"),
            "--name", "laptop", "--listen", "127.0.0.1:0", "--state", str(folder / "laptop"), "--control",
            str(self.control), "--join", join, "--set", ORIGIN, *flags,
        ]  # fmt: skip
        self.port = 0

    def begin(self) -> "GroundProcess":
        before = self.out.read_text().count("\n") if self.out.exists() else 0
        self.spawn(self.command)
        lines = wait_for(
            lambda: self.out.read_text().splitlines()[before:] or not self.alive, "the page", seen=self.log
        )
        assert self.alive, self.log()
        self.port = int(lines[0].rstrip("/").rpartition(":")[2])
        return self

    def get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", f"/api/v1/{path}")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, body
        return json.loads(body)

    def rows(self, kind: str) -> list[Any]:
        found: list[Any] = self.get("snapshot")["rows"][kind]
        return found

    def when(self, wanted: dict[str, str]) -> float:
        """The moment of a picture that shows the members in these states; 0 where it does not."""
        told = self.get("snapshot")
        return told["at_s"] if {row["name"]: row["state"] for row in told["rows"]["member"]} == wanted else 0.0

    def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.rows("member")}


@pytest.fixture
def drones(tmp_path: Path) -> Iterator[list[Daemon]]:
    first = Daemon(tmp_path, "drone-1", "--no-eye", "--set", ORIGIN).up()
    second = Daemon(tmp_path, "drone-2", "--no-eye", "--set", ORIGIN, join=first.status()["address"]).up()
    yield [first, second]
    for one in (first, second):
        one.close()


def test_it_joins_and_shows_what_it_knows_and_what_was(tmp_path: Path, drones: list[Daemon]) -> None:
    cells = tmp_path / "cells.csv"
    cells.write_text("cell_id,east_m,north_m\nc1,1,2\nc2,11,2\n")
    ground = GroundProcess(tmp_path, drones[0].status()["address"], "--set", f"claims.cells={cells}")
    try:
        ground.begin()
        everybody = {"drone-1": "alive", "drone-2": "alive", "laptop": "alive"}
        wait_for(lambda: ground.states() == everybody, "everybody", seen=ground.states)
        assert ground.get("site")["seen_by"] == "laptop"
        assert ground.get("site")["latitude_deg"] == 48.0
        assert [cell["id"] for cell in ground.rows("cell")] == ["c1", "c2"]
        wait_for(lambda: drones[0].members().get("laptop") == "alive", "the observer is a member")
        row = next(row for row in drones[0].ask("members")["members"] if row["name"] == "laptop")
        assert row["capability"] == "observer"

        # What the swarm finds is shown, and who found it.
        finding: dict[str, Any] = {"label": "hot-spot", "score": 0.9, "track": "x", "event": "new"}
        finding |= {"east_m": 3.0, "north_m": 4.0, "covariance_m2": [0.01, 0.0, 0.01]}
        drones[0].ask("observe", detections=[finding])
        thing = wait_for(lambda: ground.rows("object"), "the object")[0]
        assert (thing["label"], thing["observers"], thing["tier"]) == ("hot-spot", ["drone-1"], "confirmed")
        assert [one["node"] for one in ground.get(f"objects/{thing['id']}/evidence")] == ["drone-1"]

        # A member that was stopped for a moment is suspected for a moment.
        before_s = wait_for(lambda: ground.when(everybody), "a moment at which all are heard", seen=ground.states)
        drones[1].kill(signal.SIGKILL)
        wait_for(lambda: ground.states()["drone-2"] == "failed", "the loss", seen=ground.states)
        lost = next(row for row in ground.rows("member") if row["name"] == "drone-2")
        assert before_s <= lost["since_s"] <= ground.get("snapshot")["at_s"]
        then = {row["name"]: row["state"] for row in ground.get(f"snapshot?at_s={before_s}")["rows"]["member"]}
        assert then == everybody
        assert any(mark["lane"] == "members" and "drone-2" in mark["text"] for mark in ground.get("timeline")["marks"])

        # The same in a terminal.
        top = [sys.executable, "-m", "swarmd", "top", "--once", "--control", str(ground.control)]
        told = subprocess.run(top, capture_output=True, text=True, timeout=60).stdout
        assert "2/3 heard   1 objects   0/2 cells done" in told
        assert "drone-2 is not heard; you see the side of laptop" in told

        # A new life knows the past of the one before, and the time between is a gap.
        assert ground.kill(signal.SIGTERM) == 0
        ground.begin()
        wait_for(lambda: ground.states().get("drone-1") == "alive", "the swarm again", seen=ground.states)
        then = {row["name"]: row["state"] for row in ground.get(f"snapshot?at_s={before_s}")["rows"]["member"]}
        assert then == everybody
        assert ground.get("timeline")["covered"][0][0] <= before_s
    finally:
        ground.close()


def test_a_port_that_is_taken_ends_it_before_it_joins(tmp_path: Path, drones: list[Daemon]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ground = GroundProcess(tmp_path, drones[0].status()["address"])
        ground.command[ground.command.index("--page") + 1] = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(ground.command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "choose another port" in done.stderr
    assert "laptop" not in drones[0].members()


def test_a_late_observer_knows_who_failed_before_it_came(tmp_path: Path, drones: list[Daemon]) -> None:
    third = Daemon(tmp_path, "drone-3", "--no-eye", "--set", ORIGIN, join=drones[0].status()["address"]).up()
    try:
        for one in drones:
            wait_for(lambda one=one: one.members().get("drone-3") == "alive", "the third", seen=one.members)
    finally:
        third.close()
    for one in drones:
        wait_for(lambda one=one: one.members().get("drone-3") == "failed", "its loss", seen=one.members)
    ground = GroundProcess(tmp_path, drones[0].status()["address"])
    try:
        ground.begin()
        everybody = {"drone-1": "alive", "drone-2": "alive", "drone-3": "failed", "laptop": "alive"}
        wait_for(lambda: ground.states() == everybody, "who was there before", seen=ground.states)
        lost = next(row for row in ground.rows("member") if row["name"] == "drone-3")
        assert lost["since_s"] is not None
    finally:
        ground.close()
