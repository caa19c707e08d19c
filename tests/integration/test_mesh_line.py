"""Five real daemons on a line, each of which hears its neighbours only: one swarm over four radio hops.

`python -m tests.bench.bench_mesh_line` says how long each step takes; here it has to happen, on any machine.
"""

import time
from pathlib import Path

import pytest

from tests.support.namespaces import Networks
from tests.support.radio_line import ALL_ALIVE, CUT, KILLED, RadioLine, marks

pytestmark = [*marks(600), pytest.mark.slow]
PATIENCE_S = 120.0
"""For each condition, seconds: a hundred times what it takes on an idle machine."""
QUIET_S = 10.0
"""How long nothing happens and nobody may be called failed, seconds; 120 in the bench."""


def test_a_line_is_one_swarm_and_a_death_is_told_from_a_cut(tmp_path: Path) -> None:
    with Networks() as networks:
        line = RadioLine(networks, tmp_path, PATIENCE_S)
        try:
            line.start()
            time.sleep(QUIET_S)  # The claim is about a stretch of time.
            assert line.failures() == []
            line.tell("over-four-hops")

            line.cut("cd")
            line.see(CUT)
            assert line.failures() == []
            rows = {row["name"]: row for row in line.daemons[0].ask("members")["members"]}
            assert [rows[name]["unheard_s"] is None for name in "abcde"] == [True, True, True, False, False]
            line.cut()
            line.see(ALL_ALIVE)

            line.kill("c")
            line.see(KILLED)
            line.restart("c")
            line.see(ALL_ALIVE)
            assert {about for _, about in line.failures()} == {"c"}
        finally:
            line.close()
