"""An observer that comes late, beside real daemons: it sees what happened before it began, and of who is gone that it
does not know.
"""

import time
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from tests.integration.test_ground_swarm import ORIGIN, GroundProcess
from tests.support.daemons import Daemon, wait_for

pytestmark = pytest.mark.slow


def losses(drone: Daemon) -> list[float]:
    """When members failed, by what a drone holds of it, UTC seconds since 1970."""
    return [row["at_ms"] / 1000 for row in drone.ask("events")["events"] if row["kind"] == "failed"]


def test_a_late_observer_scrubs_to_before_its_own_start(tmp_path: Path) -> None:
    began_s = time.time()
    drones = [Daemon(tmp_path, "drone-1", "--no-eye", "--set", ORIGIN).up()]
    address = drones[0].status()["address"]
    drones += [Daemon(tmp_path, f"drone-{at}", "--no-eye", "--set", ORIGIN, join=address).up() for at in (2, 3)]
    ground = GroundProcess(tmp_path, address)
    try:
        for one in drones:
            wait_for(lambda one=one: list(one.members().values()) == ["alive"] * 3, "everybody", seen=one.members)  # type: ignore[misc]
        # What is found before the observer comes is there at that moment too, and not before it was seen.
        finding = {"label": "hot-spot", "score": 0.9, "track": "x", "event": "new", "east_m": 3.0, "north_m": 4.0}
        drones[0].ask("observe", detections=[finding | {"covariance_m2": [0.01, 0.0, 0.01]}])
        drones[2].kill()
        wait_for(lambda: {one.members()["drone-3"] for one in drones[:2]} == {"failed"}, "the loss is seen")
        # A moment by the swarm's clock, which bears the events: this process's may be tens of milliseconds from it.
        failed_s = max(wait_for(lambda: [at_s for one in drones[:2] for at_s in losses(one)], "the loss is told"))
        ground.begin()
        started_s = time.time()

        def whole() -> dict[str, str]:
            peers = ground.get(f"history?from_s={began_s}&to_s={started_s}")["peers"]
            # Only that moment: a swarm that is alone on its machine has begun less than a second before it.
            return {one["name"]: one["what"] for one in peers if one["from_s"] < failed_s < one["to_s"]}

        wait_for(
            lambda: whole() == {"drone-1": "whole", "drone-2": "whole", "drone-3": "unreachable"},
            "what was before the observer came, and the gap",
            seen=lambda: f"{whole()} {ground.log()}",
        )
        line = ground.get(f"timeline?from_s={began_s}")
        assert line["fetched"], "the timeline goes back to before the observer's start"
        assert line["fetched"][0][0] < failed_s < started_s
        assert line["covered"][0][0] >= failed_s, "which it did not see itself"
        assert any("failed drone-3" in mark["text"] for mark in line["marks"]), line["marks"]
        assert {one["what"] for one in line["peers"] if one["name"] == "drone-3"} == {"unreachable"}
        then = ground.get(f"snapshot?at_s={failed_s}")["rows"]
        states = {row["name"]: row["state"] for row in then["member"]}
        assert {name: states[name] for name in ("drone-1", "drone-2")} == {"drone-1": "alive", "drone-2": "alive"}
        assert states.get("drone-3") == "failed", "by the word of who saw it"
        wait_for(lambda: ground.rows("object"), "the object, by the swarm's word")
        then = ground.get(f"snapshot?at_s={failed_s}")["rows"]
        assert [(row["label"], row["observers"]) for row in then["object"]] == [("hot-spot", ["drone-1"])]
        assert ground.get(f"snapshot?at_s={then['object'][0]['first_seen_s'] - 0.1}")["rows"]["object"] == []
        kinds = {(row["origin"], row["kind"]) for row in then["event"]}
        assert ("drone-1", "joined") in kinds, "what a node told nobody when it happened"
        told = ground.ask("events", since_ms=int(began_s * 1000), origin="drone-2")["events"]
        assert {"joined", "started"} <= {row["kind"] for row in told}, "the same on the command line"
        assert len({row["id"] for row in told}) == len(told), "an event that was heard and fetched is one"
        changes = ground.get(f"history?from_s={began_s}&to_s={started_s}&kind=event,member")
        assert [one["at_s"] for one in changes["changes"]] == sorted(one["at_s"] for one in changes["changes"])
        assert any(one["kind"] == "member" for one in changes["changes"])
    finally:
        for one in (ground, *drones):
            one.close()
