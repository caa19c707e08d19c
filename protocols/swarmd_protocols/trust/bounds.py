"""Bounds of tables that are joins: what is kept is a function of what was offered, and knows no order of arrival.

A table that keeps what came first differs from node to node for ever; one that keeps the best of all lets one key push
out what the others have signed. So every key has room of its own: a statement is kept while it is among the first few,
by an order that the statements carry, of one of the keys that signed it. That is a join: whatever is among the first of
a larger set is among the first of every part of it that holds it, with the same signatures.
"""

from collections.abc import Collection, Hashable, Mapping, MutableMapping, Set
from typing import Any, Protocol, TypeVar

from swarmd_protocols.trust.envelopes import MARK_BYTES, Envelope, KeyId


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


class _Key(Hashable, _Ordered, Protocol):
    pass


_K = TypeVar("_K", bound=_Key)
_V = TypeVar("_V")


def first_of_each_key(
    statements: Mapping[bytes, Envelope],
    rank: Mapping[bytes, Any],
    room: int,
    keys: Collection[KeyId] | None,
    kept: Set[bytes],
    room_bytes: int | None = None,
) -> set[bytes]:
    """The statements to keep.

    Args:
        statements: By digest.
        rank: Statement digest to its place in the order; the lowest are kept.
        room: Statements a key.
        keys: Whose room counts; None: of all that signed.
        kept: `mark` of statements that stay in any case: what the newest root names.
        room_bytes: Bytes of payloads a key: a statement is kept while those before it take fewer. Payloads are signed,
            so that their length is the same for everybody; what comes before a statement, not it, is counted, or one
            that fits behind a dropped one would make a table of tables another than the table of all.
    """
    chosen = {digest for digest in statements if digest[:MARK_BYTES] in kept}
    mine: dict[bytes, list[bytes]] = {}
    for digest, envelope in statements.items():
        for key, _ in envelope.signatures if digest not in chosen else ():
            if keys is None or key in keys:
                mine.setdefault(key, []).append(digest)
    for digests in mine.values():
        before = 0
        for digest in sorted(digests, key=rank.__getitem__)[:room]:
            if room_bytes is not None and before >= room_bytes:
                break
            chosen.add(digest)
            before += len(statements[digest].payload)
    return chosen


def cut(table: MutableMapping[_K, _V], room: int, mine: _K | None) -> list[_V]:
    """Take what stands last by its key out of a table of maxima, until it has room; never this node's own.

    Returns:
        What was taken out.
    """
    gone = []
    while len(table) > room:
        gone.append(table.pop(max(key for key in table if key != mine)))
    return gone
