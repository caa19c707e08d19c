"""Real daemons at two sites behind NAT: a relay outside serves them while they cannot reach each other, and only then.

Two inferences of 43 kB are borrowed, one of them at 3 kB/s over the relay; that and two waits of seconds make half a
minute.
"""

from pathlib import Path

import pytest

from tests.support.lending_far import Borrowing
from tests.support.namespaces import Networks
from tests.support.radio_line import marks
from tests.support.sites import Sites

pytestmark = [*marks(300), pytest.mark.slow]
PATIENCE_S = 60.0
PART_B = 16_000
"""Bytes of one input that the relay may have handed on before the direct path has taken over."""


def borrowed(sites: Sites, far: Borrowing) -> int:
    """An inference is borrowed whole; bytes that the relay handed on meanwhile."""
    far.wait_for_the_offer()  # Whoever is cut off for a moment offers nothing until it is heard again.
    before = sites.counts("r").get("node_relay_bytes", 0)
    asked = far.infer(sites.of("a"), "far.npz", "--borrow")
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode == 0, (error, sites.of("a").status(), sites.of("b").log())
    far.is_whole(PATIENCE_S)
    return sites.counts("r").get("node_relay_bytes", 0) - before


def test_a_relay_serves_two_sites_and_the_direct_path_takes_over_when_it_works(tmp_path: Path) -> None:
    with Networks() as networks:
        sites = Sites(networks, tmp_path, PATIENCE_S)
        far = Borrowing(networks, tmp_path, sites)
        try:
            sites.start()
            sites.wait(lambda: all(one.status()["mesh"] for one in sites.daemons), "views that are a mesh")
            sites.tell("over-the-relay")
            far.wait_for_the_offer()
            size = far.input.stat().st_size

            # The block is lifted while a stream is under way: the rest of it goes directly.
            asked = far.infer(sites.of("a"), "far.npz", "--borrow")
            sites.wait(lambda: sites.counts("r").get("node_relay_bytes", 0) > 4_000, "a stream over the relay")
            assert asked.poll() is None, asked.communicate()
            sites.unblock()
            _, error = asked.communicate(timeout=PATIENCE_S)
            assert asked.returncode == 0, (error, sites.of("a").status(), sites.of("b").log())
            far.is_whole(PATIENCE_S)
            assert sites.counts("r")["node_relay_bytes"] < size, "all of it went over the relay"
            assert borrowed(sites, far) < PART_B, "the relay hands on what could go directly"

            # Back to the relay, and nothing is lost on the way: an event at once, and then all of an input.
            lost = sites.counts("a").get("node_near_lost", 0)
            sites.block()
            sites.tell("over-the-relay-again")
            sites.wait(lambda: sites.counts("a").get("node_near_lost", 0) > lost, "that the direct path is given up")
            assert borrowed(sites, far) > size
            sites.see(sites.all_alive)
            assert sites.failures() == []
            assert not sites.counts("a").get("node_far_streams_failed")
        finally:
            sites.close()
