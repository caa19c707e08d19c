"""The ROS 2 node of `examples/ros2`: its decisions on what a real daemon publishes; the node itself where rclpy is."""

import ast
import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import swarmd
from tests.support.daemons import Start
from tests.support.paths import ROOT

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.participant import Ros2Participant

PACKAGE = ROOT / "examples/ros2/swarm_goal"


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The node's decisions, as the package has them."""
    monkeypatch.syspath_prepend(PACKAGE)
    from swarm_goal import goals  # type: ignore[import-not-found]

    yield goals
    for name in [name for name in sys.modules if name.partition(".")[0] == "swarm_goal"]:
        del sys.modules[name]


async def test_what_a_real_daemon_publishes_becomes_goals(start: Start, dds_domain: int, goals: Any) -> None:
    pictures: list[m.Detection3DArray] = []
    reader = Ros2Participant(dds_domain, "goal_reader", "lo")
    reader.reader("rt/swarm/objects", m.Detection3DArray, pictures.append, depth=10)
    reader.start(asyncio.get_running_loop(), lambda text: None)
    flags = ("--set", "dds.enabled=true", "--set", f"dds.domain={dds_domain}", "--set", "dds.interface=lo")
    a = await asyncio.to_thread(start("a", "--no-eye", "--set", "node.origin=48.0,11.0", *flags).up)
    node = swarmd.connect(a.control)
    chosen, told = goals.Goals(), []

    async def until(count: int) -> None:
        async with asyncio.timeout(60):
            while len(told) < count:
                await asyncio.sleep(0.05)
                while pictures:
                    told.extend(chosen.new(pictures.pop(0), "person", 0.5))

    try:
        node.observe([
            swarmd.Sighting(label="dog", score=0.9, east_m=30.0, north_m=4.0, track="d"),
            swarmd.Sighting(label="person", score=0.2, east_m=90.0, north_m=4.0, track="q"),
            swarmd.Sighting(label="person", score=0.9, east_m=3.0, north_m=5.0, track="p"),
        ])  # fmt: skip
        await until(1)
        node.observe([swarmd.Sighting(label="person", score=0.8, east_m=60.0, north_m=-7.0, track="r")])
        await until(2)
    finally:
        reader.close()
    assert [(goal.frame, round(goal.east_m, 3), round(goal.north_m, 3)) for goal in told] == [
        ("map", 3.0, 5.0), ("map", 60.0, -7.0),
    ]  # fmt: skip
    assert {goal.object_id for goal in told} <= {thing.id for thing in node.objects()}


def picture(*found: tuple[str, str, float]) -> Any:
    """A picture of objects: id, label, score."""
    at = SimpleNamespace(center=SimpleNamespace(position=SimpleNamespace(x=1.0, y=2.0)))
    rows = []
    for one, label, score in found:
        best = SimpleNamespace(hypothesis=SimpleNamespace(class_id=label, score=score))
        rows.append(SimpleNamespace(id=one, bbox=at, results=[best]))
    return SimpleNamespace(header=SimpleNamespace(frame_id="map"), detections=rows)


def test_a_goal_is_told_once_and_again_when_it_comes_back(goals: Any) -> None:
    chosen = goals.Goals()

    def told(*found: tuple[str, str, float]) -> list[str]:
        return [goal.object_id for goal in chosen.new(picture(*found), "person", 0.5)]

    assert told(("a", "person", 0.9), ("b", "dog", 0.9), ("c", "person", 0.4)) == ["a"]
    assert told(("a", "person", 0.9), ("c", "person", 0.6)) == ["c"], "once it is sure enough"
    assert told(("c", "person", 0.1), ("a", "person", 0.9)) == []
    assert told() == []
    assert chosen._told == set(), "what the swarm has forgotten is not remembered here"
    assert told(("a", "person", 0.9)) == ["a"]
    empty = picture(("x", "person", 0.9))
    empty.detections[0].results = []
    assert chosen.new(empty, "person", 0.5) == []


def test_what_the_node_imports_is_what_the_package_asks_for() -> None:
    tree = ast.parse((PACKAGE / "swarm_goal/node.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    needs = {str(one.text) for one in ElementTree.parse(PACKAGE / "package.xml").getroot().iter("exec_depend")}
    assert {name.partition(".")[0] for name in imported} - {"swarm_goal"} == needs
    assert (PACKAGE / "resource/swarm_goal").exists()


ROS2 = ROOT / ".venv-extras/ros2"


def begun(domain: int, folder: Path, *parameters: str) -> "subprocess.Popen[bytes]":
    """The node in ROS 2's own client library, over its default middleware."""
    site = next(ROS2.glob("lib/python3*/site-packages"), ROS2)
    if not (site / "vision_msgs").is_dir():
        pytest.skip("ROS 2 is not here (make setup-extras; x86-64 with g++ and Python's headers)")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CYCLONEDDS"))}
    environment |= {
        "ROS_DOMAIN_ID": str(domain), "ROS_LOG_DIR": str(folder / "ros"), "AMENT_PREFIX_PATH": str(ROS2),
        "LD_LIBRARY_PATH": str(ROS2 / "lib"), "PYTHONPATH": str(PACKAGE), "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    words = [word for parameter in parameters for word in ("-p", parameter)]
    with (folder / "node.log").open("wb") as log:
        command = [str(ROS2 / "bin/python"), "-m", "swarm_goal.node", "--ros-args", *words]
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)


async def test_the_node_itself_hears_a_real_daemon_and_says_goals(
    start: Start, dds_domain: int, tmp_path: Path
) -> None:
    """rclpy of ROS 2 Kilted on Fast DDS 3, with types by ROS 2's own generators; nothing of it is ours but the node."""
    poses: list[m.PoseStamped] = []
    reader = Ros2Participant(dds_domain, "pose_reader", "lo")
    reader.reader("rt/goal_pose", m.PoseStamped, poses.append, depth=10)
    reader.start(asyncio.get_running_loop(), lambda text: None)
    process = begun(dds_domain, tmp_path, "label:=person", "min_score:=0.6")
    try:
        flags = ("--set", "dds.enabled=true", "--set", f"dds.domain={dds_domain}", "--set", "dds.interface=lo")
        a = await asyncio.to_thread(start("a", "--no-eye", "--set", "node.origin=48.0,11.0", *flags).up)
        node = swarmd.connect(a.control)
        for turn in range(1, 600):  # Who listens for poses may be found later than the first goal is told.
            seen = {"score": 0.9, "east_m": 50.0 * turn, "north_m": -7.0}
            node.observe([
                swarmd.Sighting(label="person", track=f"p{turn}", **seen),
                swarmd.Sighting(label="dog", track=f"d{turn}", **seen),
                swarmd.Sighting(label="person", track=f"q{turn}", score=0.55, east_m=50.0 * turn, north_m=900.0),
            ])  # fmt: skip
            await asyncio.sleep(0.1)
            assert process.poll() is None, (tmp_path / "node.log").read_text()
            if len(poses) >= 3:
                break
    finally:
        reader.close()
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    log = (tmp_path / "node.log").read_text()
    assert code == 0, log
    assert len(poses) >= 3, log
    assert {pose.header.frame_id for pose in poses} == {"map"}
    places = [pose.pose.position for pose in poses]
    assert all(at.x % 50.0 == 0.0 and at.y == -7.0 for at in places), log
    assert len({at.x for at in places}) == len(places), "each once"
