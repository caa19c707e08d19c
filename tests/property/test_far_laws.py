"""Laws of streams to far members: whole, in order, or an error that names the hop; bounded for whoever is between."""

import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Alarm, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Send
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.mesh import far_intake, far_streams, far_words, relay, relay_order
from swarmd_protocols.swim.mesh.far_intake import FarIntake
from swarmd_protocols.swim.mesh.far_streams import FarStreams, Unsent
from swarmd_protocols.swim.mesh.far_words import Segment, Stuck
from swarmd_protocols.swim.mesh.relay import Relay
from swarmd_protocols.swim.mesh.relay_words import Onward
from tests.support.mesh_net import Echo, MeshNet
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.relay_net import formed, heard, relay_of, say
from tests.support.swim_net import S

SIZE = 60_000


def body(number: int, size: int = SIZE) -> bytes:
    """A payload that no other is."""
    return random.Random(number).randbytes(size)


def came(net: MeshNet, index: int) -> list[bytes]:
    """What came to a node, in order."""
    echo: Echo = net.hosts[index].node._subs["echo"]  # type: ignore[assignment]
    return [payload for _, payload in echo.heard]


def unsent(net: MeshNet, index: int) -> list[Unsent]:
    """What a node says did not come through."""
    told = (effect for _, at, effect in net.log if at == index)
    return [one.detail for one in told if isinstance(one, StateChanged) and isinstance(one.detail, Unsent)]


def only(found: list[Unsent]) -> Unsent:
    """The one that there is."""
    assert len(found) == 1, f"{len(found)} messages ended"
    return found[0]


def alarms(net: MeshNet, index: int) -> list[str]:
    """What it tells people of that."""
    return [one.text for _, at, one in net.log if at == index and isinstance(one, Alarm) and one.code == "far-stream"]


def far_of(net: MeshNet, index: int) -> FarStreams:
    """Of one node."""
    return net.hosts[index].node._far


# --- laws ----------------------------------------------------------------------------------------------------------


def what_is_large_comes_whole_and_in_order() -> None:
    """Over five hops, of whose frames one in ten is lost, through a cut of six seconds."""
    net = formed(6)
    net.loss = 0.1
    sent = [body(number, size) for number, size in enumerate((30_000, 18_000, 25_000))]
    for payload in sent:
        say(net, 0, 5, payload)
    net.run(5)
    cut = {(2, 3), (3, 2)}
    net.blocked |= cut
    net.run(6)
    net.blocked -= cut
    net.run(60)
    assert came(net, 5) == sent
    assert unsent(net, 0) == []


def where_it_ends_is_named_by_its_own_word() -> None:
    """The target takes nothing: whoever is before it says that it ended there, and is believed; a forger is not."""
    net = formed(5)
    net.hosts[4].node._relay.on_message = lambda *_: []  # type: ignore[method-assign]
    say(net, 0, 4, body(1))
    net.run(1)
    thief, victim = net.hosts[1].node, net.hosts[2].node
    for part in relay_of(net, 0)._said:
        word = Stuck(part, victim.node, bytes(64))
        net.hosts[0].node._core.now_ns = net.now
        far_of(net, 0).on_message(thief.node, encode(word), net.now)
    net.run(60)
    one = only(unsent(net, 0))
    assert (one.hop, one.is_hops_word) == (net.hosts[3].node.node, True), f"{one.hop} is named"
    assert (one.subprotocol, one.size_bytes > SIZE, one.came_bytes) == ("echo", True, 0)
    assert "by its own word" in alarms(net, 0)[0]


def who_drops_what_it_takes_is_found_behind_the_first_hop() -> None:
    """Nobody says anything: what is known is to whom it was handed, and how far it came."""
    net = formed(5)
    say(net, 0, 4, body(1))
    net.run(3)
    net.hosts[2].node._relay._hold = lambda *_: None  # type: ignore[method-assign]
    net.run(60)
    one = only(unsent(net, 0))
    assert (one.hop, one.is_hops_word) == (net.hosts[1].node.node, False)
    assert 0 < one.came_bytes < SIZE
    assert far_of(net, 0)._out == {}, "it is sent for ever"


def streams_leave_room_for_what_is_short() -> None:
    """Two members send over the same one more than it may hand on: short words pass, its queue stays short."""
    net = formed(5, {(0, 2), (1, 2), (2, 3), (3, 4)})
    for source in (0, 1):
        say(net, source, 4, body(source, 120_000))
    begun, longest, held, spent = net.now, 0, 0, net.hosts[2].node._core.counters["relay_bytes"]
    for number in range(30):
        at, short = net.now, b"short" + number.to_bytes(2, "big")
        say(net, 0, 4, short)
        while not heard(net, 4)[short] and net.now - at < 5 * S:
            net.run(0.1)
            held = max(held, len(relay_of(net, 2)._held))
        longest = max(longest, net.now - at)
        net.run(0.5)
    spent = net.hosts[2].node._core.counters["relay_bytes"] - spent
    assert spent <= relay.RELAY_BYTES_S * (net.now - begun) / S + 24_000, "more is handed on than the budget"
    assert held <= 3 * far_streams.WINDOW_MAX, f"{held} parts wait at the middle"
    assert longest <= 1.5 * S, f"a short word took {longest / S} s"
    net.run(120)
    assert Counter(len(one) for one in came(net, 4))[120_000] == 2, "one stream leaves nothing for the other"


def who_comes_near_is_sent_the_rest_directly() -> None:
    """A quarter of a megabyte takes 85 s over three hops; the two meet after ten."""
    net = formed(5)
    payload = body(3, 250_000)
    say(net, 0, 4, payload)
    net.run(10)
    assert came(net, 4) == []
    net.relink({(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)})
    net.run(12)
    assert came(net, 4) == [payload]
    net.run(10)
    assert came(net, 4) == [payload], "it came twice"


def a_direct_path_is_tried_and_taken() -> None:
    """The two hear each other, and neither has the other among its near ones, as in a crowd."""
    net = formed(5)
    ends = net.hosts[0].node, net.hosts[4].node
    for end, other in (ends, ends[::-1]):
        turns = end._core.view.turns
        turns.is_wanted = lambda one, wanted=turns.is_wanted, not_that=other.node: one.node != not_that and wanted(one)
        end._core.view.hears_far = lambda _: None
    net.relink({(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)})
    payload, before = body(4, 200_000), net.hosts[2].node._core.counters["relay_bytes"]
    say(net, 0, 4, payload)
    net.run(15)
    assert all(end._core.table.by_node[other.node].where < 0 for end, other in (ends, ends[::-1]))
    assert came(net, 4) == [payload], "it goes the long way"
    assert net.hosts[2].node._core.counters["relay_bytes"] - before < 40_000


def segments_cost_their_target_a_bound() -> None:
    """Of many origins, in any order: what is kept and what is answered stay within bounds."""
    net = formed(4)
    target, rng = net.hosts[3].node, random.Random(5)
    one, known = target._far._intake, target._core.table.by_node
    first = known[net.hosts[0].node.node]
    crowd = [NodeId(bytes((index,)) * 16) for index in range(40)]
    for node in crowd:
        known[node] = first
    answers = 0
    for step in range(4_000):
        target._core.now_ns = now = net.now + step * S // 400
        node = crowd[rng.randrange(40)]
        unit = rng.randrange(far_words.UNITS_MAX - 1)
        word = Segment(1, far_words.SIZE_MAX_BYTES, unit, bytes(far_words.UNIT_BYTES))
        member = _Named(first, node)
        one.on_segment(member, word, now, is_direct=False)  # type: ignore[arg-type]
        answers += sum(isinstance(effect, Send) for effect in one.answer(now))
    assert len(one) <= far_intake.ORIGINS_MAX
    assert all(len(held.parts) <= far_words.AHEAD_MAX + 1 + held.upto for held in one._in.values())
    assert 0 < answers <= 8 * 10 + 16, f"{answers} answers in 10 s"


def who_sends_more_than_is_answered_keeps_nobody_waiting() -> None:
    """A hundred segments of a byte a second, one way or the other, beside a member whose window is one unit."""
    for is_direct in (False, True):
        net = formed(4)
        target = net.hosts[3].node
        one, known = FarIntake(target._core, lambda *_: None, lambda *_: None), target._core.table.by_node
        liar, honest = (known[net.hosts[index].node.node] for index in (0, 1))
        unit = answered = 0
        for step in range(2_000):
            target._core.now_ns = now = net.now + step * S // 100
            one.on_segment(liar, Segment(1 + step // 10, 1, 0, b"!"), now, is_direct=is_direct)
            if step % 50 == 0 and unit == answered:
                word = Segment(1, far_words.SIZE_MAX_BYTES, unit, bytes(far_words.UNIT_BYTES))
                one.on_segment(honest, word, now, is_direct=False)
                unit += 1
            said = [effect for effect in one.answer(now) if isinstance(effect, Send)]
            answered += sum(effect.to == honest.node for effect in said)
        assert answered >= 15, f"{answered} answers of 20 s (direct: {is_direct})"


def who_has_much_sent_to_itself_keeps_nothing_from_others() -> None:
    """A borrower of large answers, four at once, beside one of a small one."""
    net = formed(6)
    for _ in range(5):
        say(net, 0, 5, bytes(200_000))
    say(net, 0, 3, body(3, 30_000))
    say(net, 0, 4, body(4, 30_000))
    ends = [one.to for one in unsent(net, 0)]
    assert ends == [net.hosts[5].node.node], f"{len(ends)} ended"
    say(net, 0, 5, bytes(200_000))
    assert len(unsent(net, 0)) == 2, "it took the place of the one that made room"
    net.run(60)
    assert came(net, 3) == [body(3, 30_000)]
    assert came(net, 4) == [body(4, 30_000)]
    assert len(unsent(net, 0)) == 2


class _Named:
    """A member by another name."""

    def __init__(self, member: object, node: NodeId) -> None:
        self.member, self.node = member, node


def who_is_no_member_is_sent_nothing_more() -> None:
    """It is forgotten, as who is revoked is: all that waits for it ends, and says so."""
    net = formed(4)
    source, target = net.hosts[0].node, net.hosts[3].node.node
    for number in range(3):
        say(net, 0, 3, body(number))
    net.run(2)
    member = source._core.table.by_node.pop(target)
    net.perform(net.hosts[0], source._far.on_peers([], net.now))
    ended = far_of(net, 0)._out == {}
    source._core.table.by_node[target] = member
    assert ended, "it is still sent something"


# --- mutants -------------------------------------------------------------------------------------------------------


def _nothing_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FarStreams, "_lose", lambda self, out, one, unit: one.flight.pop(unit))


def _the_last_goes_first(patch: pytest.MonkeyPatch) -> None:
    whole = FarStreams.carry

    def carry(self: FarStreams, to: NodeId, subprotocol: str, message: bytes) -> list[far_streams.SubEffect]:
        effects = whole(self, to, subprotocol, message)
        if to in self._out:
            self._out[to].messages.rotate(1)
        return effects

    patch.setattr(FarStreams, "carry", carry)


def _nobody_says_where(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FarStreams, "on_given_up", lambda self, part, via: [])


def _anybodys_word_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "signed_by", lambda *_: True)
    patch.setattr(far_streams, "_STUCK_KEPT_NS", 10**12)
    whole = FarStreams._on_stuck

    def on_stuck(self: FarStreams, sender: NodeId, word: Stuck, now_ns: int) -> list[far_streams.SubEffect]:
        before = dict(self._stuck)
        effects = whole(self, sender, word, now_ns)
        self._stuck.update(before)
        return effects

    patch.setattr(FarStreams, "_on_stuck", on_stuck)


def _it_is_sent_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(far_streams, "IDLE_NS", 10**15)


def _no_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(far_streams, "WINDOW_MAX", 60)
    patch.setattr(far_streams, "_WINDOW_BEGIN", 60.0)
    patch.setattr(far_streams.TokenBucket, "take", lambda *_: True)


def _long_ones_stand_before_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay_order, "SHORT_BYTES", 0)


def _near_is_far(patch: pytest.MonkeyPatch) -> None:
    whole = FarStreams._send

    def send(self: FarStreams, node: NodeId, out: object, now_ns: int) -> object:
        if self._core.table.by_node[node].where >= 0:
            return None
        return whole(self, node, out, now_ns)  # type: ignore[arg-type]

    patch.setattr(FarStreams, "_send", send)


def _nobody_tries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(far_streams, "_TRIED_NS", 1 << 63)
    patch.setattr("swarmd_protocols.sends.IN_REACH_NS", -1)  # Nor is it asked whether it hears.


def _every_segment_is_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(far_intake.TokenBucket, "take", lambda *_: True)


def _who_came_first_is_answered_first(patch: pytest.MonkeyPatch) -> None:
    due = FarIntake._due
    patch.setattr(FarIntake, "_due", lambda self, now_ns: sorted(due(self, now_ns), key=lambda one: -one[1].turn))


def _who_is_heard_directly_is_answered_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FarIntake, "_is_first", lambda *_: True)


def _who_comes_late_has_no_room(patch: pytest.MonkeyPatch) -> None:
    def room(self: FarStreams, to: NodeId, size_bytes: int) -> list[object] | None:
        held = sum(len(one.data) for out in self._out.values() for one in out.messages)
        return None if held + size_bytes > far_streams.QUEUED_MAX_BYTES else []

    patch.setattr(FarStreams, "_make_room", room)


def _all_origins_have_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FarIntake, "_has_room", lambda *_: True)


def _all_units_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(far_intake, "AHEAD_MAX", far_words.UNITS_MAX)


def _who_was_a_member_stays_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FarStreams, "_give_up", lambda self, node, why: self._out[node].messages.clear() or [])
    patch.setattr(FarStreams, "on_peers", lambda *_: [])


LAWS: list[tuple[Law, Mutant]] = [
    (what_is_large_comes_whole_and_in_order, _nothing_is_sent_again),
    (what_is_large_comes_whole_and_in_order, _the_last_goes_first),
    (where_it_ends_is_named_by_its_own_word, _nobody_says_where),
    (where_it_ends_is_named_by_its_own_word, _anybodys_word_counts),
    (who_drops_what_it_takes_is_found_behind_the_first_hop, _it_is_sent_for_ever),
    (streams_leave_room_for_what_is_short, _no_window),
    (streams_leave_room_for_what_is_short, _long_ones_stand_before_short),
    (who_comes_near_is_sent_the_rest_directly, _near_is_far),
    (a_direct_path_is_tried_and_taken, _nobody_tries),
    (segments_cost_their_target_a_bound, _every_segment_is_answered),
    (segments_cost_their_target_a_bound, _all_origins_have_room),
    (segments_cost_their_target_a_bound, _all_units_are_kept),
    (who_sends_more_than_is_answered_keeps_nobody_waiting, _who_came_first_is_answered_first),
    (who_sends_more_than_is_answered_keeps_nobody_waiting, _who_is_heard_directly_is_answered_first),
    (who_has_much_sent_to_itself_keeps_nothing_from_others, _who_comes_late_has_no_room),
    (who_is_no_member_is_sent_nothing_more, _who_was_a_member_stays_one),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)


# --- hostile bytes -------------------------------------------------------------------------------------------------

_NET: list[MeshNet] = []


def _words() -> Iterator[st.SearchStrategy[bytes]]:
    number = st.integers(-1, 2**63 - 1)
    yield st.binary(max_size=1_200)
    yield st.builds(
        lambda *fields: msgspec.msgpack.encode(Segment(*fields)),
        number,
        st.integers(-1, far_words.SIZE_MAX_BYTES + 1),
        st.integers(-1, far_words.UNITS_MAX + 1),
        st.integers(0, 3_000).map(bytes),
    )
    yield st.builds(
        lambda *fields: msgspec.msgpack.encode(far_words.Got(*fields)),
        number,
        st.integers(-1, far_words.UNITS_MAX + 1),
        st.binary(max_size=9),
    )
    yield st.builds(
        lambda *fields: msgspec.msgpack.encode(Stuck(*fields)),
        st.binary(min_size=8, max_size=8),
        st.binary(min_size=15, max_size=16),
        st.binary(min_size=64, max_size=64),
    )


@settings(max_examples=300)
@given(st.one_of(*_words()), st.sampled_from((0, 2, 3)))
def test_no_bytes_raise_or_pile_up(payload: bytes, sender: int) -> None:
    if not _NET:
        _NET.append(formed(4))
    net = _NET[0]
    one = far_of(net, 1)
    net.hosts[1].node._core.now_ns = net.now
    one.on_message(net.hosts[sender].node.node, payload, net.now)
    assert len(one._intake) <= far_intake.ORIGINS_MAX
    assert one._out == {}
    assert one._stuck == {}


def test_a_unit_is_one_part_of_the_relays() -> None:
    net = formed(4)
    word = Segment((1 << 63) - 1, far_words.SIZE_MAX_BYTES, far_words.UNITS_MAX - 2, bytes(far_words.UNIT_BYTES))
    source = net.hosts[0].node
    source._core.now_ns = net.now
    source._wire.effects = []
    source._perform(source._far, [Send(net.hosts[3].node.node, encode(word), True, far_streams.Priority.BULK)])
    assert len(relay_of(net, 0)._said) == 1
    assert isinstance(relay_of(net, 0), Relay)


def test_streams_end_at_once_and_who_hears_of_one_begins_another() -> None:
    """What begins while a turn is under way takes a turn itself, in which the second of two ends."""
    net = formed(6)
    told: list[NodeId] = []

    class Follows(Echo):
        def on_unsent(self, to: NodeId, now_ns: int) -> list[Send]:
            told.append(to)
            return [Send(net.hosts[3].node.node, body(9), True, far_streams.Priority.BULK)] if len(told) == 1 else []

    net.hosts[0].node._subs["echo"].__class__ = Follows
    for index in (4, 5):
        net.hosts[index].node._far.on_message = lambda *_: []  # type: ignore[method-assign]
        say(net, 0, index, body(index))
    net.run(60)
    ends = sorted(net.hosts[index].node.node for index in (4, 5))
    assert sorted(told) == sorted(one.to for one in unsent(net, 0)) == ends
    assert came(net, 3) == [body(9)]


def test_parts_end_at_once_and_who_brought_them_is_far_by_now() -> None:
    """The word about the first goes the way of parts itself, and has the others end."""
    net = formed(5)
    middle, source, target = (net.hosts[index].node for index in (2, 0, 4))
    one = middle._relay
    middle._core.now_ns, middle._wire.effects = net.now, []
    assert middle._core.table.by_node[source.node].where < 0
    for number in range(3):
        part = Onward(target.node, 9, 60_000, True, number.to_bytes(8, "big"), 0, 1, bytes(500))
        one._hold(relay._name(part), part, source.node)
    for held in one._held.values():
        held.until_ns = net.now
    ended = middle._core.counters["relay_given_up"]
    middle._perform(one, one._turn(net.now))
    assert middle._core.counters["relay_given_up"] - ended == 3
    assert all(held.via is None for held in one._held.values())


def test_what_would_not_make_room_enough_stays_where_it_was() -> None:
    far, sizes = far_of(formed(4), 0), ((264_000, 7_000, 3_000), (264_000, 10_000), (264_000,), (230_000,))
    for index, each in enumerate(sizes):
        out = far._out[NodeId(bytes([index]) * 16)] = far_streams._Out()
        out.messages.extend(far_streams._Message("echo", bytes(size)) for size in each)
    assert far._make_room(NodeId(bytes(16)[:15] + b"!"), 264_000) is None
    assert [tuple(len(one.data) for one in out.messages) for out in far._out.values()] == list(sizes)


def test_what_is_too_large_or_too_much_is_told_at_once() -> None:
    net = formed(4)
    say(net, 0, 3, bytes(far_words.SIZE_MAX_BYTES))
    assert [one.why for one in unsent(net, 0)] == [f"a message has {far_words.SIZE_MAX_BYTES} bytes at most"]
    for _ in range(6):
        say(net, 0, 3, bytes(200_000))
    assert [one.why for one in unsent(net, 0)[1:]] == ["too much waits already"]
    assert len(alarms(net, 0)) == 1, "one in a minute is enough"
