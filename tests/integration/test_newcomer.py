"""What a stranger does in the first hour: a copy of the wrong folder, an absent camera, one folder for all."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Running, wait_for
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow


class Stranger(Running):
    """`swarmd run` as it is typed: in a folder of one's own, with few flags."""

    def __init__(self, folder: Path, label: str, *flags: str) -> None:
        super().__init__(label, folder / f"{label}.sock", folder / f"{label}.out", folder / f"{label}.err")
        self._folder = folder
        self._command = [sys.executable, "-m", "swarmd", "run", "--listen", "127.0.0.1:0", "--http", "off"]
        self._command += ["--control", str(self.control), *flags]

    def up(self) -> "Stranger":
        self.spawn(self._command, environment(), self._folder)
        self.wait_up()
        return self

    def alerts(self) -> dict[str, dict[str, str]]:
        return {alert["code"]: alert for alert in self.status()["alerts"]}


def environment() -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
    paths = [ROOT, *(ROOT / room for room in ("protocols", "models", "sim"))]
    return known | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


@pytest.fixture
def started() -> Iterator[list[Stranger]]:
    found: list[Stranger] = []
    yield found
    for daemon in found:
        daemon.close()


def doctor(folder: Path, *arguments: str) -> dict[str, Any]:
    """What `swarmd doctor --json` finds, by check."""
    command = [sys.executable, "-m", "swarmd", "doctor", "--json", *arguments]
    done = subprocess.run(
        command, env=environment(), cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout, done.stderr
    return {row["check"]: row for row in json.loads(done.stdout)["findings"]}


def test_two_machines_that_made_a_fleet_each_are_told_so_on_both_sides(tmp_path: Path, started: list[Stranger]) -> None:
    one = Stranger(tmp_path, "one", "--dev-fleet", "mine", "--no-eye")
    started.append(one.up())
    two = Stranger(tmp_path, "two", "--dev-fleet", "yours", "--no-eye", "--join", one.status()["address"])
    started.append(two.up())
    wait_for(lambda: "join-unanswered" in two.alerts(), "who joins is told", seen=two.alerts)
    assert one.status()["address"] in two.alerts()["join-unanswered"]["text"]
    assert "same fleet" in two.alerts()["join-unanswered"]["remedy"]
    wait_for(lambda: "group-key-unknown" in one.alerts(), "who is alone there is told", seen=one.alerts)
    wait_for(lambda: "join-unanswered" in two.log(), "the log says it", seen=two.log)


def test_one_folder_and_one_name_in_two_fleets_keep_their_states_apart(tmp_path: Path, started: list[Stranger]) -> None:
    one = Stranger(tmp_path, "one", "--dev-fleet", "mine", "--no-eye")
    started.append(one.up())
    one.ask("observe", detections=[{"label": "crack", "score": 0.8, "east_m": 1.0, "north_m": 2.0}])
    assert one.status()["detections"] == 1
    two = Stranger(tmp_path, "two", "--dev-fleet", "yours", "--no-eye")
    started.append(two.up())
    assert two.status()["node"] == one.status()["node"], "the machine's name, where none is given"
    assert two.status()["detections"] == 0
    assert len(list((tmp_path / "swarmd-state").iterdir())) == 2
    one.kill()
    one.up()
    assert one.status()["detections"] == 1, "each finds its own again"


def test_a_camera_that_never_opens_raises_an_alert_and_an_ordinary_choice_is_no_warning(
    tmp_path: Path, started: list[Stranger]
) -> None:
    blind = Stranger(tmp_path, "blind", "--dev-fleet", "mine", "--source", "/dev/video97", "--name", "blind")
    started.append(blind.up())
    wait_for(lambda: "source-silent" in blind.alerts(), "the alert", 120, blind.log)
    assert "/dev/video97 cannot be opened" in blind.alerts()["source-silent"]["text"]
    lines = [json.loads(line) for line in blind.log().splitlines() if line.startswith("{")]
    chosen = [line for line in lines if "chosen for" in line.get("text", "")]
    assert [line["level"] for line in chosen] == ["info"]
    assert all("/dev/video97" in line["text"] for line in lines if line["event"] == "eye_problem")


def test_the_doctor_judges_the_daemon_that_runs(tmp_path: Path, started: list[Stranger]) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    one = Stranger(home, "one", "--dev-fleet", "mine", "--no-eye", "--name", "drone-1")
    started.append(one.up())
    found = doctor(elsewhere, "--control", str(one.control))
    assert found["daemon"]["verdict"] == "ok"
    assert "drone-1" in found["daemon"]["found"]
    assert "development fleet mine" in found["identity"]["found"]
    assert f"{home}/swarmd-state/drone-1-" in found["state"]["found"]
    assert found["address"]["found"].startswith("listens on 127.0.0.1:0")
    assert not list(elsewhere.iterdir()), "it looks, and makes nothing"
    one.kill()
    found = doctor(elsewhere, "--control", str(one.control))
    assert found["daemon"]["verdict"] == "fail"
    assert "no daemon answers" in found["daemon"]["found"]
    assert found["identity"]["verdict"] == "fail", "and the rest is the default configuration"


def test_a_plug_in_that_is_not_there_is_said_before_anything_is_begun(tmp_path: Path) -> None:
    config = tmp_path / "swarmd.toml"
    config.write_text('[plugins]\nbridges = ["pager"]\n')
    flags = ["--dev-fleet", str(tmp_path / "fleet"), "--state", str(tmp_path / "state"), "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "swarmd", "run", "-c", str(config), "--no-eye", "--http", "off", *flags]
    done = subprocess.run(
        command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert "'pager', which no installed package offers" in done.stderr
    assert "take the name out" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["swarmd.toml"]
