"""Streams over relays between real daemons: an inference is borrowed from a lender that the borrower cannot hear.

The input (43 kB) is larger than one frame that is handed on, so it crosses as a stream, at 3 kB/s; that is why each of
these takes a quarter of a minute.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import PlainDaemon, wait_for
from tests.support.lending_far import Borrowing
from tests.support.namespaces import Networks
from tests.support.radio_line import RadioLine, marks

pytestmark = [*marks(600), pytest.mark.slow]
PATIENCE_S = 60.0


class Farm:
    """The first borrows, the last has the model; those between hand on what both say."""

    def __init__(self, networks: Networks, folder: Path) -> None:
        self._networks, self._folder = networks, folder
        self.lines: list[RadioLine] = []
        self.borrowing: Borrowing

    def line(self, names: str, reach: int) -> RadioLine:
        """Daemons of which each hears so many on each side; the borrower has been offered the model."""
        line = RadioLine(self._networks, self._folder, PATIENCE_S, names=names, reach=reach)
        self.lines.append(line)
        self.borrowing = Borrowing(self._networks, self._folder, line)
        line.start()
        self.borrowing.wait_for_the_offer()
        return line

    def borrow(self, line: RadioLine) -> "subprocess.Popen[str]":
        """The borrower asks; given when a part of the input is on its way, and the rest is not."""
        first = line.daemons[0]
        wanted = far_segments(first) + 15
        asked = self.borrowing.infer(first, "far.npz", "--borrow")
        line.wait(lambda: far_segments(first) >= wanted or asked.poll() is not None, "a stream under way", first.log)
        assert asked.poll() is None, asked.communicate()
        return asked


def far_segments(daemon: PlainDaemon) -> int:
    return int(daemon.ask("counters")["own"].get("node_far_segments", 0))


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    """Nobody yet."""
    with Networks() as networks:
        made = Farm(networks, tmp_path)
        try:
            yield made
        finally:
            for line in made.lines:
                line.close()


def test_an_inference_is_borrowed_whole_and_at_the_next_the_only_relay_dies(farm: Farm) -> None:
    """The next is asked for at once: what the first took, 15 s, says nothing of the short words before it."""
    line = farm.line("abc", 1)
    first = line.daemons[0]
    alarms = first.log().count("send-failed")  # Before it is a mesh a neighbour's neighbour is one that should answer.
    asked = farm.borrow(line)
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode == 0, error
    farm.borrowing.is_whole(PATIENCE_S)
    counts = first.ask("counters")["own"]
    assert counts["node_far_streams_sent"] == 1
    assert not counts.get("node_far_streams_failed")
    assert counts["node_send_errors"], "the direct path was not tried"
    assert first.log().count("send-failed") == alarms, "an alarm, and the relay carried it"
    asked = farm.borrow(line)
    line.kill("b")  # Nobody else leads to the lender.
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode != 0
    assert "503" in error
    wait_for(lambda: "far-stream" in first.log(), "the error of the stream", PATIENCE_S, first.log)
    said = next(row for row in first.log().splitlines() if "far-stream" in row)
    assert re.search(r"\d+ of \d+ bytes \(offload\) came to c: .* behind b\b", said), said


def test_where_a_relay_dies_another_takes_over(farm: Farm) -> None:
    """Of two that both ends hear, the one that has handed on what came so far is killed."""
    line = farm.line("abcd", 2)
    asked = farm.borrow(line)
    counts = {name: line.daemons["abcd".index(name)].ask("counters")["own"] for name in "bc"}
    line.kill(max(counts, key=lambda name: counts[name].get("node_relay_bytes", 0)))
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode == 0, error
    farm.borrowing.is_whole(PATIENCE_S)
    assert not line.daemons[0].ask("counters")["own"].get("node_far_streams_failed")
