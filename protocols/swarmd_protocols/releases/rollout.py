"""Rollout without a coordinator: who may try a release now, and what the fleet has made of it so far.

The nodes that report a model are ranked by a hash keyed with the release, so every node computes the same cohorts and
no publisher chooses its canaries. The canaries of stage s are the lowest max(2, p_s of N) ranks; as many ranks again
may stand in for those that stay silent. Together they are **due**, and only what they say counts:

- the next stage opens when enough of the due have passed;
- the release is halted when `fails_to_halt` of the due of a stage that has opened say FAIL: two at least, one of ten
  where the fleet is large. One node, whoever holds its key, can delay a rollout by a turn and never stop one;
- silence never promotes: canaries that say nothing keep the stage shut until a later rank has waited its turn and
  elects itself, or the operator signs a `force`.

What is promoted, or stands at or below the signed floor, is settled: no verdict touches it any more (`policy.py`).

Why ranks and not a hash threshold: at 5 % a threshold gives a fleet of 8 no canary at all in 66 of 100 cases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Rollout

PASS_SHARE_PERCENT = 80
"""Share of a cohort that must pass before the next stage opens: four of five, so that one dead canary of five does not
cost a turn."""
HALT_SHARE_PERCENT = 10
"""Share of the due whose FAIL halts a release. Half of what may be missing at a stage that opens (20 %): a release that
one device in ten cannot run is stopped before the stage could open, and liars need as many keys."""
LEAST_TO_HALT = 2
"""FAILs that halt in the smallest fleet: one may be a broken device or a stolen key."""


def ranks(release: bytes, nodes: Iterable[NodeId]) -> dict[NodeId, int]:
    """Every node's place in the order in which it tries a release; the same on every node."""
    keyed = sorted((blake2b(node, digest_size=16, key=release[:32]).digest(), node) for node in set(nodes))
    return {node: rank for rank, (_, node) in enumerate(keyed)}


def cohort_size(percent: int, nodes: int) -> int:
    """How many nodes a stage covers: never fewer than two, never more than there are.

    >>> [cohort_size(5, n) for n in (1, 4, 20, 200)]
    [1, 2, 2, 10]
    """
    return min(nodes, max(2, -(-percent * nodes // 100)))


def passes_needed(cohort: int, rollout: Rollout) -> int:
    """How many of a cohort must pass before the next stage opens.

    >>> passes_needed(2, Rollout()), passes_needed(10, Rollout())
    (2, 8)
    """
    return min(cohort, max(rollout.min_reports, -(-PASS_SHARE_PERCENT * cohort // 100)))


def due_count(cohort: int, nodes: int) -> int:
    """How many of the lowest ranks are heard on a stage: its canaries, and as many that may stand in for them."""
    return min(nodes, 2 * cohort)


def fails_to_halt(due: int, rollout: Rollout) -> int:
    """How many of the due must fail before a release is halted.

    Args:
        due: See `due_count`.
        rollout: Its `max_fails` may ask for more, never for fewer.

    >>> [fails_to_halt(due, Rollout()) for due in (1, 2, 4, 20, 40, 200)]
    [1, 2, 2, 2, 4, 20]
    """
    return min(max(due, 1), max(LEAST_TO_HALT, rollout.max_fails + 1, -(-HALT_SHARE_PERCENT * due // 100)))


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a release has come, as one node sees it."""

    stage: int
    """Index of the stage that is open; `len(stages)` when the release is promoted."""
    stages: int
    cohort: int
    passes: int
    needed: int
    fails: int
    """FAILs of those that are due at the stage."""
    halted: bool

    @property
    def promoted(self) -> bool:
        """Every stage has passed."""
        return not self.halted and self.stage >= self.stages


def standing(
    release: bytes, rollout: Rollout, nodes: Iterable[NodeId], verdicts: Mapping[NodeId, Verdict], forced: int = -1
) -> Standing:
    """Count the verdicts. A pure function of the release, the nodes that take part, and what they said.

    Args:
        release: Digest; the key of the ranking.
        rollout: The release's own rules.
        nodes: Enrolled nodes that run this model; the verdicts of others do not count.
        verdicts: What nodes have said; of those that are not due at a stage that has opened it does not count.
        forced: The highest stage that a `force` statement opened, or -1.
    """
    order = ranks(release, nodes)
    said = [(rank, verdicts.get(node, Verdict.NONE)) for node, rank in order.items()]
    stages = len(rollout.stages_percent)
    counted: list[tuple[int, int, int, int]] = []
    halted, was_reached = False, True
    for percent in rollout.stages_percent:
        cohort = cohort_size(percent, len(order))
        needed = passes_needed(cohort, rollout)
        due = due_count(cohort, len(order))
        passes = sum(verdict is Verdict.PASS for rank, verdict in said if rank < due)
        fails = sum(verdict is Verdict.FAIL for rank, verdict in said if rank < due)
        counted.append((cohort, passes, needed, fails))
        halted = halted or (was_reached and fails >= fails_to_halt(due, rollout))
        # Whoever passed and fails later has opened the next stage all the same: what was heard there still counts.
        was_reached = was_reached and passes + fails >= needed
    for stage, (cohort, passes, needed, fails) in enumerate(counted):
        if stage >= forced and (passes < needed or not order):
            return Standing(stage, stages, cohort, passes, needed, fails, halted)
    return Standing(stages, stages, *counted[-1], halted)


def may_try(standing_now: Standing, rank: int, waited_ns: int, turn_ns: int) -> bool:
    """Whether a node may start its trial.

    Args:
        standing_now: How far the release has come.
        rank: The node's own place.
        waited_ns: How long this stage has been open here.
        turn_ns: How long each rank waits for those before it; a dead canary costs one turn.
    """
    if standing_now.halted:
        return False
    if standing_now.promoted or rank < standing_now.cohort:
        return True
    return rank < 2 * standing_now.cohort and waited_ns >= (rank - standing_now.cohort + 1) * turn_ns
