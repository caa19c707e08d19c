"""The daemon's own node in the simulator: determinism, safety, replay, shrinking, sweeps, reports, the command line."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.main import main
from swarmd_sim.errors import ReplayError
from swarmd_sim.faults.faults import Fault
from swarmd_sim.report.report import render
from swarmd_sim.run.fuzz import FuzzPlan, fuzz
from swarmd_sim.run.replay import Replay, load_replay
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

ROOT = Path(__file__).resolve().parents[2]
SHORT: dict[str, Any] = {"swarm.seconds": 50, "checks.settle_s": 25.0, "release": {}}
SHORT |= {"faults.until_s": 20.0, "workload.until_s": 20.0}


def test_the_same_seed_has_the_same_digest_under_any_hash_seed() -> None:
    digests = set()
    for hash_seed in ("0", "77"):
        done = subprocess.run(
            [sys.executable, "-m", "swarmd", "sim", "run", "partition-heal", "--seed", "3", "--json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=140,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        figures = json.loads(done.stdout)
        digests.add(figures["trace_digest"])
        assert figures["violations"] == []
        wanted = {"nodes", "virtual_s", "wall_s", "events", "convergence_s", "detection_s", "false_positives", "truth"}
        assert wanted <= set(figures)
        # What is lost has a reason, also where a scripted fault and not the radio lost it.
        assert figures["lost"] == sum(figures["lost_by_reason"].values())
        assert {"cut", "noise"} <= figures["lost_by_reason"].keys()
    assert len(digests) == 1


def test_a_handful_of_seeds_breaks_no_rule() -> None:
    seeds = int(os.environ.get("SWARMD_FUZZ_SEEDS", "6"))
    report = fuzz(FuzzPlan("fuzz", {}), range(1, 1 + seeds))
    assert [(outcome.seed, outcome.rules, outcome.text) for outcome in report.failing] == []
    assert report.coverage.hits


def test_a_mutant_is_found_shrunk_and_replayed_by_the_printed_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = [f"--set={key}={value}" for key, value in SHORT.items() if key != "release"] + ["--set=release={}"]
    command = ["sim", "fuzz", "--mutant", "swim-events-twice", "--seeds", "8", "--stop-after", "1", "--shrink", "6"]
    assert main([*command, "--json", *short]) == 1
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    (failing,) = summary["failing"]
    assert "state.event_doubled" in failing["rules"]
    assert summary["shrunk"]["faults"] <= 6
    for line in (failing["replay"], summary["shrunk"]["replay"]):
        program, *arguments = line.split()
        assert program == "swarmd"
        assert main(arguments) == 1
        printed = capsys.readouterr().out
        assert "VIOLATION state.event_doubled" in printed
    # The same file without the mutant: what fails is the bug, not the run.
    path = tmp_path / summary["shrunk"]["replay"].split()[-1]
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, "mutant": ""}))
    assert main(["sim", "replay", str(path)]) == 0


def test_replays_are_exact_to_any_event(tmp_path: Path) -> None:
    scenario = load_scenario("partition-heal", {"swarm.seconds": 70, "fault": []})
    path = tmp_path / "run.json"
    path.write_text(Replay(scenario, 9).to_json())
    replay = load_replay(path).replay
    whole = replay.run()
    assert replay.run().figures["trace_digest"] == whole.figures["trace_digest"]
    part = replay.run(Options(timeline=True, stop_at_event=2_000, watch_events=(0,)))
    assert part.figures["events"] == 2_000
    assert any("DatagramReceived" in text for _at, host, text in part.timeline if host == 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": "0" * 16}, "was recorded by version"),
        ({"format": 99}, "format 99"),
        ({"script": [[1, "nope", [0], 1, 0]]}, "damaged"),
        ({"script": [[1, "kill", [4000], 1, 0]]}, "a node that the scenario does not have"),
        ({"seed": "x"}, "damaged"),
        ({"scenario": {}}, "."),
    ],
)
def test_foreign_and_damaged_replays_are_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    table = json.loads(Replay(load_scenario("jammer"), 1).to_json())
    table.update(change)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(table))
    if change == {"scenario": {}}:
        assert load_replay(path).replay.scenario.swarm.nodes == 20
        return
    with pytest.raises(ReplayError, match=words):
        load_replay(path)
    for junk in ("", "[1]", "{", "nonsense"):
        path.write_text(junk)
        with pytest.raises(ReplayError):
            load_replay(path)


def test_a_fault_script_can_be_given_and_silenced() -> None:
    scenario = load_scenario("partition-heal", {"swarm.seconds": 60, "checks.settle_s": 25.0, "fault": []})
    kill = Fault(10 * 10**9, "kill", (3,), 15 * 10**9, 0)
    result = Replay(scenario, 5, (kill,), zeroed=("radio.loss", "radio.jitter")).run()
    assert result.figures["lost"] == 0
    assert result.figures["restarts"] == 1
    detection = result.figures["detection_s"]
    assert isinstance(detection, dict)
    assert detection["p50"] < 2.0
    assert result.violations == []


class _Outside(HTMLParser):
    """Collects whatever the page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("script", "link", "img", "iframe"):
            self.found.append(tag)
        self.found += [str(value) for key, value in attrs if key in ("src", "href", "onload", "onclick")]


def test_the_report_is_one_page_that_needs_nothing_else() -> None:
    scenario = load_scenario("partition-heal", {"swarm.seconds": 70, "fault": []})
    run = Simulation(replace(scenario, title="<b>&amp;"), 2, Options(timeline=True))
    page = render(run, run.run())
    parser = _Outside()
    parser.feed(page)
    assert parser.found == []
    assert {"svg", "polyline", "circle", "table", "pre"} <= parser.tags
    assert "<b>" not in page


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sim", "run", "nowhere"]) == 1
    assert "no scenario" in capsys.readouterr().err
    assert main(["sim", "run", "jammer", "--set", "radio.los=1"]) == 1
    assert "did you mean radio.loss" in capsys.readouterr().err
    assert main(["sim", "replay", "none.json"]) == 1
    assert main(["sim", "scenarios"]) == 0
    assert "city-5000" in capsys.readouterr().out
    small = ["--nodes", "5", "--seconds", "60", "--set", "fault=[]", "--set", "drones.work=none"]
    small += ["--set", "checks.cells_done=false"]
    assert main(["sim", "run", "partition-heal", "--seed", "2", "--save", "r.json", *small]) == 0
    assert "trace_digest" in capsys.readouterr().out
    assert main(["sim", "replay", "r.json", "--to-event", "500", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 500
    assert main(["sim", "report", "partition-heal", *small, "-o", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    code = main(["sim", "fuzz", "--seeds", "2", "--json"])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == (1 if summary["failing"] else 0)
    assert {"seeds", "failing", "coverage", "wall_s"} <= set(summary)
