"""What one certified member can make another one pay through the replicated state, measured on real objects.

    python -m tests.bench.hostile_state            prints one JSON object

Each attack runs for `SECONDS` of virtual time against one victim among honest members, with libsodium's arithmetic:
memory is the growth of the process (RSS), CPU the process time of the victim's own events, `longest_ms` the longest
event (`gc_ms` beside it: a full collection of the process afterwards, which a daemon may put where it likes),
`journal_bytes` what the attacker's facts occupy on the victim's disk, `recovery_s` the virtual time from the attack's
last message until an honest sighting is an object at the victim and nothing is undecided, `agree_s` until all honest
members have one digest. During the attack only the victim is reached, so that its memory is measured alone; the
others then have all of the attacker's log to read, at its cost.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.claims.claims import cell_hash
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch, Dot, NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Done, Facts, Join, NotePut, Sighting, encode_facts
from swarmd_protocols.state.crdt.messages import LASTING, Batches, Certificates, Have, Proof
from swarmd_protocols.state.crdt.records import EventRow, encode_events
from tests.support.state_mesh import Member, Mesh, S, detection

SECONDS = 60
CRYPTO = NaClCrypto()
LIFE = 1 << 40
EVERY_MS = 50
RECOVERY_MAX_S = 60


@dataclass
class Pen:
    """Writes batches of one author."""

    seed: bytes
    n: int = 0
    previous: bytes = bytes(16)
    life: int = LIFE

    @property
    def node(self) -> NodeId:
        return node_id_of(CRYPTO.public_key(self.seed))

    def write(self, facts: Facts, stamp: int, base: Dot = (0, 0)) -> Batch:
        self.n += 1
        signer = NodeSigner(CRYPTO, self.seed)
        dot = (self.life, self.n)
        batch = seal_batch(Stream.FACTS, self.node, dot, base, self.previous, stamp, encode_facts(facts), signer)
        self.previous = batch.digest
        return batch


@dataclass
class Victim:
    """One honest member whose events are timed."""

    mesh: Mesh
    member: Member
    cpu_s: float = 0.0
    longest_s: float = 0.0
    alarms: list[str] = field(default_factory=list)

    def feed(self, sender: NodeId, payload: bytes) -> None:
        self._timed(lambda: self.replica.on_message(sender, payload, self.now_ns))

    @property
    def now_ns(self) -> int:
        return self.member.local_ns(self.mesh.now_ns)

    @property
    def replica(self):  # type: ignore[no-untyped-def]
        assert self.member.replica is not None
        return self.member.replica

    def _timed(self, call: Callable[[], list[object]]) -> None:
        begun = time.process_time()
        effects = call()
        spent = time.process_time() - begun
        self.cpu_s += spent
        self.longest_s = max(self.longest_s, spent)
        self.mesh.perform(self.member, effects)

    def watch(self) -> None:
        """Time the events that the mesh delivers too: timers and messages of honest members."""
        replica = self.replica
        for name in ("on_timer", "on_message"):
            original = getattr(replica, name)

            def timed(*args: object, original: Callable[..., list[object]] = original) -> list[object]:
                begun = time.process_time()
                effects = original(*args)
                spent = time.process_time() - begun
                self.cpu_s += spent
                self.longest_s = max(self.longest_s, spent)
                return effects

            setattr(replica, name, timed)


def stamp_of(mesh: Mesh) -> int:
    member = mesh.members[0]
    assert member.replica is not None
    return member.replica.clock.physical_ms(member.local_ns(mesh.now_ns)) << 16


def sighting(key: int, at_cm: tuple[int, int], first: int, last: int, spread: int = 0, beside: int = 0) -> Sighting:
    near = tuple((offset + 1, 0) for offset in range(beside))
    return Sighting(
        "a", LATTICE, (key, 0), False, True, *at_cm, (spread, 0, spread), 500, first << 16, last, 1, b"\1" * 8, near
    )


def decoded_rows(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Rows that share columns: a few bytes on the wire, a thousand in memory (joins)."""
    victim, place = mesh.members[0].node, 0
    while True:
        raws = []
        for _ in range(32):
            rows = [Join(victim, ("a", LATTICE, (place + i, 0)), 0, 0) for i in range(128)]
            place += 128
            raws.append(pen.write(Facts([], rows), stamp_of(mesh)).raw)
        yield messages.encode(Batches(tuple(raws)))


def dear_rows(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Sightings with eight neighbours each, every one of them kept in an index."""
    key = 0
    while True:
        raws = []
        for _ in range(32):
            now = stamp_of(mesh)
            rows = [sighting(key + i, ((key + i) * 700 % 10**7, (key + i) // 9000 * 700), key + i, now, 1, 8)
                    for i in range(24)]  # fmt: skip
            key += 24
            raws.append(pen.write(Facts(rows), now).raw)
        yield messages.encode(Batches(tuple(raws)))


def small_batches(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """A batch for each row, with the longest notes that fit."""
    while True:
        raws = []
        for _ in range(64):
            put = NotePut(pen.life, pen.n + 1, 0, f"k{pen.n}", bytes(512), ())
            raws.append(pen.write(Facts(puts=[put]), stamp_of(mesh)).raw)
        yield messages.encode(Batches(tuple(raws)))


def churn(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Every batch says that all before it count no more: whatever leaks with what comes and goes grows for ever."""
    key = 0
    while True:
        raws = []
        for _ in range(32):
            now = stamp_of(mesh)
            rows = [sighting(key + i, ((key + i) * 900 % 10**7, 0), key + i, now) for i in range(24)]
            dones = [Done(cell_hash(f"{key + i}"), 1) for i in range(20)]
            key += 24
            raws.append(pen.write(Facts(rows, [], dones), now, (pen.life, pen.n + 1)).raw)
        yield messages.encode(Batches(tuple(raws)))


def take_back(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """As many sightings beside each other and on one spot as may be; then one batch by which none of them counts."""
    dear, stacked = dear_rows(mesh, pen), dedup_stall(mesh, pen)
    while True:
        yield from islice(dear, 300)
        yield from islice(stacked, 300)
        now = stamp_of(mesh)
        last = pen.write(Facts([sighting(1, (0, 0), 1, now)]), now, (pen.life, pen.n + 1))
        yield messages.encode(Batches((last.raw,)))


def dedup_stall(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Thousands of sightings on one spot that may not merge; then the one of the best rank moves, again and again."""
    for start in range(0, 8_000, 320):
        raws = []
        for at in range(start, start + 320, 40):
            rows = [sighting(k + 10, ((k * 30) % 690, ((k * 30) // 690 * 30) % 690), k + 1, (k + 1) << 16)
                    for k in range(at, at + 40)]  # fmt: skip
            raws.append(pen.write(Facts(rows), stamp_of(mesh)).raw)
        yield messages.encode(Batches(tuple(raws)))
    step = 0
    while True:
        step += 1
        wide = 10**10 * (step % 2)
        row = Sighting("a", LATTICE, (0, 7), False, True, 345, 345, (wide, 0, wide), 500, 0, stamp_of(mesh), 1, b"", ())
        yield messages.encode(Batches((pen.write(Facts([row]), stamp_of(mesh)).raw,)))


def dominoes(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """A long row of sightings, each of which leads or joins as its neighbour does not: the first one moves."""
    for start in range(0, 8_000, 320):
        raws = []
        for at in range(start, start + 320, 40):
            rows = [sighting(k + 10, (k * 45, 0), k + 1, (k + 1) << 16, 60) for k in range(at, at + 40)]
            raws.append(pen.write(Facts(rows), stamp_of(mesh)).raw)
        yield messages.encode(Batches(tuple(raws)))
    step = 0
    while True:
        step += 1
        row = sighting(5, (-45 if step % 2 else -10_000, 0), 0, stamp_of(mesh), 60)
        yield messages.encode(Batches((pen.write(Facts([row]), stamp_of(mesh)).raw,)))


def questions(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """ "I hold nothing": every question is worth a megabyte of answer."""
    while True:
        yield messages.encode(Have((), LASTING, False, (1 << 32) - 1))


def bad_signatures(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Batches of an honest member that it never signed."""
    other = Pen(bytes(31) + b"\1")
    honest = mesh.members[1].node
    while True:
        raws = []
        for _ in range(128):
            raw = bytearray(other.write(Facts([], [], [Done(b"\0" * 6, 1)]), 1 << 16).raw)
            raw[2:18] = honest
            raws.append(bytes(raw))
        yield messages.encode(Batches(tuple(raws)))


def invented_origins(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Authors that nobody enrolled, with proofs against each."""
    index = 0
    while True:
        raws, made = [], []
        for _ in range(64):
            index += 1
            made.append(Pen(b"EVIL" + index.to_bytes(28, "big")))
            raws.append(made[-1].write(Facts([], [], [Done(b"\0" * 6, 1)]), 1 << 16).raw)
        yield messages.encode(Batches(tuple(raws)))
        yield messages.encode(Certificates(tuple(CRYPTO.public_key(one.seed) for one in made[:16])))
        again = Pen(made[0].seed).write(Facts([], [], [Done(b"\1" * 6, 1)]), 1 << 16).raw
        yield messages.encode(Proof(raws[0], again))


def event_rows(mesh: Mesh, pen: Pen) -> Iterator[bytes]:
    """Records of events, each full of rows that nobody has seen: every one is news to whoever listens."""
    signer = NodeSigner(CRYPTO, pen.seed)
    while True:
        raws = []
        for _ in range(32):
            pen.n += 1
            rows = tuple(EventRow(pen.life, pen.n * 16 + i, 0, "failed", "x" * 60, "y" * 60, "") for i in range(16))
            dot, base = (pen.life, pen.n), (pen.life, 0)
            body = encode_events(rows)
            raws.append(seal_batch(Stream.EVENTS, pen.node, dot, base, bytes(16), stamp_of(mesh), body, signer).raw)
        mesh.members[0].details.clear()  # The mesh keeps what a daemon takes at a bounded rate (`events/recorder.py`).
        yield messages.encode(Batches(tuple(raws)))


ATTACKS = (
    decoded_rows,
    dear_rows,
    small_batches,
    churn,
    take_back,
    dedup_stall,
    dominoes,
    questions,
    bad_signatures,
    invented_origins,
    event_rows,
)


def rss_mb() -> float:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def measure(attack: Callable[[Mesh, Pen], Iterator[bytes]], seconds: int = SECONDS) -> dict[str, object]:
    """One attack against one victim among two more honest members; the thief is a certified member."""
    mesh = Mesh(4, seed=3, crypto=CRYPTO, wall=True)
    mesh.run(25)
    thief = mesh.members[3]
    mesh.crash(3)
    # The thief is silent as a node and speaks as it likes.
    mesh.partition(lambda index: int(index == 0))
    victim = Victim(mesh, mesh.members[0])
    victim.watch()
    pen = Pen(bytes([3, 0]) + bytes(30))
    assert pen.node == thief.node
    said = attack(mesh, pen)
    before_mb = rss_mb()
    gc.disable()
    sent = 0
    until = mesh.now_ns + seconds * S
    while mesh.now_ns < until:
        payload = next(said)
        sent += len(payload)
        victim.feed(thief.node, payload)
        mesh.run(EVERY_MS / 1000)
    used_mb = rss_mb() - before_mb
    cpu_share = victim.cpu_s / seconds
    ended_ns = mesh.now_ns
    mesh.partition(lambda index: 0)
    mesh.see(1, detection(mesh.members[1].local_ns(mesh.now_ns), 1, 50_000_000, 50_000_000, label="honest"))

    def is_served() -> bool:
        views = victim.replica.views
        return any(thing.label == "honest" for thing in views.objects()) and not views.health()["undecided"]

    recovery_s = _until(mesh, is_served, ended_ns)
    agree_s = _until(mesh, mesh.agree, ended_ns)
    gc.enable()
    begun = time.process_time()
    gc.collect()
    collection_s = time.process_time() - begun
    prefix = b"state/o/" + thief.node
    journal = sum(len(key) + len(value) for key, value in victim.member.disk.items() if key.startswith(prefix))
    state = [value for key, value in victim.member.disk.items() if key.startswith(b"state/")]
    text = [str(effect) for effect in victim.member.effects]
    begun = time.process_time()
    mesh.crash(0)
    mesh.boot(0)
    restart_s = time.process_time() - begun
    return {
        "attack": attack.__name__,
        "sent_mb": round(sent / 1e6, 2),
        "memory_mb": round(used_mb, 1),
        "cpu_share": round(cpu_share, 4),
        "longest_ms": round(victim.longest_s * 1000, 1),
        "journal_bytes": journal,
        "journal_records": len(state),
        "recovery_s": round(recovery_s, 1),
        "agree_s": round(agree_s, 1),
        "gc_ms": round(collection_s * 1000, 1),
        "restart_s": round(restart_s, 2),
        "named": any("state-flood" in line and thief.node.hex() in line for line in text),
    }


def _until(mesh: Mesh, holds: Callable[[], bool], since_ns: int) -> float:
    while not holds() and mesh.now_ns < since_ns + RECOVERY_MAX_S * S:
        mesh.run(0.1)
    return (mesh.now_ns - since_ns) / S


def main() -> None:
    wanted = sys.argv[1:]
    if wanted:
        rows = [measure(attack) for attack in ATTACKS if attack.__name__ in wanted]
    else:
        # Each in a process of its own: memory that one has given back would hide what the next one takes.
        runs = [[sys.executable, "-m", "tests.bench.hostile_state", attack.__name__] for attack in ATTACKS]
        rows = [json.loads(subprocess.run(run, check=True, capture_output=True).stdout)["attacks"][0] for run in runs]
    print(json.dumps({"seconds": SECONDS, "every_ms": EVERY_MS, "attacks": rows}, indent=1))


if __name__ == "__main__":
    main()
