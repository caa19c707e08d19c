"""Real daemons whose full views end at two members: they hold partial views, say so, and news still reaches all."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, digests, wait_for


def test_daemons_with_partial_views_say_so_and_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARMD_GOSSIP__FULL_VIEW_MAX", "2")
    first = Daemon(tmp_path, "a", "--no-eye").up()
    daemons = [first]
    try:
        for name in ("b", "c", "d"):
            daemons.append(Daemon(tmp_path, name, "--no-eye", join=first.status()["address"]).up())
        wait_for(lambda: all(daemon.status().get("partial") for daemon in daemons), "partial views")
        wait_for(lambda: all(len(daemon.ask("members")["members"]) > 1 for daemon in daemons), "neighbours")
        daemons[3].ask("event", name="hello", payload="")
        for daemon in daemons:
            wait_for(
                lambda daemon=daemon: any(e["event"] == "user" for e in daemon.events()),
                f"the event at {daemon.name}",
            )
        wait_for(lambda: len(digests(*daemons)) == 1, "one state")
        said = subprocess.run(
            [sys.executable, "-m", "swarmd", "members", "--control", str(first.control)],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        assert "partial view" in said
        # Drawn by lot in each epoch, and an average of the last few.
        wait_for(lambda: first.ask("members")["estimated"] >= 3, "an estimate of them all", seen=first.status)
    finally:
        for daemon in daemons:
            daemon.close()
