"""The gate against slow creeping finds a planted slowdown, of either sort, and takes equal trees for equal."""

from pathlib import Path

import pytest

from tests.bench import gate
from tests.support import older

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PAIRS = 9
BUSY = """

_see = Eye.see


def _slower(self, frame):
    began = time.process_time_ns()
    result = _see(self, frame)
    end = 2 * time.process_time_ns() - began
    while time.process_time_ns() < end:
        pass
    return result


Eye.see = _slower
"""
"""The eye works twice as long."""
SLEEP = """

import itertools, time

_handle, _turns = Node.handle, itertools.count()


def _later(self, event, now_ns):
    if next(_turns) % 8 == 0:
        time.sleep(0.0001)
    return _handle(self, event, now_ns)


Node.handle = _later
"""
"""One datagram in a few waits without working."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate.earlier_tree(older.git("rev-parse", "HEAD").decode().strip(), tmp_path_factory.mktemp("gate") / "one")


def test_a_planted_slowdown_is_found_whether_it_works_or_sleeps(earlier: Path, tmp_path: Path) -> None:
    slow = gate.earlier_tree("HEAD", tmp_path / "slow")
    for path, plant in (("models/swarmd_models/eye.py", BUSY), ("protocols/swarmd_protocols/node.py", SLEEP)):
        with (slow / path).open("a") as file:
            file.write(plant)
    eye, datagram = gate.judge(earlier, slow, PAIRS)
    assert len(eye.problems) == 1, eye
    assert eye.ratio > 1.6, eye
    assert any("waits" in text for text in datagram.problems), datagram


def test_equal_trees_pass(earlier: Path) -> None:
    verdicts = gate.judge(earlier, earlier, PAIRS)
    assert [verdict.problems for verdict in verdicts] == [[], []]


def test_a_tree_that_cannot_do_the_work_is_said_to_be_incomparable(tmp_path: Path) -> None:
    (tmp_path / gate.WORKER).parent.mkdir(parents=True)
    (tmp_path / gate.WORKER).write_text("raise SystemExit('no such work here')\n")
    worker = gate.Worker(tmp_path)
    try:
        with pytest.raises(gate.Incomparable, match="no such work"):
            worker.batch("eye")
    finally:
        worker.close()
