"""What one node may keep from being done: a drone that has landed, one whose pilot hangs, and a thief of one key."""

from collections.abc import Callable

import pytest

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims import claims as claims_module
from swarmd_protocols.state.claims.claims import Claims, cell_hash
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.claims.takes import TAKES_MAX, Takes
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Stream, seal_batch
from swarmd_protocols.state.crdt.records import Lease, encode_leases
from tests.sim.test_claims_swarm import Survey
from tests.support.mutants import assert_found
from tests.support.state_mesh import S

ME, OTHER, THIRD = (NodeId(bytes([n]) * 16) for n in (1, 2, 3))
CONFIG = ClaimConfig(squat_renewals=5)
WORKED, AHEAD = cell_hash("a"), cell_hash("b")


def two_cells() -> Claims:
    claims = Claims(ME, CONFIG)
    claims.define([("a", 0, 0), ("b", 2_000, 0)])
    return claims


def law_of_the_landed() -> None:
    """What was claimed ahead is free some time after its holder has finished and wants no more."""
    claims = two_cells()
    claims.hear(OTHER, (Lease(WORKED, 1, 0, True, 0, 0), Lease(AHEAD, 2, 0, False, 0, 0)), S)
    for renewal in range(1, 20):
        claims.hear(OTHER, (Lease(AHEAD, 2, renewal, False, 0, 0),), S + renewal * CONFIG.renew_ns)
    assert claims.holder(AHEAD, S + 20 * CONFIG.renew_ns) is None


def law_of_the_hanging() -> None:
    """Where the work stands still, both cells are free; where it goes on again, both are held again."""
    claims = two_cells()
    for renewal in range(20):
        leases = Lease(WORKED, 1, renewal, True, 0, 0), Lease(AHEAD, 2, renewal, False, 0, 0)
        claims.hear(OTHER, leases, S + renewal * CONFIG.renew_ns)
    at_ns = S + 20 * CONFIG.renew_ns
    assert claims.holder(WORKED, at_ns) is None
    assert claims.holder(AHEAD, at_ns) is None
    claims.hear(OTHER, (Lease(WORKED, 1, 20, True, 0, 1), Lease(AHEAD, 2, 20, False, 0, 0)), at_ns)
    assert claims.holder(WORKED, at_ns) == claims.holder(AHEAD, at_ns) == OTHER


def law_of_the_next_claim() -> None:
    """Who claims anew what it holds begins no new account of it."""
    claims = two_cells()
    for epoch in range(20):
        claims.hear(OTHER, (Lease(AHEAD, epoch, 0, epoch % 2 == 0, 0, 0),), S + epoch * CONFIG.renew_ns)
    assert claims.holder(AHEAD, S + 20 * CONFIG.renew_ns) is None


def test_law_what_a_landed_drone_had_claimed_ahead_is_free() -> None:
    law_of_the_landed()


def test_law_what_a_hanging_pilot_holds_is_free() -> None:
    law_of_the_hanging()


def test_law_who_claims_anew_gains_nothing() -> None:
    law_of_the_next_claim()


def test_what_waits_for_work_that_goes_on_is_held() -> None:
    claims = two_cells()
    for renewal in range(20):
        leases = Lease(WORKED, 1, renewal, True, 0, renewal), Lease(AHEAD, 2, renewal, False, 0, 0)
        claims.hear(OTHER, leases, S + renewal * CONFIG.renew_ns)
    assert claims.holder(AHEAD, S + 20 * CONFIG.renew_ns) == OTHER


def law_of_the_thief() -> None:
    """One key claims, ten times a second and with the best bid, whatever the others have claimed."""
    survey = Survey(6, 4, seed=1, loss=0.0)
    mesh, thief = survey.mesh, survey.mesh.members[-1]
    mesh.run(1)
    mesh.crash(thief.index)
    for number in range(1, 901):
        survey.step(0.1)
        honest = [member for member in mesh.members if member.replica is not None]
        held = sorted({key for one in honest for key in one.replica._projection.survey.claims.held})  # type: ignore[union-attr]
        mesh.rng.shuffle(held)
        body = encode_leases(tuple(Lease(key, number, 0, True, 0, 0) for key in held[:2]))
        stamp = honest[0].replica.clock.physical_ms(mesh.now_ns) << 16  # type: ignore[union-attr]
        life = 1 << 40
        batch = seal_batch(Stream.LEASES, thief.node, (life, number), (life, 0), bytes(16), stamp, body, thief.signer)
        for member in honest:
            payload = messages.encode(messages.Batches((batch.raw,)))
            effects = member.replica.on_message(thief.node, payload, member.local_ns(mesh.now_ns))  # type: ignore[union-attr]
            mesh.perform(member, effects)
        if len(set(survey.inspections)) == len(survey.cells):
            break
    assert set(survey.inspections) == set(survey.cells)
    named = [e for member in mesh.members for e in member.effects if isinstance(e, Alarm) and e.code == "claims-taken"]
    assert named
    assert all(thief.node.hex() in alarm.text for alarm in named)


def test_law_one_key_keeps_no_cells_from_being_done() -> None:
    law_of_the_thief()


def law_of_the_bait() -> None:
    """Who lets others take cells and takes them back is ignored, and not they."""
    claims = two_cells()
    for round_ in range(TAKES_MAX):
        at_ns = S + round_ * S
        claims.hear(OTHER, (Lease(AHEAD, 3 * round_, 0, False, 1 << 40, 0),), at_ns)
        claims.hear(THIRD, (Lease(AHEAD, round_, 0, False, 7, 0),), at_ns)
        claims.hear(OTHER, (Lease(AHEAD, 3 * round_ + 1, 0, False, 0, 0),), at_ns)
        claims.hear(THIRD, (), at_ns)
        claims.hear(OTHER, (), at_ns)
    assert claims.takes.ignores(OTHER)
    assert not claims.takes.ignores(THIRD)


def test_law_nobody_brings_another_into_disrepute() -> None:
    law_of_the_bait()


def test_who_does_what_it_takes_is_heard_and_who_was_ignored_is_heard_again() -> None:
    takes = Takes()
    for _ in range(3 * TAKES_MAX):
        takes.note(OTHER, 1, S)
        takes.did(OTHER)
    assert not takes.ignores(OTHER)
    takes.note(OTHER, 100, S)
    assert takes.ignores(OTHER)
    assert takes.news() == [OTHER]
    takes.note(OTHER, 0, 11 * 60 * S)
    assert takes.ignores(OTHER)
    takes.note(OTHER, 0, 13 * 60 * S)
    assert not takes.ignores(OTHER)


def only_work_stands_still(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        claims_module,
        "idle_renewals",
        lambda lease, old, renewals: (
            0 if lease.progress > old.progress else renewals + (lease.renewal - old.renewal if lease.working else 0)
        ),
    )


def what_waits_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims_module, "wait_for_work", lambda claims, squat: None)
    only_work_stands_still(patch)


def a_claim_is_new(patch: pytest.MonkeyPatch) -> None:
    hear = Claims.hear

    def forgets(self: Claims, node: NodeId, leases: tuple[Lease, ...], now_ns: int) -> list[bytes]:
        self._records.pop(node, None)
        return hear(self, node, leases, now_ns)

    patch.setattr(Claims, "hear", forgets)


def anybody_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Takes, "ignores", lambda self, node: False)


def nothing_is_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Takes, "did", lambda self, node: None)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (only_work_stands_still, law_of_the_landed),
        (what_waits_waits, law_of_the_hanging),
        (a_claim_is_new, law_of_the_next_claim),
        (anybody_counts, law_of_the_thief),
        (nothing_is_given_back, law_of_the_bait),
    ],
)
def test_a_law_finds_its_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, law, monkeypatch)
