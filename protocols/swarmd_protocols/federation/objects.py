"""An object on its way up: the signed batches that say it, and what anybody reads from them.

A gateway says which sightings are one thing, and names the batch in which each was signed. The region derives
everything else (label, place, observers, times) from the signed rows by the same arithmetic as every member of the
swarm, so a gateway can keep something back, or group badly, but it cannot make a sighting, a place or an observer up.

    ObjectRow   [stamp, object id 8, group, members, joins, reviews]
    member      [proof, label, kind, place]        a sighting in that batch
    join        [proof, member]                    the author of that batch saw the same as that member
    review      bytes                              as the operator signed it

`stamp` orders what is said of one object: milliseconds of swarm time, and above what the region was last known to
have. Of two rows with one stamp the higher digest counts, so any order of arrival ends alike.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from swarmd_protocols.channel.codec import decode_body
from swarmd_protocols.errors import WireError
from swarmd_protocols.federation.wire import DIGEST_BYTES, NUMBER_MAX, OBJECT_ID_BYTES, PROOFS_MAX, ROW_PROOFS_MAX
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, stamp_ms
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.crdt.facts import ASSET, Facts, Join, SightingKey
from swarmd_protocols.state.crdt.places import LABEL_MAX_BYTES, TRACK
from swarmd_protocols.state.crdt.reviews import STATEMENT_MAX_BYTES, Verify, open_review
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry, entry_of
from swarmd_protocols.state.dedup.own import fused
from swarmd_protocols.state.dedup.tiers import Witness, is_confirmed, witnesses_of
from swarmd_protocols.state.observations import ReviewView
from swarmd_protocols.state.reviews import Reviews, settled

MEMBERS_MAX = 64
"""Sightings of one object, and joins to them: as many as batches."""
REVIEWS_MAX = 16
"""Statements of operators about one object."""
EPOCH_UNIX_MS = EPOCH_2020_NS // 1_000_000
"""2020-01-01 UTC in milliseconds since 1970: where stamps begin."""
_PLAIN = DedupConfig()

_Proof = Annotated[int, Meta(ge=0, lt=PROOFS_MAX)]
_Label = Annotated[str, Meta(max_length=LABEL_MAX_BYTES)]


class Member(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One sighting of the object."""

    proof: _Proof
    """Place of its batch among the row's proofs."""
    label: _Label
    kind: Annotated[int, Meta(ge=0, le=TRACK)]
    place: tuple[int, int] | str

    @property
    def key(self) -> SightingKey:
        """The register's key at its origin."""
        return (self.label, self.kind, self.place)


class Joined(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Another node that saw what a member describes."""

    proof: _Proof
    member: Annotated[int, Meta(ge=0, lt=MEMBERS_MAX)]


class ObjectRow(msgspec.Struct, array_like=True, frozen=True):
    """Body of a `wire.RowKind.OBJECT`."""

    stamp: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    object_id: Annotated[bytes, Meta(min_length=OBJECT_ID_BYTES, max_length=OBJECT_ID_BYTES)]
    group: _Label
    """Class group of its labels (`dedup.groups`), which an asset's id is made of."""
    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=MEMBERS_MAX)]
    joins: Annotated[tuple[Joined, ...], Meta(max_length=MEMBERS_MAX)] = ()
    reviews: Annotated[
        tuple[Annotated[bytes, Meta(max_length=STATEMENT_MAX_BYTES)], ...], Meta(max_length=REVIEWS_MAX)
    ] = ()


class Derived(NamedTuple):
    """What the signed rows of an object say, by the arithmetic of the swarm's own view."""

    object_id: bytes
    stamp: int
    label: str
    detected: str
    """The detectors' label where operators corrected it; else ""."""
    score_milli: int
    east_cm: int | None
    north_cm: int | None
    covariance_cm2: tuple[int, int, int] | None
    asset: str
    observers: tuple[NodeId, ...]
    first_ms: int
    """Milliseconds since 1970, swarm time."""
    last_ms: int
    reports: int
    review: str
    """"confirmed", "relabelled", "rejected", "disputed", or "" where no operator has a verdict."""
    models: tuple[bytes, ...]
    """First 8 bytes of the digests of the models that saw it."""
    merged: tuple[bytes, ...]
    """Ids that were objects of their own and are part of this one."""
    evidence: tuple[bytes, ...]
    """Digests of the batches behind it (`Batch.digest`): any member can show them."""
    picture: bytes
    """Name of the picture that the surest of its authors keeps of it; b"": there is none. The picture stays there."""
    witnesses: Sequence[Witness]
    """What its authors' words are worth (`state/dedup/tiers.py`)."""

    @property
    def digest(self) -> bytes:
        """8 bytes over what it says, without when and by which batches it was said."""
        said = msgspec.msgpack.encode(
            (self.object_id, self.label, self.detected, self.score_milli, self.east_cm, self.north_cm,
             self.covariance_cm2, self.asset, self.observers, self.first_ms, self.last_ms, self.reports, self.review,
             self.models, self.merged, self.picture)
        )  # fmt: skip
        return blake2b(said, digest_size=DIGEST_BYTES, person=b"swarmd-fed-said").digest()

    @property
    def order(self) -> tuple[int, bytes]:
        """Of two words on one object the greater counts."""
        return (self.stamp, self.digest)

    def tier(self, confirm_observers: int) -> str:
        """ "reviewed", "confirmed" or "candidate", as members have it."""
        if self.review not in ("", "disputed"):
            return "reviewed"
        return "confirmed" if is_confirmed(self.witnesses, _PLAIN, confirm_observers) else "candidate"


_ROW = msgspec.msgpack.Decoder(ObjectRow)
_ENCODE = msgspec.msgpack.Encoder().encode


def encode_object(row: ObjectRow) -> bytes:
    """The body as it travels."""
    return _ENCODE(row)


def read_object(body: bytes) -> ObjectRow:
    """Read a body.

    Raises:
        WireError: It is none, or names a member or proof that cannot be.
    """
    row = decode_body(_ROW, body)
    if any(joined.member >= len(row.members) for joined in row.joins):
        raise WireError("a join names a member that the object does not have")
    if any(place >= ROW_PROOFS_MAX for place in _places(row)):
        raise WireError(f"an object has at most {ROW_PROOFS_MAX} proofs")
    return row


def _places(row: ObjectRow) -> list[int]:
    return [part.proof for part in row.members] + [part.proof for part in row.joins]


def derive(
    row: ObjectRow,
    proofs: Sequence[tuple[Batch, Facts]],
    swarm: str,
    operators: frozenset[bytes],
    verify: Verify,
) -> Derived:
    """What an object is, by its signed rows; that the batches are their origins' own is the caller's to check first.

    Args:
        row: As read.
        proofs: The row's batches, in its order, and their facts.
        swarm: Its name; reviews of other swarms are about other things.
        operators: Public keys that speak for an operator under the swarm's newest root.
        verify: Checks the signature of a review.

    Raises:
        WireError: A batch does not say what the row names it for, or the object is not called so.
    """
    entries = [_member(part, proofs, row.group) for part in row.members]
    leader = min(entries, key=lambda entry: entry.rank)
    if bytes.fromhex(leader.object_id) != row.object_id:
        raise WireError("the object does not bear the id of its first sighting")
    if len({(entry.origin, entry.key) for entry in entries}) != len(entries):
        raise WireError("an object names a sighting twice")
    # A verdict is worth something as evidence, and nothing else (`dedup/judged.py`).
    seen = [entry for entry in entries if not entry.is_verdict]
    if not seen:
        raise WireError("nobody has seen the object that the row names verdicts on")
    rows = [entry.row for entry in seen]
    observers = {entry.origin for entry in seen}
    first, last = min(one.first for one in rows), max(one.last for one in rows)
    reports = sum(one.reports for one in rows)
    joined: dict[int, list[NodeId]] = {}
    for author, member, join in _joins(row, proofs, entries):
        joined.setdefault(id(entries[member]), []).append(author)
        observers.add(author)
        first, last = min(first, join.first), max(last, join.last)
        reports += 1
    best = max(rows, key=lambda one: (not one.need_milli, one.score_milli, one.label))
    assets = [one.place for one in rows if one.kind == ASSET and isinstance(one.place, str)]
    said = _reviews(row, entries, swarm, operators, verify)
    review, label = settled(said)
    positioned = any(one.positioned for one in rows)
    east, north, covariance = fused(entries, _PLAIN)
    ids = dict.fromkeys(bytes.fromhex(entry.object_id) for entry in entries if entry is not leader)
    ids.pop(row.object_id, None)
    return Derived(
        row.object_id,
        row.stamp,
        label or best.label,
        best.label if label not in ("", best.label) else "",
        best.score_milli,
        east if positioned else None,
        north if positioned else None,
        covariance if positioned else None,
        max(assets, default=""),
        tuple(sorted(observers)),
        EPOCH_UNIX_MS + stamp_ms(first),
        EPOCH_UNIX_MS + stamp_ms(last),
        reports,
        review,
        tuple(sorted({entry.model for entry in entries})),
        tuple(sorted(ids)),
        tuple(dict.fromkeys(batch.digest for batch, _ in proofs)),
        max(((one.score_milli, one.thumb) for one in rows if one.thumb), default=(0, b""))[1],
        witnesses_of(entries, lambda entry: joined.get(id(entry), ()), _PLAIN),
    )


def _member(part: Member, proofs: Sequence[tuple[Batch, Facts]], group: str) -> Entry:
    batch, facts = _proof(part.proof, proofs)
    for one in facts.sightings:
        if one.key == part.key:
            return entry_of(batch.origin, one, batch.dot, group)
    raise WireError(f"{batch} does not hold the sighting that it is named for")


def _joins(
    row: ObjectRow, proofs: Sequence[tuple[Batch, Facts]], entries: Sequence[Entry]
) -> list[tuple[NodeId, int, Join]]:
    """(author, which member it has joined, what it says)."""
    newest: dict[tuple[NodeId, int], tuple[tuple[int, int], Join]] = {}
    for part in row.joins:
        batch, facts = _proof(part.proof, proofs)
        wanted = entries[part.member]
        found = [one for one in facts.joins if (one.origin, one.key) == (wanted.origin, wanted.key)]
        if not found:
            raise WireError(f"{batch} does not hold the join that it is named for")
        slot = (batch.origin, part.member)
        if slot not in newest or newest[slot][0] < batch.dot:
            newest[slot] = (batch.dot, found[-1])
    return [(author, member, join) for (author, member), (_, join) in sorted(newest.items())]


def _proof(place: int, proofs: Sequence[tuple[Batch, Facts]]) -> tuple[Batch, Facts]:
    if place >= len(proofs) or proofs[place][0].stream is not Stream.FACTS:
        raise WireError("a row names a proof that it does not have")
    return proofs[place]


def _reviews(
    row: ObjectRow, entries: Sequence[Entry], swarm: str, operators: frozenset[bytes], verify: Verify
) -> tuple[ReviewView, ...]:
    if not row.reviews:
        return ()
    statements = [open_review(one) for one in row.reviews]
    labels = [entry.row.label for entry in entries] + [said.review.label for said in statements]
    groups: Mapping[str, str] = dict.fromkeys(labels, row.group)
    reviews = Reviews(swarm, groups, verify)
    reviews.know_operators(operators)
    for said in statements:
        reviews.take(said)
    return reviews.of(dict.fromkeys(reviews.target(entry.origin, *entry.key) for entry in entries))
