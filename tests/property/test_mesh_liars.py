"""What one member that lies can do to others in a mesh: what it says over and over keeps nobody cut off, asked or busy.

It holds a genuine key, is near some, and says whatever it likes as often as it likes.
"""

from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.members import LinkState, Member
from swarmd_protocols.swim.mesh import mesh_view, relay, relay_order, reports
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, PERFECT, WORST, Heard
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_protocols.swim.mesh.relay_words import Onward
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.mesh.turns import Turns
from swarmd_protocols.swim.messages import AliveBody, NearBody, Record
from swarmd_protocols.swim.messages import Near as NearMessage
from swarmd_protocols.swim.rules import BOOT_MAX, BOOT_SHIFT
from tests.support.mesh_net import MeshNet, everybody, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.relay_net import count_of, formed, heard, relay_of, say
from tests.support.swim_net import MS

HALL = 20
HIDDEN = {(a, b) for a in (0, 1, 2) for b in (HALL - 3, HALL - 2, HALL - 1)}


def tell(net: MeshNet, liar: int, target: int, words: list[bytes]) -> None:
    """One member says something to another, whatever it is."""
    host = net.hosts[liar]
    core, wire = host.node._core, host.node._wire
    core.now_ns = net.now
    effects, wire.effects = wire.effects, []
    wire.push(core.table.by_node[net.hosts[target].node.node], words)
    net.perform(host, wire.effects)
    wire.effects = effects


def old_record(net: MeshNet, target: int, subject: int) -> bytes:
    """What one knows of another, of an earlier incarnation; nobody has signed it."""
    member = net.hosts[target].node._core.table.by_node[net.hosts[subject].node.node]
    body = msgspec.structs.replace(msgspec.msgpack.decode(member.record[0], type=AliveBody), incarnation=0)
    return encode(Record(member.certificate, encode(body), bytes(64)))


def report(net: MeshNet, author: int, entries: dict[int, int], ahead: int = 0) -> bytes:
    """Whom a member hears and what each link costs, by its own key and its next number, or one so far ahead."""
    core, links = net.hosts[author].node._core, net.view(author).reports._links
    keys = {net.hosts[other].node.node[:KEY_BYTES]: cost for other, cost in entries.items()}
    told = b"".join(key + bytes((keys[key],)) for key in sorted(keys))
    sequence = links._sequence + ahead if ahead else links.next_sequence()
    body = encode(NearBody(core.own.node, sequence, told, b"", False))
    word = encode(NearMessage(body, core.sign("near", body)))
    if not ahead:
        links.publish((), body, word)  # It is its own word: it does not take it back.
    return word


def alarms_of(net: MeshNet, index: int) -> list[str]:
    return [effect.code for _, at, effect in net.log if at == index and isinstance(effect, Alarm)]


def no_old_records_keep_a_cut_from_healing() -> None:
    """One beside it tells the end of the cut ten times a second what the other end is said to have been."""
    net = formed(6)
    word = old_record(net, 2, 3)
    net.relink(line(6) - {(2, 3)})
    for step in range(180):
        if step == 150:
            net.relink(line(6))
        tell(net, 1, 2, [word])
        net.run(0.1)
    assert net.formed()


def nor_do_they_send_around_what_could_go_straight() -> None:
    """Two that hear each other and are not near ask each other all the same."""
    count = 14
    net = formed(count, everybody(count) - {(a, b) for a in (0, 1, 2) for b in (count - 3, count - 2, count - 1)})
    rows = net.hosts[5].node._core.table.by_node
    other = next(index for index in range(3, count) if index != 5 and rows[net.hosts[index].node.node].where < 0)
    word = old_record(net, 5, other)
    for _ in range(50):
        tell(net, 4 if other != 4 else 6, 5, [word])
        net.run(0.1)
    for number in range(40):
        for _ in range(2):
            tell(net, 4 if other != 4 else 6, 5, [word])
            net.run(0.1)
        say(net, 5, other, b"%d" % number)
    net.run(1)
    assert all(heard(net, other)[b"%d" % number] == 1 for number in range(40))
    assert count_of(net, "sends_around") == 0


def datagrams_a_second(per_s: int) -> float:
    """Of the others in a hall, while one says so often that it hears eighteen, or one."""
    net = formed(HALL, everybody(HALL) - HIDDEN)
    counters = [host.node._core.counters for host in net.hosts if host.index != 1]
    since_ns, before = net.now, sum(counter["datagrams_out"] for counter in counters)
    host = net.hosts[1]
    for number in range(10 * per_s):
        word = report(net, 1, dict.fromkeys(range(2, HALL), PERFECT) if number % 2 else {0: PERFECT})
        for member in list(host.node._core.table.reachable):
            tell(net, 1, net.index(member.address), [word])
        net.run(1 / per_s)
    net.run(0 if per_s else 10)
    assert net.failures(since_ns) == []
    return (sum(counter["datagrams_out"] for counter in counters) - before) / 10 / len(counters)


def links_that_one_says_it_lost_cost_others_few_questions() -> None:
    """Whoever is near one that somebody hears no more looks at once; of one that says so all the time, now and then."""
    quiet = datagrams_a_second(0)
    assert datagrams_a_second(4) <= quiet + 13
    assert datagrams_a_second(50) <= quiet + 16


def whose_key_was_stolen_is_hidden_for_no_time() -> None:
    """A thief signs once, in another's name and with a number far ahead, that it hears nobody."""
    net = formed(5)
    word = report(net, 2, {}, ahead=500_000)
    for _ in range(3):
        since_ns = net.now
        tell(net, 0, 1, [word])
        net.run(3)
        assert net.formed()
        assert net.failures(since_ns) == []
        word = report(net, 2, {}, ahead=500_000)
    own = net.view(2).reports
    assert net.hosts[2].node._core.counters["near_reports_overtaken"] == 3
    assert own._links._sequence >= (1 << 20) + 1_500_000


def who_uses_up_the_numbers_of_a_stolen_key_is_told_of() -> None:
    """Above the highest number there is none: nothing but a new key helps, and people hear of that, once."""
    net = formed(5)
    own = net.view(2).reports._links
    last = (BOOT_MAX << BOOT_SHIFT) - 1
    word = report(net, 2, {}, ahead=last - own._sequence)
    tell(net, 0, 1, [word])
    net.run(3)
    assert net.formed(), "one is left for the answer"
    assert alarms_of(net, 2) == []
    for number in (3, 4):
        tell(net, 0, 1, [report(net, 2, {}, ahead=last + number - own._sequence)])
        net.run(3)
    assert alarms_of(net, 2) == ["identity-worn"]


def no_link_costs_what_none_can() -> None:
    """Whoever says that its links cost next to nothing, or thirty transmissions each, is read as the best or worst."""
    net = formed(5)
    for cost in (0, 1, 0x7F, 0x80, 0xFF):
        tell(net, 2, 1, [report(net, 2, {1: cost, 3: cost})])
        net.run(0.1)
        told = net.view(1).reports.heard[net.hosts[2].node.node]
        assert set(told.values()) <= {PERFECT, WORST}
        assert len(told) == 2


def part_for(net: MeshNet, target: int, whole: bytes, cost: int = 1) -> Onward:
    return Onward(net.hosts[target].node.node, 2, cost, False, whole, 0, 1, b"x")


def parts_for_all_make_nobody_reckon_without_end() -> None:
    """One hands on parts for everybody, again and again, and says something new of its links each time."""
    count = 30
    net = formed(count, {(a, b) for a in range(count) for b in range(a + 1, min(a + 3, count))})
    liar, one = net.hosts[14].node.node, relay_of(net, 15)
    core, rng, reckoned = net.hosts[15].node._core, Random(1), [0]
    original = Routes._reckon

    def reckon(self: Routes, key: bytes) -> object:
        reckoned[0] += 1
        return original(self, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Routes, "_reckon", reckon)
        for step in range(200):
            core.now_ns = net.now + step * 50 * MS
            core.view.routes._ways.clear()
            for index in range(count):
                one._take(liar, part_for(net, index, rng.randbytes(8)), core.now_ns)
    assert reckoned[0] <= 10 * 64 + 512
    core.view.routes._ways.clear()
    assert one._leads_on(net.hosts[16].node.node, part_for(net, 20, bytes(8), 999)), "another is served all the same"


def what_changes_no_link_costs_no_new_ways() -> None:
    net = formed(5)
    routes = net.view(1).routes
    found = routes.ways(net.hosts[4].node.node[:KEY_BYTES])
    tell(net, 2, 1, [report(net, 2, {1: PERFECT, 3: PERFECT})])
    net.run(0.2)
    assert found
    assert routes._ways.get(net.hosts[4].node.node[:KEY_BYTES]) is found


def reports_without_end_are_weighed_less_often_where_many_are() -> None:
    """Of a thousand each weighing takes some 15 ms; here five count as so many."""
    net, weighed = formed(5), [0]
    original = MeshView._reach

    def reach(self: MeshView, argument: object) -> None:
        weighed[0] += self is net.view(1)
        original(self, argument)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh_view, "_REACH_EACH_NS", mesh_view._REACH_EACH_NS * 1_000 // 4)
        patch.setattr(MeshView, "_reach", reach)
        for number in range(100):
            tell(net, 2, 1, [report(net, 2, {1: 4, 3: 4 + number % 2})])
            net.run(0.02)
    assert 10 <= weighed[0] <= 2 / 0.05 + 2


def who_could_hear_one_is_what_both_say() -> None:
    """Whatever is reported, replaced and forgotten: two authors have one key, and one names itself."""
    told, rng = formed(3).view(1).reports, Random(1)
    nodes = [bytes((index,)) * KEY_BYTES + bytes(12) for index in range(9)]
    nodes.append(nodes[0][:KEY_BYTES] + bytes((1,)) * 12)
    for number in range(400):
        author = rng.choice(nodes)
        if rng.random() < 0.2:
            told.forget(author)
        else:
            keys = sorted({node[:KEY_BYTES] for node in rng.sample(nodes, rng.randrange(6))})
            told._keep(author, NearBody(author, number, b"".join(key + b"\x04" for key in keys), b"", False))
        for node in nodes:
            member = Member(NodeId(node), "", b"", b"")
            named = {one[:KEY_BYTES] for one, others in told.heard.items() if node[:KEY_BYTES] in others}
            assert set(told.hearers(member)) == {*told.heard.get(node, {}), *named}


def short_things_without_end_leave_room_for_long_ones() -> None:
    """One at the end of a line says sixty short things a second to the other; its neighbour says long ones too."""
    net = formed(6)
    longs = [b"%d" % number + bytes(900) for number in range(30)]
    for payload in longs:
        say(net, 1, 5, payload)
        for step in range(10):
            for number in range(6):
                say(net, 0, 5, b"%d %d" % (step, number), sure=False)
            net.run(0.1)
    net.run(4)
    assert all(heard(net, 5)[payload] == 1 for payload in longs)
    assert sum(heard(net, 5).values()) >= 500, "and most short ones arrive"


def _each_is_a_reason_not_to_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkState, "may_show", lambda self, now_ns: True)


def _each_is_asked_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "may_look", lambda self, author: True)


def _whoever_signs_last_is_right(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "_on_own_report", lambda self, body, message, via, nonce: None)


def _what_is_above_all_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkReports, "give_way_to", lambda self, sequence: sequence >> BOOT_SHIFT < BOOT_MAX)


def _any_cost_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "PERFECT", 1)
    patch.setattr(reports, "WORST", 0x7F)


def _each_is_weighed_at_once(patch: pytest.MonkeyPatch) -> None:
    def soon(self: MeshView) -> None:
        self.core.scheduler.at(self.core.now_ns + mesh_view._REACH_NS, self._reach)

    patch.setattr(MeshView, "_reach_soon", soon)


def _who_is_forgotten_hears_all_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "forget", lambda self, node: self.heard.pop(node, None))


def _whatever_is_handed_on_is_reckoned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "_RECKONED_BURST", 1 << 40)


def _all_is_forgotten_each_time(patch: pytest.MonkeyPatch) -> None:
    original = Routes.know

    def know(self: Routes, own: bytes, near: Heard, links: Mapping[bytes, Heard]) -> None:
        self._ways.clear()
        original(self, own, near, links)

    patch.setattr(Routes, "know", know)


def _short_ones_always_go_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay_order, "IN_A_ROW", 1 << 40)


LAWS: list[tuple[Law, Mutant]] = [
    (no_old_records_keep_a_cut_from_healing, _each_is_a_reason_not_to_ask),
    (nor_do_they_send_around_what_could_go_straight, _each_is_a_reason_not_to_ask),
    (links_that_one_says_it_lost_cost_others_few_questions, _each_is_asked_each_time),
    (whose_key_was_stolen_is_hidden_for_no_time, _whoever_signs_last_is_right),
    (who_uses_up_the_numbers_of_a_stolen_key_is_told_of, _what_is_above_all_is_passed_over),
    (no_link_costs_what_none_can, _any_cost_is_believed),
    (parts_for_all_make_nobody_reckon_without_end, _whatever_is_handed_on_is_reckoned),
    (what_changes_no_link_costs_no_new_ways, _all_is_forgotten_each_time),
    (reports_without_end_are_weighed_less_often_where_many_are, _each_is_weighed_at_once),
    (who_could_hear_one_is_what_both_say, _who_is_forgotten_hears_all_the_same),
    (short_things_without_end_leave_room_for_long_ones, _short_ones_always_go_first),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
