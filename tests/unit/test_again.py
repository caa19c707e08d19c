"""The second try of tests of real processes: for a few of those, for nothing else, and never unsaid."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.again import MAX_FAILED, failed_of_last_run, may_try_again
from tests.support.paths import ROOT

REAL = "tests/integration/test_daemon_eye.py::test_one"


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ([REAL], ""),
        ([f"{REAL}[{number}]" for number in range(MAX_FAILED)], ""),
        ([f"{REAL}[{number}]" for number in range(MAX_FAILED + 1)], "tests failed"),
        ([REAL, "tests/property/test_mesh_laws.py::test_law"], "depends on no clock"),
        (["tests/sim/test_sim_swarm.py::test_one"], "depends on no clock"),
        (["tests/integration/test_daemon_eye.py"], "depends on no clock"),  # It could not even be imported.
        ([], "the run itself broke"),
    ],
)
def test_who_gets_a_second_try(failed: list[str], words: str) -> None:
    assert words in may_try_again(failed)
    assert bool(words) == bool(may_try_again(failed))


def test_the_last_run_names_its_failures(tmp_path: Path) -> None:
    assert failed_of_last_run(tmp_path / "none") == []
    (tmp_path / "lastfailed").write_text(json.dumps({"b": True, "a": True}))
    assert failed_of_last_run(tmp_path / "lastfailed") == ["a", "b"]


def run_twice(folder: Path, body: str, more: str = "") -> tuple[int, "subprocess.CompletedProcess[str]"]:
    """A suite of one real test, with what this one's conftest leaves; its status, and the second try."""
    where = folder / "tests" / "integration"
    where.mkdir(parents=True)
    (where / "test_it.py").write_text(
        f"import os, pytest\nfrom pathlib import Path\ndef test_it():\n    was = Path('seen').exists()\n"
        f"    Path('seen').touch()\n    {body}\n{more}"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.support import again\n"
    (folder / "conftest.py").write_text(f"{path}pytest_sessionfinish = again.keep_status\n")
    first = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist"], cwd=folder, capture_output=True, text=True
    )
    code = f"{path}sys.exit(again.main())"
    second = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return first.returncode, second


@pytest.mark.parametrize("passes_alone", [True, False])
def test_a_test_that_fails_again_fails_the_run(tmp_path: Path, passes_alone: bool) -> None:
    status, second = run_twice(tmp_path, "assert was" if passes_alone else "assert False")
    assert status == 1
    assert (second.returncode == 0) == passes_alone, second.stdout + second.stderr
    assert ("unsteady, passed only alone" in second.stdout) == passes_alone
    assert ("test_it.py::test_it" in second.stdout.splitlines()[-1]) or not passes_alone


def test_a_test_that_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    status, second = run_twice(tmp_path, "pytest.skip('busy') if was else pytest.fail('broken')")
    assert status == 1
    assert second.returncode == 1, second.stdout + second.stderr
    assert "did not pass alone" in second.stderr


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "pytest.exit('enough', returncode=3)"])
def test_a_run_that_did_not_come_to_its_end_gets_no_second_try(tmp_path: Path, end: str) -> None:
    more = f"def test_that_ends_the_run():\n    {end}\ndef test_nobody_runs_this():\n    assert False\n"
    status, second = run_twice(tmp_path, "assert was", more)
    assert status in (2, 3)
    assert second.returncode == 1, second.stdout + second.stderr
    assert "did not come to its end" in second.stderr
