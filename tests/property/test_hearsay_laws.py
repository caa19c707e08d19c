"""Law: a doubt on others' word alone ends soon after it is wrong, whoever else believes it.

All that is said here is signed with a genuine key: one accuser whom all but one doubt already.
"""

import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import MemberState
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.messages import (
    LEVEL_FAILED,
    LEVEL_SUSPECT,
    LEVEL_UNRESPONSIVE,
    Accusation,
    AccusationBody,
)
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.trust.envelopes import signed_bytes
from tests.support.swim_net import Net, S

ACCUSER, BELIEVER, SUBJECT = 0, 1, 2
DOUBTED = (MemberState.SUSPECT, MemberState.DEGRADED)
SLOW = SwimConfig(protocol_period_ns=4 * S)
"""A node at the end of its byte budget probes so seldom that its routine does not come to the rescue."""
ASKED_S = 1.2
"""The longest suspicion timeout, and a round trip."""


def swarm(seed: int, count: int = 7, **options: object) -> Net:
    net = Net(count, seed, **options)  # type: ignore[arg-type]
    assert net.run_until(net.formed, 60) is not None
    net.run(3)
    return net


def accuse(net: Net, subjects: list[int], level: int) -> None:
    """The accuser speaks to the believer alone; everybody else was refuted often enough to doubt it."""
    accuser = net.hosts[ACCUSER].node._core.own
    for host in net.hosts:
        for _ in range(0 if host.index == BELIEVER else 16):
            host.node._swim.membership.accusations.standing.refuted(accuser.node, net.now)
    host = net.hosts[BELIEVER]
    core = host.node._core
    core.now_ns = net.now
    host.node._wire.effects = []
    for subject in subjects:
        own = net.hosts[subject].node._core.own
        body = encode(AccusationBody(accuser.node, own.node, own.incarnation, level))
        word = Accusation(body, net.crypto.sign(accuser.seed, signed_bytes("accuse", body)))
        host.node._swim.membership.accusations.on_accusation(word, core.table.by_node[accuser.node])
    net.perform(host, host.node._wire.effects)


def check_hearsay_ends(level: int) -> None:
    believed = 0
    for seed in range(8):
        net = swarm(seed, swim=SLOW)
        accuse(net, [SUBJECT], level)
        believed += net.states(BELIEVER)[f"n{SUBJECT:03d}"] in DOUBTED
        net.run(ASKED_S)
        for host in net.hosts:
            assert not set(net.states(host.index).values()) & {*DOUBTED, MemberState.FAILED}, seed
    assert believed >= 4


@pytest.mark.parametrize("level", [LEVEL_SUSPECT, LEVEL_UNRESPONSIVE, LEVEL_FAILED])
def test_a_doubt_on_one_word_that_nobody_else_believes_ends_once_it_is_asked_about(level: int) -> None:
    check_hearsay_ends(level)


def test_however_many_are_in_doubt_they_are_asked_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no host can be asked, the dead are in doubt for six seconds."""
    check_asks(monkeypatch)


def check_asks(monkeypatch: pytest.MonkeyPatch, seconds: int = 4) -> None:
    net = swarm(1, 40, host_answers=False)
    asked, ping_once = [], Prober.ping_once

    def count(self: Prober, member: object) -> None:
        if self.core is net.hosts[BELIEVER].node._core:
            asked.append(member)
        ping_once(self, member)  # type: ignore[arg-type]

    monkeypatch.setattr(Prober, "ping_once", count)
    for host in net.hosts[4:]:
        host.dark = True
    net.run(1)
    accuse(net, list(range(4, 40)), LEVEL_SUSPECT)
    net.run(seconds)
    assert 4 <= len(asked) <= 8 + 4 * seconds
