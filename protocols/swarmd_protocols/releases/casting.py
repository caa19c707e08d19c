"""A blob cast once on a channel that everybody shares, and the repair of what was missed. Free of I/O.

    caster   ── CastNote(round, BEGINS) ──▶ each neighbour       reliable: hold your requests, pieces come
    caster   ══ Piece, Piece, Piece … ════▶ whoever listens      best effort, once, at a bounded rate
    caster   ── CastNote(round, OVER) ────▶ each neighbour       reliable
    receiver ── AskPieces(round, mask) ───▶ caster               reliable: these I lack; at once, also when it is none
    caster   ══ parities, or pieces ══════▶ whoever listens      the next round, and so on
    caster   ── CastNote(round, ENDS) ────▶ each neighbour       the ordinary exchange mends what is left

On one radio channel N unicast copies cost N times the bytes; a cast costs them once. Receivers miss different pieces,
so a repair round sends of each chunk as many parities (`parity.py`) as the one that lacks most of it needs, or what
anybody lacks where that is no more. Rounds and bytes are bounded, so no receiver can keep a caster at it. A frame of a
cast is sealed with the group's key and says nothing about who sent it: a piece is therefore believed only as part of a
chunk that hashes, nobody is blamed for a bad one, and a chunk that came out wrong is fetched by unicast, where there is
somebody to blame. Notes come from enrolled peers; what a lying one can win is a bounded wait.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.chunksets import bits
from swarmd_protocols.releases.parity import MISSING_MAX, PARITIES, missing_pieces
from swarmd_protocols.releases.statements import Blob

BEGINS, OVER, ENDS = 0, 1, 2
PIECE_BYTES = 1_024
"""With all that wraps it, a piece fits one datagram, so no fragment is lost alone. Chunks are multiples of it."""


class CastConfig(msgspec.Struct, frozen=True):
    """Bounds and times of casts."""

    bytes_s: int = 1_000 << 10
    """How fast a cast begins; halved when receivers miss much more than a lossy channel explains."""
    least_bytes_s: int = 64 << 10
    burst_pieces: int = 8
    """Pieces sent at once; between bursts everything else has its turn."""
    least_receivers: int = 2
    """For fewer, unicast costs no more."""
    gather_ns: int = 200_000_000
    """From the first receiver to the first piece: others learn of the blob meanwhile."""
    answers_ns: int = 700_000_000
    """How long a round waits for what receivers lack."""
    rounds: int = 10
    budget: int = 3
    """All rounds together send at most so many times the blob."""
    hold_ns: int = 1_500_000_000
    """A receiver asks nobody by unicast for so long after the last new piece or note."""
    idle_notes: int = 4
    """Notes that hold a receiver though no new piece came in between."""
    bad_chunks: int = 4
    """Cast chunks that did not hash, after which casts of the blob are ignored."""
    assembly_bytes: int = 8 << 20
    """Pieces of unfinished chunks that a receiver keeps."""


class CastPiece(msgspec.Struct, frozen=True, gc=False):
    """Send a piece to whoever listens."""

    number: int


class Note(msgspec.Struct, frozen=True, gc=False):
    """Tell `to` where the cast stands."""

    to: NodeId
    round: int
    state: int


CastAction: TypeAlias = CastPiece | Note


def pieces_of_chunk(blob: Blob, index: int) -> range:
    """The numbers of the pieces of one chunk."""
    first = index * (blob.chunk_bytes // PIECE_BYTES)
    return range(first, first - (-blob.chunk_size(index) // PIECE_BYTES))


def place_of_piece(blob: Blob, number: int) -> tuple[int, int, int] | None:
    """(chunk, offset in it, bytes) of a piece; None for a number that the blob does not have."""
    index, part = divmod(number, blob.chunk_bytes // PIECE_BYTES)
    if number < 0 or index >= blob.chunk_count or part * PIECE_BYTES >= blob.chunk_size(index):
        return None
    start = part * PIECE_BYTES
    return index, start, min(PIECE_BYTES, blob.chunk_size(index) - start)


def parity_number(blob: Blob, index: int, parity: int) -> int:
    """The number under which a parity of a chunk is cast: they follow those of all pieces."""
    return blob.chunk_count * (blob.chunk_bytes // PIECE_BYTES) + index * PARITIES + parity


def place_of_parity(blob: Blob, number: int) -> tuple[int, int] | None:
    """(chunk, which parity of it) of a number; None where it is none."""
    index, parity = divmod(number - blob.chunk_count * (blob.chunk_bytes // PIECE_BYTES), PARITIES)
    return (index, parity) if 0 <= index < blob.chunk_count else None


def masks_of_chunks(blob: Blob, mask: int) -> Iterator[tuple[int, int]]:
    """Of a mask of pieces, each chunk that has some, and the mask of its own pieces."""
    per_chunk = blob.chunk_bytes // PIECE_BYTES
    if per_chunk % 8:
        # Chunks of four pieces share octets; such a blob is small.
        masks = [mask >> index * per_chunk & (1 << per_chunk) - 1 for index in range(blob.chunk_count)]
    else:
        width = per_chunk // 8
        octets = mask.to_bytes(width * blob.chunk_count, "little")
        masks = [int.from_bytes(octets[at : at + width], "little") for at in range(0, len(octets), width)]
    return ((index, own) for index, own in enumerate(masks) if own)


def all_pieces(blob: Blob) -> int:
    """The mask of every piece of a blob: chunks are whole multiples of pieces, so there is no gap."""
    return (1 << -(-blob.size // PIECE_BYTES)) - 1


class Caster(msgspec.Struct):
    """One blob that this node casts: from the first who wants it to the last round."""

    blob: Blob
    config: CastConfig
    over: bool = False
    """Done, or not worth it: the ordinary exchange goes on alone."""
    sent_pieces: int = 0
    round: int = 0
    due_ns: int | None = None
    rate_bytes_s: int = 0
    _receivers: dict[NodeId, bool] = msgspec.field(default_factory=dict)
    """Who wants the blob, and whether it has answered this round."""
    _queue: Iterator[int] = msgspec.field(default_factory=lambda: iter(()))
    """The pieces of this round that are still to be sent."""
    _left: int = 0
    _round_pieces: int = 0
    _lacking: int = 0
    _needs: dict[int, int] = msgspec.field(default_factory=dict)
    """Chunk to the most pieces of it that one receiver lacks after this round."""
    _parities: dict[int, int] = msgspec.field(default_factory=dict)
    """Chunk to how many parities of it were cast."""
    _worst: int = 0
    """Most pieces of this round that one receiver has missed."""
    _is_casting: bool = False

    def is_new(self, node: NodeId) -> bool:
        """Whether this neighbour was not counted among the receivers so far."""
        return not self.over and node not in self._receivers

    def on_receiver(self, node: NodeId, now_ns: int) -> list[CastAction]:
        """A neighbour lacks chunks of the blob."""
        if self.over or node in self._receivers:
            return []
        self._receivers[node] = False
        if self.due_ns is None:
            self.due_ns = now_ns + self.config.gather_ns
        return [Note(node, self.round, BEGINS)] if self.round else []

    def on_lost(self, node: NodeId) -> None:
        """A neighbour has gone."""
        self._receivers.pop(node, None)

    def on_lacks(self, node: NodeId, number: int, lacks: int, now_ns: int) -> list[CastAction]:
        """A receiver says which pieces it lacks after a round; once a round, others are ignored."""
        if self.over or self._is_casting or number != self.round or self._receivers.get(node, True):
            return []
        self._receivers[node] = True
        lacks &= all_pieces(self.blob)
        self._lacking |= lacks
        self._worst = max(self._worst, lacks.bit_count())
        for index, own in masks_of_chunks(self.blob, lacks):
            self._needs[index] = max(self._needs.get(index, 0), own.bit_count())
        return self._next_round(now_ns) if all(self._receivers.values()) else []

    def on_due(self, now_ns: int) -> list[CastAction]:
        """It is time for the next burst, or for the next round without those that said nothing."""
        if self.over or self.due_ns is None or now_ns < self.due_ns:
            return []
        if self._is_casting:
            return self._burst(now_ns)
        if self.round:
            return self._next_round(now_ns)
        if len(self._receivers) < self.config.least_receivers:
            return self._end()
        self.rate_bytes_s = self.config.bytes_s
        pieces = all_pieces(self.blob)
        return self._begin(bits(pieces), pieces.bit_count(), now_ns)

    def _begin(self, numbers: Iterator[int], count: int, now_ns: int) -> list[CastAction]:
        self.round += 1
        self._queue, self._lacking, self._worst, self._needs = numbers, 0, 0, {}
        self._left = self._round_pieces = count
        self._is_casting = True
        self._receivers = dict.fromkeys(self._receivers, False)
        return [*self._notes(BEGINS), *self._burst(now_ns)]

    def _burst(self, now_ns: int) -> list[CastAction]:
        burst = list(islice(self._queue, self.config.burst_pieces))
        self._left -= len(burst)
        self.sent_pieces += len(burst)
        self.due_ns = now_ns + len(burst) * PIECE_BYTES * 1_000_000_000 // self.rate_bytes_s
        actions: list[CastAction] = [CastPiece(number) for number in burst]
        if self._left:
            return actions
        self._is_casting = False
        self.due_ns += self.config.answers_ns
        return [*actions, *self._notes(OVER)]

    def _next_round(self, now_ns: int) -> list[CastAction]:
        numbers = list(self._repairs())
        left = self.config.budget * -(-self.blob.size // PIECE_BYTES) - self.sent_pieces
        if not numbers or self.round >= self.config.rounds or len(numbers) > left:
            return self._end()
        if 5 * self._worst > self._round_pieces:  # More than a fifth: rather too fast than unlucky.
            self.rate_bytes_s = max(self.config.least_bytes_s, self.rate_bytes_s // 2)
        return self._begin(iter(numbers), len(numbers), now_ns)

    def _repairs(self) -> Iterator[int]:
        """What to cast for what receivers lack, chunk by chunk."""
        per_chunk = self.blob.chunk_bytes // PIECE_BYTES
        for index, lacking in masks_of_chunks(self.blob, self._lacking):
            need, begun = self._needs[index], self._parities.get(index, 0)
            if need < lacking.bit_count() and need <= MISSING_MAX and begun + need <= PARITIES:
                self._parities[index] = begun + need
                yield from (parity_number(self.blob, index, begun + at) for at in range(need))
            else:
                yield from (index * per_chunk + at for at in bits(lacking))

    def _end(self) -> list[CastAction]:
        self.over, self.due_ns, self._queue = True, None, iter(())
        return self._notes(ENDS) if self.round else []

    def _notes(self, state: int) -> list[CastAction]:
        return [Note(node, self.round, state) for node in self._receivers]


class CastHearing(msgspec.Struct):
    """One blob that this node hears being cast: pieces until they are chunks, and for how long to hold requests."""

    blob: Blob
    config: CastConfig
    hold_until_ns: int = 0
    heard: int = 0
    """New pieces, since the beginning."""
    _parts: dict[int, "_Part"] = msgspec.field(default_factory=dict)
    """Chunk -> what is here of it."""
    _bad: set[int] = msgspec.field(default_factory=set)
    _caster: NodeId | None = None
    _patience_ns: int = 0
    """No hold beyond this, whoever says what."""
    _idle_notes: int = 0
    _heard_before: int = 0

    @property
    def is_trusted(self) -> bool:
        """False after too many chunks that did not hash."""
        return len(self._bad) < self.config.bad_chunks

    def on_note(self, node: NodeId, state: int, now_ns: int) -> None:
        """A peer says where its cast stands; the first that casts is the one that is waited for."""
        self._caster = self._caster or node
        if node != self._caster:
            return
        self._idle_notes = 0 if self.heard > self._heard_before else self._idle_notes + 1
        self._heard_before = self.heard
        if state == ENDS or self._idle_notes > self.config.idle_notes:
            self.hold_until_ns = 0
        else:
            self._hold(now_ns)

    def _hold(self, now_ns: int) -> None:
        if not self._patience_ns:
            slowest_ns = 2 * self.blob.size * 1_000_000_000 // self.config.least_bytes_s
            self._patience_ns = now_ns + 20 * self.config.hold_ns + slowest_ns
        wanted_ns = min(now_ns + self.config.hold_ns, self._patience_ns)
        self.hold_until_ns = wanted_ns if self.is_trusted and wanted_ns > now_ns else 0

    def on_piece(self, number: int, data: bytes, have: int, now_ns: int) -> tuple[int, bytes] | None:
        """Take a piece in.

        Args:
            number: Which piece it says it is.
            data: Its bytes.
            have: Mask of the chunks that are here already.
            now_ns: Monotonic.

        Returns:
            A chunk that is complete now and still has to be hashed, or None.
        """
        place, parity = place_of_piece(self.blob, number), place_of_parity(self.blob, number)
        index, size = (place[0], place[2]) if place else (parity[0], PIECE_BYTES) if parity else (0, -1)
        if len(data) != size or not self.is_trusted or have >> index & 1 or index in self._bad:
            return None
        part = self._parts.get(index)
        if part is None:
            if self._kept_bytes + self.blob.chunk_bytes > self.config.assembly_bytes:
                return None
            count = len(pieces_of_chunk(self.blob, index))
            part = self._parts[index] = _Part(bytearray(self.blob.chunk_size(index)), (1 << count) - 1)
        if place is not None:
            is_new = part.put(place[1], data)
        else:
            assert parity is not None, "a piece that has a length is a piece or a parity"
            has_room = self._kept_bytes + PIECE_BYTES <= self.config.assembly_bytes
            is_new = has_room and part.put_parity(parity[1], data)
        if not is_new:
            return None
        self.heard += 1
        self._hold(now_ns)
        if not part.is_enough:
            return None
        del self._parts[index]
        return index, part.whole()

    @property
    def _kept_bytes(self) -> int:
        parities = sum(len(part.parities) for part in self._parts.values())
        return len(self._parts) * self.blob.chunk_bytes + parities * PIECE_BYTES

    def on_bad_chunk(self, index: int) -> None:
        """A chunk of pieces did not hash: it is not taken from casts again."""
        self._bad.add(index)
        if not self.is_trusted:
            self._parts.clear()
            self.hold_until_ns = 0

    def forget_chunk(self, index: int) -> None:
        """The chunk came another way."""
        self._parts.pop(index, None)

    def lacks(self, have: int) -> int:
        """Mask of the pieces to ask the caster for; none when it cannot be heard here or is not believed."""
        if not self.heard or not self.is_trusted:
            return 0
        per_chunk = self.blob.chunk_bytes // PIECE_BYTES
        width = -(-per_chunk // 8)
        octets = bytearray(width * self.blob.chunk_count)
        for index in bits(((1 << self.blob.chunk_count) - 1) & ~have):
            if index not in self._bad:
                whole = (1 << len(pieces_of_chunk(self.blob, index))) - 1
                wanted = self._parts[index].wanted if index in self._parts else whole
                octets[index * width : (index + 1) * width] = wanted.to_bytes(width, "little")
        if per_chunk % 8 == 0:
            return int.from_bytes(octets, "little")
        # Chunks of four pieces share octets; such a blob is small.
        return sum(octets[index] << index * per_chunk for index in range(self.blob.chunk_count))


class _Part(msgspec.Struct):
    """What is here of one chunk."""

    data: bytearray
    missing: int
    """Mask of the pieces that are not in `data`."""
    parities: dict[int, bytes] = msgspec.field(default_factory=dict)

    def put(self, start: int, data: bytes) -> bool:
        """Take the piece that begins there; False where it is here."""
        bit = 1 << start // PIECE_BYTES
        if not self.missing & bit:
            return False
        self.data[start : start + len(data)] = data
        self.missing &= ~bit
        return True

    def put_parity(self, parity: int, data: bytes) -> bool:
        """Take a parity; False where it is here, or as many as can be of use are."""
        if parity in self.parities or len(self.parities) >= MISSING_MAX:
            return False
        self.parities[parity] = data
        return True

    @property
    def is_enough(self) -> bool:
        """Whether the chunk can be made."""
        return self.missing.bit_count() <= len(self.parities)

    @property
    def wanted(self) -> int:
        """Mask of missing pieces: as many as would make the chunk, with the parities that are here."""
        wanted = self.missing
        for _ in range(len(self.parities)):
            wanted &= wanted - 1
        return wanted

    def whole(self) -> bytes:
        """The chunk."""
        missing = list(bits(self.missing))
        if missing:
            starts = range(0, len(self.data), PIECE_BYTES)
            here = {at // PIECE_BYTES: bytes(self.data[at : at + PIECE_BYTES]) for at in starts}
            for number in missing:
                del here[number]
            for number, data in missing_pieces(here, self.parities, missing).items():
                start = number * PIECE_BYTES
                self.data[start : start + PIECE_BYTES] = data[: len(self.data) - start]
        return bytes(self.data)
