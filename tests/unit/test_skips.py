"""The account of what was skipped: each reason once, and only facts about the machine pass."""

import json
import os
import re
import subprocess
import sys
import tomllib
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
    "reason",
    [
        "takes minutes",
        "trains for minutes: set SWARMD_TRAIN=1",
        "minutes of CPU; RELEASE_SOAK=1",
        "four CPU minutes",
        "",
    ],
)
def test_what_waits_to_be_asked_for_fails(kept: Path, reason: str) -> None:
    skips.keep(kept, 1, 0, {reason: 1})
    assert skips.main([str(kept)]) == 1


def test_what_is_not_installed_is_said_loudly_and_fails_where_that_is_wanted(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skips.keep(kept, 1, 0, {"Ray is not installed (extra ray)": 1})
    assert skips.main([str(kept)]) == 0
    assert "1 reasons are NO FACTS" in capsys.readouterr().err
    assert skips.main(["--strict", str(kept)]) == 1


@pytest.mark.parametrize(
    "reason",
    ["no booted Debian here: mmdebstrap makes none: E: NO_PUBKEY 0E98", "no image can be built here: X_Y=1 is refused"],
)
def test_a_fact_is_one_whatever_a_tool_says_of_it(kept: Path, reason: str) -> None:
    skips.keep(kept, 1, 0, {reason: 1})
    assert skips.main(["--strict", str(kept)]) == 0


def test_a_test_that_passed_at_its_second_try_is_no_fault_of_the_account(kept: Path) -> None:
    skips.keep(kept, 5, 1, {})
    assert skips.main([str(kept)]) == 0


def test_no_test_of_the_collection_waits_for_a_variable() -> None:
    """What is collected runs where the machine can: no skip asks for a name of the environment."""
    asks = re.compile(r"skipif\([^\n]*environ|pytest\.skip\([^\n]*\b(?:SWARMD|RELEASE)_[A-Z]+")
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("test_*.py") if path.name != "test_skips.py"]
    assert len(files) > 300
    assert [str(path) for path in files if asks.search(path.read_text())] == []


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
