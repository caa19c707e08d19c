"""`swarmd quickstart`: the daemon or the simulator reads what it writes, and nothing is left of half a dialogue."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.cli.quickstart import KINDS
from swarmd.config.loading import load
from swarmd_sim.run.scenario import load_scenario

LISTEN = "transport.listen=127.0.0.1:0"


def begin(folder: Path, *arguments: str) -> int:
    return main(["quickstart", *arguments, "-o", str(folder / "first.toml")])


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [("ros2", "dds.enabled", True), ("mqtt", "mqtt.host", "127.0.0.1"), ("autopilot", "mavlink.enabled", True)],
)
def test_the_daemon_reads_what_was_written(
    kind: str, key: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin(tmp_path, kind, "--yes", "--set", LISTEN, "--set", "eye.source=sim://farm") == 0
    loaded = load(tmp_path / "first.toml")
    section, _, name = key.partition(".")
    assert getattr(getattr(loaded.config, section), name) == value
    assert loaded.config.swarm.dev_fleet == "fleet"
    assert loaded.config.node.origin == (-18.8856864, -70.1124341)
    said = capsys.readouterr().out
    assert f"swarmd run -c {tmp_path / 'first.toml'}" in said
    assert list(tmp_path.iterdir()) == [tmp_path / "first.toml"]


def test_what_comes_next_can_be_typed_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    farm = ("--set", LISTEN, "--set", "eye.source=sim://farm", "--set", "node.name=drone-1")
    assert begin(tmp_path, "ros2", "--yes", *farm) == 0
    assert "ros2 topic info -v /drone_1/detections_in" in capsys.readouterr().out
    (tmp_path / "first.toml").unlink()
    assert begin(tmp_path, "autopilot", "--yes", *farm) == 0
    second = next(line for line in capsys.readouterr().out.splitlines() if "--name drone-1-2" in line)
    assert "--set mavlink.enabled=false" in second
    assert "--no-eye" not in second
    (tmp_path / "first.toml").unlink()
    camera = ("--set", LISTEN, "--set", "eye.source=rtsp://127.0.0.1:1/none", "--set", "node.name=drone-1")
    assert begin(tmp_path, "mqtt", "--yes", *camera) == 0
    assert "--name drone-1-2 --listen [::]:0 --no-eye --join" in capsys.readouterr().out


def test_the_simulator_reads_what_was_written(tmp_path: Path) -> None:
    assert begin(tmp_path, "laptop", "--yes", "--set", "swarm.nodes=7") == 0
    scenario = load_scenario(str(tmp_path / "first.toml"))
    assert (scenario.swarm.nodes, scenario.swarm.seconds) == (7, 120.0)


def test_every_kind_has_a_test_of_its_file() -> None:
    assert set(KINDS) == {"ros2", "mqtt", "autopilot", "laptop"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ros2"], "--yes takes each proposal"),
        (["--yes"], "say who begins"),
        (["ros2", "--yes", "--set", "dds.domain"], "--set SECTION.KEY=VALUE"),
        (["ros2", "--yes", "--set", "dds.domain=999"], "dds.domain"),
        (["ros2", "--yes", "--set", "dds.doman=1"], "did you mean `domain`"),
        (["ros2", "--yes", "--set", "node.advertise=10.0.0.1:7946"], "did you mean `transport.advertise`"),
        (["mqtt", "--yes", "--set", "mqtt.port=many"], "mqtt.port"),
        (["laptop", "--yes", "--set", "swarm.nodes=-1"], "swarm.nodes"),
        (["laptop", "--yes", "--set", "radio.los=0.1"], "radio.los"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert begin(tmp_path, *arguments) == 1
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first.toml").write_text("mine")
    assert begin(tmp_path, "laptop", "--yes") == 1
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "first.toml").read_text() == "mine"
    assert begin(tmp_path, "laptop", "--yes", "--force") == 0
    assert (tmp_path / "first.toml").read_text() != "mine"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "laptop", "--yes", "-o", str(tmp_path / "none" / "first.toml")]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def dialogue(folder: Path, typed: str) -> tuple[int, str]:
    """Run the verb with a terminal at which somebody types."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "swarmd", "quickstart", "-o", "first.toml"]
    with os.fdopen(ours, "wb", buffering=0) as keys:
        process = subprocess.Popen(
            command, cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        os.close(theirs)
        keys.write(typed.encode())
        said, _ = process.communicate(timeout=120)
    return process.returncode, said


def test_a_wrong_answer_is_asked_for_again(tmp_path: Path) -> None:
    typed = ["sky", "5", "4", "minus two", "3", "60", "1.5", "0.2"]
    status, said = dialogue(tmp_path, "".join(f"{line}\n" for line in typed))
    assert status == 0, said
    scenario = load_scenario(str(tmp_path / "first.toml"))
    assert (scenario.swarm.nodes, scenario.swarm.seconds, scenario.radio.loss) == (3, 60.0, 0.2)
    assert said.count("How many drones") == 2
    for wrong in ("sky", "5"):
        assert f"'{wrong}' is none of them: type 1 to 4, or one of ros2, mqtt, autopilot, laptop\n" in said
    assert said.count("Share of datagrams") == 2


def test_who_leaves_half_way_leaves_nothing(tmp_path: Path) -> None:
    status, said = dialogue(tmp_path, "4\n3\n\x04")
    assert status == 1
    assert "nothing was written" in said
    assert list(tmp_path.iterdir()) == []
