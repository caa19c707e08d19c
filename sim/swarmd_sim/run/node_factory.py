"""The one place that builds the daemon's own objects for a simulated host: `Node` with `Replica` inside, codec on."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.lives import life_number
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.subprotocol import SubProtocol
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.trust import Trust
from swarmd_sim.errors import ScenarioError
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.run.host import Host
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.offload import OffloadWorld
from swarmd_sim.run.releases import ReleaseWorld
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.setup import seeds_of
from swarmd_sim.run.thumbs import ThumbsWorld

SWARM = "sim"
_SECRET = b"a secret that is only a simulation's"
_T = TypeVar("_T", bound=msgspec.Struct)


class NodeFactory:
    """Builds nodes for the hosts of one run.

    Args:
        scenario: What was asked for.
        choices: All randomness; each life of a node gets a generator of its own.
        addresses: Of all hosts, by index.

    Raises:
        ScenarioError: `[gossip]` or `[state]` names a field that does not exist, or values that cannot work.
    """

    def __init__(self, scenario: Scenario, choices: Choices, addresses: list[str]) -> None:
        self._choices = choices
        self._crypto = ModelCrypto()
        gossip = dict(scenario.gossip)
        profile = gossip.pop("profile", "lan")
        if profile not in ("lan", "lean"):
            raise ScenarioError(f"gossip.profile is {profile!r}; it must be lan or lean")
        mesh = gossip.get("mesh", "auto")
        gossip["mesh"] = ("off", "on")[mesh] if isinstance(mesh, bool) else mesh
        if gossip["mesh"] not in ("auto", "on", "off"):
            raise ScenarioError(f"gossip.mesh is {mesh!r}; it must be auto, on or off")
        base = SwimConfig.lean() if profile == "lean" else SwimConfig()
        self._swim = overridden(msgspec.structs.replace(base, casts=True), gossip, "gossip")
        self._state = overridden(ReplicaConfig(), scenario.state, "state")
        self._seeds = seeds_of(scenario, choices.seed, addresses)
        self._identities: dict[int, Identity] = {}
        self.officers = Officers(self._crypto, _SECRET, SWARM, scenario.swarm.role_threshold)
        self.replicas: dict[int, Replica] = {}
        self.sent_before: dict[str, int] = {}
        """What the state of lives that have ended sent, by kind."""
        self.releases: ReleaseWorld | None = None
        """What is known about models; None where the scenario publishes none."""
        release = scenario.release
        if release.publish_at_s and choices.choose("release.enable", MILLION) < release.chance * MILLION:
            self.releases = ReleaseWorld(scenario, choices, self._crypto, self.officers)

        self.offload = OffloadWorld(scenario, choices, self._crypto) if scenario.offload.requests_per_s else None
        self.thumbs = ThumbsWorld(choices) if scenario.workload.looks_per_min else None

    def identity(self, host: Host) -> Identity:
        """The host's identity, made at its first boot."""
        identity = self._identities.get(host.index)
        if identity is None:
            identity = self.officers.identity(host.name, self.offload.roles_of(host) if self.offload else ())
            self._identities[host.index] = identity
        return identity

    def become_rogue(self, host: Host) -> None:
        """From its next life on, the host is whom a thief enrolled with the keys in force now."""
        self._identities[host.index] = self.officers.rogue_identity(f"{host.name}x")

    def make(self, host: Host) -> Node:
        """Build the node for the life that begins.

        Args:
            host: Whose disk and clock it gets.

        Returns:
            The node.
        """
        identity = self.identity(host)
        host.node_id = identity.node
        records = host.disk.records()
        trust = open_trust(identity, records, self._crypto)
        replica = Replica(
            node=identity.node,
            signer=NodeSigner(self._crypto, identity.seed),
            trust=trust,
            config=self._state,
            rng=self._choices.rng("node.replica"),
            restored={key: value for key, value in records.items() if key.startswith(b"state/")},
            life=self._life(host),
            wall_offset_ns=host.wall_offset_ns(),
            public_key=self._crypto.public_key(identity.seed),
        )
        ended = self.replicas.get(host.index)
        for kind, count in ended.views.sent().items() if ended is not None else ():
            self.sent_before[kind] = self.sent_before.get(kind, 0) + count
        self.replicas[host.index] = replica
        config = NodeConfig(
            seeds=tuple(a for a in self._seeds[host.index] if a != host.address), version="sim", swim=self._swim
        )
        rng = self._choices.rng("node.swim")
        subprotocols: list[SubProtocol] = [replica]
        if self.releases is not None:
            subprotocols.append(self.releases.protocol(host, identity, trust, records))
        if self.offload is not None:
            boot = host.clock.wall_ns(host.engine.now_ns) // NS_PER_S
            subprotocols.append(self.offload.protocol(host, identity, trust, replica.clock.physical_ms, boot))
        if self.thumbs is not None:
            subprotocols.append(self.thumbs.protocol(host, identity.node, records, replica))
        subprotocols += self.more(host, trust, replica, records)
        return Node(identity, config, self._crypto, rng, records, subprotocols, host.address, trust)

    def more(self, host: Host, trust: Trust, replica: Replica, records: Mapping[bytes, bytes]) -> Sequence[SubProtocol]:
        """Sub-protocols that only some worlds have; none here."""
        return ()

    def _life(self, host: Host) -> int:
        return life_number(host.clock.wall_ns(host.engine.now_ns) // NS_PER_S, self._choices.rng("node.life"))


_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}


def _fits(value: object, kind: type) -> bool:
    """Whether a value is one of a field; fields of other types than `_WORDS` names judge for themselves."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return kind not in _WORDS or type(value) is kind


def overridden(base: _T, overrides: Mapping[str, Any], section: str) -> _T:
    """A configuration with some fields replaced.

    Args:
        base: The configuration.
        overrides: Values by field name; a field that ends in `_ns` may be given as `_s` or `_ms`.
        section: For messages.

    Returns:
        The new configuration.

    Raises:
        ScenarioError: A field does not exist, or the values cannot work.
    """
    known = {item.name for item in msgspec.structs.fields(base)}
    values: dict[str, Any] = {}
    problems = []
    for key, value in overrides.items():
        stem, _, unit = key.rpartition("_")
        if key in known and _fits(value, kind := type(getattr(base, key))):
            values[key] = value
        elif key in known:
            problems.append(f"{section}.{key} is {value!r}; it must be {_WORDS[kind]}")
        elif unit in ("s", "ms") and f"{stem}_ns" in known and _fits(value, float):
            values[f"{stem}_ns"] = round(value * (1_000_000_000 if unit == "s" else 1_000_000))
        elif unit in ("s", "ms") and f"{stem}_ns" in known:
            problems.append(f"{section}.{key} is {value!r}; it must be {_WORDS[float]}")
        else:
            near = get_close_matches(key, sorted(known), 1)
            problems.append(f"unknown key {section}.{key}" + (f"; did you mean {section}.{near[0]}?" if near else ""))
    if problems:
        raise ScenarioError("; ".join(problems))
    try:
        return msgspec.structs.replace(base, **values)
    except (ProtocolError, TypeError, ValueError) as error:
        raise ScenarioError(f"[{section}] cannot work: {error}") from error
