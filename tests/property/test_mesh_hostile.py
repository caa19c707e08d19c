"""What beacons in others' names and lies about links can do in a mesh: make a node ask at a bounded rate, and no more.

A beacon is not signed. Whoever holds the group key casts them in any name, and whoever holds no key can record them and
play them again elsewhere. Each law has a mutant that breaks it.
"""

from collections.abc import Collection
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import Command, DatagramReceived, MemberState, SendCast
from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.mesh import fates, mesh_view, reports
from swarmd_protocols.swim.mesh.fates import Fates
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, agreed, fate, life_key, reached
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_protocols.swim.mesh.near import ASKS_PER_S, GREETINGS_PER_S, Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.mesh.turns import Turns
from swarmd_protocols.swim.messages import Beacon, NearBody
from swarmd_protocols.swim.messages import Near as NearMessage
from swarmd_protocols.swim.relays import Relays
from swarmd_protocols.swim.rules import BOOT_SHIFT
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.mesh_net import MeshNet, everybody, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.swim_net import SECRET

FAILED, UNREACHABLE = MemberState.FAILED, MemberState.UNREACHABLE


def formed(count: int, links: set[tuple[int, int]], seed: int = 1, *, casts: bool = True) -> MeshNet:
    net = MeshNet(count, links, seed, casts=casts)
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    assert net.formed()
    return net


def forge(net: MeshNet, thief: int, target: int, node: bytes, incarnation: int, source: str) -> None:
    """A beacon in anybody's name, sealed with the group key of a member, put before a node wherever both are."""
    sealed = net.hosts[thief].node._wire.channel.seal_cast(join([encode(Beacon(node, incarnation))]))
    net.feed(target, DatagramReceived(source, sealed))


def own_of(net: MeshNet, index: int) -> bytes:
    return net.hosts[index].node._core.own.node


def near_of(net: MeshNet, index: int) -> set[str]:
    return {member.name for member in net.hosts[index].node._core.table.reachable}


def drive(net: MeshNet, target: int, rng: Random, per_s: int, seconds: int) -> None:
    """Beacons in all names: own, near, far, of nobody; of this life, of earlier and of later ones; from anywhere."""
    for _ in range(seconds * 10):
        for _ in range(per_s // 10):
            named = rng.randrange(len(net.hosts) + 1)
            node = own_of(net, named) if named < len(net.hosts) else rng.randbytes(16)
            incarnation = rng.choice([0, 1 << 20, (1 << 20) + 5, 2 << 20, 2**50])
            forge(net, rng.randrange(len(net.hosts)), target, node, incarnation, net.address(rng.randrange(30)))
        net.run(0.1)
        hidden = {f"n{index:03d}" for index in range(len(net.hosts)) if not net.hears(target, index)}
        assert not near_of(net, target) & hidden


def sent_by(net: MeshNet, target: int) -> int:
    return net.hosts[target].node._core.counters["datagrams_out"]


def beacons_in_any_name_make_a_node_ask_and_no_more(seed: int = 1, target: int = 0, per_s: int = 200) -> None:
    seconds = 10
    quiet = formed(10, line(10))
    before = sent_by(quiet, target)
    quiet.run(seconds)
    honest = sent_by(quiet, target) - before
    net = formed(10, line(10))
    since_ns, before = net.now, sent_by(net, target)
    drive(net, target, Random(seed), per_s, seconds)
    assert net.formed()
    assert net.failures(since_ns) == [] == net.changes(UNREACHABLE, since_ns)
    assert all(net.is_mesh(index) for index in range(10))
    # Two more seconds' worth of each is the reserve; the answers to what is asked are few, since nobody else hears it.
    bound = (ASKS_PER_S + GREETINGS_PER_S) * (seconds + 2)
    assert sent_by(net, target) - before - honest <= bound
    near = net.view(target).near
    assert len(near._beacons) <= 9
    assert len(near._asked) <= 9


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 9), st.sampled_from((10, 100, 400)))
def test_beacons_in_any_name_make_a_node_ask_and_no_more(seed: int, target: int, per_s: int) -> None:
    beacons_in_any_name_make_a_node_ask_and_no_more(seed, target, per_s)


def recorded(net: MeshNet) -> list[tuple[int, bytes]]:
    """The sealed casts of a moment, as somebody without any key has them."""
    frames: list[tuple[int, bytes]] = []
    original = net.perform

    def perform(host, effects):  # type: ignore[no-untyped-def]
        frames.extend((host.index, effect.data) for effect in effects if isinstance(effect, SendCast))
        original(host, effects)

    net.perform = perform  # type: ignore[method-assign]
    net.run(3)
    net.perform = original  # type: ignore[method-assign]
    return frames


def no_beacon_ends_a_mesh() -> None:
    """Recorded and played again everywhere, as if everybody were in everybody's reach, for as long as it takes."""
    net = formed(6, line(6))
    frames = recorded(net)
    since_ns = net.now
    for _ in range(90):
        for index in range(6):
            for other, frame in frames[-12:]:
                net.feed(index, DatagramReceived(net.address(other), frame))
        net.run(1)
    assert all(net.is_mesh(index) for index in range(6))
    assert net.formed()
    assert net.failures(since_ns) == []


def no_beacon_makes_a_mesh() -> None:
    net = MeshNet(6, everybody(6))
    net.run(10)
    rng = Random(1)
    for _ in range(50):
        forge(net, 5, rng.randrange(5), own_of(net, rng.randrange(6)), 1 << 20, net.address(5))
        net.run(0.1)
    assert not any(net.is_mesh(index) for index in range(6))


def no_beacon_keeps_a_node_from_finding_who_is_near() -> None:
    """Where nothing is cast, somebody sends beacons all the same: the node would wait for others' in vain."""
    net = formed(6, line(6), casts=False)
    net.relink(line(6) | {(0, 4)})
    for _ in range(90):
        forge(net, 1, 0, own_of(net, 1), 1 << 20, net.address(1))
        forge(net, 1, 4, own_of(net, 1), 1 << 20, net.address(1))
        net.run(1)
        if "n004" in near_of(net, 0):
            return
    raise AssertionError("the node has not found who is near")


def lie(net: MeshNet, thief: int, hears: list[int], gone: list[int], frozen: Collection[int] = ()) -> None:
    """A stolen key signs whom it hears, who of those is frozen, and who is gone, and tells its neighbours."""
    host = net.hosts[thief]
    core, wire = host.node._core, host.node._wire
    core.now_ns = net.now
    body = encode(
        NearBody(
            core.own.node,
            net.view(thief).reports._links.next_sequence(),
            b"".join(
                own_of(net, other)[:KEY_BYTES] + (b"\x84" if other in frozen else b"\x04") for other in sorted(hears)
            ),
            b"".join(life_key(own_of(net, other), net.hosts[other].node._core.own.boot) for other in gone),
            False,
        )
    )
    word = encode(NearMessage(body, core.sign("near", body)))
    net.view(thief).reports._links.publish((), body, word)  # It is its own word: it does not take it back.
    effects, wire.effects = wire.effects, []
    for member in list(core.table.reachable):
        wire.push(member, [word])
    net.perform(host, wire.effects)
    wire.effects = effects


def a_thief_keeps_no_ghost_that_it_never_heard() -> None:
    """It says for ever that it hears the dead one, whose own last report does not name it."""
    net = formed(6, line(6) | {(0, 5)})
    net.hosts[3].dark = True
    for _ in range(20):
        lie(net, 0, [1, 3, 5], [])
        net.run(0.5)
    assert all(net.sees(index, 3) is FAILED for index in (1, 2, 4, 5))


KEYS = [bytes((index,)) * KEY_BYTES for index in range(8)]
THIEF = KEYS[1]
graphs = st.dictionaries(st.sampled_from(KEYS[2:]), st.dictionaries(st.sampled_from(KEYS), st.integers(1, 15)))


def who_is_reached(claims: dict[bytes, int], graph: dict[bytes, dict[bytes, int]], lost: set[bytes]) -> set[bytes]:
    """From a node that hears the thief alone of all."""
    return set(reached(KEYS[0], {THIEF: 4}, mesh_view.agreed(KEYS[0], {**graph, THIEF: claims}, lost)))


def claims_lead_to_nobody_that_denies_them(
    claims: dict[bytes, int], graph: dict[bytes, dict[bytes, int]], lost: set[bytes]
) -> None:
    """Whoever is reached by more claims than those that are returned has said nothing, and is not held for lost."""
    returned = {key: cost for key, cost in claims.items() if THIEF in graph.get(key, {})}
    silent = {key for key in KEYS if not graph.get(key) and key not in lost}
    more = who_is_reached(claims, graph, lost) - who_is_reached(returned, graph, lost)
    assert more <= silent


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 15)), graphs, st.sets(st.sampled_from(KEYS[2:])))
def test_claims_lead_to_nobody_that_denies_them(
    claims: dict[bytes, int], graph: dict[bytes, dict[bytes, int]], lost: set[bytes]
) -> None:
    claims_lead_to_nobody_that_denies_them(claims, graph, lost)


def a_claim_that_is_denied_leads_nowhere() -> None:
    claims_lead_to_nobody_that_denies_them({KEYS[2]: 4}, {KEYS[2]: {KEYS[3]: 4}}, set())


def a_claim_about_somebody_lost_leads_nowhere() -> None:
    claims_lead_to_nobody_that_denies_them({KEYS[2]: 4}, {}, {KEYS[2]})


def a_thief_fails_nobody_beyond_a_cut() -> None:
    """It says that the processes of the other part are gone, none of which it has ever heard."""
    net = formed(6, line(6))
    net.relink(line(6) - {(2, 3)})
    for _ in range(20):
        lie(net, 1, [0, 2], [4, 5])
        net.run(0.5)
    assert all(net.sees(index, other) is UNREACHABLE for index in (0, 2) for other in (4, 5))


def revoke(net: MeshNet, index: int) -> None:
    """A member of a line is shut out, and all before it know it at once."""
    said = Revocation("test", 1, (net.hosts[index].node.node,), "stolen")
    statement = sign_statement("revoke", said, dev_role_seeds(SECRET, "revoke")[:1], net.crypto)
    for other in range(index):
        net.feed(other, Command("node", AddStatement("revoke", statement)))


def nobody_fails_with_who_is_shut_out() -> None:
    """Whom only that one could hear is cut off, also where it has heard why, and says that it hears nobody."""
    net = formed(6, line(6))
    since_ns = net.now
    revoke(net, 4)
    net.run(5)
    assert {name for _, name in net.failures(since_ns)} == {"n004"}
    assert all(net.sees(index, 5) is UNREACHABLE for index in range(4))


def who_is_shut_out_is_no_link() -> None:
    """One that is reached says that it hears it still, and the one behind heard nothing since: that fails nobody."""
    net = formed(6, line(6))
    since_ns = net.now
    net.hosts[5].dark = True
    revoke(net, 4)
    for _ in range(20):
        lie(net, 3, [2, 4], [])
        net.run(0.1)
    assert {name for index, name in net.failures(since_ns) if index < 4} == {"n004"}
    assert all(net.sees(index, 5) is UNREACHABLE for index in range(3))


def who_is_shut_out_is_reported_no_more() -> None:
    """At once, as any link that is lost: others would count on it until they hear so."""
    for seed in (4, 5, 6):
        net = formed(6, line(6), seed)
        key, neighbour = own_of(net, 4)[:KEY_BYTES], own_of(net, 3)
        assert key in net.view(0).reports.heard[neighbour]
        revoke(net, 4)
        net.run(0.3)
        assert not any(key in net.view(index).reports.heard[neighbour] for index in range(3))


def said_while_a_thief_reports(per_s: int) -> list[int]:
    """Bytes of each honest node in ten seconds."""
    net = formed(6, line(6) | {(0, 5)})
    since_ns, counters = net.now, [net.hosts[index].node._core.counters for index in (0, 2, 3, 4, 5)]
    before = [counter["datagram_bytes_out"] for counter in counters]
    for number in range(10 * per_s):
        lie(net, 1, [0, 2] if number % 2 else [0, 2, 4], [])
        net.run(1 / per_s)
    assert net.failures(since_ns) == []
    return [counter["datagram_bytes_out"] - sent for counter, sent in zip(counters, before, strict=True)]


def many_reports_cost_others_little_more_than_few() -> None:
    """What one author says is taken and passed on within its account, however much it is."""
    few, many = said_while_a_thief_reports(5), said_while_a_thief_reports(50)
    assert all(more <= 2 * less for less, more in zip(few, many, strict=True)), (few, many)


def hall(count: int = 20, seed: int = 1) -> MeshNet:
    """A mesh where everybody hears everybody but the last, who hears the first: it stays one."""
    net = MeshNet(count, everybody(count - 3) | {(0, count - 3), (0, count - 2), (0, count - 1)}, seed)
    assert net.run_until(net.formed, 30) is not None
    assert net.run_until(lambda: all(net.is_mesh(index) for index in range(count)), 30) is not None
    net.run(10)
    return net


def a_report_is_cast_by_few_of_many_that_hear_it() -> None:
    """Where sixteen hear each other, each would pass it on; who has heard it three times more does not."""
    net = hall()
    cores = [host.node._core for host in net.hosts]
    before = [core.counters["near_recasts"] for core in cores]
    news = 10
    for number in range(news):
        lie(net, 1, list(range(2, 9 + number % 2)), [])
        net.run(1)
    passed_on = sum(core.counters["near_recasts"] - count for core, count in zip(cores, before, strict=True))
    own = sum(core.counters["near_reports"] for core in cores)
    assert news <= passed_on <= 10 * news, (passed_on, own)
    assert net.formed()


def casts_played_again_silence_nobody() -> None:
    """Whoever holds no key plays each cast four times again before the one node that two cliques have in common."""
    bridge = 4
    cliques = {(a, b) for side in ([0, 1, 2, 3, bridge], [bridge, 5, 6, 7, 8]) for a in side for b in side if a < b}
    passed_on = []
    for copies in (0, 4):
        net = MeshNet(10, cliques | {(0, 9)})
        assert net.run_until(net.formed, 40) is not None
        net.run(10)
        original = net.perform

        def perform(host, effects, net=net, copies=copies, original=original):  # type: ignore[no-untyped-def]
            for effect in effects:
                if isinstance(effect, SendCast) and host.index != bridge:
                    event = DatagramReceived(net.address(host.index), effect.data)
                    for _ in range(copies):
                        net.carry(host, net.address(bridge), event, 0.0)
            original(host, effects)

        net.perform = perform  # type: ignore[method-assign]
        since_ns, counters = net.now, net.hosts[bridge].node._core.counters
        before = counters["near_recasts"]
        for moved in range(8):
            net.relink(cliques | {(9, (moved + 1) % 4)})
            net.run(8)
        assert net.failures(since_ns) == []
        passed_on.append(counters["near_recasts"] - before)
    honest, attacked = passed_on
    assert 2 * attacked >= honest > 0, passed_on


def forged_reports_are_checked_at_a_bounded_rate() -> None:
    """Cast by whoever has the group key, each with a new number and no signature that holds."""
    net = formed(6, line(6))
    core, checks = net.hosts[0].node._core, [0]
    original = core.signed_by

    def signed_by(*arguments: object) -> bool:
        checks[0] += 1
        return original(*arguments)  # type: ignore[arg-type]

    core.signed_by = signed_by  # type: ignore[method-assign]
    since_ns = net.now
    for number in range(5_000):
        body = encode(NearBody(own_of(net, number % 6), (1 << 20) + 10_000 + number, b"", b"", True))
        word = encode(NearMessage(body, bytes(64)))
        sealed = net.hosts[3].node._wire.channel.seal_cast(join([word]))
        net.feed(0, DatagramReceived(net.address(1), sealed))
        net.run(0.001)
    assert checks[0] <= 650
    net.run(5)
    assert net.formed()
    assert net.failures(since_ns) == []


# --- mutants -------------------------------------------------------------------------------------------------------


def _every_beacon_is_a_reason_to_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "may_ask", lambda self, member: True)
    patch.setattr(Turns, "is_wanted", lambda self, member: True)


def _every_stranger_is_greeted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "may_greet", lambda self, node: True)


def _who_sends_a_beacon_is_near(patch: pytest.MonkeyPatch) -> None:
    def on_beacon(self, message, source):  # type: ignore[no-untyped-def]
        member = self.near.on_beacon(message, source)
        if member is not None:
            self.near.gain(member)

    patch.setattr(MeshView, "on_beacon", on_beacon)


def _a_beacon_proves_that_somebody_is_in_reach(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "in_reach", Near.seems_in_reach)


def _a_beacon_makes_a_mesh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FullView, "on_beacon", lambda self, message, source: self._enmesh())


def _who_hears_beacons_asks_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "asks_lost", lambda self: not self.near.hears_beacons())


def _one_end_of_a_link_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "agreed", lambda own, reports, lost: reports)


def _who_is_lost_needs_no_word_of_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "agreed", lambda own, reports, lost: agreed(own, reports))


def _who_is_no_member_is_a_link(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "outsiders", lambda reports, members: set())


def _who_has_no_hearer_has_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fates, "fate", lambda key, reach, hearers, gone: fate(key, reach, hearers or [*reach], gone))


def _who_is_forgotten_is_reported_in_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "forgotten", FullView.forgotten)


def _anybody_says_who_is_gone(patch: pytest.MonkeyPatch) -> None:
    def is_gone(self, member):  # type: ignore[no-untyped-def]
        life = life_key(member.node, member.incarnation >> BOOT_SHIFT)
        return any(life in ended for ended in self._reports.gone.values())

    patch.setattr(Fates, "is_gone", is_gone)


def _no_author_has_an_account(patch: pytest.MonkeyPatch) -> None:
    for name in ("may_say", "may_pass_on", "may_push"):
        patch.setattr(Relays, name, lambda self, *_, **__: True)


def _echoes_spare_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "_is_wanted", lambda self, node: self._echoes.setdefault(node, 0) >= 0)


def _a_cast_played_again_is_an_echo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "_is_played_again", lambda self, node, nonce: False)


def _every_cast_is_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "_CASTS_PER_S", 100_000)


LAWS: list[tuple[Law, Mutant]] = [
    (beacons_in_any_name_make_a_node_ask_and_no_more, _every_beacon_is_a_reason_to_ask),
    (beacons_in_any_name_make_a_node_ask_and_no_more, _every_stranger_is_greeted),
    (beacons_in_any_name_make_a_node_ask_and_no_more, _who_sends_a_beacon_is_near),
    (no_beacon_ends_a_mesh, _a_beacon_proves_that_somebody_is_in_reach),
    (no_beacon_makes_a_mesh, _a_beacon_makes_a_mesh),
    (no_beacon_keeps_a_node_from_finding_who_is_near, _who_hears_beacons_asks_nobody),
    (a_thief_keeps_no_ghost_that_it_never_heard, _one_end_of_a_link_is_believed),
    (many_reports_cost_others_little_more_than_few, _no_author_has_an_account),
    (a_report_is_cast_by_few_of_many_that_hear_it, _echoes_spare_nobody),
    (casts_played_again_silence_nobody, _a_cast_played_again_is_an_echo),
    (forged_reports_are_checked_at_a_bounded_rate, _every_cast_is_checked),
    (a_claim_that_is_denied_leads_nowhere, _one_end_of_a_link_is_believed),
    (a_claim_about_somebody_lost_leads_nowhere, _who_is_lost_needs_no_word_of_its_own),
    (a_thief_fails_nobody_beyond_a_cut, _anybody_says_who_is_gone),
    (nobody_fails_with_who_is_shut_out, _who_has_no_hearer_has_failed),
    (who_is_shut_out_is_no_link, _who_is_no_member_is_a_link),
    (who_is_shut_out_is_reported_no_more, _who_is_forgotten_is_reported_in_time),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
