"""Law of what a network refuses to carry to members beyond a radio's reach, with mutants that break it."""

import pytest

from swarmd_protocols.effects import Alarm, MemberState, SendFailed
from swarmd_protocols.swim.mesh.routes import Routes
from tests.property.test_mesh_laws import formed
from tests.support.mesh_net import MeshNet
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant


def told(net: MeshNet, about: int) -> tuple[int, int]:
    """A datagram of the first to another is refused by its own network: alarms, and how ill it takes itself to be."""
    core, before = net.hosts[0].node._core, len(net.log)
    core.health = 0
    net.feed(0, SendFailed(net.address(about), "unreachable"))
    alarms = [one for _, at, one in net.log[before:] if at == 0 and isinstance(one, Alarm)]
    return len([one for one in alarms if one.code == "send-failed"]), core.health


def only_what_nobody_hands_on_is_an_alarm() -> None:
    """Who is far is tried directly now and then. That this fails says nothing of the own network while others lead
    there; once nobody does, and where it is a near one, it is told.
    """
    net = formed(3)
    assert told(net, 2) == (0, 0), "a far one that is reached over another"
    assert told(net, 1) == (1, 1), "a near one"
    net = formed(4)
    net.relink([(0, 1), (2, 3)])
    assert net.run_until(lambda: net.states(0)["n003"] is MemberState.UNREACHABLE, 20) is not None
    assert told(net, 3) == (1, 1), "nobody leads there any more"


def _each_is_an_alarm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Routes, "lead_to", lambda self, members: False)


def _none_to_who_is_far_is_an_alarm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Routes, "lead_to", lambda self, members: all(one.where < 0 for one in members))


def _none_to_who_is_reached_is_an_alarm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Routes, "lead_to", lambda self, members: all(one.state is MemberState.ALIVE for one in members))


LAWS: list[tuple[Law, Mutant]] = [
    (only_what_nobody_hands_on_is_an_alarm, _each_is_an_alarm),
    (only_what_nobody_hands_on_is_an_alarm, _none_to_who_is_far_is_an_alarm),
    (only_what_nobody_hands_on_is_an_alarm, _none_to_who_is_reached_is_an_alarm),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
