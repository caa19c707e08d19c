"""How messages of the state are cut to datagrams and reliable frames, and what goes ahead of them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.crdt.messages import ID_BYTES, Wanted
from swarmd_protocols.state.crdt.short import shorten
from swarmd_protocols.subprotocol import Priority, Send

DATAGRAM_BYTES = 1_000
"""What one datagram carries of this sub-protocol beside seal and heads (`channel.codec.DATAGRAM_MAX_BYTES`)."""
ENVELOPE_BYTES = 12
"""What wraps a message and each batch in it."""


_author = attrgetter("origin")


def names_in(joined: bytes) -> list[bytes]:
    """The names of a `Recent` or a `Wanted`."""
    return [joined[at : at + ID_BYTES] for at in range(0, len(joined), ID_BYTES)]


def asked_for(peer: NodeId, ids: list[bytes]) -> Send:
    """A question for batches by name."""
    return Send(peer, messages.encode(Wanted(b"".join(ids))), False, Priority.SYNC)


def send_of(peer: NodeId, message: messages.Message) -> Send:
    """A message in a datagram where it fits."""
    payload = messages.encode(message)
    return Send(peer, payload, len(payload) > DATAGRAM_BYTES, Priority.SYNC)


def grouped(batches: Sequence[Batch], size_max: int) -> list[tuple[bytes, bool]]:
    """Batches as messages of at most `size_max` bytes where one batch allows it, and whether a datagram holds each.

    Those of one author stand together, in their order: only the first of them says whose it is.
    """
    groups: list[list[bytes]] = [[]]
    size, before = ENVELOPE_BYTES, b""
    for batch in sorted(batches, key=_author) if len(batches) > 1 else batches:
        short = shorten(batch.raw, before)
        if groups[-1] and size + len(short) + 3 > size_max:
            groups.append([])
            size, short = ENVELOPE_BYTES, shorten(batch.raw)
        groups[-1].append(short)
        size += len(short) + 3
        before = batch.raw
    payloads = [messages.encode_short(tuple(group)) for group in groups if group]
    return [(payload, len(payload) <= DATAGRAM_BYTES) for payload in payloads]


def certificates_for(
    batches: Iterable[Batch], met: Collection[bytes], statement_of: Callable[[NodeId], bytes | None]
) -> dict[NodeId, bytes]:
    """The certificates that go ahead of an answer, by author.

    Membership brings the certificate of who is here. Who is gone cannot show its own, and without it all that the
    answer holds of it would be thrown away and asked for again.

    Args:
        batches: What the peer lacks.
        met: Authors whose certificates the peer has, or membership brings.
        statement_of: The certificate of an author as it was signed, where there is one.
    """
    found = {author: statement_of(author) for author in {batch.origin: None for batch in batches} if author not in met}
    return {author: statement for author, statement in found.items() if statement is not None}


def is_news(batch: Batch) -> bool:
    """Whether others are told of a batch at once: it is no record that ticks."""
    return batch.stream in (Stream.FACTS, Stream.LEASES)


def author_of(batch: Batch | None) -> NodeId | None:
    """Who signed a batch, where there is one."""
    return None if batch is None else batch.origin
