"""A small virtual network of replicas for tests: loss, delay, duplication, partitions, crashes, disks."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush

from swarmd_protocols.crypto import Crypto, ModelCrypto
from swarmd_protocols.effects import CancelTimer, Order, Persist, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.lives import life_number
from swarmd_protocols.state.observations import LocalDetection, Observed
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import (
    DEV_ROLES,
    Identity,
    dev_role_seeds,
    dev_root,
    enrol,
    make_dev_identity,
    open_trust,
)
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import make_root, root_digest
from swarmd_protocols.trust.trust import TRUST_JOURNAL, Trust

MS = 1_000_000
S = 1_000_000_000
CRYPTO = ModelCrypto()
FLEET = b"the secret of a fleet in a test"
SWARM = "mesh"
WALL_NS = 1_800_000_000 * S
"""UTC when the virtual clock stands at zero."""


@dataclass
class Member:
    index: int
    node: NodeId
    public_key: bytes
    signer: NodeSigner
    identity: Identity
    trust: Trust
    replica: Replica | None = None
    disk: dict[bytes, bytes] = field(default_factory=dict)
    timers: dict[TimerKey, int] = field(default_factory=dict)
    details: list[object] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)
    boots: int = 0
    trust_revision: int = -1
    certificate: bytes = b""
    rate_ppm: int = 0
    clock_zero_ns: int = 0

    def local_ns(self, now_ns: int) -> int:
        return self.clock_zero_ns + now_ns + now_ns * self.rate_ppm // 1_000_000


class Mesh:
    """Drives replicas with a virtual clock; probes carry summaries once a second."""

    def __init__(
        self,
        count: int,
        seed: int = 1,
        loss: float = 0.0,
        duplicate: float = 0.0,
        delay_ms: tuple[int, int] = (1, 5),
        config: ReplicaConfig | None = None,
        probe_ns: int = S,
        wall: bool = False,
        crypto: Crypto = CRYPTO,
    ) -> None:
        self.crypto = crypto
        self.rng = random.Random(seed)
        self.lives = random.Random(seed)
        self.config = config or ReplicaConfig()
        self.loss, self.duplicate, self.delay_ms, self.probe_ns = loss, duplicate, delay_ms, probe_ns
        self.now_ns = S
        self.wall = wall
        """Devices have a clock of their own, which is right but for `wrong_wall_ns` (by index, read at boot)."""
        self.wrong_wall_ns: dict[int, int] = {}
        self.group: Callable[[int], int] = lambda index: 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.revocations = 0
        self.roots = [dev_root(FLEET, crypto)]
        self.enrol_seeds: list[bytes] = list(dev_role_seeds(FLEET, "enrol"))
        first = make_dev_identity(FLEET, SWARM, "founder", crypto)
        self.group_keys: list[bytes] = list(first.group_keys)
        self.certificates: dict[str, int] = {}
        """Name to the counter of its newest certificate."""
        self.statements: list[tuple[str, bytes]] = []
        self.bytes_sent = 0
        self.messages = 0
        self.members: list[Member] = []
        for index in range(count):
            self.enrol(index, bytes([index & 255, index >> 8]) + bytes(30))
        self.by_node = {member.node: member for member in self.members}
        for member in self.members:
            self.boot(member.index)

    # -- who belongs to it

    def enrol(self, index: int, seed: bytes) -> Member:
        """A member with a certificate of the fleet; it is not booted."""
        self.members.append(self._made(index, seed, f"n{index}", 1))
        return self.members[-1]

    def _made(self, index: int, seed: bytes, name: str, counter: int) -> Member:
        identity = enrol(seed, name, SWARM, self.roots, self.group_keys, self.enrol_seeds, self.crypto, counter=counter)
        self.certificates[name] = counter
        trust = open_trust(identity, {}, self.crypto)
        public = self.crypto.public_key(seed)
        member = Member(index, node_id_of(public), public, NodeSigner(self.crypto, seed), identity, trust)
        member.certificate = identity.certificate
        self.statements.append(("node", member.certificate))
        return member

    def enrol_again(self, index: int, counter: int) -> None:
        """The same name gets a new key and an empty disk, and boots."""
        old = self.members[index]
        self.by_node.pop(old.node)
        member = self._made(old.index, bytes([old.index & 255, counter, 2]) + bytes(29), old.identity.name, counter)
        self.members[index] = member
        self.by_node[member.node] = member
        self.boot(index)
        self.spread_trust()
        self.tell_peers()

    def rotate_enrol(self, re_sign: bool) -> None:
        """A new root with other enrol keys; with `re_sign` certificates are signed anew at once."""
        version = len(self.roots) + 1
        self.enrol_seeds = [blake2b(b"enrol %d" % version, digest_size=32).digest()]
        roles = {
            role: (threshold, [self.crypto.public_key(seed) for seed in dev_role_seeds(FLEET, role)])
            for role, (threshold, _) in DEV_ROLES.items()
        }
        roles["enrol"] = (1, [self.crypto.public_key(seed) for seed in self.enrol_seeds])
        root = make_root("dev", roles, version=version, previous=root_digest(self.roots[-1]))
        statement = sign_statement("root", root, dev_role_seeds(FLEET, "root"), self.crypto)
        self.roots.append(statement)
        group = GroupKey(SWARM, version, blake2b(b"group %d" % version, digest_size=32).digest())
        self.group_keys = [sign_statement("group", group, self.enrol_seeds, self.crypto)]
        self.state("root", statement)
        if re_sign:
            self.re_sign()

    def re_sign(self) -> None:
        """Every member's certificate by the enrol keys that count now; everybody hears of it."""
        for member in self.members:
            name = member.identity.name
            self.certificates[name] += 1
            payload = Certificate(member.node, member.public_key, name, (), SWARM, self.certificates[name])
            member.certificate = sign_statement("node", payload, self.enrol_seeds, self.crypto)
            self.statements.append(("node", member.certificate))
        self.spread_trust()

    def spread_trust(self) -> None:
        """Everybody who runs learns every statement, as membership would see to in the end."""
        for kind, statement in self.statements:
            self.state(kind, statement, *[member for member in self.members if member.replica is not None])

    def newcomer(self, index: int) -> Member:
        """One more member, which nobody has met."""
        member = self.enrol(index, bytes([index & 255, index >> 8, 1]) + bytes(29))
        self.by_node[member.node] = member
        self.boot(len(self.members) - 1)
        return member

    def state(self, kind: str, statement: bytes, *members: Member) -> None:
        """These members (all, where none are named) take a statement of trust, as membership would bring it."""
        if (kind, statement) not in self.statements:
            self.statements.append((kind, statement))
        for member in members or self.members:
            with suppress(IdentityError):
                if kind == "node":
                    member.trust.admit_certificate(statement)
                else:
                    member.trust.add(kind, statement)
            self.follow_trust(member)

    def follow_trust(self, member: Member) -> None:
        """What `Node` does when trust has news: journal it, tell the sub-protocol."""
        for kind, statement in member.trust.news.take():
            mark = blake2b(statement, digest_size=8).digest()
            member.disk[TRUST_JOURNAL + kind.encode() + b"/" + mark] = statement
        if member.trust.revision != member.trust_revision and member.replica is not None:
            member.trust_revision = member.trust.revision
            now_ns = member.local_ns(self.now_ns)
            self.perform(member, member.replica.on_trust(now_ns))

    def revoke(self, *culprits: Member, told: Sequence[Member] = ()) -> None:
        """The fleet shuts these out."""
        self.revocations += 1
        revocation = Revocation(SWARM, self.revocations, tuple(culprit.node for culprit in culprits), "stolen")
        seeds = dev_role_seeds(FLEET, "revoke")[: DEV_ROLES["revoke"][0]]
        self.state("revoke", sign_statement("revoke", revocation, seeds, self.crypto), *told)

    # -- life and death

    def boot(self, index: int) -> None:
        member = self.members[index]
        member.boots += 1
        member.timers = {}
        member.trust = open_trust(member.identity, member.disk, self.crypto)
        member.replica = Replica(
            node=member.node,
            signer=member.signer,
            trust=member.trust,
            config=self.config,
            rng=random.Random(self.rng.getrandbits(32)),
            restored={key: value for key, value in member.disk.items() if key.startswith(b"state/")},
            life=life_number(member.boots * 1000, self.lives),
            wall_offset_ns=WALL_NS + self.wrong_wall_ns.get(index, 0) if self.wall else 0,
            public_key=member.public_key,
        )
        self.perform(member, member.replica.start(member.local_ns(self.now_ns)))
        member.trust_revision = -1
        self.follow_trust(member)
        self.tell_peers()
        self.at(self.rng.randrange(self.probe_ns), lambda: self.probe(member, member.boots))

    def crash(self, index: int, lose_disk: bool = False) -> None:
        member = self.members[index]
        member.replica = None
        if lose_disk:
            member.disk = {}
        self.tell_peers()

    def partition(self, group: Callable[[int], int]) -> None:
        self.group = group
        self.tell_peers()

    def reaches(self, a: Member, b: Member) -> bool:
        return a.replica is not None and b.replica is not None and self.group(a.index) == self.group(b.index)

    def tell_peers(self) -> None:
        for member in self.members:
            if member.replica is not None:
                for other in self.members:
                    if self.reaches(member, other):
                        self.meet(member, other)
                peers = [
                    Peer(other.node, f"n{other.index}", other.public_key, self.reaches(member, other))
                    for other in sorted(self.members, key=lambda other: other.node)
                    if other is not member and other.node not in member.trust.revoked
                ]
                self.perform(member, member.replica.on_peers(peers, member.local_ns(self.now_ns)))

    def meet(self, member: Member, other: Member) -> None:
        """Membership brings the certificates of those that can be reached."""
        with suppress(IdentityError):
            member.trust.admit_certificate(other.certificate)
        self.follow_trust(member)

    # -- events

    def at(self, delay_ns: int, action: Callable[[], None]) -> None:
        self.order += 1
        heappush(self.queue, (self.now_ns + delay_ns, self.order, action))

    def perform(self, member: Member, effects: Sequence[object]) -> None:
        for effect in effects:
            match effect:
                case Persist(key, value):
                    if value is None:
                        member.disk.pop(key, None)
                    else:
                        member.disk[key] = value
                case SetTimer(key, at_ns):
                    member.timers[key] = at_ns
                    life = member.boots
                    delay = max(0, at_ns - member.local_ns(self.now_ns)) + 1
                    self.at(delay, partial(self.fire, member, key, at_ns, life))
                case CancelTimer(key):
                    member.timers.pop(key, None)
                case Send():
                    self.send(member, effect)
                case StateChanged(_, detail) | Order(_, detail):
                    member.details.append(detail)
                case _:
                    member.effects.append(effect)

    def fire(self, member: Member, key: TimerKey, at_ns: int, life: int) -> None:
        if member.replica is None or member.boots != life or member.timers.get(key) != at_ns:
            return
        del member.timers[key]
        now = max(at_ns, member.local_ns(self.now_ns))
        self.perform(member, member.replica.on_timer(key, now))

    def send(self, member: Member, effect: Send) -> None:
        other = self.by_node.get(effect.to)
        assert effect.reliable or len(effect.payload) <= 1000, len(effect.payload)
        self.bytes_sent += len(effect.payload)
        self.messages += 1
        if other is None or not self.reaches(member, other):
            return
        copies = 1
        if not effect.reliable:
            copies = (self.rng.random() >= self.loss) + (self.rng.random() < self.duplicate)
        for _ in range(copies):
            delay = self.rng.randint(*self.delay_ms) * MS
            self.at(delay, lambda: self.deliver(member, other, effect.payload))

    def deliver(self, member: Member, other: Member, payload: bytes) -> None:
        if other.replica is not None and self.group(member.index) == self.group(other.index):
            self.perform(other, other.replica.on_message(member.node, payload, other.local_ns(self.now_ns)))

    def probe(self, member: Member, life: int) -> None:
        if member.replica is None or member.boots != life:
            return
        others = [other for other in self.members if other is not member and self.reaches(member, other)]
        if others:
            other = self.rng.choice(others)
            if self.rng.random() >= self.loss:
                assert other.replica is not None
                for payload in member.replica.piggyback(600, member.local_ns(self.now_ns)):
                    self.bytes_sent += len(payload)
                    self.messages += 1
                    self.deliver(member, other, payload)
                summary = member.replica.summary()
                self.perform(other, other.replica.on_summary(member.node, summary, other.local_ns(self.now_ns)))
                if self.rng.random() >= self.loss:
                    summary = other.replica.summary()
                    self.perform(member, member.replica.on_summary(other.node, summary, member.local_ns(self.now_ns)))
        self.at(self.probe_ns, lambda: self.probe(member, life))

    def run(self, seconds: float) -> None:
        until = self.now_ns + int(seconds * S)
        while self.queue and self.queue[0][0] <= until:
            self.now_ns, _, action = heappop(self.queue)
            action()
        self.now_ns = until

    def run_until(self, holds: Callable[[], bool], seconds: float, step_s: float = 0.05) -> float:
        start = self.now_ns
        while not holds():
            assert self.now_ns - start < seconds * S, f"not within {seconds} s"
            self.run(step_s)
        return (self.now_ns - start) / S

    def command(self, index: int, request: object) -> None:
        member = self.members[index]
        assert member.replica is not None
        self.perform(member, member.replica.on_command(request, member.local_ns(self.now_ns)))

    def see(self, index: int, *detections: LocalDetection) -> None:
        self.command(index, Observed(detections))

    # -- what to expect

    @property
    def replicas(self) -> list[Replica]:
        return [member.replica for member in self.members if member.replica is not None]

    def agree(self) -> bool:
        return len({replica.views.digest() for replica in self.replicas}) == 1

    def agree_on_all(self) -> bool:
        return self.agree() and len({replica.views.vitals_digest() for replica in self.replicas}) == 1


def detection(
    mesh_ns: int,
    track_id: int = 1,
    east_cm: int | None = 0,
    north_cm: int | None = 0,
    sigma_cm: int = 10,
    label: str = "hot-spot",
    score: int = 800,
    kind: str = "new",
    asset: str = "",
    moving: bool = False,
) -> LocalDetection:
    placed = east_cm is not None
    return LocalDetection(
        kind,
        track_id,
        label,
        score,
        east_cm,
        north_cm if placed else None,
        (sigma_cm**2, 0, sigma_cm**2) if placed else None,
        asset,
        moving,
        mesh_ns,
        b"\x01" * 8,
    )
