"""Two swarms of different owners over one ground: two runs in step, whose last hosts are gateways that speak.

Each swarm is a `Simulation` of its own, with a fleet, a radio and drones of its own; the ground is the same. Between
the two gateways frames take a step, unless the link is cut. What drones do is known here, so it can be judged what no
node sees: that none begins where one of the other swarm works.
"""

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from swarmd_models.geo.positions import Plane
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import swarm_key
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.border import LEFT_MS, Border
from swarmd_protocols.neighbours.neighbours import JOURNAL, Neighbours
from swarmd_protocols.neighbours.requests import Agree
from swarmd_protocols.neighbours.words import (
    AGREEMENT,
    CLAIMS_MAX,
    Agreement,
    ClaimRow,
    encode_agreement,
    seal_agreement,
)
from swarmd_protocols.state.observations import CellAssigned
from swarmd_protocols.state.positions import Located, Place
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.subprotocol import SubProtocol
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement, signed_bytes
from swarmd_protocols.trust.identity import DEV_ROLES, Identity, dev_role_seeds, enrol
from swarmd_protocols.trust.payloads import GroupKey
from swarmd_protocols.trust.roots import make_root
from swarmd_protocols.trust.trust import Trust
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.run.host import Host
from swarmd_sim.run.node_factory import NodeFactory
from swarmd_sim.run.result import Result, Times
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.simulation import Options, Simulation

STEP_NS = 250 * MILLION
"""Between two looks of gateways, and what a frame between them takes."""
TOUCH_NS = 15 * NS_PER_S
"""After so long in touch a claim is known at every drone of the other swarm: 6 s of standing, twice over."""
_ORIGIN = (47.0, 8.0)
"""Of both missions, degrees."""
_WALL_MS = 1_800_000_000_000
"""When agreements are dated; wall clocks of runs begin about then."""


class Owner:
    """One fleet: its keys, and what its operator signs.

    Args:
        name: Of the fleet and its swarm.
        seed: Of the run.
    """

    def __init__(self, name: str, seed: int) -> None:
        from swarmd_protocols.crypto import ModelCrypto

        self.name, self.crypto = name, ModelCrypto()
        self._secret = f"{name}/{seed}".encode()
        self._operator = self._seed("operator")
        roles = {
            role: (need, [self.crypto.public_key(one) for one in dev_role_seeds(self._secret, role)])
            for role, (need, _) in DEV_ROLES.items()
        }
        roles["operator"] = (1, [self.crypto.public_key(self._operator)])
        self.root = sign_statement("root", make_root(name, roles), dev_role_seeds(self._secret, "root"), self.crypto)
        group = GroupKey(name, 1, self._seed("group"))
        self.group = sign_statement("group", group, dev_role_seeds(self._secret, "enrol"), self.crypto)
        self.digest = decode_envelope(self.root).digest
        self.key = swarm_key(self.digest, name)

    def _seed(self, what: str) -> bytes:
        return blake2b(what.encode(), key=self._secret, digest_size=32).digest()

    def identity(self, name: str, *, is_gateway: bool) -> Identity:
        """A member's."""
        keys = ([self.root], [self.group], dev_role_seeds(self._secret, "enrol"))
        return enrol(self._seed(name), name, self.name, *keys, self.crypto, roles=[ROLE] if is_gateway else [])

    def agreement(self, other: "Owner", hold_s: int) -> bytes:
        """Its operator's yes to another."""
        said = Agreement(
            self.name, other.name, other.digest, other.name, 1, _WALL_MS, 2 * _WALL_MS, CLAIMS_MAX, 10_000_000, hold_s
        )
        payload = encode_agreement(said)
        signature = self.crypto.sign(self._operator, signed_bytes(AGREEMENT, payload))
        return seal_agreement(payload, self.crypto.public_key(self._operator), signature)


class OwnersFactory(NodeFactory):
    """Builds the nodes of one of the two."""

    def __init__(self, scenario: Scenario, choices: Choices, addresses: list[str], owner: Owner) -> None:
        super().__init__(scenario, choices, addresses)
        self._owner = owner
        # Checkers ask the officers what the right hands have signed.
        self.officers.roots, self.officers.groups = [owner.root], {1: owner.group}
        self._gateway = len(addresses) - 1
        self.neighbours: dict[int, Neighbours] = {}

    def identity(self, host: Host) -> Identity:
        """The host's identity, made at its first boot; the last host is the gateway."""
        identity = self._identities.get(host.index)
        if identity is None:
            name = f"{self._owner.name}-{host.name}"
            identity = self._owner.identity(name, is_gateway=host.index == self._gateway)
            self._identities[host.index] = identity
        return identity

    def more(self, host: Host, trust: Trust, replica: Replica, records: Mapping[bytes, bytes]) -> Sequence[SubProtocol]:
        """What the daemon has beside."""
        kept = {key: value for key, value in records.items() if key.startswith(JOURNAL)}
        made = Neighbours(trust, self._owner.root, self._owner.crypto, replica, Plane(*_ORIGIN), kept)
        self.neighbours[host.index] = made
        return [made]


class GreedyBorder(Border):
    """A gateway that claims all ground at every moment, each time under new names."""

    cells: Sequence[tuple[int, int]] = ()
    greed = 0

    def _claims(self, key: bytes, now_ns: int) -> tuple[ClaimRow, ...]:
        if not self.cells:
            return super()._claims(key, now_ns)
        self.greed += 1
        rows, plane = [], Plane(*_ORIGIN)
        for at, (east_cm, north_cm) in enumerate(self.cells[:CLAIMS_MAX]):
            latitude, longitude = plane.to_wgs84(east_cm / 100, north_cm / 100)
            alias = blake2b(f"{self.greed}/{at}".encode(), digest_size=4).digest()
            where = (round(latitude * 1e7), round(longitude * 1e7))
            rows.append(ClaimRow(alias, *where, 1_200 + self.greed % 100, 0, 9_000, True, LEFT_MS))
        return tuple(rows)


class Side:
    """One of the two swarms."""

    def __init__(self, scenario: Scenario, seed: int, options: Options, owner: Owner) -> None:
        self.owner = owner
        self.factory: OwnersFactory | None = None

        def make(scenario: Scenario, choices: Choices, addresses: list[str]) -> OwnersFactory:
            self.factory = OwnersFactory(scenario, choices, addresses, owner)
            return self.factory

        self.run = Simulation(scenario, seed, Options(timeline=options.timeline, progress=options.progress, maker=make))
        self.gateway = self.run.hosts[-1]
        self.border: GreedyBorder | None = None
        self._boots = 0
        self._plane = Plane(*_ORIGIN)
        self.working: dict[int, tuple[str, int]] = {}
        """Host to the cell that its drone works on or flies to, and since when."""
        self.words = 0
        self._listen()

    def _listen(self) -> None:
        """Hear what drones are told, as they do."""
        fleet = self.run.fleet
        heard = fleet.on_detail

        def on_detail(host: Host, detail: object) -> None:
            heard(host, detail)
            if isinstance(detail, CellAssigned):
                self.begun.append((host.index, detail.cell_id))

        self.begun: list[tuple[int, str]] = []
        fleet.on_detail = on_detail  # type: ignore[method-assign]

    @property
    def now_ns(self) -> int:
        """Of the gateway's own clock."""
        return self.gateway.clock.local_ns(self.run.engine.now_ns)

    def located(self) -> Mapping[NodeId, Located]:
        """Where drones are: what the sub-protocol of positions would tell the gateway, without its delay."""
        found = {}
        for index, drone in self.run.fleet.drones.items():
            host = self.run.hosts[index]
            if host.process_up:
                latitude, longitude = self._plane.to_wgs84(drone.position_cm[0] / 100, drone.position_cm[1] / 100)
                place = Place(round(latitude * 1e7), round(longitude * 1e7), 2_000, None, 200, None)
                node = NodeId(host.node_id)
                found[node] = Located(node, place, self.now_ns)
        return found

    def speak(self) -> list[bytes]:
        """Frames for the other's gateway."""
        assert self.factory is not None
        if not self.gateway.process_up:
            self.border = None
            return []
        neighbours = self.factory.neighbours[self.gateway.index]
        if self.border is None or self._boots != self.gateway.boots:
            self._boots = self.gateway.boots
            identity = self.factory.identity(self.gateway)
            rng = self.run.choices.rng("neighbours")
            self.border = GreedyBorder(
                neighbours, identity.node, identity.seed, self.owner.crypto, self, self._boots, rng.randbytes
            )
        frames = [frame for _, frame in self.border.tick(self.now_ns)]
        self.words = self.border.counts["words"]
        return frames

    def hear(self, frame: bytes) -> None:
        """One came."""
        brought = self.border.hear(frame, self.now_ns) if self.border is not None else None
        if brought is not None:
            self.gateway.command("beside", brought)

    def look(self) -> list[tuple[int, str]]:
        """Cells that were begun since the last look; who works where follows."""
        done = self.run.ledger.cells_done
        self.working = {
            index: (cell, since)
            for index, (cell, since) in self.working.items()
            if cell not in done and any(one.cell_id == cell for one in self.run.fleet.drones[index].queue)
        }
        begun, self.begun = self.begun, []
        return begun


class TwoSwarms:
    """Both, in step.

    Args:
        scenario: Of each; `[neighbours]` says what happens between them.
        seed: Decides everything.
        options: How the first is driven and watched.
    """

    def __init__(self, scenario: Scenario, seed: int, options: Options) -> None:
        started = time.perf_counter()
        self._scenario = scenario
        owners = [Owner(name, seed) for name in ("amber", "blue")]
        self.sides = [
            Side(scenario, seed, options, owners[0]),
            Side(scenario, seed + (1 << 32), Options(), owners[1]),
        ]
        self.begun = self.clashes = 0
        """Cells that anybody began; of these where one of the other swarm worked, in touch or not."""
        self._flying: list[tuple[Side, bytes]] = []
        self._setup_s = time.perf_counter() - started

    def run(self) -> Result:
        """Run to the end and judge; what is judged of both stands with the first."""
        started, cpu_started = time.perf_counter(), time.process_time()
        section, (first, second) = self._scenario.neighbours, self.sides
        end_ns, agree_ns = self._scenario.swarm.seconds * NS_PER_S, int(section.agree_at_s * NS_PER_S)
        for side in self.sides:
            side.run.schedule()
        touch_ns = agree_ns
        for now_ns in range(STEP_NS, end_ns + 1, STEP_NS):
            for side in self.sides:
                side.run.engine.run_until(now_ns)
            if now_ns - STEP_NS < agree_ns <= now_ns:
                for side, other in ((first, second), (second, first)):
                    statement = side.owner.agreement(other.owner, section.hold_s)
                    side.run.hosts[0].command("beside", Agree(statement))
            cut_ns = int(section.cut_at_s * NS_PER_S)
            hostile_ns = int(section.hostile_at_s * NS_PER_S)
            is_hostile = bool(hostile_ns) and now_ns >= hostile_ns
            is_cut = bool(cut_ns) and cut_ns <= now_ns < cut_ns + int(section.cut_s * NS_PER_S)
            if is_cut:
                touch_ns = now_ns
            if is_hostile and second.border is not None:
                second.border.cells = [(cell.east_cm, cell.north_cm) for cell in second.run.site.cells]
            self._carry(is_cut=is_cut)
            # Who lies about where it works is not kept clear of for ever.
            self._judge(now_ns, in_touch=now_ns - touch_ns > TOUCH_NS and not is_hostile)
        for side in self.sides:
            side.run.judge()
        return self._result(Times(self._setup_s, time.perf_counter() - started, time.process_time() - cpu_started))

    def _carry(self, *, is_cut: bool) -> None:
        flying, self._flying = self._flying, []
        if not is_cut:
            for side, frame in flying:
                side.hear(frame)
        for side, other in (self.sides, self.sides[::-1]):
            self._flying += [(other, frame) for frame in side.speak()]

    def _judge(self, now_ns: int, *, in_touch: bool) -> None:
        first, second = self.sides
        begun = [(side, side.look()) for side in self.sides]
        for side, cells in begun:
            other = second if side is first else first
            for index, cell in cells:
                self.begun += 1
                held = [one for one, _ in other.working.values()]
                if cell in held:
                    self.clashes += 1
                    if in_touch:
                        text = f"{side.owner.name} begins {cell} where {other.owner.name} works, {now_ns / 1e9:.1f} s"
                        first.run.watch.violate("neighbours.clear", text)
                side.working[index] = (cell, now_ns)

    def _result(self, times: Times) -> Result:
        first, second = self.sides
        if self._scenario.neighbours.hostile_at_s == 0:
            first.run.watch.violations += second.run.watch.violations
        result = first.run.result(times)
        factory = first.factory
        assert factory is not None
        hosts, now_ns = first.run.hosts, first.run.engine.now_ns
        views = [
            view for index, one in factory.neighbours.items() for view in one.views(hosts[index].clock.local_ns(now_ns))
        ]
        result.figures["neighbours"] = {
            "begun": self.begun,
            "clashes": self.clashes,
            "words": [side.words for side in self.sides],
            "states": sorted(view.state for view in views),
            "spent_cells": max((view.spent_cells for view in views), default=0),
            "second_cells_done": len(second.run.ledger.cells_done),
        }
        return result
