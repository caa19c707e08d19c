"""A real daemon's alert is acknowledged, says so to everybody who asks, and still does after a crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Daemon, wait_for
from tests.support.exclusive import own_port

pytestmark = pytest.mark.slow
CODE = "join-unanswered"


def standing(daemon: Daemon) -> dict[str, Any]:
    found: list[dict[str, Any]] = daemon.status()["alerts"]
    return {alert["code"]: alert for alert in found}


def cli(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarmd", *words, "--control", str(daemon.control)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_who_has_seen_it_is_told_and_kept_over_a_crash(tmp_path: Path) -> None:
    one = Daemon(tmp_path, "one", "--no-eye", join=f"127.0.0.1:{own_port()}").up()  # Where nobody answers.
    try:
        wait_for(lambda: CODE in standing(one), "the alert", seen=one.log)
        assert standing(one)[CODE]["acknowledged"] is None
        refused = cli(one, "acknowledge", "clock-wrong")
        assert (refused.returncode, f"there are: {CODE}" in refused.stderr) == (1, True), refused.stderr
        done = cli(one, "acknowledge", CODE, "--note", "the radio comes tomorrow")
        assert done.returncode == 0, done.stderr
        seen = standing(one)[CODE]["acknowledged"]
        who = "root" if os.getuid() == 0 else f"user {os.getuid()}"
        assert seen["by"].startswith(who)
        assert seen["note"] == "the radio comes tomorrow"
        again = cli(one, "acknowledge", CODE, "--note", "mine")
        assert "was acknowledged by" in again.stdout
        assert standing(one)[CODE]["acknowledged"] == seen
        wait_for(lambda: len(one.ask("events", kinds=["alert-acknowledged"])["events"]) == 1, "one event", seen=one.log)
        assert "seen by" in cli(one, "status").stdout

        one.kill(signal.SIGKILL)
        one.start()
        one.up()
        wait_for(lambda: CODE in standing(one), "the alert again", seen=one.log)
        assert standing(one)[CODE]["acknowledged"] == seen
    finally:
        one.close()
