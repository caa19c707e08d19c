"""Laws of frames that others hand on: they arrive once, end, go in no circle, and cost who hands them on a bound."""

from collections import Counter
from random import Random

import msgspec
import pytest

from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import TimerFired
from swarmd_protocols.ids import NodeId
from swarmd_protocols.reader import SLICE_UNITS
from swarmd_protocols.subprotocol import Priority, Send
from swarmd_protocols.swim.mesh import relay
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.mesh.relay import Relay
from swarmd_protocols.swim.mesh.relay_words import Onward, Taken, decode_message
from swarmd_protocols.swim.mesh.routes import Routes, Way
from swarmd_protocols.swim.messages import Ping, Sub
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.relay_net import count_of, formed, heard, relay_of, say
from tests.support.swim_net import S

SMALL, LARGE, BYTES_S = 100, 9_000, relay.RELAY_BYTES_S


# --- laws ----------------------------------------------------------------------------------------------------------


def what_is_sent_reliably_arrives_once() -> None:
    """On a line of eight, of whose frames three in ten are lost, from any to any."""
    net = formed(8)
    net.loss, rng = 0.3, Random(3)
    wanted: dict[int, Counter[bytes]] = {}
    for number in range(60):
        source, target = rng.sample(range(8), 2)
        payload = number.to_bytes(2, "big") * (SMALL // 2)
        wanted.setdefault(target, Counter())[payload] += 1
        if abs(source - target) > 1:
            say(net, source, target, payload)
        else:
            wanted[target][payload] -= 1
        net.run(0.3)
    net.loss = 0.0
    net.run(4)
    for target, payloads in wanted.items():
        assert heard(net, target) == +payloads


def large_frames_arrive_whole() -> None:
    """In parts, through losses."""
    net = formed(5)
    net.loss = 0.1
    for number in range(4):
        say(net, 0, 4, bytes([number]) * LARGE)
        net.run(12)
    assert heard(net, 4) == Counter({bytes([number]) * LARGE: 1 for number in range(4)})


def few_that_agree_leave_room_for_another() -> None:
    """Four near members keep all that they may; what a fifth brings is taken, and they keep no more than it could."""
    centre, last = 5, 6
    net = formed(8, {(at, centre) for at in range(5)} | {(centre, last), (last, 7)})
    one, target = relay_of(net, centre), net.hosts[7].node.node
    rng, count = Random(8), relay.HELD_MAX // 4
    net.hosts[centre].node._core.now_ns = net.now
    one._spent_ns[False] = net.now + S  # What there was to hand on for others is used up.

    def brings(index: int) -> bool:
        onward = Onward(target, 9, 60_000, True, rng.randbytes(8), 0, 1, rng.randbytes(100))
        return bool(one.on_message(net.hosts[index].node.node, msgspec.msgpack.encode(onward), net.now))

    for _ in range(2 * count):
        for index in range(4):
            brings(index)
    taken = 0
    for _ in range(count):
        taken += brings(4)
        for index in range(4):
            brings(index)
    share = relay.HELD_MAX // 5
    assert taken >= share, f"of a fifth one's parts {taken} are taken"
    held = Counter(part.via for part in one._held.values())
    assert held.total() <= relay.HELD_MAX, "too much waits"
    assert all(share - 1 <= held[net.hosts[index].node.node] <= share + 2 for index in range(5)), "shares differ"


def who_has_not_taken_a_node_in_hands_nothing_on_for_it() -> None:
    """Two lead to the last one; one of them answers the first and, as in a crowd, does not have it among its near."""
    for unwilling in (1, 2):
        net = formed(4, {(0, 1), (0, 2), (1, 3), (2, 3)})
        core, first = net.hosts[unwilling].node._core, net.hosts[0].node.node
        view, member = core.view, core.table.by_node[first]
        wanted = view.turns.is_wanted
        view.turns.is_wanted = lambda other, wanted=wanted, first=first: other.node != first and wanted(other)
        core.now_ns = net.now
        view.loses_link(member, gone=False)
        net.run(3)
        assert member.where < 0 <= net.hosts[0].node._core.table.by_node[net.hosts[unwilling].node.node].where
        say(net, 0, 3, b"once", sure=False)
        net.run(1)
        assert heard(net, 3) == Counter({b"once": 1})


def what_was_taken_goes_on_though_its_way_became_dearer() -> None:
    """As where nodes move: by its own reckoning the rest costs a hop more than what it took the part for."""
    net = formed(4)
    first, one, target = net.hosts[0].node.node, relay_of(net, 1), net.hosts[3].node.node
    net.hosts[1].node._core.now_ns = net.now
    view, last = net.hosts[1].node._core.view, net.hosts[2].node.node[:KEY_BYTES]
    truth, onward = view.routes, Onward(target, 9, 20, True, bytes(8), 0, 1, bytes(100))
    assert one._take(first, onward, net.now)
    view.routes = _Believes(Way(30, 4, last))
    sent = [decode_message(effect.payload) for effect in one._turn(net.now) if isinstance(effect, Send)]
    view.routes = truth
    assert [part.cost for part in sent if isinstance(part, Onward)] == [19]


def what_has_nobody_nearer_left_takes_another_way() -> None:
    """The next hop has moved away, and who is left reckons more than the part was taken for: it is stamped anew.

    That takes a hop more of those it has, so it ends however the others' ways change.
    """
    net = formed(4)
    first, one, target = net.hosts[0].node.node, relay_of(net, 1), net.hosts[3].node.node
    core, last = net.hosts[1].node._core, net.hosts[2].node.node[:KEY_BYTES]
    core.now_ns = net.now
    truth, hops = core.view.routes, 9
    assert one._take(first, Onward(target, hops, 9, True, bytes(8), 0, 1, bytes(100)), net.now)
    parts = []
    for step in range(40):
        core.view.routes = _Believes(Way(20 + 5 * step, 16 + 5 * step, last))
        core.now_ns = net.now + step * 100_000_000
        sent = [decode_message(effect.payload) for effect in one._turn(core.now_ns) if isinstance(effect, Send)]
        parts += [part for part in sent if isinstance(part, Onward)]
    core.view.routes = truth
    assert parts, "it has waited until it was dropped"
    assert parts[0].cost == 20
    assert parts[0].hops == hops - 1 - relay._ANEW_HOPS
    assert all(part.hops >= 1 for part in parts)
    assert len({part.hops for part in parts}) > 1, "each time it is stamped anew costs a hop"


def what_comes_back_is_left_to_its_sender() -> None:
    """Who has handed a part on says nothing when it comes back from another: it would end there."""
    net = formed(4)
    one, target = relay_of(net, 1), net.hosts[3].node.node
    first, second = net.hosts[0].node.node, net.hosts[2].node.node
    net.hosts[1].node._core.now_ns = net.now
    part = Onward(target, 9, 60_000, True, bytes(8), 0, 1, bytes(100))
    assert _is_taken(one._take(first, part, net.now))
    assert _is_taken(one._take(second, part, net.now)), "it is still here, and seen to"
    one._turn(net.now)
    assert not _is_taken(one._take(second, part, net.now)), "who was asked may have it, and this be what it sent on"
    one._held.clear()
    assert _is_taken(one._take(first, part, net.now)), "the first did not hear it"
    assert not _is_taken(one._take(second, part, net.now))


def what_comes_back_to_its_origin_is_left_to_its_sender() -> None:
    """It has handed it on as any other has: taken as somebody else's it would go the same way once more."""
    net = formed(4)
    one, middle, far = relay_of(net, 0), net.hosts[1].node.node, net.hosts[3]
    core = net.hosts[0].node._core
    core.now_ns = net.now
    sent = one.carry(core.table.by_node[far.node.node], bytes(100), sure=True)
    [part] = [decode_message(effect.payload) for effect in sent if isinstance(effect, Send)]
    assert isinstance(part, Onward)
    back = msgspec.structs.replace(part, hops=9, cost=60_000)
    assert one._take(middle, back, net.now) == []
    assert [held.via for held in one._held.values()] == [None]
    one._held.clear()
    assert one._take(middle, back, net.now) == []
    assert not one._held


def _is_taken(effects: list[relay.SubEffect]) -> bool:
    return any(isinstance(one, Send) and isinstance(decode_message(one.payload), Taken) for one in effects)


class _Believes(Routes):
    """Routes of a node that believes what it is told."""

    def __init__(self, *ways: Way) -> None:
        super().__init__()
        self.told = list(ways)

    def ways(self, target: bytes) -> list[Way]:
        return self.told


def nothing_goes_in_a_circle() -> None:
    """Three each believe that the next one leads to the fourth: nobody takes what it cannot bring nearer.

    So when they know better, it is still where it was, and arrives.
    """
    links = {(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 6)}
    net = formed(7, links)
    keys = [host.node.node[:KEY_BYTES] for host in net.hosts]
    views = [net.view(index) for index in range(3)]
    truths = [view.routes for view in views]
    for index, view in enumerate(views):
        view.routes = _Believes(Way(12, 8, keys[(index + 1) % 3]))
        view.routes.know = lambda *_: None
    say(net, 0, 5, b"round and round")
    net.run(1.5)
    taken = count_of(net, "relay_taken")
    for view, truth in zip(views, truths, strict=True):
        view.routes = truth
    net.run(3)
    assert heard(net, 5) == Counter({b"round and round": 1}), "it went in a circle"
    assert taken == 0


def a_flood_costs_a_bound_and_keeps_room_for_others() -> None:
    """A member hands its neighbour all it can for somebody far; another's frames over the same one still arrive."""
    net = formed(6, {(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)})
    thief, middle = net.hosts[0].node, net.hosts[2]
    target, begin = net.hosts[5].node.node, count_of(net, "relay_bytes")
    rng = Random(2)
    for step in range(200):
        for _ in range(20):
            onward = Onward(target, 9, 60_000, True, rng.randbytes(8), 0, 1, rng.randbytes(1_000))
            message = encode(Sub("relay", msgspec.msgpack.encode(onward)))
            core = thief._core
            core.now_ns = net.now
            thief._wire.effects = []
            thief._wire.push(core.table.by_node[middle.node.node], [message])
            net.perform(net.hosts[0], thief._wire.effects)
        if step % 10 == 0:
            say(net, 1, 5, step.to_bytes(2, "big") * 450)
        net.run(0.1)
    spent = middle.node._core.counters["relay_bytes"]
    assert spent <= BYTES_S * 20 + 2 * 24_000, "who hands on pays for the flood"
    assert count_of(net, "relay_bytes") - begin <= 4 * (BYTES_S * 20 + 2 * 24_000)
    net.run(4)
    assert sum(heard(net, 5).values()) >= 18, "the flood leaves nothing for others"
    assert len(relay_of(net, 2)._held) <= relay.HELD_MAX


def crumbs_cost_what_carries_them() -> None:
    """Parts of one byte each: what carries them is paid for too."""
    net, rng = formed(5), Random(4)
    one, near, target = relay_of(net, 1), net.hosts[0].node.node, net.hosts[4].node.node
    net.hosts[1].node._core.now_ns = net.now
    sent = 0
    for _ in range(2_000):
        onward = Onward(target, 9, 60_000, False, rng.randbytes(8), 0, 1, b"x")
        for effect in one.on_message(near, msgspec.msgpack.encode(onward), net.now):
            sent += len(encode(Sub("relay", effect.payload))) if isinstance(effect, Send) else 0
    assert 0 < sent <= relay._RELAY_BURST_BYTES, f"{sent} bytes were sent for others at once"


def what_is_begun_and_not_ended_shuts_nobody_out() -> None:
    """First parts of frames the rest of which never comes; one who sends whole frames over the same member is heard."""
    net, rng = formed(5), Random(5)
    last, near = net.hosts[4].node, net.hosts[3].node.node
    for _ in range(4 * relay._WHOLES_MAX):
        last._core.now_ns = net.now
        onward = Onward(last.node, 9, 60_000, False, rng.randbytes(8), 0, 2, rng.randbytes(20))
        last._relay.on_message(near, msgspec.msgpack.encode(onward), net.now)
    assert len(last._relay._wholes) <= relay._WHOLES_SHARE
    say(net, 0, 4, b"whole" * (LARGE // 5))
    net.run(4)
    assert heard(net, 4) == Counter({b"whole" * (LARGE // 5): 1})


def nobody_hands_on_for_who_is_no_member() -> None:
    """Nor to such: a target that is not held here, or not reached, is left to its sender."""
    net = formed(5)
    one = relay_of(net, 1)
    near = net.hosts[0].node.node
    for target in (NodeId(b"\x07" * 16), net.hosts[1].node._core.own.node[:8] + bytes(8)):
        net.hosts[1].node._core.now_ns = net.now
        onward = Onward(target, 9, 60_000, True, bytes(8), 0, 1, b"data")
        assert one.on_message(near, msgspec.msgpack.encode(onward), net.now) == []
    stranger = NodeId(b"\x09" * 16)
    onward = Onward(net.hosts[4].node.node, 9, 60_000, True, bytes(8), 0, 1, b"data")
    for sender in (stranger, net.hosts[3].node.node):  # Nobody's, and a member's that is not near.
        assert one.on_message(sender, msgspec.msgpack.encode(onward), net.now) == []
    assert not one._held


def only_who_was_asked_says_that_it_is_taken() -> None:
    """A neighbour that was not asked cannot make a part vanish."""
    net = formed(7, {(0, 1), (1, 2), (2, 3), (1, 4), (4, 5), (5, 6)})
    net.blocked.add((2, 1))  # What the next hop answers is lost.
    net.blocked.add((1, 2))
    say(net, 1, 3, b"not yours")
    one, other = relay_of(net, 1), net.hosts[4].node.node
    for name in list(one._held):
        net.hosts[1].node._core.now_ns = net.now
        one.on_message(other, msgspec.msgpack.encode(Taken(name)), net.now)
    assert one._held, "somebody else's word took it away"


def a_frame_of_many_words_is_read_in_slices() -> None:
    """As many as a frame holds do not hold the loop up for all of them."""
    net = formed(4)
    source, target = net.hosts[0].node, net.hosts[3].node
    member = target._core.table.by_node[source.node]
    body = join([encode(Sub("echo", b""))] * 1_500)
    target._core.now_ns = net.now
    target._wire.effects = []
    target._reader.take_relayed(member, body)
    assert 0 < sum(heard(net, 3).values()) <= SLICE_UNITS, "all of it in one event"
    net.perform(net.hosts[3], target._wire.effects)
    net.feed(3, TimerFired(("relay",)))
    net.run(1)
    assert sum(heard(net, 3).values()) == 1_500


def words_of_membership_are_not_handed_on() -> None:
    """What a link's own frames say would tell of a link that is not there."""
    net = formed(5)
    source, target = net.hosts[0].node, net.hosts[4].node
    member = source._core.table.by_node[target.node]
    source._core.now_ns = net.now
    for message in (Ping(1, bytes(8)), Sub("relay", b"\x92\x02\xc4\x08" + bytes(8))):
        source._wire.effects = []
        source._perform(source._relay, source._relay.carry(member, encode(message), sure=True))
        net.perform(net.hosts[0], source._wire.effects)
        net.run(1)
    assert target._core.counters["relay_arrived"] == 2
    assert source.node not in {one.node for one in target._core.table.reachable}
    assert target._core.table.by_node[source.node].link.heard_ns < net.now - 2 * S


# --- mutants -------------------------------------------------------------------------------------------------------


def _cost_need_not_fall(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "_leads_on", lambda self, sender, onward: True)
    whole = Relay._go

    def go(self: Relay, name: bytes, held: relay._Held, now_ns: int) -> list[relay.SubEffect]:
        held.onward = msgspec.structs.replace(held.onward, cost=65_535)
        return whole(self, name, held, now_ns)

    patch.setattr(Relay, "_go", go)


def _one_side_is_enough(patch: pytest.MonkeyPatch) -> None:
    whole = Routes.know

    def know(self: Routes, own: bytes, near: dict[bytes, int], links: dict[bytes, dict[bytes, int]]) -> None:
        whole(self, own, near, {key: {own: 4, **heard} for key, heard in links.items()})

    patch.setattr(Routes, "know", know)


def _dearer_ways_are_none(patch: pytest.MonkeyPatch) -> None:
    whole = Relay._go

    def go(self: Relay, name: bytes, held: relay._Held, now_ns: int) -> list[relay.SubEffect] | None:
        ways = self._core.view.routes.ways(held.onward.target[:KEY_BYTES])
        return [] if ways and ways[0].cost >= held.onward.cost else whole(self, name, held, now_ns)

    patch.setattr(Relay, "_go", go)


def _never_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "_ANEW_HOPS", relay.HOPS_MAX)


def _anew_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "_ANEW_HOPS", 0)


def _seen_is_taken(patch: pytest.MonkeyPatch) -> None:
    whole = Relay._take

    def take(self: Relay, sender: NodeId, onward: Onward, now_ns: int) -> list[relay.SubEffect]:
        name = relay._name(onward)
        return (
            [Send(sender, encode(Taken(name)), False, Priority.PROBE)]
            if name in self._seen
            else whole(self, sender, onward, now_ns)
        )

    patch.setattr(Relay, "_take", take)


def _own_parts_are_anybodys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "HELD_MAX", 1)
    patch.setattr(relay, "_note", lambda held, key, node, most: held.update({key: node} if most > 1 else {}))


def _nobody_answers(patch: pytest.MonkeyPatch) -> None:
    whole = Relay._take
    patch.setattr(
        Relay,
        "_take",
        lambda self, sender, onward, now_ns: whole(self, sender, msgspec.structs.replace(onward, sure=False), now_ns),
    )


def _nothing_was_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "_remember", lambda self, name, via: None)


def _parts_are_wholes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "_arrive", lambda self, sender, onward, now_ns: self._open(onward.data))


def _handing_on_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "RELAY_BYTES_S", 1_000_000)


def _first_come_first_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "HELD_SHARE", relay.HELD_MAX)
    whole = Relay._hold

    def hold(self: Relay, name: bytes, onward: Onward, via: NodeId | None) -> None:
        whole(self, name, onward, via)
        self._held[name].via = via and NodeId(bytes(16))

    patch.setattr(Relay, "_hold", hold)


def _who_is_first_keeps_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Relay,
        "_has_room_of",
        lambda self, sender: len(self._held) < relay.HELD_MAX and self._waiting_of(sender) < relay.HELD_SHARE,
    )


def _anybody_is_led_to(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "_leads_on", lambda self, sender, onward: True)


def _anybodys_word_counts(patch: pytest.MonkeyPatch) -> None:
    whole = Relay.on_message

    def on_message(self: Relay, sender: NodeId, payload: bytes, now_ns: int) -> list[relay.SubEffect]:
        for held in self._held.values():
            held.asked.add(sender)
        return whole(self, sender, payload, now_ns)

    patch.setattr(Relay, "on_message", on_message)


def _a_crumb_is_a_byte(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "PART_LEAST_BYTES", 1)


def _the_newest_is_let_go(patch: pytest.MonkeyPatch) -> None:
    whole = Relay._arrive

    def arrive(self: Relay, sender: NodeId, onward: Onward, now_ns: int) -> None:
        if onward.whole in self._wholes or len(self._wholes) < relay._WHOLES_SHARE:
            whole(self, sender, onward, now_ns)

    patch.setattr(Relay, "_arrive", arrive)


LAWS: list[tuple[Law, Mutant]] = [
    (crumbs_cost_what_carries_them, _a_crumb_is_a_byte),
    (what_is_begun_and_not_ended_shuts_nobody_out, _the_newest_is_let_go),
    (what_is_sent_reliably_arrives_once, _nobody_answers),
    (who_has_not_taken_a_node_in_hands_nothing_on_for_it, _one_side_is_enough),
    (what_was_taken_goes_on_though_its_way_became_dearer, _dearer_ways_are_none),
    (what_has_nobody_nearer_left_takes_another_way, _never_anew),
    (what_has_nobody_nearer_left_takes_another_way, _anew_for_nothing),
    (what_comes_back_is_left_to_its_sender, _seen_is_taken),
    (what_comes_back_to_its_origin_is_left_to_its_sender, _own_parts_are_anybodys),
    (large_frames_arrive_whole, _parts_are_wholes),
    (nothing_goes_in_a_circle, _cost_need_not_fall),
    (a_flood_costs_a_bound_and_keeps_room_for_others, _handing_on_is_free),
    (a_flood_costs_a_bound_and_keeps_room_for_others, _first_come_first_served),
    (few_that_agree_leave_room_for_another, _who_is_first_keeps_all),
    (nobody_hands_on_for_who_is_no_member, _anybody_is_led_to),
    (only_who_was_asked_says_that_it_is_taken, _anybodys_word_counts),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)


def test_words_of_membership_are_not_handed_on() -> None:
    words_of_membership_are_not_handed_on()


def test_a_frame_of_many_words_is_read_in_slices() -> None:
    a_frame_of_many_words_is_read_in_slices()


def test_a_part_that_comes_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its whole is opened: the pair's channel refuses what it has seen."""
    _nothing_was_seen(monkeypatch)
    what_is_sent_reliably_arrives_once()
