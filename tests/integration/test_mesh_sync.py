"""Real daemons a–b–c–d on a line: the far half was away, and has everything when it is back, whole, hop by hop.

The last one begins before the one between does, so that all that it gets crosses a node which is catching up itself.
"""

import random
import signal
from pathlib import Path

import pytest

from tests.support.daemons import PlainDaemon
from tests.support.namespaces import Networks
from tests.support.radio_line import RadioLine, marks

pytestmark = [*marks(300), pytest.mark.slow]
PATIENCE_S = 60.0
EACH, AT_ONCE = 2_500, 100
"""Things that each of the two that stayed finds meanwhile, and how many it says at once."""


def finds(daemon: PlainDaemon, rng: random.Random, east_m: float) -> None:
    """Things all over a field of its own, none like another."""
    for begin in range(0, EACH, AT_ONCE):
        rows = [
            {
                "label": "hot-spot",
                "score": round(rng.uniform(0.5, 1.0), 3),
                "east_m": round(east_m + 10.0 * (number % 50) + rng.uniform(0, 5), 2),
                "north_m": round(10.0 * (number // 50) + rng.uniform(0, 5), 2),
                "covariance_m2": [round(rng.uniform(0.01, 0.04), 3), 0.0, round(rng.uniform(0.01, 0.04), 3)],
                "track": f"t{number}",
                "event": "new",
            }
            for number in range(begin, begin + AT_ONCE)
        ]
        assert daemon.ask("observe", detections=rows)["taken"] == AT_ONCE


def test_who_was_away_at_the_far_end_has_everything_when_it_is_back(tmp_path: Path) -> None:
    with Networks() as networks:
        line = RadioLine(networks, tmp_path, PATIENCE_S, names="abcd")
        try:
            line.start()
            for name in "cd":
                line.of(name).stop(signal.SIGTERM)
            rng = random.Random(1)
            finds(line.of("a"), rng, 0.0)
            finds(line.of("b"), rng, 1_000.0)
            line.of("a").ask("event", name="while-they-were-away")

            def held(names: str = line.names) -> list[tuple[object, ...]]:
                shown = [line.of(name).status() for name in names]
                return [(one["digest"], one["objects"], one["detections"]) for one in shown]

            line.wait(lambda: len(set(held("ab"))) == 1, "one picture at those who stayed", lambda: held("ab"))
            size_bytes = line.of("a").status()["state"]["bytes_held"]
            for name, before in (("d", "c"), ("c", "b")):
                line.of(name).start([f"10.77.0.{line.names.index(before) + 1}:7946"])
            line.see(line.all_alive)
            line.wait(lambda: len(set(held())) == 1, "one picture at all", held)
            last = line.of("d").status()
            assert (last["objects"], last["detections"]) == (2 * EACH, 2 * EACH)
            assert last["state"]["bytes_held"] >= size_bytes > 64_000
            assert not any(
                one.status()["state"][what] for one in line.daemons for what in ("rejected", "invalid", "let_go")
            )
            assert line.failures() == []
        finally:
            line.close()
