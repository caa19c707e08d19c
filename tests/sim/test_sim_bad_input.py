"""Bad input at the command line: one clear error, exit code 1, nothing run."""

import json
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd_sim.run.replay import Replay
from swarmd_sim.run.scenario import load_scenario

TRACED = """
[swarm]
nodes = 3
seconds = 30
[site]
kind = "none"
[drones]
work = "none"
[radio]
trace = "links.csv"
[checks]
settle_s = 10.0
"""
HEAD = "t_ms,source,destination,loss,rate_kbit_s,delay_ms\n"


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["sim", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_an_unknown_key_is_named_with_the_nearest_known(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(["run", "jammer", "--set", "radio.los=0.1", "--set", "swam.nodes=3"], capsys)
    assert "unknown key radio.los; did you mean radio.loss?" in error
    assert "unknown key swam; did you mean swarm?" in error
    assert "did you mean gossip." in refused(["run", "jammer", "--set", "gossip.suspicion_mi_ns=5"], capsys)


def test_an_impossible_scenario_is_refused_with_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fuzz", "--scenario", "bad-release", "--set", "release.bad_at_s=5.0", "--set", "swarm.seconds=20"]
    error = refused(arguments, capsys)
    assert "release.bad_at_s is 5; release.publish_at_s must come before it (10)" in error
    assert "the run has only 20 s" in error
    assert "it lasts into the quiet time" in error


@pytest.mark.parametrize("verb", ["run", "report", "sweep", "fuzz"])
def test_a_trace_with_gaps_is_refused_with_its_line(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traced.toml").write_text(TRACED)
    (tmp_path / "links.csv").write_text(HEAD + "0,0,1,0.1,1000,5\n90000,0,1,0.1,1000,5\n")
    arguments = [verb, *(["--scenario"] if verb == "fuzz" else []), str(tmp_path / "traced.toml")]
    if verb == "sweep":
        arguments += ["--jobs", "1", "--vary", "radio.loss=0"]
    error = refused(arguments, capsys)
    assert "links.csv" in error
    assert "says nothing for 90 s" in error


def test_a_replay_of_another_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = {"swarm.nodes": 3, "swarm.seconds": 12, "checks.settle_s": 5.0, "fault": [], "drones.work": "none"}
    scenario = load_scenario("partition-heal", {**overrides, "checks.cells_done": False})
    table = json.loads(Replay(scenario, 1).to_json())
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**table, "version": "0.0.1", "code": "0123456789abcdef"}))
    error = refused(["replay", str(path)], capsys)
    assert "was recorded by version 0.0.1 (code 0123456789abcdef)" in error
    assert "pass --any-code" in error
    main(["sim", "replay", str(path), "--any-code", "--json"])
    captured = capsys.readouterr()
    assert "warning" in captured.err
    assert json.loads(captured.out)["nodes"] == 3


def test_a_replay_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{")
    assert "is no replay file" in refused(["replay", str(tmp_path / "x.json")], capsys)
    assert "No such file" in refused(["replay", str(tmp_path / "none.json")], capsys)


def test_a_mutant_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean swim-no-refute" in refused(["run", "jammer", "--mutant", "swim-no-refut"], capsys)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("gossip.mesh=maybe", "gossip.mesh is 'maybe'; it must be auto, on or off"),
        ("gossip.profile=leen", "gossip.profile is 'leen'; it must be lan or lean"),
        ("gossip.full_view_max=2.5", "gossip.full_view_max is 2.5; it must be a whole number"),
        ("gossip.protocol_period_s=x", "gossip.protocol_period_s is 'x'; it must be a number"),
    ],
)
def test_a_protocol_s_own_key_takes_its_own_type(key: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in refused(["run", "jammer", "--set", key], capsys)
