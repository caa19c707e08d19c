"""The demo with both outside interfaces: it starts the broker itself and counts what came out on each side."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bridge_world import mosquitto_binary

pytestmark = pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")


def test_the_demo_speaks_mqtt_and_dds(tmp_path: Path, dds_domain: int) -> None:
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")
    command = [sys.executable, "-m", "swarmd", "demo", "--nodes", "2", "--seconds", "8", "--mqtt", "--dds", "--json"]
    environment = {**os.environ, "ROS_DOMAIN_ID": str(dds_domain)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert report["members"] == {"drone-1": 2, "drone-2": 2}
    assert report["mqtt"]["messages"] > 20
    assert report["dds"]["samples"] > 5
    assert report["truth"]["false"] == report["truth"]["duplicates"] == 0
