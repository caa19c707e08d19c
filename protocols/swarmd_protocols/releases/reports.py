"""Health reports: every node's signed word about the models it runs, and the book of all such words.

The book is two maps of maxima, each cut to a bound by an order of its keys, hence a join-semilattice. What it keeps
depends on the reports and on which releases count, never on the order of arrival. Its bounds are per author: whatever
one node says, it fills only its own rows.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases.statements import Count, DigestOrNone, ModelId
from swarmd_protocols.trust.envelopes import (
    DAMAGE,
    DIGEST_BYTES,
    KEY_BYTES,
    Envelope,
    Verify,
    decode_envelope,
    key_id,
    signed_bytes,
)

PHASES = ("idle", "fetching", "ready", "trial", "passed", "failed")
MAX_REASON = 96
"""Characters: what a table of a terminal shows of it."""
MAX_STATUSES_PER_NODE = 4
"""Models that one node may report on; a device runs one, a larger one may hold a few. Rows above it are not kept."""
MAX_VOTES_PER_NODE = 256
"""Verdicts that one node may have, each on a release that counts: 8 models with all the 32 releases that are kept of
each. At 0.4 kB a report one author costs every other node 100 kB at most."""


class Verdict(IntEnum):
    """The greater wins when a node says both."""

    NONE = 0
    PASS = 1
    FAIL = 2


class Report(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One node's signed word about one model."""

    public_key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    model: ModelId
    sequence: Count
    active: DigestOrNone
    """Digest of the release that runs; b"" for the model built into the image."""
    epoch: Count
    version: Count
    phase: Annotated[str, Meta(pattern=rf"\A(?:{'|'.join(PHASES)})\Z")]
    release: DigestOrNone
    """Digest of the release that `phase` and `verdict` are about; b"" for none."""
    verdict: Verdict
    soak_s: Count
    samples: Count
    reason: Annotated[str, Meta(max_length=MAX_REASON)]

    @property
    def node(self) -> NodeId:
        """Whose report it is."""
        return node_id_of(self.public_key)

    def payload(self) -> bytes:
        """The bytes to sign."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, reason=self.reason[:MAX_REASON]))


_REPORT = msgspec.msgpack.Decoder(Report)
_PAYLOAD_MAX_BYTES = 1_024
"""A report with its longest reason, twice."""


def parse_report(payload: bytes) -> Report:
    """Read the payload of a health report.

    Raises:
        WireError: It is none.
    """
    if len(payload) > _PAYLOAD_MAX_BYTES:
        raise WireError(f"health report of {len(payload)} bytes; at most {_PAYLOAD_MAX_BYTES} are read")
    try:
        report = _REPORT.decode(payload)
    except DAMAGE as error:
        raise WireError(f"health report: {error}") from error
    if not {len(report.active), len(report.release)} <= {0, DIGEST_BYTES}:
        raise WireError("health report: a digest is malformed")
    return report


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


class SignedReport(msgspec.Struct, frozen=True):
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


def decode_report(data: bytes, verify: Verify) -> SignedReport:
    """An encoded report of whichever node; see `admit_report`."""
    envelope = decode_envelope(data)
    return SignedReport(envelope, admit_report(envelope, verify))


class ReportBook(msgspec.Struct):
    """Every node's latest status, and every node's verdict on each release that counts."""

    statuses: dict[tuple[NodeId, str], SignedReport] = msgspec.field(default_factory=dict)
    votes: dict[tuple[bytes, NodeId], SignedReport] = msgspec.field(default_factory=dict)
    expected: dict[tuple[NodeId, str], None] = msgspec.field(default_factory=dict)
    """Who took part before this node restarted and was not heard since: they keep their places (`roster.py`)."""
    edition: int = 0
    """Changes whenever what is counted may have: a verdict, or who takes part."""

    def add(self, signed: SignedReport, known: Collection[bytes]) -> bool:
        """Join one report; True when it changed what is known.

        Args:
            signed: Verified, of a certified node.
            known: Digests of the releases that count; verdicts on others are not kept.
        """
        report = signed.report
        changed = False
        key = (report.node, report.model)
        status = self.statuses.get(key)
        if status is None or status.status_rank < signed.status_rank:
            self.statuses[key] = signed
            changed = True
            if status is None:
                self.edition += 1
                self.expected.pop(key, None)
                changed = self._cut_statuses(report.node, key)
        if report.verdict is Verdict.NONE or report.release not in known:
            return changed
        vote_key = (report.release, report.node)
        vote = self.votes.get(vote_key)
        if vote is None or vote.vote_rank < signed.vote_rank:
            self.votes[vote_key] = signed
            self.edition += 1
            changed = (vote is not None or self._cut_votes(report.node, vote_key)) or changed
        return changed

    def _cut_statuses(self, node: NodeId, new: tuple[NodeId, str]) -> bool:
        """Keep a node's first models by name; whether the new one is among them."""
        mine = sorted(key for key in self.statuses if key[0] == node)
        for key in mine[MAX_STATUSES_PER_NODE:]:
            del self.statuses[key]
        return new in self.statuses

    def _cut_votes(self, node: NodeId, new: tuple[bytes, NodeId]) -> bool:
        """Keep a node's first verdicts by digest; whether the new one is among them."""
        if len(self.votes) <= MAX_VOTES_PER_NODE:
            return True
        mine = sorted(key for key in self.votes if key[1] == node)
        for key in mine[MAX_VOTES_PER_NODE:]:
            del self.votes[key]
        return new in self.votes

    def envelopes(self) -> dict[bytes, Envelope]:
        """Everything worth passing on, by digest."""
        all_of_it = (*self.statuses.values(), *self.votes.values())
        return {signed.envelope.digest: signed.envelope for signed in all_of_it}

    def verdicts(self, release: bytes) -> dict[NodeId, Verdict]:
        """What each node has said of a release."""
        return {node: signed.report.verdict for (about, node), signed in self.votes.items() if about == release}

    def participants(self, model: str) -> list[NodeId]:
        """The nodes that say they run the model, or did before this one restarted, sorted."""
        return sorted(node for keys in (self.statuses, self.expected) for node, about in keys if about == model)

    def takes_part(self, node: NodeId, model: str) -> bool:
        """Whether a node is one of the participants."""
        return (node, model) in self.statuses or (node, model) in self.expected

    def expect(self, node: NodeId, models: Iterable[str]) -> None:
        """A node took part in these before the restart."""
        self.expected.update({(node, model): None for model in models if (node, model) not in self.statuses})
        self.edition += 1

    def expect_no_more(self) -> None:
        """Whoever was not heard since the restart does not take part."""
        self.expected.clear()
        self.edition += 1

    def forget_nodes(self, nodes: Iterable[bytes]) -> None:
        """Drop all that these nodes have said: they are not certified any longer."""
        gone = set(nodes)
        self.statuses = {key: signed for key, signed in self.statuses.items() if key[0] not in gone}
        self.votes = {key: signed for key, signed in self.votes.items() if key[1] not in gone}
        self.expected = {key: None for key in self.expected if key[0] not in gone}
        self.edition += 1

    def keep_votes(self, known: Collection[bytes]) -> None:
        """Drop verdicts on releases that count no longer, and take those in that a status carries on one that does."""
        self.votes = {key: signed for key, signed in self.votes.items() if key[0] in known}
        self.edition += 1
        for signed in list(self.statuses.values()):
            self.add(signed, known)
