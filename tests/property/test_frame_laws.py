"""Law: whatever a member puts into a frame, no event of its reader is long, and nothing honest is lost by that.

Time is a matter of machines (`tests/bench/hostile_frames.py` takes it): counted are signatures, effects and messages
of one event. Frames are filled with every message there is, of membership and of each sub-protocol, alone and mixed.
"""

from collections.abc import Callable
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import SendStream
from swarmd_protocols.offload import lending
from swarmd_protocols.offload import messages as offload
from swarmd_protocols.reader import CHECK_UNITS, SLICE_UNITS, WAITING_BYTES_MAX, Reader
from swarmd_protocols.state.crdt import messages as state
from swarmd_protocols.swim.messages import Message, Ping, Sub
from tests.support.frame_kinds import FORGED, KINDS, OF_SUBPROTOCOLS, frame_of
from tests.support.mutants import assert_found
from tests.support.whole_net import FILLER, READER, WholeNet, paid, sealed

COUNT = 4_000
"""Messages of one frame: nearly as many as are read."""
EMPTY = 5_000
"""Frames of nothing: what waits of one member are some 4,000 of them."""
LAST_CHECKS, LAST_EFFECTS = 64, 256
"""Of the message with which a slice ends: a push of statements is checked up to so much, a comparison answered."""
REFUSED_MAX = 150
"""Signatures that do not hold, of one frame: what the account of what is refused holds, and half as much."""


def formed() -> WholeNet:
    net = WholeNet(FILLER + 1, 3)
    assert net.run_until(net.formed, 15) is not None
    net.run(3)
    return net


def holds(net: WholeNet, messages: list[Message]) -> None:
    found = paid(net, messages)
    assert found.most_checks <= SLICE_UNITS // CHECK_UNITS + LAST_CHECKS
    assert found.most_effects <= SLICE_UNITS + LAST_EFFECTS
    assert found.sent_bytes <= 1_300_000
    assert net.hosts[READER].node._reader.waiting_bytes == 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_law_no_frame_of_one_kind_makes_an_event_long(kind: str) -> None:
    net = formed()
    holds(net, KINDS[kind](net, COUNT))


@settings(deadline=None, max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 400)), min_size=1, max_size=12))
def test_law_no_mixed_frame_makes_an_event_long(parts: list[tuple[str, int]]) -> None:
    net = formed()
    holds(net, frame_of(net, parts))


@pytest.mark.parametrize("kind", sorted(FORGED))
def test_law_what_does_not_hold_is_checked_up_to_a_bound_and_its_sender_named(kind: str) -> None:
    check_refused(kind)


def check_refused(kind: str) -> None:
    net = formed()
    found = paid(net, KINDS[kind](net, COUNT))
    assert found.checks <= REFUSED_MAX
    assert any(f"n{FILLER:03d}" in text for text in found.names)
    # Its membership is heard all the same: nobody looks dead for what a sub-protocol refused.
    assert kind not in OF_SUBPROTOCOLS or paid(net, [Ping(1, bytes(8))]).sent_bytes > 0


def check_lender_is_no_fountain() -> None:
    net = formed()
    asks = [Sub("offload", offload.encode_message(offload.Ask(bytes(32)))) for _ in range(COUNT)]
    found = paid(net, list(asks))
    answers = sum(isinstance(effect, SendStream) for effect in found.effects)
    assert answers <= lending.WORDS_BURST
    assert net.hosts[READER].node._subs["offload"]._lender.counts["over_rate"] > 0  # type: ignore[attr-defined]


def test_law_a_lender_answers_one_borrower_at_a_bounded_rate() -> None:
    check_lender_is_no_fountain()


def test_a_long_frame_is_read_to_its_end_and_in_order() -> None:
    net, count = formed(), 1_000
    asks = [Sub("offload", offload.encode_message(offload.Ask(n.to_bytes(32, "big")))) for n in range(count)]
    found = paid(net, list(asks))
    assert sum(isinstance(effect, SendStream) for effect in found.effects) == count
    # A message and its answer are two units.
    assert ceil(2 * count / SLICE_UNITS) <= found.events <= ceil(2 * count / SLICE_UNITS) + 2


def test_frames_behind_a_long_one_wait_in_their_order_up_to_a_bound() -> None:
    net, said = formed(), []
    reader = net.hosts[READER].node
    asks = [Sub("state", state.encode(state.ClockAsk(n))) for n in range(1_000)]
    for frame in [sealed(net, list(asks)), sealed(net, [Ping(77, bytes(8))])]:
        said += reader.handle(frame, net.now)
    assert reader._reader.waiting_bytes > 0
    assert reader.handle(sealed(net, [Ping(5, bytes(8))], FILLER - 1), net.now), "another's frame does not wait"
    big = [Sub("nobody", bytes(1_000_000))]
    for _ in range(8):
        reader.handle(sealed(net, list(big)), net.now)
        assert reader._reader.waiting_bytes <= WAITING_BYTES_MAX
    assert reader.summary().counters["frames_not_read"] >= 4
    net.perform(net.hosts[READER], said)
    net.run(1)
    assert reader._reader.waiting_bytes == 0
    assert paid(net, [Ping(78, bytes(8))]).events == 1


def test_frames_of_nothing_behind_a_long_one_are_bounded() -> None:
    net = formed()
    reader = net.hosts[READER].node
    reader.handle(sealed(net, [Sub("state", state.encode(state.ClockAsk(n))) for n in range(1_000)]), net.now)
    for _ in range(EMPTY):
        reader.handle(sealed(net, []), net.now)
    (queue,) = reader._reader._waiting.values()
    assert len(queue.frames) <= EMPTY - 800
    assert queue.cost_bytes <= WAITING_BYTES_MAX
    assert queue.cost_bytes == sum(one.cost_bytes for one in queue.frames)
    assert reader.summary().counters["frames_not_read"] >= 800


def whole_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.reader.SLICE_UNITS", 1 << 30)


def refusals_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.allowance.Allowance.spend_sub", lambda *arguments: None)


def lenders_answer_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "WORDS_BURST", 1 << 30)


def rest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "_wait", lambda self, frame: None)


def of_one_kind() -> None:
    for kind in ("clock ask", "ask to borrow", "place forged"):
        net = formed()
        holds(net, KINDS[kind](net, COUNT))


@pytest.mark.parametrize(
    ("mutant", "checker"),
    [
        (whole_frames, of_one_kind),
        (refusals_are_free, lambda: check_refused("place forged")),
        (lenders_answer_all, check_lender_is_no_fountain),
        (rest_is_dropped, test_a_long_frame_is_read_to_its_end_and_in_order),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_mutant_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], checker: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, checker, monkeypatch)
