"""Two or three swarms in one place: gateways and a member of each, agreements, and a pipe that anybody may use."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from swarmd_models.geo.positions import Plane
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Alarm, Order, Persist
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import swarm_key
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.border import Border
from swarmd_protocols.neighbours.hearing import Hearing
from swarmd_protocols.neighbours.neighbours import Neighbours
from swarmd_protocols.neighbours.requests import Agree, NeighbourView
from swarmd_protocols.neighbours.words import (
    AGREEMENT,
    Agreement,
    Introduction,
    Word,
    encode_agreement,
    seal_agreement,
    sign,
)
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.observations import CellAssigned, CellDone, DefineCells, WantCell
from swarmd_protocols.state.positions import Located, Place
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement, signed_bytes
from swarmd_protocols.trust.identity import DEV_ROLES, dev_role_seeds, enrol
from swarmd_protocols.trust.payloads import GroupKey, Revocation
from swarmd_protocols.trust.roots import make_root
from swarmd_protocols.trust.trust import Trust

CRYPTO = ModelCrypto()
S = 1_000_000_000
WALL_NS = 1_800_000_000 * S
"""UTC when the virtual clock stands at zero."""
DAY_MS = 86_400_000
ORIGIN = (47.0, 8.0)


def seed_of(text: str) -> bytes:
    """A key's seed that nothing but its name decides."""
    return blake2b(text.encode(), digest_size=32).digest()


class Fleet:
    """One owner: officers, operators, who is enrolled."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.secret = f"the secret of {name}".encode()
        roles = {
            role: (need, [CRYPTO.public_key(seed) for seed in dev_role_seeds(self.secret, role)])
            for role, (need, _) in DEV_ROLES.items()
        }
        self.operator = seed_of(f"{name}/operator")
        roles["operator"] = (1, [CRYPTO.public_key(self.operator)])
        self.root = sign_statement("root", make_root(name, roles), dev_role_seeds(self.secret, "root"), CRYPTO)
        group = GroupKey(name, 1, seed_of(f"{name}/group"))
        self.group = sign_statement("group", group, dev_role_seeds(self.secret, "enrol"), CRYPTO)
        self.digest = decode_envelope(self.root).digest
        self.key = swarm_key(self.digest, name)

    def certificate(self, seed: bytes, name: str, roles: tuple[str, ...]) -> bytes:
        enrol_seeds = dev_role_seeds(self.secret, "enrol")
        return enrol(seed, name, self.name, [self.root], [self.group], enrol_seeds, CRYPTO, roles=roles).certificate

    def agreement(self, other: "Fleet", now_ms: int, revision: int = 1, **bounds: int) -> bytes:
        """This fleet's operator says yes to another; `until_ms=0` ends it."""
        values = {"until_ms": now_ms + DAY_MS, **bounds}
        said = Agreement(self.name, other.name, other.digest, other.name, revision, now_ms, **values)
        payload = encode_agreement(said)
        signature = CRYPTO.sign(self.operator, signed_bytes(AGREEMENT, payload))
        return seal_agreement(payload, CRYPTO.public_key(self.operator), signature)

    def revoke(self, node: NodeId) -> bytes:
        said = Revocation(self.name, 1, (node,), "stolen")
        return sign_statement("revoke", said, dev_role_seeds(self.secret, "revoke")[:1], CRYPTO)


class Node:
    """One member: its state, what it knows of neighbours; a gateway speaks with them too."""

    def __init__(self, fleet: Fleet, name: str, *, is_gateway: bool, rng: random.Random) -> None:
        self.fleet, self.name = fleet, name
        self.seed = seed_of(f"{fleet.name}/{name}")
        self.trust = Trust(fleet.name, [fleet.root], CRYPTO)
        roles = (ROLE,) if is_gateway else ()
        self.certificate = fleet.certificate(self.seed, name, roles)
        held = self.trust.admit_certificate(self.certificate)
        self.id, self.public = NodeId(held.node), held.public_key
        self.disk: dict[bytes, bytes] = {}
        self.alarms: list[Alarm] = []
        self.begun: list[str] = []
        self.is_gateway, self.rng = is_gateway, rng
        self.places: dict[NodeId, Located] = {}
        self.lives = 0
        self.boot()

    def boot(self) -> None:
        """A new life on the same disk."""
        self.lives += 1
        signer = NodeSigner(CRYPTO, self.seed)
        self.replica = Replica(
            self.id, signer, self.trust, ReplicaConfig(), random.Random(1), {}, self.lives, WALL_NS, self.public
        )
        self.neighbours = Neighbours(self.trust, self.fleet.root, CRYPTO, self.replica, Plane(*ORIGIN), dict(self.disk))
        self.border = Border(self.neighbours, self.id, self.seed, CRYPTO, self, self.lives, self.rng.randbytes
        ) if self.is_gateway else None  # fmt: skip

    def signs(self, kind: str, said: Introduction | Word) -> bytes:
        """A statement with this node's key, whatever it says."""
        return sign(kind, said, self.public, lambda message: CRYPTO.sign(self.seed, message))

    def located(self) -> Mapping[NodeId, Located]:
        return self.places

    def ask(self, request: object, now_ns: int) -> None:
        """Give the state a request."""
        for effect in self.replica.on_command(request, now_ns):
            if isinstance(effect, Order) and isinstance(effect.request, CellAssigned):
                self.begun.append(effect.request.cell_id)

    def work(self, now_ns: int) -> None:
        """Let the survey decide."""
        self.replica.views.survey.step(now_ns)
        self.begun += [
            order.cell_id for order in self.replica.views.survey.take_orders() if isinstance(order, CellAssigned)
        ]

    def view(self, other: Fleet, now_ns: int) -> NeighbourView:
        return next(view for view in self.neighbours.views(now_ns) if view.key == other.key)

    def hearing(self, other: Fleet) -> Hearing:
        return self.neighbours.hearings()[other.key][0]


@dataclass
class World:
    """Swarms of two nodes each (a gateway, a drone), a pipe between their gateways."""

    rng: random.Random
    names: tuple[str, ...] = ("amber", "blue")
    now_ns: int = 0
    is_cut: bool = False
    pipe: list[tuple[bytes, bytes]] = field(default_factory=list)
    """(swarm, frame) on the way."""
    recorded: list[tuple[bytes, bytes]] = field(default_factory=list)
    """All that ever was."""

    def __post_init__(self) -> None:
        self.fleets = {name: Fleet(name) for name in self.names}
        self.nodes = {
            name: [
                Node(fleet, "gate", is_gateway=True, rng=self.rng),
                Node(fleet, "drone", is_gateway=False, rng=self.rng),
            ]
            for name, fleet in self.fleets.items()
        }
        for name, nodes in self.nodes.items():
            for node in nodes:
                for other in nodes:
                    node.trust.admit_certificate(other.certificate)
                self.meet(name, node)

    def meet(self, name: str, node: Node) -> None:
        """Tell a node who its members are."""
        others = [one for one in self.nodes[name] if one is not node]
        peers = [Peer(one.id, one.name, one.public, True) for one in others]
        self.perform(name, node, node.neighbours.start(self.now_ns))
        self.perform(name, node, node.neighbours.on_peers(peers, self.now_ns))

    @property
    def now_ms(self) -> int:
        return (WALL_NS + self.now_ns) // 1_000_000

    def agree(self, one: str, other: str, revision: int = 1, **bounds: int) -> None:
        """The operator of one says yes (or, by `until_ms=0`, no) at its gateway."""
        statement = self.fleets[one].agreement(self.fleets[other], self.now_ms, revision, **bounds)
        gate = self.nodes[one][0]
        self.perform(one, gate, gate.neighbours.on_command(Agree(statement), self.now_ns))

    def perform(self, name: str, node: Node, effects: list) -> None:  # type: ignore[type-arg]
        for effect in effects:
            match effect:
                case Send(to, payload):
                    target = next(one for one in self.nodes[name] if one.id == to)
                    found = target.neighbours.on_message(node.id, payload, self.now_ns)
                    self.perform(name, target, found)
                case Persist(key, value):
                    node.disk.pop(key, None) if value is None else node.disk.__setitem__(key, value)
                case Alarm():
                    node.alarms.append(effect)

    def inject(self, swarm: bytes, frame: bytes) -> None:
        """Anybody hands a frame to a swarm's gateways."""
        for name, fleet in self.fleets.items():
            gate = self.nodes[name][0]
            if fleet.key == swarm and gate.border is not None:
                brought = gate.border.hear(frame, self.now_ns)
                if brought is not None:
                    self.perform(name, gate, gate.neighbours.on_command(brought, self.now_ns))

    def step(self, seconds: float = 1.0) -> None:
        """Time passes; gateways speak, the pipe delivers, members compare, look and work."""
        self.now_ns += round(seconds * S)
        for name, nodes in self.nodes.items():
            for node in nodes:
                if node.border is not None:
                    self.pipe += node.border.tick(self.now_ns)
                self.perform(name, node, node.neighbours.on_timer(("beside", "look"), self.now_ns))
                for other in nodes:
                    if other is not node and other.neighbours.summary() != node.neighbours.summary():
                        found = other.neighbours.on_summary(node.id, node.neighbours.summary(), self.now_ns)
                        self.perform(name, other, found)
                node.work(self.now_ns)
        flying, self.pipe = self.pipe, []
        self.recorded += flying
        if not self.is_cut:
            for swarm, frame in flying:
                self.inject(swarm, frame)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step()

    # --- what drones do -----------------------------------------------------------------------------------------------

    def place(self, name: str, latitude: float = ORIGIN[0], sigma_cm: int = 150) -> None:
        """A swarm's drone says where it is, at its gateway."""
        gate, drone = self.nodes[name]
        where = Place(round(latitude * 1e7), round(ORIGIN[1] * 1e7), 3_000, None, sigma_cm, 900)
        gate.places[drone.id] = Located(drone.id, where, self.now_ns)

    def survey(self, name: str, count: int = 4, pitch_cm: int = 2_000) -> None:
        """A row of cells, the same ground for every swarm."""
        cells = tuple((f"{name}-{at}", at * pitch_cm, 0) for at in range(count))
        for node in self.nodes[name]:
            node.ask(DefineCells(cells), self.now_ns)

    def want(self, name: str, who: int = 0, east_cm: int = 0) -> None:
        self.nodes[name][who].ask(WantCell(east_cm, 0, 900), self.now_ns)

    def done(self, name: str, cell: str, who: int = 0) -> None:
        self.nodes[name][who].ask(CellDone(cell, 900), self.now_ns)


def neighbours(seed: int = 1, **bounds: int) -> World:
    """Two swarms that have agreed, with a place each, half a minute later."""
    world = World(random.Random(seed))
    world.agree("amber", "blue", **bounds)
    world.agree("blue", "amber", **bounds)
    for name in world.names:
        world.place(name)
    world.run(15)
    return world
