"""The command line: cheap help, exit status, one sentence for people."""

import resource
import subprocess
import sys
from importlib import import_module

import pytest

from swarmd.cli.main import VERBS, main


def test_help_is_cheap() -> None:
    """The bar is 150 ms of CPU; the best of three runs is what the code costs on a busy machine."""
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "swarmd", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) <= 0.15


def test_every_verb_has_a_module_that_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, (module, help_) in VERBS.items():
        assert help_
        assert callable(import_module(module).run)
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        assert verb in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["status", "members", "detections", "objects", "cells", "counters", "topics"])
def test_read_verbs_say_so_when_no_daemon_runs(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--json"]) == 3
    assert "no daemon" in capsys.readouterr().err


def test_usage_errors_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    for arguments in (["nonsense"], ["status", "--nonsense"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert main(["demo", "--nodes", "0"]) == 2


def test_a_configuration_that_does_not_hold_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    """All that is wrong is told at once, also where a flag is of the wrong kind."""
    assert main(["check-config", "--set", "node.nmae=x", "--listen", "nowhere", "--max-frames", "many"]) == 1
    error = capsys.readouterr().err
    assert "--max-frames: eye.max_frames is 'many'; it takes a whole number" in error
    assert "did you mean `name`?" in error
    assert "--listen: transport.listen is 'nowhere'; write IP:PORT, such as 127.0.0.1:7946" in error
    assert main(["run"]) == 1
    assert "no identity" in capsys.readouterr().err


def test_check_config_prints_the_merged_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARMD_LOG__LEVEL", "debug")
    assert main(["check-config", "--name", "x", "--join", "a:1", "--join", "b:2", "--no-eye"]) == 0
    out = capsys.readouterr().out
    assert 'level = "debug"' in out
    assert "environment SWARMD_LOG__LEVEL" in out
    assert 'join = ["a:1", "b:2"]' in out
    assert "enabled = false" in out


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m swarmd check-config --reference | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "# Configuration\n"
    assert done.stderr == ""
