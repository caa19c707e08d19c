"""The eye's gate: a lender waits for a frame that is there or about to come, and never without end."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.eye import gate
from swarmd.eye.gate import PAUSE_MAX_NS, EyeGate, pause_ns
from swarmd.worker.runner import Runner
from tests.support.mutants import assert_found

MS = 1_000_000
TIMES = st.integers(1, 1 << 60)


def test_two_processes_share_one_gate() -> None:
    descriptor = EyeGate.make()
    try:
        eye, lender = EyeGate(descriptor), EyeGate(descriptor)
        assert lender.look() == (0, 0)
        for at_ms in (100, 200, 300):
            eye.begin(at_ms * MS)
            assert lender.look()[0] == at_ms * MS, "a frame at work is not seen"
            eye.end()
        assert lender.look() == (0, 400 * MS), "the next frame is expected an interval after the last one"
    finally:
        os.close(descriptor)


@given(TIMES, st.integers(1, 1_900 * MS), TIMES, st.integers(0, 1_000 * MS))
def test_a_frame_at_work_is_waited_for(now_ns: int, since_ns: int, due_ns: int, job_ns: int) -> None:
    if now_ns > since_ns:
        assert 0 < pause_ns(now_ns, now_ns - since_ns, due_ns, job_ns) <= PAUSE_MAX_NS, (
            "the eye works and is not spared"
        )


@given(TIMES, TIMES, st.integers(8, 1_000 * MS))
def test_a_frame_that_comes_within_a_job_is_waited_for_and_no_other(now_ns: int, due_ns: int, job_ns: int) -> None:
    wait = pause_ns(now_ns, 0, due_ns, job_ns)
    if now_ns < due_ns < now_ns + job_ns:
        assert wait >= min(due_ns - now_ns, job_ns), "a job would stand in the next frame's way"
    if due_ns >= now_ns + job_ns or now_ns >= due_ns + job_ns // 4:
        assert wait == 0, "the device idles for a frame that is far"


def test_an_eye_that_hangs_holds_nobody() -> None:
    assert pause_ns(10_000 * MS, 7_000 * MS, 0, 5 * MS) == 0


def test_an_eye_that_is_always_busy_leaves_ten_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's wait is bounded by what it has slept, in the clock that it reads."""
    slept = []
    now = [0]

    class Clock:
        @staticmethod
        def monotonic_ns() -> int:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += round(seconds * 1e9)

    monkeypatch.setattr("swarmd.worker.runner.time", Clock)
    descriptor = EyeGate.make()
    try:
        eye = EyeGate(descriptor)
        eye.begin(1)
        runner = Runner(EyeGate(descriptor))
        waited_ns = runner._let_the_eye_pass()
        runner.stop()
    finally:
        os.close(descriptor)
    assert PAUSE_MAX_NS <= waited_ns <= PAUSE_MAX_NS + 2 * MS
    assert sum(slept) == pytest.approx(waited_ns / 1e9)


def _the_eye_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate, "pause_ns", lambda *arguments: 0)
    patch.setitem(globals(), "pause_ns", lambda *arguments: 0)


def _every_frame_is_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "pause_ns", lambda now, since, due, job: 1 if since or due else 0)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_the_eye_is_not_looked_at, test_a_frame_at_work_is_waited_for),
        (_the_eye_is_not_looked_at, test_a_frame_that_comes_within_a_job_is_waited_for_and_no_other),
        (_every_frame_is_awaited, test_an_eye_that_hangs_holds_nobody),
    ],
)
def test_mutants(fault, law, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(fault, law, monkeypatch)
