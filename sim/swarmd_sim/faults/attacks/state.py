"""Attacks on the replicated state: authors that do not exist, rows that cost more than bytes, facts out of time."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.claims.claims import cell_hash
from swarmd_protocols.state.clock import STAMP_MAX, stamp_of
from swarmd_protocols.state.crdt.batch import BATCH_MAX_BYTES, Batch, NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import (
    LATTICE,
    Done,
    Facts,
    Join,
    NotePut,
    Sighting,
    encode_facts,
)
from swarmd_protocols.state.crdt.messages import (
    BUCKETS,
    LASTING,
    VITALS,
    Batches,
    Buckets,
    Certificates,
    ClockTell,
    Have,
    Message,
    Proof,
    encode,
)
from swarmd_protocols.state.crdt.note_rows import NOTE_VALUE_MAX_BYTES
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.payloads import Certificate
from swarmd_sim.faults.attacks.thief import Stroke, Thief

_ROWS = 128
"""Rows of one batch, the most that a batch may hold."""
_STACK_CM = 690
_STACK_STEP_CM = 30
_YEAR_MS = 365 * 86_400_000
_HOUR_NS = 3_600_000_000_000
_HOARD_MAX = 512
_CELLS_MAX = 60
_DISK_BATCHES = 32
_NOTES_BESIDE_BYTES = 220
"""What a batch of two notes has beside their values: its head, its signature, keys and numbers."""


@dataclass(slots=True)
class Pen:
    """Writes batches of one author, whether it exists or not, in a stream of their own.

    Args:
        crypto: The run's arithmetic of trust.
        seed: The author's key.
        incarnation: Far from the author's own, so that nothing contradicts what its node says.
    """

    crypto: ModelCrypto
    seed: bytes
    incarnation: int
    number: int = 0
    previous: bytes = bytes(16)

    @property
    def public_key(self) -> bytes:
        """The author's public key."""
        return self.crypto.public_key(self.seed)

    @property
    def origin(self) -> NodeId:
        """The author."""
        return node_id_of(self.public_key)

    @property
    def statement(self) -> bytes:
        """A certificate of the author, signed by nobody but itself."""
        certificate = Certificate(self.origin, self.public_key, self.origin.hex()[:8], (), "sim", 1)
        return sign_statement("node", certificate, [self.seed], self.crypto)

    def write(self, facts: Facts, stamp: int = 1 << 16) -> Batch:
        """The next batch of facts."""
        self.number += 1
        signer = NodeSigner(self.crypto, self.seed)
        dot = (self.incarnation, self.number)
        batch = seal_batch(Stream.FACTS, self.origin, dot, (0, 0), self.previous, stamp, encode_facts(facts), signer)
        self.previous = batch.digest
        return batch

    def record(self, body: bytes) -> Batch:
        """A status record under the dot (incarnation, 1), whatever was said under it before."""
        signer = NodeSigner(self.crypto, self.seed)
        return seal_batch(Stream.STATUS, self.origin, (self.incarnation, 1), (0, 0), bytes(16), 1 << 16, body, signer)


def _own_pen(thief: Thief) -> Pen:
    pen: Pen | None = thief.memory.get("pen")
    if pen is None:
        pen = thief.memory["pen"] = Pen(thief.crypto, thief.seed, (1 << 40) + thief.draw(1 << 20))
    return pen


def _invented_pen(thief: Thief) -> Pen:
    return Pen(thief.crypto, thief.noise(32), 1)


def _tell(thief: Thief, *messages: Message) -> None:
    """The same two members hear all of it, in order."""
    members = thief.members()
    for _ in range(min(2, len(members))):
        member = members[thief.draw(len(members))]
        for message in messages:
            thief.say(member.node, "state", encode(message))


def _sighting(
    label: str, place: tuple[int, int], at_cm: tuple[int, int], stamp: int, spread_cm2: int = 100
) -> Sighting:
    covariance = (spread_cm2, 0, spread_cm2)
    model = b"liar\0\0\0\0"
    return Sighting(label, LATTICE, place, False, True, *at_cm, covariance, 999, stamp, stamp, 3, model, ())


def _now_stamp(thief: Thief, ahead_ms: int = 0) -> int:
    """The swarm's time, as the wall clock of the stolen node has it."""
    epoch_ms = 1_577_836_800_000
    wall_ms = thief.host.clock.wall_ns(thief.host.engine.now_ns) // 1_000_000
    return stamp_of(max(0, wall_ms - epoch_ms) + ahead_ms)


def _cells(thief: Thief) -> list[Done]:
    replica = thief.node._subs["state"]
    return [Done(cell_hash(cell.cell_id), 1000) for cell in replica.views.cells()[:_CELLS_MAX]]


def invent_origins(thief: Thief) -> None:
    """An author that nobody enrolled finishes every cell and sees a phantom."""
    pen = _invented_pen(thief)
    phantom = _sighting("person", (1_800, 0), (90_000, 0), _now_stamp(thief))
    batch = pen.write(Facts([phantom], [], _cells(thief), [], []), _now_stamp(thief))
    _tell(thief, Batches((batch.raw,)), Certificates((pen.statement,)))


def invent_crowd(thief: Thief) -> None:
    """Dozens of authors at once: whoever keeps a table of them has no room left for a newcomer."""
    pens = [_invented_pen(thief) for _ in range(32)]
    raws = tuple(pen.write(Facts([], [], [Done(bytes(6), 1)], [], [])).raw for pen in pens)
    _tell(thief, Batches(raws), Certificates(tuple(pen.statement for pen in pens[:16])))


def invent_culprits(thief: Thief) -> None:
    """Proofs against authors that do not exist, which everybody keeps and passes on."""
    pen = _invented_pen(thief)
    one, other = pen.record(b"a" * 2_900), pen.record(b"b" * 2_900)
    _tell(thief, Batches((one.raw,)), Certificates((pen.statement,)), Proof(one.raw, other.raw))


def fat_rows(thief: Thief) -> None:
    """Rows that share columns: four bytes each on the wire, a thousand in memory."""
    pen, someone = _own_pen(thief), thief.node._core.own.node
    raws = []
    for _ in range(8):
        at = thief.memory["place"] = thief.memory.get("place", 0) + _ROWS
        raws.append(pen.write(Facts([], [Join(someone, ("a", LATTICE, (at + i, 0)), 0, 0) for i in range(_ROWS)])).raw)
    _tell(thief, Batches(tuple(raws)))


def stack_sightings(thief: Thief) -> None:
    """Sightings on one spot that may not merge, and one of the best rank that moves: the view settles all anew."""
    pen, stamp = _own_pen(thief), _now_stamp(thief)
    made = thief.memory["made"] = thief.memory.get("made", 0) + 40
    rows = []
    for k in range(made, made + 40):
        east, north = (k * _STACK_STEP_CM) % _STACK_CM, (k * _STACK_STEP_CM) // _STACK_CM * _STACK_STEP_CM % _STACK_CM
        rows.append(_sighting("a", (k + 10, 0), (east, north), stamp, 1))
    rows.append(_sighting("a", (0, 7), (345, 345), 1 << 16, 10**10 if made // 40 % 2 else 1))
    _tell(thief, Batches((pen.write(Facts(rows), stamp).raw,)))


def fill_disk(thief: Thief) -> None:
    """Batches as long as may be, of two rows each: little work and memory, much of everybody's journal."""
    pen, stamp = _own_pen(thief), _now_stamp(thief)
    raws = []
    for _ in range(_DISK_BATCHES):
        dot = (pen.incarnation, 2 * pen.number)
        sizes = (NOTE_VALUE_MAX_BYTES, BATCH_MAX_BYTES - NOTE_VALUE_MAX_BYTES - _NOTES_BESIDE_BYTES)
        puts = [NotePut(dot[0], dot[1] + i, stamp, f"fill-{dot[1] + i}", thief.noise(sizes[i]), ()) for i in range(2)]
        raws.append(pen.write(Facts(puts=puts), stamp).raw)
    _tell(thief, Batches(tuple(raws)))


def far_stamps(thief: Thief) -> None:
    """Rows and batches as far in the future as the format goes, and just inside the bound."""
    pen = _own_pen(thief)
    now = _now_stamp(thief)
    stamp = (STAMP_MAX, _now_stamp(thief, 4_900), _now_stamp(thief, _YEAR_MS), now)[thief.draw(4)]
    row_stamp = (STAMP_MAX >> 16 << 16, now)[thief.draw(2)]
    facts = Facts([_sighting("person", (3_000, thief.draw(9)), (150_000, 0), row_stamp)])
    _tell(thief, Batches((pen.write(facts, stamp).raw,)))


def false_dones(thief: Thief) -> None:
    """Every cell is finished, says one member: its word, until it is revoked."""
    cells = _cells(thief)
    if cells:
        _tell(thief, Batches((_own_pen(thief).write(Facts([], [], cells), _now_stamp(thief)).raw,)))


def note_storm(thief: Thief) -> None:
    """Operator notes under ever new keys, as long as they may be."""
    thief.host.command("state", SetNote(f"spam-{thief.draw(1 << 30)}", thief.noise(500)))
    thief.did()


def hoard_batches(thief: Thief) -> None:
    """What others said once, again: stale batches, and those of authors that were shut out since."""
    hoard: dict[bytes, None] = thief.memory.setdefault("hoard", {})
    for raw in _raws_of(thief.node._subs["state"]):
        if len(hoard) < _HOARD_MAX:
            hoard[raw] = None
    raws = list(hoard)
    if raws:
        _tell(thief, Batches(tuple(raws[thief.draw(len(raws))] for _ in range(min(16, len(raws))))))


def mutate_batches(thief: Thief) -> None:
    """Others' batches with a changed byte, a changed author or two halves of different ones."""
    raws = _raws_of(thief.node._subs["state"])
    if not raws:
        return
    raw = bytearray(raws[thief.draw(len(raws))])
    how = thief.draw(3)
    if how == 0:
        raw[thief.draw(len(raw))] ^= 1 << thief.draw(8)
    elif how == 1:
        raw[2:18] = thief.node._core.own.node
    else:
        other = raws[thief.draw(len(raws))]
        raw = bytearray(bytes(raw[: len(raw) // 2]) + other[len(other) // 2 :])
    _tell(thief, Batches((bytes(raw),)))


def _raws_of(replica: object) -> list[bytes]:
    logs = replica._holdings.store.logs  # type: ignore[attr-defined]
    return [batch.raw for origin in sorted(logs) for batch in logs[origin].batches()]


def holes(thief: Thief) -> None:
    """Batches far apart and of ever new incarnations: every gap is a question, every incarnation a row."""
    incarnation = (1 << 41) + thief.draw(1 << 20)
    pen = Pen(thief.crypto, thief.seed, incarnation, 1 + thief.draw(1 << 30), thief.noise(16))
    _tell(thief, Batches((pen.write(Facts([], [], [Done(thief.noise(6), 1)])).raw,)))


def tell_clock(thief: Thief) -> None:
    """Answers to questions about the time that nobody asked, an hour ahead."""
    now_ns = thief.host.clock.local_ns(thief.host.engine.now_ns)
    _tell(thief, ClockTell(now_ns - thief.draw(1_000_000_000), (_now_stamp(thief) >> 16) * 1_000_000 + _HOUR_NS))


def ask_everything(thief: Thief) -> None:
    """ "I hold nothing, and you?": a small question whose answer is the whole state."""
    _tell(thief, Have((), LASTING | VITALS, True, (1 << BUCKETS) - 1), Buckets(thief.noise(128), thief.noise(128)))


def nonsense(thief: Thief) -> None:
    """Payloads that decode to something huge or deep, or claim more than they hold."""
    how = thief.draw(4)
    if how == 0:
        payload = b"\x91" * 4_000
    elif how == 1:
        payload = b"\x92\x00\xdd\xff\xff\xff\xff"
    elif how == 2:
        payload = msgspec.msgpack.encode([0, [b"x" * 100] * 4_000])
    else:
        payload = msgspec.msgpack.encode([1, [[bytes(16), [[9, -1, 1 << 40, b""]]]] * 2_000, 99, True, -1])
    for _ in range(2):
        victim = thief.victim()
        if victim is not None:
            thief.say(victim.node_id, "state", payload)


STATE_ATTACKS: Mapping[str, Stroke] = {
    "invent_origins": invent_origins,
    "invent_crowd": invent_crowd,
    "invent_culprits": invent_culprits,
    "fat_rows": fat_rows,
    "stack_sightings": stack_sightings,
    "fill_disk": fill_disk,
    "far_stamps": far_stamps,
    "false_dones": false_dones,
    "note_storm": note_storm,
    "hoard_batches": hoard_batches,
    "mutate_batches": mutate_batches,
    "holes": holes,
    "tell_clock": tell_clock,
    "ask_everything": ask_everything,
    "nonsense": nonsense,
}
