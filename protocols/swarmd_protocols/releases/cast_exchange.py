"""All casts of a node: the blobs it casts, those it hears, and the pieces that wait for their chunk from the disk."""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from swarmd_protocols.effects import Order
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.casting import (
    PIECE_BYTES,
    CastAction,
    CastConfig,
    Caster,
    CastHearing,
    Note,
    place_of_parity,
    place_of_piece,
)
from swarmd_protocols.releases.messages import (
    PREFIX_BYTES,
    AskPieces,
    BlobMessage,
    CastNote,
    ChunkList,
    Piece,
    TellChunks,
    encode_message,
)
from swarmd_protocols.releases.parity import parity_of
from swarmd_protocols.releases.requests import NAME, ReadChunk
from swarmd_protocols.releases.statements import MAX_BLOB_BYTES, Blob
from swarmd_protocols.releases.swarming import BlobSwarm
from swarmd_protocols.subprotocol import Cast, Priority, Send, SubEffect

MAX_MASK_BYTES = MAX_BLOB_BYTES // PIECE_BYTES // 8
"""One bit for each piece of the largest file."""


def send_to(to: NodeId, message: BlobMessage, priority: Priority) -> Send:
    """A message about a blob to one peer; it must arrive."""
    return Send(to, encode_message(message), reliable=True, priority=priority)


def say_to(to: NodeId, message: BlobMessage) -> Send:
    """A word about a blob to one peer, in a datagram where it fits: what is lost is said again.

    A connection that has lost a packet holds back what comes after it for 0.2 s and more, and one that is only being
    made for a second: too long for what decides who sends the next chunk.
    """
    return Send(to, encode_message(message), reliable=False, priority=Priority.SYNC)


def tell_to(to: NodeId, tag: bytes, mask: int) -> Send:
    """Show one peer these chunks of a blob."""
    return say_to(to, TellChunks(tag, mask.to_bytes(-(-mask.bit_length() // 8), "little")))


class _Outgoing(msgspec.Struct):
    """One blob that is cast."""

    caster: Caster
    queue: deque[CastAction] = msgspec.field(default_factory=deque)
    """What is to be said and cast next, in order."""
    chunk: tuple[int, bytes] = (-1, b"")
    """The chunk whose pieces are being cast."""
    asked: int = -1
    """The chunk that the storage was asked for."""


class Casts:
    """Casts and hears; see `casting.py` for the rules.

    Args:
        config: Bounds and times; None where the transport has no shared channel.
    """

    def __init__(self, config: CastConfig | None) -> None:
        self._config = config
        self._outgoing: dict[bytes, _Outgoing] = {}
        self._hearings: dict[bytes, CastHearing] = {}
        self.counts = {"pieces_out": 0, "pieces_in": 0, "bad_chunks": 0}

    def offer(self, blob: Blob) -> bool:
        """Cast this blob as soon as enough peers want it; False where there is no shared channel."""
        if self._config is None:
            return False
        self._outgoing[blob.sha256[:PREFIX_BYTES]] = _Outgoing(Caster(blob, self._config))
        return True

    def drop(self, tag: bytes) -> None:
        """Neither cast nor hear this blob any longer."""
        self._outgoing.pop(tag, None)
        self._hearings.pop(tag, None)

    def take_over(self, tag: bytes) -> int | None:
        """The rounds of a cast that is over and said so; it is then forgotten. None while it goes on, or for none."""
        outgoing = self._outgoing.get(tag)
        if outgoing is None or not outgoing.caster.over or outgoing.queue:
            return None
        del self._outgoing[tag]
        return outgoing.caster.round

    # --- Casting --------------------------------------------------------------------------------------------------

    def on_receiver(self, node: NodeId, swarm: BlobSwarm, now_ns: int) -> list[SubEffect]:
        """A neighbour lacks chunks of the blob; the list of its chunks goes to it by unicast."""
        tag = swarm.blob.sha256[:PREFIX_BYTES]
        outgoing = self._outgoing.get(tag)
        if outgoing is None:
            return []
        effects: list[SubEffect] = []
        if outgoing.caster.is_new(node):
            effects.append(send_to(node, ChunkList(tag, b"".join(swarm.hashes)), Priority.SYNC))
        return [*effects, *self._queue(tag, outgoing.caster.on_receiver(node, now_ns))]

    def on_lacks(self, node: NodeId, message: AskPieces, now_ns: int) -> list[SubEffect]:
        """A receiver says what it lacks after a round."""
        outgoing = self._outgoing.get(message.blob)
        if outgoing is None or len(message.mask) > MAX_MASK_BYTES:
            return []
        lacks = int.from_bytes(message.mask, "little")
        return self._queue(message.blob, outgoing.caster.on_lacks(node, message.round, lacks, now_ns))

    def on_lost(self, nodes: Iterable[NodeId]) -> None:
        """These peers have gone."""
        for outgoing in self._outgoing.values():
            for node in nodes:
                outgoing.caster.on_lost(node)

    @property
    def due_ns(self) -> int | None:
        """When the next burst or round is due."""
        dues = [one.caster.due_ns for one in self._outgoing.values() if one.caster.due_ns is not None]
        return min(dues, default=None)

    @property
    def tags(self) -> list[bytes]:
        """The blobs that are cast."""
        return list(self._outgoing)

    def on_due(self, tag: bytes, now_ns: int) -> list[SubEffect]:
        """Go on with a cast."""
        return self._queue(tag, self._outgoing[tag].caster.on_due(now_ns))

    def on_read(self, tag: bytes, index: int, data: bytes | None) -> list[SubEffect]:
        """A chunk came from the disk; one that has gone is left out, and asked for after the round."""
        outgoing = self._outgoing.get(tag)
        if outgoing is None or outgoing.asked != index:
            return []
        outgoing.asked, outgoing.chunk = -1, (index, data or b"")
        return self._queue(tag, [])

    def _queue(self, tag: bytes, actions: Sequence[CastAction]) -> list[SubEffect]:
        """Say and cast in order, as far as the chunk in hand goes; then the next is asked for."""
        outgoing = self._outgoing[tag]
        outgoing.queue.extend(actions)
        effects: list[SubEffect] = []
        while outgoing.queue and outgoing.asked < 0:
            action = outgoing.queue[0]
            if isinstance(action, Note):
                effects.append(send_to(action.to, CastNote(tag, action.round, action.state), Priority.SYNC))
                outgoing.queue.popleft()
                continue
            blob = outgoing.caster.blob
            place, parity = place_of_piece(blob, action.number), place_of_parity(blob, action.number)
            index = place[0] if place else parity[0] if parity else -1
            assert index >= 0, "a caster names pieces and parities of its blob"
            if outgoing.chunk[0] != index:
                outgoing.asked = index
                effects.append(Order(NAME, ReadChunk(blob, index)))
                break
            outgoing.queue.popleft()
            data = outgoing.chunk[1]
            if data:
                if place is not None:
                    data = data[place[1] : place[1] + place[2]]
                elif parity is not None:
                    data = parity_of(data, PIECE_BYTES, parity[1])
                self.counts["pieces_out"] += 1
                effects.append(Cast(encode_message(Piece(tag, action.number, data))))
        return effects

    # --- Hearing --------------------------------------------------------------------------------------------------

    def _hearing(self, swarm: BlobSwarm) -> CastHearing:
        tag = swarm.blob.sha256[:PREFIX_BYTES]
        if tag not in self._hearings:
            self._hearings[tag] = CastHearing(swarm.blob, self._config or CastConfig())
        return self._hearings[tag]

    def on_note(self, node: NodeId, swarm: BlobSwarm, note: CastNote, now_ns: int) -> int:
        """A peer says where its cast stands; returns the mask of the pieces that are missing here."""
        if swarm.complete:
            return 0
        hearing = self._hearing(swarm)
        hearing.on_note(node, note.state, now_ns)
        swarm.hold_until_ns = hearing.hold_until_ns
        return hearing.lacks(swarm.have)

    def on_piece(self, swarm: BlobSwarm, piece: Piece, now_ns: int) -> tuple[int, bytes] | None:
        """A piece was heard; returns the chunk that it completes."""
        hearing = self._hearing(swarm)
        self.counts["pieces_in"] += 1
        made = hearing.on_piece(piece.number, piece.data, swarm.have, now_ns)
        swarm.hold_until_ns = hearing.hold_until_ns
        return made

    def on_bad_chunk(self, swarm: BlobSwarm, index: int) -> None:
        """A chunk of cast pieces did not hash."""
        hearing = self._hearing(swarm)
        hearing.on_bad_chunk(index)
        swarm.hold_until_ns = hearing.hold_until_ns
        self.counts["bad_chunks"] += 1

    def forget_chunk(self, tag: bytes, index: int) -> None:
        """The chunk came another way."""
        if tag in self._hearings:
            self._hearings[tag].forget_chunk(index)

    def forget_hearing(self, tag: bytes) -> None:
        """The blob is complete: what was heard of it is of no more use."""
        self._hearings.pop(tag, None)
