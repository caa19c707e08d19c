"""What Home Assistant's own code says of our discovery messages.

The package is large and asks for a Python of its own: `make setup-extras` installs both, or SWARMD_HOMEASSISTANT_PYTHON
names an interpreter that has it.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from swarmd.bridges.mqtt.homeassistant import homeassistant_device, homeassistant_topic
from tests.support.bridge_world import World
from tests.support.paths import ROOT

JUDGE = Path(__file__).with_name("homeassistant_judge.py")
BASE = "swarm/v1/farm/node/alice"
STATES = {
    f"{BASE}/state": "online",
    f"{BASE}/summary": '{"objects": 3, "confirmed": 2, "members": 5, "alive": 4, "detections": 77}',
    f"{BASE}/telemetry": '{"lat": -18.5, "lon": -70.25, "height_agl_m": 20, "sigma_m": 1.5, "battery": 0.81}',
}
EXTRA = ROOT / ".venv-extras" / "homeassistant" / "python"
PYTHON = shlex.split(os.environ.get("SWARMD_HOMEASSISTANT_PYTHON", str(EXTRA if EXTRA.exists() else sys.executable)))


def judge(topic: str, payload: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    text = json.dumps({"topic": topic, "payload": json.dumps(payload), "states": STATES})
    program = JUDGE.read_text()  # By text, since that interpreter may live in another file system.
    done = subprocess.run([*PYTHON, "-c", program], input=text, capture_output=True, text=True, timeout=120)
    if done.returncode == 77:
        if sys.version_info < (3, 13, 2) and os.geteuid() != 0:
            pytest.skip("no Python from 3.13.2 here, and not root, to unpack Debian's for Home Assistant")
        pytest.skip(f"Home Assistant is not installed (make setup-extras): {done.stderr.strip()[-80:]}")
    return done


def ours(name: str = "alice") -> tuple[str, dict[str, Any]]:
    info = replace(World().info(), name=name)
    return homeassistant_topic("homeassistant", info), dict(homeassistant_device(info, "swarm/v1/farm", name))


@pytest.mark.parametrize("name", ["alice", "drone-1.farm", "Ünit 7"])
def test_home_assistant_accepts_the_device(name: str) -> None:
    topic, payload = ours(name)
    done = judge(topic, payload)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["components"]
    assert {one["platform"] for one in found.values()} == {"binary_sensor", "device_tracker", "sensor"}
    assert set(found) == set(payload["components"])


def test_its_templates_show_what_we_publish() -> None:
    done = judge(*ours())
    assert done.returncode == 0, done.stderr
    found = {name.rsplit("_", 1)[-1]: one["shows"] for name, one in json.loads(done.stdout)["components"].items()}
    assert json.loads(found.pop("place")) == {"latitude": -18.5, "longitude": -70.25, "gps_accuracy": 1.5}
    assert found == {
        "objects": "3", "confirmed": "2", "alive": "4", "detections": "77", "battery": "81", "online": "online"
    }  # fmt: skip


def break_a_class(payload: dict[str, Any]) -> None:
    next(iter(payload["components"].values()))["state_class"] = "measured"


def lose_an_id(payload: dict[str, Any]) -> None:
    del next(iter(payload["components"].values()))["unique_id"]


def add_a_wildcard(payload: dict[str, Any]) -> None:
    next(iter(payload["components"].values()))["state_topic"] = "swarm/#/x"


def misspell_a_key(payload: dict[str, Any]) -> None:
    next(iter(payload["components"].values()))["value_templat"] = "{{ value }}"


@pytest.mark.parametrize("spoil", [break_a_class, lose_an_id, add_a_wildcard, misspell_a_key])
def test_the_judge_refuses_what_is_wrong(spoil: Callable[[dict[str, Any]], None]) -> None:
    topic, payload = ours()
    spoil(payload)
    assert judge(topic, payload).returncode == 1


def test_the_judge_refuses_a_topic_that_home_assistant_would_not_hear() -> None:
    _, payload = ours()
    assert judge("homeassistant/device/swarmd_drone-1.farm/config", payload).returncode == 1
