"""Four real daemons on a line, each of which hears its neighbours only: one swarm over three radio hops."""

import signal
from pathlib import Path

from tests.support import netlab
from tests.support.daemons import all_see, wait_for
from tests.support.exclusive import own_name
from tests.support.netlab import Lab

pytestmark = netlab.marks(420)
PATIENCE_S = 90.0
"""For each condition, seconds: a hundred times what it takes on an idle machine."""


def are_one_mesh(lab: Lab) -> None:
    """Wait until everybody sees everybody, and knows that some are reached through others only."""
    wait_for(
        lambda: all(daemon.status().get("mesh") for daemon in lab.daemons),
        "views that are a mesh",
        PATIENCE_S,
        lambda: [(daemon.status().get("mesh"), daemon.members()) for daemon in lab.daemons],
    )
    all_see(lab.daemons, lab.everybody("alive"), PATIENCE_S)


def test_a_line_is_one_swarm_and_a_death_between_two_parts_is_told(tmp_path: Path) -> None:
    lab = Lab(own_name("ml"), tmp_path, 4, [])
    try:
        for near, far in ((1, 3), (1, 4), (2, 4)):
            lab("block", str(near), str(far))
            lab("block", str(far), str(near))
        for i, daemon in enumerate(lab.daemons, 1):
            daemon.start([f"10.77.0.{i - 1}:7946"] if i > 1 else [])
        are_one_mesh(lab)
        first, second, third, last = lab.daemons

        first.ask("event", name="over-three-hops")
        wait_for(
            lambda: any(row["subject"] == "over-three-hops" for row in last.events()),
            "an event of the first at the last",
            PATIENCE_S,
            lambda: last.events()[-5:],
        )

        third.stop(signal.SIGKILL)
        all_see([first, second], lab.everybody("alive", n3="failed", n4="unreachable"), PATIENCE_S)
        wait_for(lambda: last.members()["n3"] == "failed", "n4 sees that n3 has failed", PATIENCE_S, last.members)

        third.start(["10.77.0.2:7946", "10.77.0.4:7946"])
        are_one_mesh(lab)
    finally:
        lab.close()
