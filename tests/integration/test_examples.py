"""The examples against what they are for: a real daemon and broker, an autopilot's link, the simulator."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import swarmd
from tests.support.bridge_world import broker, mosquitto_binary
from tests.support.daemons import Start
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
ORIGIN = (48.0, 11.0)


def begun(*command: object) -> "subprocess.Popen[str]":
    line = [sys.executable, *map(str, command)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")
def test_a_switch_goes_on_when_a_person_is_seen(start: Start, tmp_path: Path) -> None:
    with broker(tmp_path) as server:
        process = begun(EXAMPLES / "mqtt_automation.py", "person", "yard/light/set", "127.0.0.1", server.port)
        try:
            flags = ("--set", "mqtt.enabled=true", "--set", f"mqtt.port={server.port}")
            a = start("a", "--no-eye", *flags).up()
            node = swarmd.connect(a.control)
            node.observe([swarmd.Sighting(label="dog", east_m=30.0, north_m=4.0, track="d")])
            node.observe([swarmd.Sighting(label="person", east_m=3.0, north_m=4.0, track="p")])
            assert process.stdout is not None
            assert process.stdout.readline() == "ON\n"
            command = [
                "mosquitto_sub",
                "-V",
                "5",
                "-p",
                str(server.port),
                "-t",
                "yard/light/set",
                "-C",
                "1",
                "-W",
                "60",
            ]
            heard = subprocess.run([*command, "-v"], capture_output=True, text=True, check=True).stdout
            assert heard == "yard/light/set ON\n"
        finally:
            ended(process)


def test_the_vehicle_is_sent_above_what_was_seen(start: Start) -> None:
    mavutil = pytest.importorskip("pymavlink.mavutil", reason="pymavlink is not installed (extra mavlink)")
    a = start("a", "--no-eye", "--set", f"node.origin={ORIGIN[0]},{ORIGIN[1]}").up()
    vehicle = mavutil.mavlink_connection("udpin:127.0.0.1:0", source_system=1, source_component=1)
    port = vehicle.port.getsockname()[1]
    place = ",".join(map(str, ORIGIN))
    process = begun(EXAMPLES / "mission.py", "person", place, f"udpout:127.0.0.1:{port}", a.control)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting for person\n"
        node = swarmd.connect(a.control)
        node.observe([swarmd.Sighting(label="dog", east_m=30.0, north_m=4.0, track="d")])
        node.observe([swarmd.Sighting(label="person", latitude_deg=48.001, longitude_deg=11.002, track="p")])
        order = vehicle.recv_match(type="COMMAND_INT", blocking=True, timeout=60)
        assert order is not None
        assert order.command == mavutil.mavlink.MAV_CMD_DO_REPOSITION
        # A millionth of a degree is a decimetre; the daemon's plane and the example's differ by less at this distance.
        assert (order.x / 1e7, order.y / 1e7, order.z) == (
            pytest.approx(48.001, abs=1e-5),
            pytest.approx(11.002, abs=1e-5),
            20.0,
        )
    finally:
        ended(process)
        vehicle.close()


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs_and_its_plots_are_pictures() -> None:
    shown: list[Any] = []
    names: dict[str, Any] = {}
    for cell in json.loads((EXAMPLES / "sweep.ipynb").read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "kept without its outputs"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):  # What a notebook shows.
            exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
        else:
            exec(compile(tree, "cell", "exec"), names)
    table, *plots = shown
    assert [row[0] for row in table] == names["LOSSES"]
    assert all(row[1] > 0 for row in table)
    assert len(plots) == 2
    for plot in plots:
        assert ElementTree.fromstring(plot._repr_svg_()).tag.endswith("svg")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("mqtt_automation.py",), "give a label and the topic of a switch"),
        (("mqtt_automation.py", "x", "y", "127.0.0.1", "1"), "no broker answers"),
        (("mission.py", "person"), "LATITUDE,LONGITUDE of node.origin"),
        (("mission.py", "person", "here", "udpout:127.0.0.1:1"), "here is no LATITUDE,LONGITUDE"),
    ],
)
def test_an_example_says_what_it_lacks(command: tuple[str, ...], sentence: str) -> None:
    line = [sys.executable, str(EXAMPLES / command[0]), *command[1:]]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
