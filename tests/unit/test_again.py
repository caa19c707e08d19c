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


@pytest.mark.parametrize("passes_alone", [True, False])
def test_a_test_that_fails_again_fails_the_run(tmp_path: Path, passes_alone: bool) -> None:
    folder = tmp_path / "tests" / "integration"
    folder.mkdir(parents=True)
    body = "Path('seen').exists()" if passes_alone else "False"
    (folder / "test_it.py").write_text(
        f"from pathlib import Path\ndef test_it():\n    was = {body}\n    Path('seen').touch()\n    assert was\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    first = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist"], cwd=tmp_path, capture_output=True, text=True
    )
    assert first.returncode == 1, first.stdout
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support import again; sys.exit(again.main())"
    second = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (second.returncode == 0) == passes_alone, second.stdout + second.stderr
    assert ("unsteady, passed only alone" in second.stdout) == passes_alone
    assert ("test_it.py::test_it" in second.stdout.splitlines()[-1]) or not passes_alone
