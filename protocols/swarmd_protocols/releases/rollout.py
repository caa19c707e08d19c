"""Rollout without a coordinator: who may try a release now, and what the fleet has made of it so far.

Every node that runs a model says so in a **health report**, signed with its own key: what it runs, and at most one
verdict on each release it has tried. The nodes are ranked by a hash keyed with the release, so every node computes the
same cohorts and no publisher chooses its canaries. Stage s is the lowest max(2, p_s of N) ranks; the next stage opens
when enough of the ranks so far have passed and no more than `max_fails` have failed. Both counts only grow, **a halt
wins**, and silence never promotes: canaries that say nothing keep the stage shut, until a later rank has waited its
turn and elects itself, or the operator signs a `force`.

Why ranks and not a hash threshold: at 5 % a threshold gives a fleet of 8 no canary at all in 66 of 100 cases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b

from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases.statements import Rollout
from swarmd_protocols.trust import canonical
from swarmd_protocols.trust.envelopes import DIGEST_BYTES, KEY_BYTES, Envelope, Verify, key_id, signed_bytes
from swarmd_protocols.trust.fields import MODEL_ID, U63

PHASES = ("idle", "fetching", "ready", "trial", "passed", "failed")
MAX_REASON = 96
MAX_REPORTS = 8_192


class Verdict(IntEnum):
    """The greater wins when a node says both."""

    NONE = 0
    PASS = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Report:
    """One node's signed word about one model.

    On the wire an array: [public key, model, seq, active release, epoch, version, phase, release, verdict, soak s,
    samples, reason].
    """

    public_key: bytes
    model: str
    sequence: int
    active: bytes
    """Digest of the release that runs; b"" for the model built into the image."""
    epoch: int
    version: int
    phase: str
    release: bytes
    """Digest of the release that `phase` and `verdict` are about; b"" for none."""
    verdict: Verdict
    soak_s: int
    samples: int
    reason: str

    @property
    def node(self) -> NodeId:
        """Whose report it is."""
        return node_id_of(self.public_key)

    def payload(self) -> bytes:
        """The bytes to sign."""
        return canonical.encode(
            [
                self.public_key,
                self.model,
                self.sequence,
                self.active,
                self.epoch,
                self.version,
                PHASES.index(self.phase),
                self.release,
                int(self.verdict),
                self.soak_s,
                self.samples,
                self.reason[:MAX_REASON],
            ]
        )


def parse_report(payload: bytes) -> Report:
    """Read the payload of a health report.

    Raises:
        WireError: It is none.
    """
    match canonical.decode(payload, 1_024):
        case [
            bytes() as key,
            str() as model,
            int() as sequence,
            bytes() as active,
            int() as epoch,
            int() as version,
            int() as phase,
            bytes() as release,
            int() as verdict,
            int() as soak_s,
            int() as samples,
            str() as reason,
        ]:
            pass
        case _:
            raise WireError("a health report is an array of twelve")
    numbers = (sequence, epoch, version, phase, verdict, soak_s, samples)
    if any(isinstance(one, bool) or not 0 <= one <= U63 for one in numbers):
        raise WireError("health report: a number is out of range")
    if len(key) != KEY_BYTES or not MODEL_ID.fullmatch(model) or len(reason) > MAX_REASON:
        raise WireError("health report: key, model or reason is malformed")
    if not {len(active), len(release)} <= {0, DIGEST_BYTES} or phase >= len(PHASES) or verdict > 2:
        raise WireError("health report: digest, phase or verdict is malformed")
    return Report(
        key, model, sequence, active, epoch, version, PHASES[phase], release, Verdict(verdict), soak_s, samples, reason
    )


def admit_report(envelope: Envelope, verify: Verify) -> Report:
    """Verify a node's report by the key it names, then read it. Whether that key is enrolled is the caller's to know.

    Raises:
        IdentityError: The signature does not hold, or there is not exactly one.
        WireError: It is no report.
    """
    if envelope.kind != "health" or len(envelope.signatures) != 1:
        raise WireError("a health report has exactly one signature")
    report = parse_report(envelope.payload)
    (signer, signature) = envelope.signatures[0]
    message = signed_bytes("health", envelope.payload)
    if signer != key_id(report.public_key) or not verify(report.public_key, message, signature):
        raise IdentityError(f"health report of {report.node.hex()[:8]} is not signed by its node")
    return report


@dataclass(frozen=True, slots=True)
class SignedReport:
    """A report with the envelope that proves it."""

    envelope: Envelope
    report: Report

    @property
    def status_rank(self) -> tuple[int, bytes]:
        """The later report of a node is its status."""
        return self.report.sequence, self.envelope.digest

    @property
    def vote_rank(self) -> tuple[int, int, bytes]:
        """A verdict is sticky, FAIL beats PASS; of equal verdicts the first said counts."""
        return int(self.report.verdict), -self.report.sequence, self.envelope.digest


@dataclass(slots=True)
class ReportBook:
    """Every node's latest status and every node's verdict on every release: two maps of maxima, hence a semilattice."""

    statuses: dict[tuple[NodeId, str], SignedReport] = field(default_factory=dict)
    votes: dict[tuple[bytes, NodeId], SignedReport] = field(default_factory=dict)

    def add(self, signed: SignedReport) -> bool:
        """Join one report; True when it changed what is known."""
        report = signed.report
        changed = False
        key = (report.node, report.model)
        known = self.statuses.get(key)
        if (known is None and len(self.statuses) < MAX_REPORTS) or (known and known.status_rank < signed.status_rank):
            self.statuses[key] = signed
            changed = True
        if report.verdict is Verdict.NONE or not report.release:
            return changed
        vote_key = (report.release, report.node)
        vote = self.votes.get(vote_key)
        if (vote is None and len(self.votes) < MAX_REPORTS) or (vote and vote.vote_rank < signed.vote_rank):
            self.votes[vote_key] = signed
            changed = True
        return changed

    def envelopes(self) -> dict[bytes, Envelope]:
        """Everything worth passing on, by digest."""
        all_of_it = (*self.statuses.values(), *self.votes.values())
        return {signed.envelope.digest: signed.envelope for signed in all_of_it}

    def verdicts(self, release: bytes) -> dict[NodeId, Verdict]:
        """What each node has said of a release."""
        return {node: signed.report.verdict for (about, node), signed in self.votes.items() if about == release}

    def participants(self, model: str) -> list[NodeId]:
        """The nodes that say they run the model, sorted."""
        return sorted(node for node, about in self.statuses if about == model)

    def forget_nodes(self, nodes: Iterable[bytes]) -> None:
        """Drop all that these nodes have said: they are revoked."""
        gone = set(nodes)
        self.statuses = {key: signed for key, signed in self.statuses.items() if key[0] not in gone}
        self.votes = {key: signed for key, signed in self.votes.items() if key[1] not in gone}

    def forget_votes(self, keep: Iterable[bytes]) -> None:
        """Drop verdicts on releases that are gone."""
        wanted = set(keep)
        self.votes = {key: signed for key, signed in self.votes.items() if key[0] in wanted}


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
    return min(cohort, max(rollout.min_reports, -(-8 * cohort // 10)))


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
        verdicts: What nodes have said.
        forced: The highest stage that a `force` statement opened, or -1.
    """
    order = ranks(release, nodes)
    fails = sum(verdicts.get(node) is Verdict.FAIL for node in order)
    passed = [rank for node, rank in order.items() if verdicts.get(node) is Verdict.PASS]
    halted = fails > rollout.max_fails
    stages = len(rollout.stages_percent)
    cohort = passes = needed = 0
    stage = 0
    for stage, percent in enumerate(rollout.stages_percent):
        cohort = cohort_size(percent, len(order))
        needed = passes_needed(cohort, rollout)
        # A self-elected node stands in for a dead canary, so passes count beyond the cohort, up to its own size again.
        passes = sum(rank < 2 * cohort for rank in passed)
        if stage >= forced and (passes < needed or not order):
            return Standing(stage, stages, cohort, passes, needed, fails, halted)
    return Standing(stage + 1, stages, cohort, passes, needed, fails, halted)


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
