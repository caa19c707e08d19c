"""How long one who is gone can be kept alive over hops, and what becomes of one of whom nothing more is heard.

A thief signs what it likes in its own name and says again what others have signed, but signs for nobody else. So a
member counts while words of its own come that are new. The real times are ten minutes; here they are a tenth.
"""

from collections.abc import Callable

import pytest

from swarmd_protocols.effects import GoAway, MemberState
from swarmd_protocols.swim import waits
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.mesh import reports
from swarmd_protocols.swim.mesh.fates import Fates
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.waits import Waits
from tests.property.test_mesh_hostile import formed, lie, own_of
from tests.support.mesh_net import MeshNet, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.swim_net import S

ALIVE, FAILED, UNREACHABLE = MemberState.ALIVE, MemberState.FAILED, MemberState.UNREACHABLE
AWAY = MemberState.AWAY
GHOST_S = 60.0


@pytest.fixture(autouse=True)
def _times_are_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RENEWED_NS", "STALE_NS"):
        monkeypatch.setattr(reports, name, getattr(reports, name) // 10)
    monkeypatch.setattr(waits, "LONE_NS", waits.LONE_NS // 10)


def haunt(net: MeshNet, thief: int, hears: list[int], ghost: int, seconds: float, each: Callable[[], None]) -> None:
    """A thief says that it hears the dead one, and all that the dead one has signed, again and again."""
    host = net.hosts[thief]
    core, wire = host.node._core, host.node._wire
    member = core.table.by_node[own_of(net, ghost)]
    words = [member.report.links_encoded, core.crypto.share(net.hosts[ghost].node._core.own.encoded_record)]
    for _ in range(int(seconds * 2)):
        lie(net, thief, hears, [])
        core.now_ns = net.now
        effects, wire.effects = wire.effects, []
        for near in list(core.table.reachable):
            wire.push(near, words)
        net.perform(host, wire.effects)
        wire.effects = effects
        net.run(0.5)
        each()


def a_ghost_that_a_thief_keeps_is_gone_within_ten_minutes() -> None:
    """A ring of six; the thief is one of the two that the dead one named in its last report."""
    net = formed(6, line(6) | {(0, 5)})
    since_ns = net.now
    net.hosts[3].dark = True
    others = [0, 1, 4, 5]
    kept: list[bool] = []
    haunt(net, 2, [1, 3], 3, GHOST_S, lambda: kept.append(any(net.sees(index, 3) is ALIVE for index in others)))
    assert kept[20], "the thief keeps nobody: this shows nothing"
    assert not any(kept[-2:])
    assert net.failures(since_ns) == [] or {name for _, name in net.failures(since_ns)} == {"n003"}
    assert net.all_see(UNREACHABLE, 3, others)  # One says that it hears it, so that nobody knows that it has failed.
    # Its lies end; its own node soon says again whom it hears.
    assert net.run_until(lambda: net.all_see(FAILED, 3, others), GHOST_S) is not None


def a_ghost_that_never_reported_is_gone_within_ten_minutes() -> None:
    """It died before the view became a mesh, and one claims to hear it."""
    net = formed(6, line(6) | {(0, 5)})
    net.kill(3)
    net.run(10)
    net.restart(3)
    net.hosts[3].dark = True
    others: list[int] = [0, 1, 4, 5]
    kept: list[bool] = []
    haunt(net, 2, [1, 3], 3, GHOST_S, lambda: kept.append(any(net.sees(index, 3) is ALIVE for index in others)))
    assert kept[20], "the thief keeps nobody: this shows nothing"
    assert not any(kept[-2:])


def who_is_well_stays() -> None:
    """Where nothing happens for hours nobody goes stale: each says again whom it hears, and it costs little."""
    seconds, count = 2.5 * GHOST_S, 5
    for casts in (True, False):
        net = formed(count, line(count), casts=casts)
        net.run(10)
        since_ns, before = net.now, sent(net)
        net.run(seconds)
        assert net.formed()
        assert net.failures(since_ns) == [] == net.changes(UNREACHABLE, since_ns)
        said = sum(host.node._core.counters["near_reports"] for host in net.hosts)
        assert said >= count * seconds / (reports.RENEWED_NS / S) * 0.9
        assert (sent(net) - before) / seconds / count < 1_000


def sent(net: MeshNet) -> int:
    return sum(host.node._core.counters["datagram_bytes_out"] for host in net.hosts)


def who_is_kept_from_being_heard_has_not_failed() -> None:
    """On a line one in the middle passes on nothing that the last says of itself, or the last two."""
    for kept_back in ([5], [4, 5]):
        net = formed(6, line(6))
        keep_back(net, 2, {own_of(net, index) for index in kept_back})
        since_ns = net.now
        for _ in range(int(GHOST_S * 2)):
            lie(net, 2, [1, 3], [])
            net.run(0.5)
        assert net.failures(since_ns) == []
        assert all(net.sees(a, b) is (UNREACHABLE if b in kept_back else ALIVE) for a in (0, 1) for b in (3, 4, 5))
        del net.view(2).reports.on_near
        assert net.run_until(net.formed, 2 * GHOST_S) is not None


def keep_back(net: MeshNet, thief: int, nodes: set[bytes]) -> None:
    taken = net.view(thief).reports.on_near

    def on_near(message, via, nonce=b""):  # type: ignore[no-untyped-def]
        return None if any(node in message.body for node in nodes) else taken(message, via, nonce)

    net.view(thief).reports.on_near = on_near


def who_said_that_it_hears_nobody_and_is_silent_for_long_has_failed() -> None:
    net = formed(6, line(6))
    lies_last(net)
    assert net.run_until(lambda: net.all_see(UNREACHABLE, 5, [*range(5)]), 10) is not None
    net.run(GHOST_S / 2)
    assert net.all_see(UNREACHABLE, 5, [*range(5)])
    assert net.run_until(lambda: net.all_see(FAILED, 5, [*range(5)]), GHOST_S) is not None
    net.hosts[5].dark = False
    assert net.run_until(net.formed, 10) is not None  # It was well: nothing has to be taken back.


def lies_last(net: MeshNet) -> None:
    """The last of a line says that it hears nobody, while it is heard; then it is silent."""
    lie(net, 5, [], [])
    net.hosts[5].dark = True


def a_part_that_is_away_is_waited_for_until_it_is_forgotten() -> None:
    """As long as failed members are known, and they are forgotten after that as those are; who is alone waits on."""
    config = SwimConfig(mesh="on", casts=True, forget_ns=150 * S)
    net = MeshNet(6, line(6), swim=config)
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    net.relink({(0, 1), (2, 3), (3, 4)})
    net.run(120)
    assert net.all_see(UNREACHABLE, 4, [0, 1])
    assert net.all_see(UNREACHABLE, 0, [3, 4])
    net.run(45)
    assert net.all_see(FAILED, 4, [0, 1])
    assert net.sees(5, 0) is not FAILED  # It hears nobody: it may be that it is cut off itself.
    net.run(160)
    assert net.sees(0, 4) is None
    net.relink(line(6))
    assert net.run_until(net.formed, 60) is not None


def who_is_away_as_announced_has_not_failed() -> None:
    """A mesh waits as a full view does, at the end and between two parts; who does not come back has failed."""
    for subject in (5, 3):
        net = formed(6, line(6))
        since_ns = net.now
        net.feed(subject, GoAway(20 * S))
        net.run(1)
        net.hosts[subject].dark = True
        net.run(17)
        assert net.failures(since_ns) == []
        assert net.all_see(AWAY, subject, [0, 1, 2])
        net.run(8)
        assert net.all_see(FAILED if subject == 5 else UNREACHABLE, subject, [0, 1, 2])
        net.hosts[subject].dark = False
        assert net.run_until(net.formed, 10) is not None


# --- mutants -------------------------------------------------------------------------------------------------------


def _nobody_goes_stale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "is_fresh", lambda self, member: True)


def _a_word_played_again_is_new(patch: pytest.MonkeyPatch) -> None:
    original = NearReports._is_played_again

    def is_played_again(self, node, nonce):  # type: ignore[no-untyped-def]
        self._words[node] = self._words.get(node, (1, 0))[0], self.core.now_ns
        return original(self, node, nonce)

    patch.setattr(NearReports, "_is_played_again", is_played_again)


def _a_claim_is_a_sign_of_life(patch: pytest.MonkeyPatch) -> None:
    original = NearReports.is_fresh
    patch.setattr(
        NearReports,
        "is_fresh",
        lambda self, member: (
            any(member.node[:KEY_BYTES] in heard for heard in self.heard.values()) or original(self, member)
        ),
    )


def _what_was_said_is_never_said_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "RENEWED_NS", 10_000 * S)


def _who_is_silent_has_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fates, "_is_claimed", lambda self, member: False)


def _a_lone_one_is_waited_for_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waits, "_is_over", lambda self, member, silent_ns: False)


def _an_announcement_is_not_heeded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fates, "is_away", lambda self, member: False)


LAWS: list[tuple[Law, Mutant]] = [
    (a_ghost_that_a_thief_keeps_is_gone_within_ten_minutes, _nobody_goes_stale),
    (a_ghost_that_a_thief_keeps_is_gone_within_ten_minutes, _a_word_played_again_is_new),
    (a_ghost_that_a_thief_keeps_is_gone_within_ten_minutes, _a_claim_is_a_sign_of_life),
    (a_ghost_that_never_reported_is_gone_within_ten_minutes, _nobody_goes_stale),
    (who_is_well_stays, _what_was_said_is_never_said_again),
    (who_is_kept_from_being_heard_has_not_failed, _who_is_silent_has_failed),
    (who_said_that_it_hears_nobody_and_is_silent_for_long_has_failed, _a_lone_one_is_waited_for_for_ever),
    (a_part_that_is_away_is_waited_for_until_it_is_forgotten, _a_lone_one_is_waited_for_for_ever),
    (who_is_away_as_announced_has_not_failed, _an_announcement_is_not_heeded),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
