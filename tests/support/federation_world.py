"""A region and gateways of several swarms in one process: pipes that lose, repeat, reorder and go dark; kills."""

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from swarmd.federation.outbox import FILE_NAME, Outbox, Waiting
from swarmd.federation.region import Region
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.sending import Sending
from swarmd.federation.store import FILE_NAME as REGION_FILE
from swarmd.federation.store import Store
from swarmd.federation.uplink import PREFIX, OnFrame, Place
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.federation.objects import Derived, Member, ObjectRow, derive, encode_object
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import Pair, RowKind, TrustRow, Way, encode_row
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Sighting, decode_facts, encode_facts
from swarmd_protocols.state.dedup.entry import entry_of
from swarmd_protocols.trust.identity import Identity, dev_root, make_dev_identity

CRYPTO = ModelCrypto()
REGION_SEED = b"R" * 32
MS = 1_000_000
BEGIN_MS = 1_790_000_000_000
MINUTE = 60_000 << 16


@dataclass
class Frame:
    """One frame on its way."""

    path: int
    place: Place
    data: bytes


class Pipe:
    """One end of one path."""

    def __init__(self, world: "World", path: int, on_frame: OnFrame) -> None:
        self.name = f"path-{path}"
        self.problem = ""
        self.world, self.path, self.on_frame = world, path, on_frame

    @property
    def connected(self) -> bool:
        return self.path not in self.world.cut

    def send(self, place: Place, frame: bytes) -> bool:
        if not self.connected:
            return False
        if self.path not in self.world.dark:
            self.world.flying.append(Frame(self.path, place, frame))
        return True

    async def run(self) -> None:
        raise AssertionError("the world moves frames itself")


class Gateway:
    """The sending half of a gateway, with a disk."""

    def __init__(self, world: "World", swarm: "Swarm", number: int) -> None:
        self.world, self.swarm = world, swarm
        self.identity = make_dev_identity(swarm.secret, swarm.name, f"g{number}", CRYPTO, roles=[ROLE])
        self.node = self.identity.node
        self.folder = world.folder / f"{swarm.name}-{number}"
        self.known: dict[bytes, tuple[int, bytes]] = {}
        self.refused: list[str] = []
        self.boot()

    def boot(self) -> None:
        self.outbox = Outbox(self.folder / FILE_NAME, self.world.outbox_bytes, 1e9)
        pair = Pair(CRYPTO, self.identity.seed, CRYPTO.public_key(REGION_SEED))
        self.sending = Sending(self.outbox, pair, Place(self.swarm.pin.key, Way.UP, self.node), 2, self._on_down)
        self.sending.uplinks = [Pipe(self.world, path, self._ignore) for path in range(2)]
        self.trust(self.identity)

    def kill(self) -> None:
        """Die and start again: what the process knew is gone, the disk stays."""
        self.outbox.close()
        self.boot()

    def trust(self, *identities: Identity) -> None:
        rows = [
            Waiting(RowKind.TRUST, one.certificate[-64:], encode_row(TrustRow("node", one.certificate)))
            for one in identities
        ]
        self.outbox.put(rows, self.world.now_ms)

    def say(self, thing: int, score: int, stamp: int = 0) -> Derived:
        """One word on one thing, as its node signed it."""
        found, row, batch = self.swarm.word(thing, score, stamp or self.world.tick())
        mark = found.stamp.to_bytes(8, "big") + found.digest
        self.outbox.put([Waiting(RowKind.OBJECT, found.object_id, encode_object(row), (batch.raw,), mark)], BEGIN_MS)
        return found

    def _on_down(self, down, done) -> None:  # type: ignore[no-untyped-def]
        self.refused += [why for _, why in down.refused]
        for one in down.known:
            self.known[one.object_id] = (one.stamp, one.digest)
        if down.wanted:
            self.trust(self.identity, self.swarm.author)

    def _ignore(self, place: Place, frame: bytes) -> None:
        raise AssertionError("the world moves frames itself")


class Swarm:
    """One swarm: its root, a node that sees, gateways."""

    def __init__(self, world: "World", name: str, gateways: int, quota_bytes_s: int = 1 << 20) -> None:
        self.name, self.secret = name, f"the secret of swarm {name}".encode()
        self.pin = Pin(name, name, dev_root(self.secret, CRYPTO), quota_bytes_s, 4 * quota_bytes_s, 1)
        self.author = make_dev_identity(self.secret, name, "eye", CRYPTO)
        self.world = world
        self.serial = 0
        self.gateways = [Gateway(world, self, number) for number in range(gateways)]
        self.said: dict[bytes, Derived] = {}
        """Object to the greatest word on it."""

    def word(self, thing: int, score: int, stamp: int) -> tuple[Derived, ObjectRow, Batch]:
        self.serial += 1
        seen = Sighting(
            "hot-spot", LATTICE, (thing, 0), False, True, thing * 50, 0, (400, 0, 400), score,
            MINUTE, 2 * MINUTE, self.serial, b"modelsha", (),
        )  # fmt: skip
        signer = NodeSigner(CRYPTO, self.author.seed)
        batch = seal_batch(
            Stream.FACTS, self.author.node, (1, self.serial), (1, 1), bytes(16) if self.serial == 1 else b"p" * 16,
            MINUTE, encode_facts(Facts([seen])), signer,
        )  # fmt: skip
        leader = entry_of(self.author.node, seen, batch.dot, "hot-spot")
        row = ObjectRow(stamp, bytes.fromhex(leader.object_id), "hot-spot", (Member(0, *seen.key),))
        found = derive(row, [(batch, decode_facts(batch.body))], self.name, frozenset(), CRYPTO.verify)
        held = self.said.get(found.object_id)
        if held is None or held.order < found.order:
            self.said[found.object_id] = found
        return found, row, batch


@dataclass
class World:
    """Everything, and a clock."""

    folder: Path
    rng: random.Random
    outbox_bytes: int = 1 << 20
    now_ns: int = 10**15
    stamp: int = BEGIN_MS
    flying: list[Frame] = field(default_factory=list)
    dark: set[int] = field(default_factory=set)
    """Paths that take frames and lose them."""
    cut: set[int] = field(default_factory=set)
    """Paths that are not connected."""
    swarms: list[Swarm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store: Store | None = None
        self.said: list[str] = []

    @property
    def now_ms(self) -> int:
        return BEGIN_MS + self.now_ns // MS

    def tick(self) -> int:
        self.stamp += 1
        return self.stamp

    def open(self) -> None:
        """The region starts (again)."""
        if self.store is not None:
            self.store.close()
        self.store = Store(self.folder / REGION_FILE)

        def make(address: str, patterns: object, on_frame: OnFrame) -> Pipe:
            return Pipe(self, int(address), on_frame)

        pins = [swarm.pin for swarm in self.swarms]
        self.region = Region(
            pins, REGION_SEED, CRYPTO, self.store, ["0", "1"], PREFIX, make, self.said.append, lambda: self.now_ms
        )

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
        for swarm in self.swarms:
            for gateway in swarm.gateways:
                gateway.outbox.close()

    def gateway(self, node: NodeId) -> Gateway | None:
        found = [one for swarm in self.swarms for one in swarm.gateways if one.node == node]
        return found[0] if found else None

    def deliver(self, frame: Frame) -> None:
        if frame.place.way is Way.UP:
            self.region.on_frame(frame.path, frame.place, frame.data)
        else:
            gateway = self.gateway(frame.place.gateway)
            if gateway is not None:
                gateway.sending.on_frame(frame.path, frame.data, self.now_ns)

    def pump(self, passed_ms: int = 100) -> None:
        self.now_ns += passed_ms * MS
        for swarm in self.swarms:
            for gateway in swarm.gateways:
                gateway.sending.pump(self.now_ns)

    def settle(self, rounds: int = 600) -> None:
        """All paths work, and time passes until nothing waits."""
        self.dark.clear()
        self.cut.clear()
        for _ in range(rounds):
            self.pump(500)
            flying, self.flying = self.flying, []
            for frame in flying:
                self.deliver(frame)
            self.region.write()
            flying, self.flying = self.flying, []
            for frame in flying:
                self.deliver(frame)
            if not any(len(gateway.outbox) for swarm in self.swarms for gateway in swarm.gateways):
                return
        raise AssertionError("rows still wait in an outbox though every path works")

    def misbehave(self, steps: int) -> None:
        """Words, losses, copies, new orders, dark paths, kills of gateways and of the region: drawn."""
        rng = self.rng
        for _ in range(steps):
            swarm = rng.choice(self.swarms)
            gateway = rng.choice(swarm.gateways)
            match rng.choice(("say", "say", "pump", "pump", "deliver", "deliver", "lose", "copy", "dark", "cut",
                              "kill", "write", "write", "region")):  # fmt: skip
                case "say":
                    gateway.say(rng.randrange(6), rng.randrange(300, 990))
                case "pump":
                    self.pump(rng.choice((10, 100, 1_000, 5_000)))
                case "deliver" if self.flying:
                    self.deliver(self.flying.pop(rng.randrange(len(self.flying))))
                case "lose" if self.flying:
                    self.flying.pop(rng.randrange(len(self.flying)))
                case "copy" if self.flying:
                    self.flying.append(rng.choice(self.flying))
                case "dark":
                    self.dark ^= {rng.randrange(2)}
                case "cut":
                    self.cut ^= {rng.randrange(2)}
                case "kill":
                    gateway.kill()
                case "write":
                    self.region.write()
                case "region":
                    self.open()

    def seen(self, swarm: Swarm) -> dict[bytes, tuple[int, str]]:
        """What the region shows of a swarm: object to (stamp, digest)."""
        assert self.store is not None
        answer = self.store.objects(ObjectQuery(swarm=swarm.name, limit=100_000), self.now_ms, 30_000)
        rows = [(bytes.fromhex(str(row["object"])), (row["stamp"], str(row["digest"]))) for row in answer.objects]
        assert len(dict(rows)) == len(rows), "an object is shown twice"
        return dict(rows)  # type: ignore[arg-type]

    def as_of(self, swarm: Swarm) -> int | None:
        """Until when the region has everything of a swarm, by its gateways' word."""
        assert self.store is not None
        [site] = self.store.objects(ObjectQuery(swarm=swarm.name), self.now_ms, 30_000).sites
        return site.as_of_ms

    def check(self) -> None:
        """Of every thing that any gateway said, the region shows the greatest word, once, and nothing else."""
        for swarm in self.swarms:
            wanted = {key: (one.stamp, one.digest.hex()) for key, one in swarm.said.items()}
            assert self.seen(swarm) == wanted
            for gateway in swarm.gateways:
                assert gateway.refused == []
                assert gateway.outbox.dropped == {}


def make_world(
    folder: Path, rng: random.Random, swarms: int = 2, gateways: int = 2, outbox_bytes: int = 1 << 20
) -> World:
    """A region and so many swarms of so many gateways, which have not spoken yet."""
    world = World(folder, rng, outbox_bytes)
    for number in range(swarms):
        world.swarms.append(Swarm(world, f"s{number}", gateways))
    world.open()
    return world


def one_gateway(folder: Path, outbox_bytes: int = 1 << 20) -> tuple[World, Swarm, Gateway]:
    """A region, its only swarm, and the only gateway of that."""
    world = make_world(folder, random.Random(1), 1, 1, outbox_bytes)
    [swarm] = world.swarms
    [gateway] = swarm.gateways
    return world, swarm, gateway


def clock_of(world: World) -> SimpleNamespace:
    """In the place of a module's `time`: time that passes is the world's."""
    return SimpleNamespace(
        time=time.time, time_ns=time.time_ns, monotonic=lambda: world.now_ns / 1e9, monotonic_ns=lambda: world.now_ns
    )
