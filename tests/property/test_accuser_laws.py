"""Law: accusations wear out. One member gone mad is soon believed by nobody, and honest accusers are heard as ever.

The mad member holds a genuine key: all that it says is signed, about the current incarnation, and comes as often as it
likes, to everybody.
"""

import statistics
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Alarm, MemberState, SendDatagram
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.members import REACHABLE
from swarmd_protocols.swim.messages import LEVEL_FAILED, LEVEL_SUSPECT, LEVEL_UNRESPONSIVE, Accusation, AccusationBody
from swarmd_protocols.swim.standing import FREE_DOUBTS, Standing
from tests.support.swim_chatter import Chatter
from tests.support.swim_net import MS, SECRET, Net, S
from tests.support.swim_thief import Thief

SEEDS = range(6)
COUNT = 8
DOUBTED = (MemberState.SUSPECT, MemberState.DEGRADED)


def swarm(seed: int, count: int = COUNT, loss: float = 0.0) -> Net:
    net = Net(count, seed, loss=loss)
    assert net.run_until(net.formed, 15) is not None
    net.run(3)
    return net


class Mad:
    """Accuses two members to each member ten times a second, in each way that there is."""

    def __init__(self, net: Net, seed: int) -> None:
        self.net = net
        self.rng = Random(seed)
        self.thief = Thief(SECRET, net.crypto)
        for _ in range(2):
            for host in net.hosts:
                net.perform(host, self.thief.meet(host.node, net.now))
            net.run(0.1)
        self.rage()

    def rage(self) -> None:
        net, thief = self.net, self.thief
        for host in net.hosts:
            if host.node.node not in thief.sessions:
                continue
            for subject in self.rng.sample(net.hosts, 2):
                own = subject.node._core.own
                for level in (LEVEL_SUSPECT, LEVEL_UNRESPONSIVE, LEVEL_FAILED):
                    said = thief.accusation(own.node, own.incarnation, level)
                    net.perform(host, thief.say(host.node, [said], net.now))
        net.at(net.now + 100 * MS, self.rage)


def doubted_share(net: Net, seconds: float) -> float:
    """Share of the pairs of honest members in which one is in doubt, over this time."""
    doubted = pairs = 0
    for _ in range(int(seconds * 10)):
        net.run(0.1)
        for host in net.hosts:
            for name, state in net.states(host.index).items():
                if name.startswith("n") and name != f"n{host.index:03d}":
                    pairs += 1
                    doubted += state in DOUBTED
                    assert state in REACHABLE, "one key declares nobody failed"
    return doubted / pairs


def blackout_s(net: Net, subject: int = 3) -> float:
    """How long everybody takes to know that a member is gone."""
    net.hosts[subject].dark = True
    observers = [host.index for host in net.hosts if host.index != subject]
    took = net.run_until(lambda: net.all_see(MemberState.FAILED, subject, observers), 60, 0.05)
    assert took is not None
    return took


@pytest.mark.slow
def test_one_accuser_gone_mad_puts_hardly_anybody_in_doubt():
    for seed in SEEDS:
        net = swarm(seed)
        Mad(net, seed)
        assert doubted_share(net, 20) <= 0.01
        assert max(host.node.summary().local_health for host in net.hosts) <= 1


@pytest.mark.slow
def test_one_accuser_gone_mad_hides_no_blackout():
    usual, mad = [], []
    for seed in SEEDS:
        net = swarm(seed)
        net.run(20)
        usual.append(blackout_s(net))
        net = swarm(seed)
        Mad(net, seed)
        net.run(20)
        mad.append(blackout_s(net))
    assert statistics.mean(mad) <= 1.2 * statistics.mean(usual)


@pytest.mark.slow
def test_one_accuser_gone_mad_costs_no_more_than_the_budget():
    for seed in SEEDS:
        net = swarm(seed)
        Mad(net, seed)
        net.run(20)
        before = sum(host.bytes_out for host in net.hosts)
        net.run(20)
        assert (sum(host.bytes_out for host in net.hosts) - before) / 20 / COUNT <= SwimConfig().budget_bytes_s


def test_who_stops_is_heard_in_full_again():
    net = swarm(1)
    mad = Mad(net, 1)
    net.run(20)
    standings = [host.node._swim.membership.accusations.standing for host in net.hosts]
    assert all(standing.doubted(mad.thief.node, net.now) for standing in standings)
    assert not any(standing.doubted(mad.thief.node, net.now + 120 * S) for standing in standings)


def test_honest_accusers_on_bad_links_are_never_doubted():
    net = swarm(2, 12, loss=0.3)
    net.run(60)
    assert sum(host.node.summary().counters.get("accusations_doubted", 0) for host in net.hosts) == 0
    for host in net.hosts:
        standing = host.node._swim.membership.accusations.standing
        assert not any(standing.doubted(other.node.node, net.now) for other in net.hosts)


def test_after_a_partition_nobody_is_doubted_for_what_was_true():
    net = swarm(4, 8)
    net.cut([0, 1, 2, 3], [4, 5, 6, 7])
    net.run(20)
    net.blocked.clear()
    assert net.run_until(net.formed, 10) is not None
    net.run(1)
    for host in net.hosts:
        standing = host.node._swim.membership.accusations.standing
        assert not any(standing.doubted(other.node.node, net.now) for other in net.hosts)


def test_forged_accusations_silence_nobody_but_who_passes_them_on():
    net = swarm(5)
    thief = Thief(SECRET, net.crypto)
    host, accuser, subject = net.hosts[:3]
    for _ in range(2):
        net.perform(host, thief.meet(host.node, net.now))
        net.run(0.1)
    own = subject.node._core.own
    body = encode(AccusationBody(accuser.node.node, own.node, own.incarnation, LEVEL_SUSPECT))
    for _ in range(200):
        thief.say(host.node, [Accusation(body, bytes(64))], net.now)
    standing = host.node._swim.membership.accusations.standing
    assert standing.may_speak(accuser.node.node, COUNT, net.now)
    assert not standing.may_relay(thief.node, net.now)
    assert standing.may_relay(thief.node, net.now + 2 * S)


def test_whose_word_counts_for_nothing_still_learns_that_it_was_wrong():
    """A key in two hands: the thief has used up its standing, and its owner holds somebody here for gone."""
    for seed in SEEDS:
        net = swarm(seed)
        owner = net.hosts[0].node
        for host in net.hosts[1:]:
            standing = host.node._swim.membership.accusations.standing
            for _ in range(32):
                standing.refuted(owner._core.own.node, net.now)
            while standing.may_speak(owner._core.own.node, COUNT, net.now):
                standing.spend(owner._core.own.node)
        subject = owner._core.table.by_node[net.hosts[2].node._core.own.node]
        owner._swim.membership.fail(subject, "not heard", accuse=True)
        assert net.states(0)["n002"] is MemberState.FAILED
        assert net.run_until(net.formed, 15) is not None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20 * S), st.booleans()), max_size=200))
def test_standing_is_bounded_and_only_wrong_words_lower_it(steps: list[tuple[int, int, bool]]):
    standing, now = Standing(SwimConfig()), 0
    refuted: dict[int, int] = {}
    for who, later, wrong in steps:
        now += later
        node = bytes([who]) * 16
        if standing.may_speak(node, COUNT, now):
            standing.spend(node)
        if wrong:
            standing.refuted(node, now)
            refuted[who] = refuted.get(who, 0) + 1
        if standing.doubted(node, now):
            assert refuted.get(who, 0) > FREE_DOUBTS
    assert len(standing) <= 41
    for who in range(2_000):
        standing.refuted(who.to_bytes(16, "big"), now)
    assert len(standing) <= 512


BAD_KINDS = (
    "unknown accuser", "unknown subject", "past", "own", "forged", "unsigned", "signed", "about the receiver, past",
    "about the receiver, past, of others", "about the receiver, forged",
)  # fmt: skip
LOOKED_AT_MAX = 1_025
"""Accusations of one frame that a node looks at: what its sender's account holds, and the one that is beyond."""


def bad_accusations(net: Net, kind: str, count: int) -> list[Accusation]:
    """Accusations that change little or nothing, said by the last member to the first."""
    me, receiver, other, third = (net.hosts[at].node._core.own for at in (COUNT - 1, 0, 1, 2))
    core = net.hosts[COUNT - 1].node._core

    def said(accuser: bytes, subject: bytes, incarnation: int, level: int = 0, *, signs: bool = False) -> Accusation:
        body = encode(AccusationBody(accuser, subject, incarnation, level))  # type: ignore[arg-type]
        return Accusation(body, core.sign("accuse", body) if signs else bytes(64))

    made = []
    for at in range(count):
        stranger, subject = at.to_bytes(16, "big"), net.hosts[1 + at % 6].node._core.own
        match kind:
            case "unknown accuser":
                one = said(stranger, other.node, other.incarnation)
            case "unknown subject":
                one = said(me.node, stranger, 5)
            case "past":
                one = said(me.node, other.node, at)
            case "own":
                one = said(me.node, me.node, me.incarnation)
            case "forged":
                one = said(other.node, third.node, third.incarnation, at % 3)
            case "unsigned":
                one = said(me.node, third.node, third.incarnation, at % 3)
            case "signed":
                one = said(me.node, subject.node, subject.incarnation, at // 6 % 3, signs=True)
            case "about the receiver, past":
                one = said(me.node, receiver.node, 0)
            case "about the receiver, past, of others":
                one = said(other.node, receiver.node, 0)
            case _:
                one = said(other.node, receiver.node, receiver.incarnation)
        made.append(one)
    return made


@pytest.mark.parametrize("kind", BAD_KINDS)
def test_a_frame_of_accusations_costs_so_many_looks_and_hardly_an_answer(kind: str) -> None:
    net = swarm(8)
    chatter, victim = Chatter(net, COUNT - 1), net.hosts[0]
    before = victim.node._core.counters.copy()
    effects = chatter.tell(victim, bad_accusations(net, kind, 4_000))
    seen = victim.node._core.counters - before
    assert seen["accusations_ignored"] + seen["accusations_over_rate"] <= LOOKED_AT_MAX
    assert seen["messages_over_rate"] == 1, "the rest of the frame stays unread"
    assert chatter.most_checks <= 3 * COUNT
    # Of what is signed and new, each is passed on to some.
    assert len([one for one in effects if isinstance(one, SendDatagram)]) <= (2 if kind != "signed" else 3 * COUNT)
    (alarm,) = [one for one in effects if isinstance(one, Alarm)]
    assert alarm.code == "member-flood"
    assert chatter.core.own.node.hex() in alarm.text
    assert "Accusation" in alarm.text


def test_however_large_the_swarm_one_accuser_has_so_many_verified_at_once() -> None:
    standing, taken = Standing(SwimConfig()), 0
    while standing.may_speak(b"accuser", 4_096, 0):
        standing.spend(b"accuser")
        taken += 1
    assert taken <= 136


def test_being_told_of_a_newer_record_takes_nothing_from_who_accuses() -> None:
    standing = Standing(SwimConfig())
    assert standing.may_tell(b"relay", 0)
    assert not standing.may_tell(b"relay", 99 * MS)
    assert standing.may_tell(b"relay", 100 * MS)
    for _ in range(2 * COUNT + 16):
        assert standing.may_speak(b"relay", COUNT, 100 * MS)
        standing.spend(b"relay")
