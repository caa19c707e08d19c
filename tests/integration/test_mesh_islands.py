"""Real daemons: a member with two interfaces joins two radio islands that cannot hear each other.

Nothing is configured but whom each joins. The inference that the first borrows from the last crosses as a stream at 3
kB/s (43 kB), while for 20 s nobody may be called failed; with five daemons to start that makes half a minute.
"""

import time
from pathlib import Path

import pytest

from tests.support import namespaces
from tests.support.islands import ISLANDS, JOINED, PARTED, Islands
from tests.support.lending_far import Borrowing
from tests.support.namespaces import Networks

pytestmark = [*namespaces.marks(300), pytest.mark.slow]
PATIENCE_S = 60.0
QUIET_S = 20.0
"""How long nobody may be called failed, seconds."""

SEEN = {
    "label": "hot-spot", "score": 0.9, "east_m": 3.0, "north_m": 0.0, "covariance_m2": [0.01, 0.0, 0.01],
    "track": "x", "event": "new",
}  # fmt: skip


def test_a_member_with_two_interfaces_joins_two_islands(tmp_path: Path) -> None:
    with Networks() as networks:
        islands = Islands(networks, tmp_path, PATIENCE_S)
        far = Borrowing(networks, tmp_path, islands)
        try:
            islands.start("abde")
            islands.see(ISLANDS)
            islands.start("c")
            joined = time.monotonic()
            # One address with a way by each network, told to both.
            assert islands.of("c").address == "10.7.0.3:7946+10.8.0.3:7946"
            islands.see(JOINED)
            islands.wait(lambda: all(one.status()["mesh"] for one in islands.daemons), "views that are a mesh")
            # Beacons and reports go out once, on each interface, and are heard on both.
            islands.wait(lambda: islands.of("c").status()["transport"]["casts_sources_known"] >= 4, "casts of all")

            islands.tell("across")
            islands.of("e").ask("observe", detections=[SEEN])
            islands.wait(lambda: islands.of("a").status()["objects"] == 1, "the object at the far end")
            far.wait_for_the_offer()
            asked = far.infer(islands.of("a"), "far.npz", "--borrow")
            _, error = asked.communicate(timeout=PATIENCE_S)
            assert asked.returncode == 0, error
            far.is_whole(PATIENCE_S)
            assert islands.counts("a")["node_far_streams_sent"] == 1
            assert islands.counts("c")["node_relay_bytes"] > far.input.stat().st_size
            time.sleep(max(0.0, joined + QUIET_S - time.monotonic()))  # The claim is about a stretch of time.
            islands.see(JOINED)
            assert islands.failures() == []

            islands.kill("c")
            islands.see(PARTED)
            assert {about for _, about in islands.failures()} == {"c"}
            islands.start("c")
            islands.see(JOINED)
        finally:
            islands.close()
