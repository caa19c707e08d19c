"""The account of what was skipped: each reason once, and only facts about the machine pass."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips
from tests.support.paths import ROOT


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "skips.jsonl"
    skips.keep(path, 7, 0, {"no NVIDIA GPU here, for TensorRT": 3})
    skips.keep(path, 2, 0, {"no NVIDIA GPU here, for TensorRT": 1, "not root here: no network namespaces": 2})
    return path


def test_runs_are_added_up_and_each_reason_is_told_once(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert skips.main([str(kept)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "skipped: 6, for 2 reasons"
    assert told[1].split() == ["4", "no", "NVIDIA", "GPU", "here,", "for", "TensorRT"]
    assert told[-1] == "9 passed, 0 failed, 6 skipped"


@pytest.mark.parametrize(
    ("passed", "failed", "reason"),
    [(1, 0, "Ray is not installed (extra ray)"), (1, 0, "takes minutes"), (0, 1, "not root here"), (1, 0, "")],
)
def test_what_is_no_fact_about_the_machine_fails(kept: Path, passed: int, failed: int, reason: str) -> None:
    skips.keep(kept, passed, failed, {reason: 1})
    assert skips.main([str(kept)]) == 1


def test_a_run_in_which_nothing_passed_fails(tmp_path: Path) -> None:
    skips.keep(tmp_path / "none", 0, 0, {})
    assert skips.main([str(tmp_path / "none")]) == 1


@pytest.mark.slow
def test_the_suite_keeps_its_account(pytester_folder: Path) -> None:
    """A child run with this conftest leaves its line; the reason is that of the skip, without pytest's word before."""
    lines = [json.loads(line) for line in (pytester_folder / "skips.jsonl").read_text().splitlines()]
    assert lines == [{"passed": 1, "failed": 0, "skipped": {"not root here, says this test": 2}}]


@pytest.fixture(params=["0", "2"])
def pytester_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of three tests, in one process or in two workers."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_one.py").write_text(
        'import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip("not root here,\\nsays this test")\n'
        '@pytest.mark.skip(reason="not root here, says this test")\ndef test_c(): pass\n'
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "SWARMD_SKIPS": str(tmp_path / "skips.jsonl"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", request.param, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped, and why" in done.stdout
    return tmp_path
