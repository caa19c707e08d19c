"""The fleet's officers: who is enrolled, revoked and replaced in a run, and what is true of it.

They keep the keys of all roles, sign what they decide, and hand it over at one node, as people with a laptop do; the
swarm carries it on. Checkers ask here what the right hands have signed, whatever any node believes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.trust.envelopes import Envelope, decode_envelope, sign_statement
from swarmd_protocols.trust.identity import DEV_ROLES, Identity, dev_role_seeds, dev_root, enrol, make_dev_identity
from swarmd_protocols.trust.payloads import AFTER_MAX, GroupKey, Revocation
from swarmd_protocols.trust.requests import AddStatement
from swarmd_protocols.trust.roots import make_root, mark, root_digest
from swarmd_sim.run.host import Host

_KEYS_A_ROLE = 3


@dataclass(slots=True)
class Officers:
    """All keys of a fleet and what was decided with them.

    Args:
        crypto: The run's arithmetic of trust.
        secret: From which every key of the fleet derives.
        swarm: The swarm's name.
        threshold: How many of three keys each role takes; 0: what a development fleet has (`DEV_ROLES`).
    """

    crypto: Crypto
    secret: bytes
    swarm: str
    threshold: int = 0
    generation: dict[str, int] = field(default_factory=dict)
    """How often the keys of a role were replaced."""
    epoch: int = 1
    """Rises whenever keys are replaced because they were stolen."""
    leaked: dict[str, Sequence[bytes]] = field(default_factory=dict)
    """Keys by role that were replaced because they were stolen: nothing counts that they sign afterwards."""
    leaked_until: dict[str, int] = field(default_factory=dict)
    """How many roots there are since the one that replaced them."""
    replaced_at: dict[str, list[int]] = field(default_factory=dict)
    """By role, how many roots there were with each that replaced its keys."""
    roots: list[bytes] = field(default_factory=list)
    groups: dict[int, bytes] = field(default_factory=dict)
    """Group key statements by counter."""
    withheld_from: dict[int, frozenset[bytes]] = field(default_factory=dict)
    """Who was shut out when each group key was made, by its counter: who may never learn it."""
    revoked_ns: dict[bytes, int] = field(default_factory=dict)
    """When each node was revoked."""
    rogues: set[bytes] = field(default_factory=set)
    """Nodes that a stolen enrol key certified; out since that key was replaced."""
    issued: list[Envelope] = field(default_factory=list)
    """What else they signed: the publisher's statements, which a new root names as right where their keys go."""
    handed: dict[int, tuple[int, frozenset[bytes], frozenset[int]]] = field(default_factory=dict)
    """By host, how many roots, whose revocations and which group keys were handed over at it, at the last time."""
    _revocations: list[bytes] = field(default_factory=list)
    _certificates: dict[bytes, bytes] = field(default_factory=dict)
    """By node."""

    def __post_init__(self) -> None:
        """The first root and the first group key."""
        if self.threshold:
            root = make_root("dev", self._roles())
            self.roots.append(sign_statement("root", root, self.signers("root"), self.crypto))
            self._sign_group(1)
        else:
            self.roots.append(dev_root(self.secret, self.crypto))

    # --- Keys ---------------------------------------------------------------------------------------------------------

    def needed(self, role: str) -> int:
        """How many keys a statement of this role takes."""
        return self.threshold or DEV_ROLES[role][0]

    def seeds(self, role: str, generation: int = -1) -> Sequence[bytes]:
        """All keys of a role: the ones in force, or those of an earlier generation."""
        number = self.generation.get(role, 0) if generation < 0 else generation
        if not self.threshold and not number:
            return dev_role_seeds(self.secret, role)
        count = _KEYS_A_ROLE if self.threshold else DEV_ROLES[role][1]
        return [self._seed(f"{role}:{number}:{index}") for index in range(count)]

    def signers(self, role: str) -> Sequence[bytes]:
        """As many keys of a role as a statement takes."""
        return self.seeds(role)[: self.needed(role)]

    def stolen(self, role: str) -> Sequence[bytes]:
        """One key below the threshold: what a thief may have without holding the role; none where one is enough."""
        return self.seeds(role)[: self.needed(role) - 1]

    def _seed(self, purpose: str) -> bytes:
        return blake2b(purpose.encode(), key=self.secret[:64], digest_size=32, person=b"sim-officers").digest()

    def _roles(self) -> Mapping[str, tuple[int, list[bytes]]]:
        return {
            role: (self.needed(role), [self.crypto.public_key(seed) for seed in self.seeds(role)]) for role in DEV_ROLES
        }

    # --- Members ------------------------------------------------------------------------------------------------------

    def identity(self, name: str, roles: Sequence[str] = ()) -> Identity:
        """A member's identity, as it is written at its enrolment; the same again for the same name and roles."""
        if not self.threshold:
            identity = make_dev_identity(self.secret, self.swarm, name, self.crypto, roles=roles)
        else:
            groups = [statement for _counter, statement in sorted(self.groups.items())]
            seed = self._seed(f"node:{name}")
            identity = enrol(
                seed, name, self.swarm, self.roots[:1], groups[:1], self.signers("enrol"), self.crypto, roles=roles
            )
        self._certificates[identity.node] = identity.certificate
        self.groups.setdefault(1, identity.group_keys[0])
        return identity

    def rogue_identity(self, name: str) -> Identity:
        """What a thief makes with the enrol keys that are in force now."""
        groups = [statement for _counter, statement in sorted(self.groups.items())]
        seeds = self.signers("enrol")
        identity = enrol(
            self._seed(f"rogue:{name}"),
            name,
            self.swarm,
            self.roots,
            groups,
            seeds,
            self.crypto,
            revocations=self._revocations,  # Group keys are taken only with the revocations that they name.
        )
        self.rogues.add(identity.node)
        return identity

    # --- Decisions ----------------------------------------------------------------------------------------------------

    def revoke(self, nodes: Sequence[bytes], now_ns: int, counter: int = 0) -> bytes:
        """Shut nodes out.

        Args:
            nodes: Which.
            now_ns: Virtual time.
            counter: Of the statement; the next one where 0. Two desks that do not know of each other use one twice.

        Returns:
            The statement.
        """
        for node in nodes:
            self.revoked_ns.setdefault(node, now_ns)
        counter = counter or len(self._revocations) + 1
        revocation = Revocation(self.swarm, counter, tuple(nodes), "stolen")
        statement = sign_statement("revoke", revocation, self.signers("revoke"), self.crypto)
        self._revocations.append(statement)
        return statement

    def rotate_group(self) -> bytes:
        """A new group key, for those that are left."""
        return self._sign_group(max(self.groups, default=1) + 1)

    def replace(self, role: str, *, stolen: bool) -> None:
        """New keys for a role, in a new root that names what is right of all that the old keys signed.

        Args:
            role: Whose.
            stolen: A new epoch begins. Thieves have the old keys in either case: replaced keys decide nothing.
        """
        old = list(self.signers("root"))
        if stolen:
            self.epoch += 1
        if role != "root":
            self.leaked[role] = self.signers(role)
        self.generation[role] = self.generation.get(role, 0) + 1
        right = [*self._revocations, *self.groups.values()]
        right += [held for node, held in self._certificates.items() if node not in self.revoked_ns]
        root = make_root(
            "dev",
            self._roles(),
            version=len(self.roots) + 1,
            epoch=self.epoch,
            previous=root_digest(self.roots[-1]),
            kept=[mark(envelope) for envelope in (*map(decode_envelope, right), *self.issued)],
        )
        seeds = list(dict.fromkeys([*old, *self.signers("root")]))
        self.roots.append(sign_statement("root", root, seeds, self.crypto))
        self.leaked_until[role] = len(self.roots)
        self.replaced_at.setdefault(role, []).append(len(self.roots))
        if role == "enrol":
            self.rotate_group()

    @property
    def shut_out(self) -> set[bytes]:
        """Who was revoked, and who was certified by stolen enrol keys alone that have been replaced."""
        gone = set(self.revoked_ns)
        return gone | self.rogues if self.generation.get("enrol") else gone

    def is_fooled(self, role: str, roots: int) -> bool:
        """Whether keys of a role that thieves have are still keys to a node that has heard of so many roots."""
        return role in self.leaked and roots < self.leaked_until[role]

    def falls_at(self, role: str, roots: int) -> int | None:
        """How many roots a node has heard of once what it took of a role with so many counts no more.

        Returns:
            With the next root that replaces the role's keys; None where there is none yet.
        """
        return next((at for at in self.replaced_at.get(role, ()) if at > roots), None)

    def statements(self) -> list[tuple[str, bytes]]:
        """Everything that stands, as (kind, statement), in the order in which it can be taken."""
        found = [("root", root) for root in self.roots[1:]]
        found += [("revoke", statement) for statement in self._revocations]
        return found + [("group", statement) for _counter, statement in sorted(self.groups.items())]

    def push(self, host: Host) -> None:
        """Hand everything over at one node."""
        self.handed[host.index] = len(self.roots), frozenset(self.revoked_ns), frozenset(self.groups)
        for kind, statement in self.statements():
            host.command("node", AddStatement(kind, statement))

    def _sign_group(self, counter: int) -> bytes:
        self.withheld_from[counter] = frozenset(self.shut_out)
        after = tuple(sorted(mark(decode_envelope(one)) for one in self._revocations[-AFTER_MAX:]))
        group = GroupKey(self.swarm, counter, self._seed(f"group:{counter}"), after)
        statement = self.groups[counter] = sign_statement("group", group, self.signers("enrol"), self.crypto)
        return statement
