"""A fleet's keys, signed statements, and a handful of `Releases` on one small bus."""

import heapq
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from swarmd_protocols.crypto import Crypto, ModelCrypto, NaClCrypto
from swarmd_protocols.effects import Alarm, CancelTimer, Order, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.releases import Releases, ReleasesConfig
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.requests import StorageOrder
from swarmd_protocols.releases.statements import BundleFile, Gates, Release, Rollout
from swarmd_protocols.releases.stores import MemoryStore, carry_out, describe
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.trust.envelopes import Envelope, KeyId, key_id, sign_statement, signed_bytes
from swarmd_protocols.trust.payloads import Certificate, Revocation
from swarmd_protocols.trust.roots import RootChain, make_root, root_digest
from swarmd_protocols.trust.trust import Trust

MODEL = "solar"
THRESHOLDS = {
    "root": (3, 5),
    "release": (2, 3),
    "floor": (2, 3),
    "revoke": (1, 3),
    "heartbeat": (1, 2),
    "enrol": (1, 2),
}


class Keys:
    """Every key of a fleet, from one word; `generation` stands for a rotation."""

    def __init__(self, word: str = "fleet", crypto: Crypto | None = None) -> None:
        self.word = word
        self.crypto = crypto or NaClCrypto()

    def seeds(self, role: str, generation: int = 0) -> list[bytes]:
        count = THRESHOLDS[role][1]
        return [
            blake2b(f"{self.word}/{role}/{generation}/{index}".encode(), digest_size=32).digest()
            for index in range(count)
        ]

    def root(
        self,
        version: int = 1,
        epoch: int = 1,
        previous: bytes = b"",
        generations: dict[str, int] | None = None,
        signers: list[bytes] | None = None,
        kept: Iterable[bytes] = (),
    ) -> bytes:
        chosen = generations or {}
        roles = {
            role: (threshold, [self.crypto.public_key(seed) for seed in self.seeds(role, chosen.get(role, 0))])
            for role, (threshold, _) in THRESHOLDS.items()
        }
        plain = make_root(self.word, roles, version=version, epoch=epoch, previous=previous, kept=kept)
        return sign_statement("root", plain, signers or self.seeds("root")[:3], self.crypto)

    def chain(self) -> RootChain:
        return RootChain.trust(self.root(), self.crypto)

    def sign(self, kind: str, payload: bytes, role: str, count: int = 0, generation: int = 0) -> Envelope:
        seeds = self.seeds(role, generation)[: count or THRESHOLDS[role][0]]
        pairs = [
            (key_id(self.crypto.public_key(seed)), self.crypto.sign(seed, signed_bytes(kind, payload)))
            for seed in seeds
        ]
        return Envelope(kind, payload, tuple(sorted((KeyId(key), signature) for key, signature in pairs)))


def make_release(
    data: bytes = b"model-bytes" * 1000, version: int = 1, previous: bytes = b"", **changes: object
) -> Release:
    blob, _ = describe(data)
    plain = Release(
        model=MODEL,
        epoch=1,
        version=version,
        previous=previous,
        bundle=(BundleFile("model.tflite", "model", blob),),
        gates=Gates(soak_s=1, min_samples=1),
        rollout=Rollout((5, 25, 100), 2, 0),
        swap_when="any",
    )
    return msgspec.structs.replace(plain, **changes)


@dataclass
class World:
    """Real `Releases`, messages with a small delay, everything in virtual time; chooses nothing itself."""

    count: int
    seed: int = 1
    crypto: Crypto = field(default_factory=ModelCrypto)
    healthy: Callable[[int, bytes], bool] = lambda node, release: True
    upload_bytes_s: int = 0

    def __post_init__(self) -> None:
        self.keys = Keys("fleet", self.crypto)
        self.rng = random.Random(self.seed)
        self.seeds = [blake2b(bytes([index & 255, index >> 8]), digest_size=32).digest() for index in range(self.count)]
        self.ids = [node_id_of(self.crypto.public_key(seed)) for seed in self.seeds]
        self.index = {node: at for at, node in enumerate(self.ids)}
        self.stores = [MemoryStore() for _ in range(self.count)]
        self.journals: list[dict[bytes, bytes]] = [{} for _ in range(self.count)]
        self.trusts = [Trust("world", [self.keys.root()], self.crypto) for _ in range(self.count)]
        """A node's journal of trust, so to say: they outlive its restarts."""
        self.certificates = [self._certify(at) for at in range(self.count)]
        for trust in self.trusts:
            for statement in self.certificates:
                trust.admit_certificate(statement)
        self.nodes = [self.build(at) for at in range(self.count)]
        self.now = 0
        self.heap: list[tuple[int, int, int, object]] = []
        self.order = 0
        self.due: list[dict[TimerKey, int]] = [{} for _ in range(self.count)]
        self.cut: set[tuple[int, int]] = set()
        self.alarms: list[tuple[int, Alarm]] = []
        self.rejected: list[tuple[int, Rejected]] = []
        self.details: list[tuple[int, object]] = []
        self.running: list[bytes] = [b""] * self.count
        self.tried: list[list[bytes]] = [[] for _ in range(self.count)]
        for at in range(self.count):
            self.perform(at, self.nodes[at].start(0))
            self.perform(at, self.nodes[at].on_command(requests.Running(MODEL, b""), 0))
        self.meet()
        self.push(200_000_000, -1, "gossip")

    def _certify(self, at: int) -> bytes:
        public = self.crypto.public_key(self.seeds[at])
        certificate = Certificate(node_id_of(public), public, f"p{at:02}", (), "world", 1)
        return sign_statement("node", certificate, self.keys.seeds("enrol")[:1], self.crypto)

    def revoke(self, nodes: Collection[bytes], at: int) -> None:
        """A node hears that others are revoked."""
        revocation = Revocation("world", 1, tuple(sorted(nodes)), "")
        self.trusts[at].add("revoke", sign_statement("revoke", revocation, self.keys.seeds("revoke")[:1], self.crypto))
        self.perform(at, self.nodes[at].on_trust(self.now))

    def replace_keys(self, role: str) -> None:
        """All hear that the keys of a role were stolen: a root of a new epoch has others."""
        for at in range(self.count):
            trust = self.trusts[at]
            previous = root_digest(trust.roots[-1])
            trust.add("root", self.keys.root(trust.root.version + 1, trust.root.epoch + 1, previous, {role: 1}))
            self.perform(at, self.nodes[at].on_trust(self.now))

    def build(self, at: int) -> Releases:
        swarming = SwarmingConfig(upload_bytes_s=self.upload_bytes_s)
        config = ReleasesConfig(models=(MODEL,), turn_ns=20_000_000_000, swarming=swarming)
        seed = self.seeds[at]
        return Releases(
            self.crypto.public_key(seed),
            lambda message: self.crypto.sign(seed, message),
            self.trusts[at],
            config,
            random.Random(self.seed * 1000 + at),
            self.journals[at],
        )

    def meet(self) -> None:
        for at in range(self.count):
            peers = [
                Peer(node, f"n{self.index[node]}", b"", (at, self.index[node]) not in self.cut)
                for node in sorted(self.ids)
                if node != self.ids[at]
            ]
            self.perform(at, self.nodes[at].on_peers(peers, self.now))

    def partition(self, *groups: set[int]) -> None:
        self.cut = {(a, b) for one in groups for other in groups if one is not other for a in one for b in other}
        self.meet()

    def push(self, at: int, to: int, what: object) -> None:
        self.order += 1
        heapq.heappush(self.heap, (at, self.order, to, what))

    def perform(self, at: int, effects: Sequence[object]) -> None:
        for effect in effects:
            match effect:
                case Send(to, payload, _, _):
                    self.push(self.now + 2_000_000, self.index[to], (at, payload))
                case SetTimer(key, at_ns):
                    self.due[at][key] = at_ns
                    self.push(at_ns, at, key)
                case CancelTimer(key):
                    self.due[at].pop(key, None)
                case Persist(key, value):
                    if value is None:
                        self.journals[at].pop(key, None)
                    else:
                        self.journals[at][key] = value
                case Alarm():
                    self.alarms.append((at, effect))
                case Rejected():
                    self.rejected.append((at, effect))
                case StateChanged(_, detail):
                    self.details.append((at, detail))
                case Order(_, request) if isinstance(request, StorageOrder):
                    for answer in carry_out(self.stores[at], request):
                        if answer is not None:
                            self.push(self.now, at, answer)
                case Order(_, request):
                    self.details.append((at, request))
                    self.react(at, request)

    def react(self, at: int, detail: object) -> None:
        """What a daemon does, at once: prepare, run the trial, judge it, go back."""
        if isinstance(detail, requests.StartTrial):
            self.tried[at].append(detail.digest)
            self.push(self.now + 100_000_000, at, requests.TrialBegan(detail.release.model, detail.digest))
            verdict = Verdict.PASS if self.healthy(at, detail.digest) else Verdict.FAIL
            ended = requests.TrialEnded(detail.release.model, detail.digest, verdict, 5, 50, "gates")
            self.push(self.now + 5_000_000_000, at, ended)
        elif isinstance(detail, requests.GoBack):
            self.push(self.now + 100_000_000, at, requests.Running(detail.model, detail.to))

    def command(self, at: int, request: object) -> None:
        if isinstance(request, requests.TrialEnded) and self.nodes[at].local[MODEL].trial != request.release:
            return  # The trial was taken back before it ended.
        self.perform(at, self.nodes[at].on_command(request, self.now))
        self.running[at] = self.nodes[at].local[MODEL].active

    def publish(self, at: int, envelopes: list[Envelope], *blobs: bytes) -> None:
        for data in blobs:
            blob = self.stores[at].put_blob(data)
            self.command(at, requests.Provide(blob, True))
        self.command(at, requests.Publish(tuple(one.encode() for one in envelopes)))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> None:
        end = self.now + int(seconds * 1e9)
        while self.heap and self.heap[0][0] <= end:
            if until is not None and until():
                return
            self.now, _, to, what = heapq.heappop(self.heap)
            if what == "gossip":
                self.gossip()
                self.push(self.now + 200_000_000, -1, "gossip")
            elif isinstance(what, tuple) and isinstance(what[0], int):
                if (what[0], to) not in self.cut:
                    self.perform(to, self.nodes[to].on_message(self.ids[what[0]], what[1], self.now))
            elif isinstance(what, tuple):
                if self.due[to].get(what) == self.heap_time(what, to):
                    del self.due[to][what]
                    self.perform(to, self.nodes[to].on_timer(what, self.now))
            else:
                self.command(to, what)
        self.now = end

    def heap_time(self, key: TimerKey, at: int) -> int | None:
        due = self.due[at].get(key)
        return due if due is not None and due <= self.now else -1

    def gossip(self) -> None:
        """One probe a node: piggyback and summary to a random peer, as SWIM would."""
        for at in range(self.count):
            others = [b for b in range(self.count) if b != at and (at, b) not in self.cut]
            if not others:
                continue
            to = self.rng.choice(others)
            for payload in self.nodes[at].piggyback(1000, self.now):
                self.perform(to, self.nodes[to].on_message(self.ids[at], payload, self.now))
            self.perform(to, self.nodes[to].on_summary(self.ids[at], self.nodes[at].summary(), self.now))

    def versions(self) -> list[int]:
        found = []
        for at, node in enumerate(self.nodes):
            release = node.release(MODEL, self.running[at])
            found.append(release.version if release else 0)
        return found


def node_ids(world: World) -> list[NodeId]:
    return world.ids
