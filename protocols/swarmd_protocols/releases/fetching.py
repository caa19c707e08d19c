"""All blobs a node gives and gets: one `BlobSwarm` each, wired to messages, peers and orders to the storage.

A chunk counts as here once it was checked and its `StoreChunk` was ordered: orders are carried out in their order, so a
`ReadChunk` after it finds it. A file counts as here once `FinishBlob` was answered, or `OpenBlob` found it whole.
"""

import random
from collections.abc import Collection, Sequence

from swarmd_protocols.effects import Order, Rejected
from swarmd_protocols.ids import NodeId, short
from swarmd_protocols.releases.cast_exchange import Casts, say_to, send_to, tell_to
from swarmd_protocols.releases.casting import OVER, CastConfig
from swarmd_protocols.releases.messages import (
    PREFIX_BYTES,
    AskChunk,
    AskList,
    AskPieces,
    BlobMessage,
    CastNote,
    Chunk,
    ChunkList,
    Piece,
    RefuseChunk,
    TellChunks,
)
from swarmd_protocols.releases.peer_limits import FileLimits
from swarmd_protocols.releases.requests import (
    NAME,
    BlobOpened,
    ChunkRead,
    ChunkStored,
    FinishBlob,
    OpenBlob,
    ReadChunk,
    StoreChunk,
    StoreList,
)
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.swarm_actions import Ask, Blame, Give, Refuse, SwarmAction, Tell
from swarmd_protocols.releases.swarming import BlobSwarm, SwarmingConfig, shows_more
from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.releases.waiting import Waiting
from swarmd_protocols.subprotocol import Priority, SubEffect

MAX_BLOBS = 64
"""Files that are given or got at once: those of the releases that are kept of two models. One more takes the place of
the oldest that no desired release needs, or, where it is of one itself, of the oldest that lies here whole."""
MAX_UNWRITTEN = 64
"""Chunks that are on their way to the disk, 4 MiB at most; beyond it nothing new is asked for until half is written."""
_HELLO_NS = 1_000_000_000
"""A peer is told at most so often what of a file is here, nanoseconds."""
_GATHER_NS = 20_000_000
"""News of a chunk goes to its sender at once (it waits for it) and to the others gathered over this time."""
_GATHER_CAST_NS = 500_000_000
"""Of cast chunks everybody has heard the same, so the news can wait."""


class Fetcher:
    """Gives what the store has, gets what is wanted; never more than the configured bounds.

    Args:
        rng: Decides ties; injected.
        config: Bounds and times.
        cast: Bounds and times of casts, where the transport has a shared channel; None where it has none.
    """

    def __init__(self, rng: random.Random, config: SwarmingConfig, cast: CastConfig | None = None) -> None:
        self.casts = Casts(cast)
        self._rng = rng
        self._config = config
        self._swarms: dict[bytes, BlobSwarm] = {}
        self._waiting: dict[bytes, Waiting] = {}
        self._peers: list[NodeId] = []
        self._hello_ns: dict[bytes, int] = {}
        self._untold: dict[tuple[bytes, NodeId], int] = {}
        self._tell_ns = 0
        self._providing: dict[bytes, bool] = {}
        """Files that the storage is asked for so that they are given; whether nobody else has them."""
        self._reads: dict[tuple[bytes, int], list[NodeId]] = {}
        self._unwritten = 0
        self._wanted: dict[str, frozenset[bytes]] = {}
        """By model, SHA-256 of the files of its desired release, once that is known."""
        self._set_aside: set[bytes] = set()
        """Files that were begun and belong to none of those."""
        self.blamed: dict[NodeId, int] = {}
        self.budget = UploadBudget(config.upload_bytes_s)
        self._limits = FileLimits()

    @property
    def swarms(self) -> Sequence[BlobSwarm]:
        """Every exchange, for status and metrics."""
        return list(self._swarms.values())

    @property
    def active(self) -> bool:
        """Whether the fetch timer must run."""
        swarms = self._swarms.values()
        return bool(self._waiting) or any(one.is_serving or _lacks(one, self._set_aside) for one in swarms)

    def progress(self, digest: bytes) -> tuple[int, int]:
        """(chunks here, chunks in all) of a blob; (0, 0) when it is unknown."""
        swarm = self._swarms.get(digest[:PREFIX_BYTES])
        return (swarm.have.bit_count(), len(swarm.hashes)) if swarm else (0, 0)

    def want(self, blob: Blob) -> list[SubEffect]:
        """Get this blob; a no-op while it is under way. One that is not desired, or whole, gives way to it."""
        tag = blob.sha256[:PREFIX_BYTES]
        if tag in self._swarms or tag in self._waiting or not _make_room(self, is_wanted=True):
            return []
        self._waiting[tag] = Waiting(blob)
        return [Order(NAME, OpenBlob(blob))]

    def only(self, model: str, wanted: frozenset[bytes], now_ns: int) -> list[SubEffect]:
        """Of a model, ask for these files and no others: what a newer release has replaced takes nothing from it.

        Args:
            model: Its name.
            wanted: SHA-256 of each file; of another that was begun, what lies here is given as before.
            now_ns: Own monotonic clock.
        """
        effects: list[SubEffect] = []
        if self._wanted.get(model) == wanted:
            return effects
        self._wanted[model] = wanted
        all_wanted = _wanted(self)
        for tag in [tag for tag, one in self._waiting.items() if one.blob.sha256 not in all_wanted]:
            del self._waiting[tag]
            self._hello_ns.pop(tag, None)
        for tag, swarm in list(self._swarms.items()):
            if swarm.blob.sha256 not in all_wanted:
                self._set_aside.add(tag)
                swarm.is_paused = True
            elif tag in self._set_aside:
                self._set_aside.discard(tag)
                swarm.is_paused = False
                effects += self._perform(swarm, swarm.on_due(now_ns), now_ns)
        return effects

    def provide(self, blob: Blob, super_seed: bool) -> list[SubEffect]:
        """Give a file that lies here whole; the publisher super-seeds."""
        tag = blob.sha256[:PREFIX_BYTES]
        if tag in self._swarms and self._swarms[tag].complete:
            return []
        if tag in self._providing:
            self._providing[tag] |= super_seed
            return []
        self._providing[tag] = super_seed
        return [Order(NAME, OpenBlob(blob))]

    def drop(self, digest: bytes) -> None:
        """Neither give nor get this blob any longer."""
        for known in (self._swarms, self._waiting, self._hello_ns, self._providing):
            known.pop(digest[:PREFIX_BYTES], None)
        self._set_aside.discard(digest[:PREFIX_BYTES])
        self.casts.drop(digest[:PREFIX_BYTES])

    def on_peers(self, reachable: Sequence[NodeId], now_ns: int) -> list[SubEffect]:
        """The members that can be reached now, sorted."""
        gone = set(self._peers) - set(reachable)
        fresh = set(reachable) - set(self._peers)
        self._peers = list(reachable)
        effects: list[SubEffect] = []
        for swarm in list(self._swarms.values()):
            for node in sorted(gone):
                effects += self._perform(swarm, swarm.on_lost(node, now_ns), now_ns)
        for waiting in self._waiting.values():
            for node in gone:
                waiting.told.pop(node, None)
        self.casts.on_lost(gone)
        if fresh:
            for tag in (*self._waiting, *self._swarms):
                effects += self._hello(tag, now_ns)
        return effects

    def on_message(self, sender: NodeId, message: BlobMessage, now_ns: int) -> list[SubEffect]:
        """A peer's word about a blob; what nobody here gives or wants is ignored, and who goes on with that, too."""
        if self._limits.is_muted(sender, now_ns):
            return []
        swarm = self._swarms.get(message.blob)
        before = swarm.useless if swarm is not None else 0
        effects = self._hear(sender, message, now_ns)
        useless = swarm.useless - before if swarm is not None else int(message.blob not in self._waiting)
        return [*effects, *self._limits.after_useless(sender, useless, now_ns)] if useless else effects

    def _hear(self, sender: NodeId, message: BlobMessage, now_ns: int) -> list[SubEffect]:
        waiting = self._waiting.get(message.blob)
        if waiting is not None:
            return self._on_waiting(sender, waiting, message, now_ns)
        swarm = self._swarms.get(message.blob)
        if swarm is None:
            return []
        match message:
            case TellChunks(_, mask):
                if len(mask) > -(-len(swarm.hashes) // 8):
                    return [Rejected(short(sender), "shows more chunks than the file has")]
                told = int.from_bytes(mask, "little")
                effects = self._perform(swarm, swarm.on_tell(sender, told, now_ns), now_ns)
                if swarm.everything & ~told:
                    return self._after_cast(swarm, effects + self.casts.on_receiver(sender, swarm, now_ns), now_ns)
                return effects
            case AskChunk(_, index):
                return self._perform(swarm, swarm.on_ask(sender, index, now_ns), now_ns)
            case RefuseChunk(_, index):
                return self._perform(swarm, swarm.on_refuse(sender, index, now_ns), now_ns)
            case Chunk(_, index, data):
                return self._on_chunk(sender, swarm, index, data, now_ns)
            case AskList():
                return self._on_ask_list(sender, swarm, now_ns)
            case CastNote():
                return self._on_note(sender, swarm, message, now_ns)
            case AskPieces():
                return self._after_cast(swarm, self.casts.on_lacks(sender, message, now_ns), now_ns)
            case ChunkList() | Piece():  # A piece that somebody sends to us alone is none.
                return []

    def on_cast(self, message: Piece, now_ns: int) -> list[SubEffect]:
        """A piece that some member cast; of a blob that is not being fetched here it is ignored."""
        swarm = self._swarms.get(message.blob)
        if swarm is None or swarm.complete:
            return []
        if self._unwritten >= MAX_UNWRITTEN:
            return []  # The disk does not keep up; what is missed is asked for after the round.
        made = self.casts.on_piece(swarm, message, now_ns)
        if made is None:
            return []
        is_new, actions = swarm.on_cast_chunk(*made)
        if not is_new:
            self.casts.on_bad_chunk(swarm, made[0])
            return [Rejected("?", f"cast chunk {made[0]} does not hash to the list")]
        return self._keep(swarm, *made, actions, None, now_ns)

    def on_tick(self, now_ns: int) -> list[SubEffect]:
        """Time passes: give up, ask again, greet again."""
        effects: list[SubEffect] = []
        for swarm in list(self._swarms.values()):
            if swarm.is_serving or _lacks(swarm, self._set_aside):
                effects += self._perform(swarm, swarm.on_tick(now_ns), now_ns)
        for waiting in self._waiting.values():
            effects += self._ask_list(waiting, now_ns)
        for tag in (*self._waiting, *self._swarms):
            lacks = tag in self._waiting or _lacks(self._swarms[tag], self._set_aside)
            if now_ns - self._hello_ns.get(tag, 0) >= _HELLO_NS and lacks:
                effects += self._hello(tag, now_ns)
        return effects

    def next_due_ns(self, now_ns: int) -> int | None:
        """When some back-off ends, if one is under way."""
        dues = [swarm.next_due_ns(now_ns) for swarm in self._swarms.values()]
        dues += [self.casts.due_ns, self._tell_ns if self._untold else None]
        return min((due for due in dues if due is not None), default=None)

    def on_due(self, now_ns: int) -> list[SubEffect]:
        """Some back-off is over, or news have been gathered long enough."""
        effects: list[SubEffect] = []
        if self._untold and now_ns >= self._tell_ns:
            effects += [tell_to(node, tag, mask) for (tag, node), mask in self._untold.items()]
            self._untold.clear()
        for tag in self.casts.tags:
            if tag in self._swarms:
                effects += self._after_cast(self._swarms[tag], self.casts.on_due(tag, now_ns), now_ns)
        for swarm in list(self._swarms.values()):
            effects += self._perform(swarm, swarm.on_due(now_ns), now_ns)
        return effects

    # --- Casts ----------------------------------------------------------------------------------------------------

    def _on_note(self, sender: NodeId, swarm: BlobSwarm, note: CastNote, now_ns: int) -> list[SubEffect]:
        """A peer's cast begins, has ended a round (say what we lack), or is done."""
        if note.state == OVER and not self._limits.may_end_round(note.blob, sender, now_ns):
            swarm.useless += 1
            return []
        lacks = self.casts.on_note(sender, swarm, note, now_ns)
        if note.state == OVER:
            mask = lacks.to_bytes(-(-lacks.bit_length() // 8), "little")
            return [send_to(sender, AskPieces(note.blob, note.round, mask), Priority.SYNC)]
        return self._perform(swarm, swarm.on_due(now_ns), now_ns)

    def _after_cast(self, swarm: BlobSwarm, effects: list[SubEffect], now_ns: int) -> list[SubEffect]:
        """When the cast is over, what it did not bring is given in the ordinary way."""
        rounds = self.casts.take_over(swarm.blob.sha256[:PREFIX_BYTES])
        if rounds is None:
            return effects
        # What was cast nearly everybody has; without a single round there is everything to super-seed.
        swarm.super_seed = not rounds
        return [*effects, *self._perform(swarm, swarm.speak(now_ns), now_ns)]

    # --- Storage --------------------------------------------------------------------------------------------------

    def on_opened(self, opened: BlobOpened, now_ns: int) -> list[SubEffect]:
        """The storage has said what of a file lies here."""
        tag = opened.blob.sha256[:PREFIX_BYTES]
        super_seed = self._providing.pop(tag, None)
        is_all = opened.hashes is not None and opened.have == (1 << opened.blob.chunk_count) - 1
        if super_seed is not None and is_all:
            return self._provide(opened, super_seed, now_ns)
        waiting = self._waiting.get(tag)
        if waiting is None or not waiting.is_opening:
            return []
        waiting.is_opening = False
        if opened.hashes is None:
            return [*self._hello(tag, now_ns), *self._ask_list(waiting, now_ns)]
        effects = self._list_known(waiting, opened.hashes, opened.have, now_ns)
        if is_all and not opened.is_whole:  # An earlier life had all chunks and ended before the file was made.
            effects.append(Order(NAME, FinishBlob(opened.blob)))
        return [*effects, *self._hello(tag, now_ns)]

    def _provide(self, opened: BlobOpened, super_seed: bool, now_ns: int) -> list[SubEffect]:
        assert opened.hashes is not None
        tag = opened.blob.sha256[:PREFIX_BYTES]
        self._waiting.pop(tag, None)
        known = self._swarms.pop(tag, None)
        if not _make_room(self, is_wanted=super_seed or opened.blob.sha256 in _wanted(self)):
            return []  # It lies here all the same, and is given after the next start.
        swarm = self._open(opened.blob, opened.hashes, opened.have, super_seed)
        self.casts.forget_hearing(tag)
        swarm.silent = super_seed and self.casts.offer(opened.blob)
        effects: list[SubEffect] = []
        for node in known.neighbours if known else []:
            effects += self._perform(swarm, swarm.on_neighbour(node, now_ns), now_ns)
        return [*effects, *self._hello(tag, now_ns)]

    def on_stored(self, stored: ChunkStored, now_ns: int) -> list[SubEffect]:
        """A chunk lies on the disk, or there was no room for it."""
        self._unwritten = max(0, self._unwritten - 1)
        effects: list[SubEffect] = []
        if not stored.ok:
            self.drop(stored.blob.sha256)
            effects.append(Rejected("self", "no room for chunks; see models.quota_mib"))
        if 2 * self._unwritten <= MAX_UNWRITTEN:
            for swarm in [one for tag, one in self._swarms.items() if one.is_paused and tag not in self._set_aside]:
                swarm.is_paused = False
                effects += self._perform(swarm, swarm.on_due(now_ns), now_ns)
        return effects

    def on_read(self, read: ChunkRead, now_ns: int) -> list[SubEffect]:
        """A chunk's bytes have come from the disk: to whom they go."""
        tag = read.blob.sha256[:PREFIX_BYTES]
        receivers = self._reads.pop((tag, read.index), [])
        effects: list[SubEffect] = []
        if read.data is not None:
            effects += [send_to(to, Chunk(tag, read.index, read.data), Priority.BULK) for to in receivers]
        effects += self.casts.on_read(tag, read.index, read.data)
        swarm = self._swarms.get(tag)
        return self._after_cast(swarm, effects, now_ns) if swarm is not None else effects

    def _on_ask_list(self, sender: NodeId, swarm: BlobSwarm, now_ns: int) -> list[SubEffect]:
        tag = swarm.blob.sha256[:PREFIX_BYTES]
        if not self._limits.may_have_list(tag, sender, now_ns):
            swarm.useless += 1
            return []
        return [send_to(sender, ChunkList(tag, b"".join(swarm.hashes)), Priority.BULK)]

    # --- Inside ---------------------------------------------------------------------------------------------------

    def _open(self, blob: Blob, hashes: bytes, have: int, super_seed: bool) -> BlobSwarm:
        parts = tuple(hashes[at : at + 32] for at in range(0, len(hashes), 32))
        rng = random.Random(self._rng.getrandbits(64))
        swarm = BlobSwarm(blob, parts, have, rng, self._config, super_seed, self.budget)
        self._swarms[blob.sha256[:PREFIX_BYTES]] = swarm
        return swarm

    def _hello(self, tag: bytes, now_ns: int) -> list[SubEffect]:
        """Say to some peers that we exchange this blob; those that know it answer in kind."""
        self._hello_ns[tag] = now_ns
        swarm = self._swarms.get(tag)
        near = set(swarm.neighbours) if swarm else set(self._waiting[tag].told)
        others = [node for node in self._peers if node not in near]
        room = self._config.neighbours - len(near)
        if room <= 0 or not others:
            return []
        chosen = others if len(others) <= room else sorted(self._rng.sample(others, room))
        effects: list[SubEffect] = []
        for node in chosen:
            if swarm is not None and swarm.super_seed:  # It shows each neighbour its own chunks only.
                effects += self._perform(swarm, swarm.on_neighbour(node, now_ns), now_ns)
            else:
                effects.append(tell_to(node, tag, swarm.have if swarm else 0))
        return effects

    def _on_waiting(self, sender: NodeId, waiting: Waiting, message: BlobMessage, now_ns: int) -> list[SubEffect]:
        if isinstance(message, TellChunks):
            # One that shows chunks has the list; the others are asked at the next tick, if it is still missing then.
            return self._ask_list(waiting, now_ns) if waiting.hear(sender, message.mask) else []
        if isinstance(message, AskList):
            return [say_to(sender, ChunkList(message.blob, b""))]  # "Not here either."
        if not isinstance(message, ChunkList):
            return []
        if not message.hashes:
            waiting.has_none(sender)
            return self._ask_list(waiting, now_ns) if any(waiting.told.values()) else []
        if not waiting.is_list(message.hashes):
            waiting.told.pop(sender, None)
            self.blamed[sender] = self.blamed.get(sender, 0) + 1
            self._limits.mute(sender, now_ns)
            return [
                Rejected(short(sender), "chunk list does not hash to the manifest"),
                *self._ask_list(waiting, now_ns),
            ]
        effects: list[SubEffect] = [Order(NAME, StoreList(waiting.blob, message.hashes))]
        return [*effects, *self._list_known(waiting, message.hashes, 0, now_ns)]

    def _list_known(self, waiting: Waiting, hashes: bytes, have: int, now_ns: int) -> list[SubEffect]:
        """The chunks can be told apart: the exchange begins, with those that have spoken so far."""
        del self._waiting[waiting.blob.sha256[:PREFIX_BYTES]]
        swarm = self._open(waiting.blob, hashes, have, super_seed=False)
        effects: list[SubEffect] = []
        for node, mask in waiting.told.items():
            effects += self._perform(swarm, swarm.on_tell(node, mask, now_ns), now_ns)
        return effects

    def _ask_list(self, waiting: Waiting, now_ns: int) -> list[SubEffect]:
        return waiting.ask(self._rng, now_ns)

    def _on_chunk(self, sender: NodeId, swarm: BlobSwarm, index: int, data: bytes, now_ns: int) -> list[SubEffect]:
        is_new, actions = swarm.on_chunk(sender, index, data, now_ns)
        if not is_new:
            return self._perform(swarm, actions, now_ns)
        self.casts.forget_chunk(swarm.blob.sha256[:PREFIX_BYTES], index)
        return self._keep(swarm, index, data, actions, sender, now_ns)

    def _keep(
        self,
        swarm: BlobSwarm,
        index: int,
        data: bytes,
        actions: list[SwarmAction],
        sender: NodeId | None,
        now_ns: int,
    ) -> list[SubEffect]:
        """Store a good, new chunk and let others know: its sender at once, all when it was the last, else gathered."""
        tag = swarm.blob.sha256[:PREFIX_BYTES]
        stored: list[SubEffect] = [Order(NAME, StoreChunk(swarm.blob, index, data))]
        self._unwritten += 1
        if self._unwritten >= MAX_UNWRITTEN:
            for one in self._swarms.values():
                one.is_paused = True
        if swarm.complete:
            self.casts.forget_hearing(tag)
            stored.append(Order(NAME, FinishBlob(swarm.blob)))
            return [*stored, *self._perform(swarm, actions, now_ns)]
        if not self._untold:
            self._tell_ns = now_ns + (_GATHER_CAST_NS if sender is None else _GATHER_NS)
        later = {(tag, one.to): one.mask for one in actions if isinstance(one, Tell) and one.to != sender}
        self._untold |= later
        now = [one for one in actions if not (isinstance(one, Tell) and (tag, one.to) in later)]
        return [*stored, *self._perform(swarm, now, now_ns)]

    def _perform(self, swarm: BlobSwarm, actions: Sequence[SwarmAction], now_ns: int) -> list[SubEffect]:
        tag = swarm.blob.sha256[:PREFIX_BYTES]
        effects: list[SubEffect] = []
        for action in actions:
            match action:
                case Tell(to, mask):
                    # What was gathered for this peer is older, and would look as if chunks had been lost.
                    self._untold.pop((tag, to), None)
                    effects.append(tell_to(to, tag, mask))
                case Ask(to, index):
                    effects.append(say_to(to, AskChunk(tag, index)))
                case Refuse(to, index):
                    effects.append(say_to(to, RefuseChunk(tag, index)))
                case Give(to, index):
                    if (tag, index) not in self._reads:
                        effects.append(Order(NAME, ReadChunk(swarm.blob, index)))
                    self._reads.setdefault((tag, index), []).append(to)
                case Blame(peer, reason):
                    self.blamed[peer] = self.blamed.get(peer, 0) + 1
                    effects.append(Rejected(short(peer), reason))
        return effects


def _wanted(fetcher: Fetcher) -> frozenset[bytes]:
    """The files of all desired releases."""
    return frozenset[bytes]().union(*fetcher._wanted.values())


def _make_room(fetcher: Fetcher, *, is_wanted: bool) -> bool:
    """Whether one file more may be open: what is still got of a desired release gives way to nothing."""
    swarms = fetcher._swarms.values()
    if len(swarms) + len(fetcher._waiting) < MAX_BLOBS:
        return True
    wanted = _wanted(fetcher)
    spare = [one for one in swarms if one.blob.sha256 not in wanted]
    spare = spare or [one for one in swarms if is_wanted and one.complete]
    if not spare:
        return False
    fetcher.drop(min(spare, key=lambda one: one.super_seed).blob.sha256)  # The oldest; nobody else may have the other.
    return True


def _lacks(swarm: BlobSwarm, set_aside: Collection[bytes]) -> bool:
    """Whether something of a file is missing here that is wanted."""
    return not swarm.complete and swarm.blob.sha256[:PREFIX_BYTES] not in set_aside


def may_come(fetcher: Fetcher, digest: bytes) -> bool:
    """Whether somebody shows what is missing of a blob, or nobody is there who could."""
    tag = digest[:PREFIX_BYTES]
    told = fetcher._waiting[tag].told.values() if tag in fetcher._waiting else ()
    return not fetcher._peers or any(told) or (tag in fetcher._swarms and shows_more(fetcher._swarms[tag]))
