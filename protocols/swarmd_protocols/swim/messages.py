"""Wire messages of membership and what carries the sub-protocols.

A frame's body is one msgpack array of messages; each message is an array whose first element is its tag. Statements
that others pass on (`Record`, `Alive`, `Accusation`, `Links`, `MetaEntry`, `SignedEvent`, `Statement`) carry the bytes
that were signed, so they are verified as shipped and never re-serialised.

    ping ────────────▶ ack                         probe; it carries a digest of what the sender knows
    ping_req ─▶ ping ─▶ ack ─▶ indirect(heard)     through a helper; indirect(not heard) is Lifeguard's nack
    ping(digest ≠ mine) ─▶ ack + sections ─▶ fingerprints ─▶ items + want ─▶ items          repair
    hello (sealed by the group key) ◀─▶ hello                                            first contact
    hello ─▶ statement                                                   why it is in vain; see lessons.py
    neighbor(ask) ─▶ neighbor(accept | reject) ... disconnect; forward_join ─▶ forward_join ─▶ neighbor(ask);
    shuffle ◀─▶ shuffle                                                                  partial views
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import WireError

_Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Digest = Annotated[bytes, Meta(min_length=8, max_length=8)]
_Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
_Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Body = Annotated[bytes, Meta(max_length=1024)]
_Fingerprints = Annotated[bytes, Meta(max_length=65_536)]
"""8,192 of 8 bytes, which take 6 ms: a section is compared whole up to 120, then by 256 buckets."""

STATUS_ALIVE, STATUS_LEFT, STATUS_AWAY = 0, 1, 2
LEVEL_SUSPECT, LEVEL_UNRESPONSIVE, LEVEL_FAILED = 0, 1, 2
VECTOR_ANSWER, VECTOR_REPAIR, VECTOR_BASELINE = 0, 1, 2
NEIGHBOR_ASK, NEIGHBOR_PLEASE, NEIGHBOR_JOIN, NEIGHBOR_ACCEPT, NEIGHBOR_REJECT, DISCONNECT, PARTIAL_VIEW = range(7)
LINK_ONE_WAY, LINK_INDIRECT, LINK_LATE = 1, 2, 3


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Are you there? Answered by `Ack` with the same sequence. `digest`: see `digests.py`."""

    sequence: _Counter
    digest: _Digest


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer to `Ping`; `Sections` ride with it where the digests differ."""

    sequence: _Counter


class PingReq(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Please ping `target` for me; answered by `Indirect`."""

    sequence: _Counter
    target: _Id


class Indirect(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The helper's answer to `PingReq`: it heard the target, or (nack) not yet, but the helper itself is well."""

    sequence: _Counter
    heard: bool


class Record(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """All it takes to admit a member: certificate, and its signed `AliveBody`."""

    certificate: _Body
    body: _Body
    signature: _Signature


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A newer `AliveBody` of a member whose certificate is known: refutation, new address, leave, away."""

    body: _Body
    signature: _Signature


class Accusation(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A signed `AccusationBody`: `accuser` says this about a member."""

    body: _Body
    signature: _Signature


class SignedEvent(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A user event: signed `EventBody`."""

    body: Annotated[bytes, Meta(max_length=65_536)]
    signature: _Signature


class Sections(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Digests by section, sent beside an ack when the probe's digest differed."""

    view: Annotated[tuple[int, ...], Meta(max_length=8)]
    summaries: Annotated[
        tuple[tuple[Annotated[str, Meta(max_length=16)], Annotated[bytes, Meta(max_length=16)]], ...],
        Meta(max_length=8),
    ]


class Fingerprints(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """What the sender holds of one section (8 bytes an item); answered by what it lacks and `Want`."""

    section: Annotated[int, Meta(ge=0, le=7)]
    bucket: Annotated[int, Meta(ge=-1, le=255)]
    """-1 is the whole section; otherwise only items whose lowest byte is this."""
    items: _Fingerprints


class Want(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Please send these items."""

    section: Annotated[int, Meta(ge=0, le=7)]
    items: _Fingerprints


class Sub(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A sub-protocol's payload."""

    name: Annotated[str, Meta(max_length=16)]
    payload: Annotated[bytes, Meta(max_length=1_048_576)]


class Links(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A signed `LinksBody`: which links of the reporter are broken."""

    body: Annotated[bytes, Meta(max_length=1100)]
    signature: _Signature


class Statement(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """A fleet statement: "root", "revoke" or "group" (see identity.py); "group" only travels sealed for one pair."""

    kind: Annotated[str, Meta(max_length=16)]
    statement: Annotated[bytes, Meta(max_length=65_536)]


class MetaEntry(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """A signed `MetaBody`: one versioned key of a node's metadata."""

    body: Annotated[bytes, Meta(max_length=70_000)]
    signature: _Signature


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Stands after the sender's `Record` in a frame sealed by the group key."""

    answer: bool
    """True asks the receiver for its own hello."""


class EventVector(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """How far the sender has delivered each origin's user events."""

    vector: Annotated[tuple[tuple[_Id, _Counter], ...], Meta(max_length=8192)]
    asks: Annotated[int, Meta(ge=0, le=2)]
    """VECTOR_ANSWER: nothing; VECTOR_REPAIR: the events beyond, and your vector; VECTOR_BASELINE: only your vector."""


class Buckets(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """256 bucket sums (8 bytes each) of a large section; answered by `Fingerprints` of the buckets that differ."""

    section: Annotated[int, Meta(ge=0, le=7)]
    sums: Annotated[bytes, Meta(min_length=2048, max_length=2048)]


class Neighbor(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """About being neighbours in a partial view.

    NEIGHBOR_ASK, NEIGHBOR_PLEASE (the sender has too few) or NEIGHBOR_JOIN (it has none), answered by NEIGHBOR_ACCEPT
    or NEIGHBOR_REJECT; DISCONNECT ends it, and answers the ping of a node that takes itself for a neighbour and is
    none. PARTIAL_VIEW says to somebody who shows itself that the sender's view is partial.
    """

    kind: Annotated[int, Meta(ge=0, le=6)]
    size: Annotated[int, Meta(ge=0, le=2**32)]
    """Members of the swarm as the sender estimates them."""


class ForwardJoin(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """A newcomer's record on a random walk; who gets it last asks the newcomer to be neighbours."""

    hops: Annotated[int, Meta(ge=0, le=8)]
    record: Record


class Shuffle(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Records for a neighbour's passive view, answered in kind."""

    answer: bool
    """True asks for as many of the receiver's."""
    entries: Annotated[tuple[Record, ...], Meta(max_length=3)]


class SizeEstimate(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Between neighbours: minima from which the size of the swarm is estimated, and what the sender says of itself."""

    epoch: Annotated[int, Meta(ge=0, le=65_535)]
    minima: Annotated[bytes, Meta(min_length=32, max_length=32)]
    own: Annotated[bytes, Meta(min_length=24, max_length=24)]
    """Fingerprints (8 bytes each) of the sender's record, of its metadata (a sum) and of its link report."""


class NeighborAddresses(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Between neighbours: where the sender's other neighbours are, so that who misses the sender first warns them."""

    addresses: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=12)]


class CertifiedEvent(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """A `SignedEvent` with its origin's certificate, for those that do not know the origin."""

    certificate: _Body
    body: Annotated[bytes, Meta(max_length=65_536)]
    signature: _Signature


class Beacon(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Cast on the radio once a second by whose view is a mesh: who is in its reach. Nobody answers.

    Nothing is believed because of it: who hears it asks, at a bounded rate, and an answer that the pair has sealed is
    what counts. So it needs no signature; that it is cast under the group key keeps strangers and the revoked from
    making one, though not from playing one again.
    """

    node: _Id
    incarnation: _Counter


class Near(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Whom its author hears, a signed `NearBody`; passed on to all. In a mesh it takes the place of `Links`."""

    body: Annotated[bytes, Meta(max_length=400)]
    signature: _Signature


Message: TypeAlias = (
    Ping
    | Ack
    | PingReq
    | Indirect
    | Record
    | Alive
    | Accusation
    | SignedEvent
    | Sections
    | Fingerprints
    | Want
    | Sub
    | Links
    | Statement
    | MetaEntry
    | Hello
    | EventVector
    | Buckets
    | Neighbor
    | ForwardJoin
    | Shuffle
    | SizeEstimate
    | CertifiedEvent
    | NeighborAddresses
    | Beacon
    | Near
)


# --- Bodies: the bytes that are signed ---------------------------------------------------------------------------


class AliveBody(msgspec.Struct, frozen=True, array_like=True):
    """Type "alive": a member about itself. `incarnation` = boot number * 2**20 + refutations since."""

    node: _Id
    incarnation: _Counter
    status: Annotated[int, Meta(ge=0, le=2)]
    away_s: Annotated[int, Meta(ge=0, le=31_536_000)]
    address: Annotated[str, Meta(max_length=64)]
    session: Annotated[bytes, Meta(min_length=32, max_length=32)]
    """X25519 public key of this boot: whoever knows two records can seal between them without a handshake."""
    version: Annotated[str, Meta(max_length=32)]
    capability: Annotated[str, Meta(max_length=64)]


class AccusationBody(msgspec.Struct, frozen=True, array_like=True):
    """Type "accuse": bound to one incarnation of the subject, so that a refutation ends it."""

    accuser: _Id
    subject: _Id
    incarnation: _Counter
    level: Annotated[int, Meta(ge=0, le=2)]


class EventBody(msgspec.Struct, frozen=True, array_like=True):
    """Type "event": `sequence` = boot number * 2**20 + count since, without gaps within a boot."""

    origin: _Id
    sequence: _Counter
    name: Annotated[str, Meta(max_length=128)]
    payload: Annotated[bytes, Meta(max_length=65_536)]


class LinksBody(msgspec.Struct, frozen=True, array_like=True):
    """Type "links": the newest `sequence` of a reporter replaces the older ones."""

    reporter: _Id
    sequence: _Counter
    entries: Annotated[tuple[tuple[_Id, Annotated[int, Meta(ge=1, le=3)]], ...], Meta(max_length=32)]


class NearBody(msgspec.Struct, frozen=True, array_like=True):
    """Type "near": the newest `sequence` of a reporter replaces the older ones, and its `Links`.

    entries   first 4 bytes of a node's id | 1 byte: cost of the link, quarters of a transmission, and 128 more where
              the node is frozen, on whose word hangs that one is reached of whom others saw the end; 5 bytes a node
    gone      of each whose host says that no process listens there: first 4 bytes of its id, exclusive or its boot
    """

    reporter: _Id
    sequence: _Counter
    entries: Annotated[bytes, Meta(max_length=120)]
    gone: Annotated[bytes, Meta(max_length=96)]
    hears_all: bool
    """Nobody of the swarm is out of its reach, but one or two: a mesh of such nodes needs none."""


class MetaBody(msgspec.Struct, frozen=True, array_like=True):
    """Type "meta": the highest `sequence` of a (node, key) holds; an empty value deletes."""

    node: _Id
    sequence: _Counter
    key: Annotated[str, Meta(max_length=64)]
    value: Annotated[bytes, Meta(max_length=65_536)]


# --- Frame bodies ------------------------------------------------------------------------------------------------

_MESSAGES_MAX = 4_096
"""Messages in one frame body; more are refused."""
_DECODER: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(
    Annotated[list[Message], Meta(max_length=_MESSAGES_MAX)]
)


def decode_messages(body: bytes, limit_bytes: int) -> list[Message]:
    """The messages of a frame body.

    Args:
        body: Plaintext of a frame.
        limit_bytes: Larger bodies are refused unread.

    Returns:
        At least one message.

    Raises:
        WireError: Too large, empty, or not exactly one array of known messages within their limits.
    """
    if len(body) > limit_bytes:
        raise WireError(f"body of {len(body)} bytes; at most {limit_bytes} are read here")
    try:
        messages = _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"not a frame body: {error}") from error
    if not messages:
        raise WireError("a frame body without messages")
    return messages
