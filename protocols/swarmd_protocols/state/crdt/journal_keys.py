"""Names of journal records: what a batch is found by on disk. Every name begins with the sub-protocol's own prefix.

state/i                                this node's incarnation, 6 bytes
state/sure                             the latest life whose clock was confirmed, 6 bytes
state/f/ incarnation n                 own facts
state/r/ incarnation stream            own records: the next overwrites the last
state/o/ origin incarnation n|stream   others' batches
state/q/ origin                        proofs of equivocation
"""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Stream

SURE_KEY = b"state/sure"
"""The latest life of this node whose clock was confirmed, 6 bytes; what later lives stamped may be wrong."""
INCARNATION_KEY = b"state/i"
OWN_PREFIXES = (b"state/f/", b"state/r/")
OTHERS_PREFIX = b"state/o/"
PROOF_PREFIX = b"state/q/"


def _dot_key(batch: Batch) -> bytes:
    return batch.dot[0].to_bytes(6, "big") + batch.dot[1].to_bytes(4, "big")


def fact_key(batch: Batch) -> bytes:
    """Where own facts lie."""
    return b"state/f/" + _dot_key(batch)


def record_key(batch: Batch) -> bytes:
    """One record a stream and incarnation: the next overwrites it."""
    return b"state/r/" + batch.dot[0].to_bytes(6, "big") + bytes([batch.stream])


def journal_key(batch: Batch, node: NodeId) -> bytes:
    """Where any batch lies in the journal of `node`."""
    if batch.origin == node:
        return fact_key(batch) if batch.stream is Stream.FACTS else record_key(batch)
    if batch.stream is Stream.FACTS:
        return b"state/o/" + batch.origin + _dot_key(batch)
    return b"state/o/" + batch.origin + batch.dot[0].to_bytes(6, "big") + bytes([batch.stream])


def proof_key(origin: NodeId) -> bytes:
    """Where the proof against an origin lies."""
    return PROOF_PREFIX + origin
