"""What is over, in the ground view: simulations as a node of them saw it, and daemons' recordings."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.api.daemon import NodePosition, PositionSeen
from swarmd.bridges.record.bridge import RecordBridge
from swarmd.bridges.record.reading import Recording
from swarmd.config.bridges import RecordConfig
from swarmd.errors import DaemonError
from swarmd.ground.recording import RecordingFile, open_recording
from swarmd.ground.rows import Change, Mark, Site
from swarmd.ground.simulated import SimulationFeed
from swarmd_protocols.effects import MemberState, StateChanged
from swarmd_protocols.state.observations import ReviewView
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import ThumbLearned
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.support.bridge_world import ALICE, BOB, World, happened, pose
from tests.support.thumb_pictures import jpeg

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def rows_at(ground: Any, at_s: float) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join(asyncio.run(_get(ground.past.at(at_s)))))["rows"]
    return found


async def _get(answer: Any) -> Any:
    return await answer


def test_looking_at_a_simulation_changes_nothing_and_shows_its_cut(tmp_path: Path) -> None:
    scenario = load_scenario("partition-heal")
    plain = Simulation(scenario, 7, Options()).run()
    feeds: list[SimulationFeed] = []
    changes: list[Change] = []
    marks: list[Mark] = []
    files: list[RecordingFile] = []

    def look(simulation: Simulation) -> Any:
        feed = SimulationFeed(simulation, 0)
        file = RecordingFile(tmp_path / "run.mcap", feed.site())

        def on_change(change: Change) -> None:
            changes.append(change)
            file.change(change)

        def on_mark(mark: Mark) -> None:
            marks.append(mark)
            file.mark(mark)

        feed.begin(on_change, on_mark)
        feeds.append(feed)
        files.append(file)
        return feed.look

    watched = Simulation(scenario, 7, Options(look=look)).run()
    files[0].close()
    assert watched.figures["trace_digest"] == plain.figures["trace_digest"]
    assert [change.seq for change in changes] == list(range(1, len(changes) + 1))

    ground = open_recording(tmp_path / "run.mcap", tmp_path / "history.sqlite")
    try:
        assert ground.site.mode == "recording"
        assert ground.site.assets
        assert ground.ended_s == changes[-1].at_s
        cut = next(mark for mark in marks if mark.lane == "events" and "partition" in mark.text)
        before = {row["name"]: row["state"] for row in rows_at(ground, cut.at_s - 1)["member"]}
        assert set(before.values()) == {"alive"}
        assert len(before) == 16
        during = {row["name"]: row["state"] for row in rows_at(ground, cut.at_s + 12)["member"]}
        assert "failed" in during.values()
        after = {row["name"]: row["state"] for row in rows_at(ground, ground.ended_s)["member"]}
        assert set(after.values()) == {"alive"}
        # Whoever is not heard stays where it was heard last.
        lost = {name for name, state in during.items() if state == "failed"}
        places = {row["name"]: row["at_s"] for row in rows_at(ground, cut.at_s + 12)["position"]}
        assert all(places[name] < cut.at_s + 12 for name in lost)
        told = asyncio.run(_get(ground.past.history(0.0, 1e12, (), "", 2_000)))
        assert [change.at_s for change in told.changes] == [change.at_s for change in changes[: len(told.changes)]]
    finally:
        ground.past.close()


def test_the_command_records_and_refuses_what_cannot_be(tmp_path: Path) -> None:
    file, scenario = tmp_path / "run.mcap", tmp_path / "small.toml"
    scenario.write_text('title = "small"\n[swarm]\nnodes = 4\nseconds = 30\n[checks]\nsettle_s = 10\n')
    command = [sys.executable, "-m", "swarmd", "sim", "run", str(scenario)]
    done = subprocess.run([*command, "--record", str(file)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    ground = open_recording(file, tmp_path / "history.sqlite")
    assert len(rows_at(ground, ground.ended_s or 0.0)["member"]) == 4
    ground.past.close()
    again = subprocess.run([*command, "--record", str(file)], capture_output=True, text=True, timeout=200)
    assert again.returncode == 1
    assert "choose another file" in again.stderr
    nobody = subprocess.run(
        [*command, "--record", str(tmp_path / "b.mcap"), "--seen-by", "4"], capture_output=True, text=True, timeout=200
    )
    assert nobody.returncode == 1
    assert "the hosts are 0 to 3" in nobody.stderr


async def test_a_daemons_recording_is_shown(tmp_path: Path) -> None:
    """`swarmd record`, profile ros2: who was there, where, what was found, what happened."""
    world = World()
    bridge = RecordBridge(RecordConfig(profile="ros2"), tmp_path / "run.mcap")
    bridge.open(world)
    task = asyncio.create_task(bridge.run(world))
    while not world.callbacks:
        await asyncio.sleep(0.01)
    world.say(pose())
    world.say(PositionSeen(BOB, "bob", NodePosition(BOB, -18.88, -70.11, 30.0, 1.0, 0.5, 700, 1)))
    world.say(PositionSeen(BOB, "bob", None))
    world.say(happened())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    ground = await asyncio.to_thread(open_recording, tmp_path / "run.mcap", tmp_path / "history.sqlite")
    try:
        rows = json.loads(b"".join(await ground.past.at(ground.ended_s or 0.0)))["rows"]
        assert (ground.site.mode, ground.site.seen_by) == ("recording", "alice")
        states = {row["name"]: row["state"] for row in rows["member"]}
        assert states == {"alice": "alive", "bob": MemberState.FAILED.value}
        places = {row["name"]: row for row in rows["position"]}
        assert places["alice"]["has_fix"]
        assert not places["bob"]["has_fix"]
        assert places["bob"]["id"] == "bob"
        thing = rows["object"][0]
        assert (thing["label"], thing["east_m"], thing["north_m"]) == ("hot-spot", 10.0, 20.0)
        assert [cell["state"] for cell in rows["cell"]] == ["done"]
        assert [event["kind"] for event in rows["event"]] == ["failed"]
        assert ALICE.hex() not in places
    finally:
        ground.past.close()


async def test_a_daemons_recording_shows_pictures_and_reviews(tmp_path: Path) -> None:
    """Of objects that name a picture: asked for, written once, checked again when it is read."""
    world, (first, second) = World(), (jpeg(1), jpeg(2))
    world.keeps_thumbs = True
    said = ReviewView("alice", "1f2e3d4c", "relabel", "crack", "hot-spot", 1_790_000_000_000, 1, b"d" * 32, b"")
    seen = msgspec.structs.replace(world.views[0], thumb=name_of(first), review="relabelled", reviews=(said,))
    world.views = [seen, msgspec.structs.replace(seen, object_id="o2", review="", reviews=())]
    bridge = RecordBridge(RecordConfig(profile="ros2"), tmp_path / "run.mcap")
    bridge.open(world)
    task = asyncio.create_task(bridge.run(world))
    while not world.asked:
        await asyncio.sleep(0.01)
    world.say(StateChanged("thumbs", ThumbLearned(name_of(first), second)))  # Not what its name says.
    for _ in range(3):
        world.say(StateChanged("thumbs", ThumbLearned(name_of(first), first)))
    world.say(StateChanged("thumbs", ThumbLearned(name_of(second), second)))  # Nobody here asked for it.
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bridge.problem == ""
    written = [channel.topic for _, channel, _ in Recording(tmp_path / "run.mcap").messages()]
    assert written.count("/swarm/thumbs") == 2, "one of each object"

    ground = await asyncio.to_thread(open_recording, tmp_path / "run.mcap", tmp_path / "history.sqlite")
    try:
        rows = json.loads(b"".join(await ground.past.at(ground.ended_s or 0.0)))["rows"]["object"]
        name = name_of(first).hex()
        assert {row["id"]: row["thumb"] for row in rows} == {"o1": name, "o2": name}
        assert await ground.thumb(name, 1.0) == first
        with pytest.raises(DaemonError, match="no picture"):
            await ground.thumb(name_of(second).hex(), 1.0)
        reviewed, plain = sorted(rows, key=lambda row: str(row["id"]))
        assert (reviewed["tier"], reviewed["review"], plain["tier"]) == ("reviewed", "relabelled", "candidate")
        assert [(one["operator"], one["verdict"], one["text"]) for one in reviewed["reviews"]] == [
            ("alice", "relabel", "crack")
        ]
    finally:
        ground.past.close()


def test_what_is_no_recording_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.mcap").write_bytes(b"not a recording")
    with pytest.raises(DaemonError, match="no MCAP"):
        open_recording(tmp_path / "a.mcap", tmp_path / "1.sqlite")
    with pytest.raises(DaemonError, match="cannot read"):
        open_recording(tmp_path / "missing.mcap", tmp_path / "2.sqlite")
    site = Site("live", "x", "x", "0", None, None, [])
    RecordingFile(tmp_path / "empty.mcap", site).close()
    with pytest.raises(DaemonError, match="holds nothing"):
        open_recording(tmp_path / "empty.mcap", tmp_path / "3.sqlite")


def test_a_strangers_recording_is_rows_or_refused(tmp_path: Path) -> None:
    """What a file says reaches the page in the shape of a row or not at all."""
    site = Site("live", "x", "x", "0", None, None, [])
    for number, row in enumerate((b'{"id":"a"}', b'{"id":"a","name":[1]}', b"[]", b'"x"')):
        file = RecordingFile(tmp_path / f"{number}.mcap", site)
        file.change(Change(1, 5.0, "member", "a", msgspec.Raw(row)))
        file.close()
        with pytest.raises(DaemonError, match="cannot be read"):
            open_recording(tmp_path / f"{number}.mcap", tmp_path / f"{number}.sqlite")
