"""A gateway's daemon out of one member of a mesh of replicas: what `SwarmWord` asks, without processes."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b

from swarmd.api.daemon import BusEvent, NodeInfo
from swarmd_protocols.effects import MemberState
from swarmd_protocols.federation.objects import EPOCH_UNIX_MS
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.evidence import Evidence
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.reviews import operators_of
from swarmd_protocols.summary import MemberView
from swarmd_protocols.trust.identity import enrol
from swarmd_protocols.trust.payloads import Certificate
from tests.support.state_mesh import SWARM, Member, Mesh


class MeshDaemon:
    """One member of a mesh as its gateway sees it."""

    def __init__(self, mesh: Mesh, index: int, gateway: str = "") -> None:
        """One member, or a gateway of this name that sees what the member sees."""
        self.mesh, self.index = mesh, index
        self.identity = self.member.identity
        self.beside: list[MeshDaemon] = []
        """The swarm's gateways."""
        self.state = MemberState.ALIVE
        if gateway:
            seed = blake2b(gateway.encode(), digest_size=32).digest()
            keys = (mesh.roots, mesh.group_keys, mesh.enrol_seeds)
            self.identity = enrol(seed, gateway, SWARM, *keys, mesh.crypto, roles=[ROLE])
            mesh.state("node", self.identity.certificate)
        self.told: dict[str, bytes] = {}
        self.problems: list[str] = []
        self.commands: list[tuple[str, Mapping[str, object]]] = []
        self.statements_in: list[tuple[str, bytes]] = []
        self.heard: list[Callable[[BusEvent], None]] = []

    @property
    def member(self) -> Member:
        return self.mesh.members[self.index]

    @property
    def above(self) -> "MeshDaemon":
        return self

    # --- SwarmWord

    @property
    def first_root(self) -> bytes:
        return self.member.identity.roots[0]

    def now_ms(self) -> int:
        return EPOCH_UNIX_MS + self.mesh.now_ns // 1_000_000

    def evidence(self, wanted: Collection[str] | None) -> Iterator[Sequence[Evidence]]:
        assert self.member.replica is not None
        return self.member.replica.views.evidence_parts(wanted)

    def records(self, streams: Collection[Stream]) -> Sequence[Batch]:
        assert self.member.replica is not None
        return self.member.replica.views.records(streams)

    def reports(self) -> Sequence[tuple[NodeId, str, bytes]]:
        return []

    def certificate(self, node: NodeId) -> Certificate | None:
        return self.member.trust.certified(node)

    def certificate_statement(self, node: NodeId) -> bytes | None:
        return self.member.trust.certificate_statement(node)

    def statements(self) -> Sequence[tuple[str, bytes]]:
        return [one for one in self.member.trust.statements() if one[0] in ("root", "revoke")]

    def trust_revision(self) -> int:
        return self.member.trust.news.count

    def operators(self) -> frozenset[bytes]:
        return operators_of(self.member.trust.chain)

    def show(self, figures: Callable[[], dict[str, object]]) -> None:
        self.figures = figures

    def tell(self, key: str, value: bytes) -> None:
        self.told[key] = value

    def note(self, key: str) -> bytes:
        assert self.member.replica is not None
        held = self.member.replica.views.note(key)
        return b"" if held is None else held[0]

    def set_note(self, key: str, value: bytes) -> None:
        self.mesh.command(self.index, SetNote(key, value))

    # --- GatewayDaemon

    def info(self) -> NodeInfo:
        return NodeInfo(self.identity.node, self.identity.name, SWARM, "test", 47.4, 8.5, "", "", ())

    def members(self) -> Sequence[MemberView]:
        return [
            MemberView(
                one.node, f"n{one.index}", "", MemberState.ALIVE, 1, None, 0.0, "good", (), "", "observer", {}
            )
            for one in self.mesh.members
            if one.replica is not None
        ] + [
            MemberView(
                one.identity.node, one.identity.name, "", one.state, 1, None, 0.0, "good", (), "", "observer", one.told
            )
            for one in self.beside
        ]  # fmt: skip

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        self.heard.append(callback)
        return lambda: None

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "") -> Mapping[str, object]:
        self.commands.append((verb, arguments))
        return {"done": True}

    def add_statement(self, kind: str, statement: bytes) -> bool:
        self.statements_in.append((kind, statement))
        return True

    def note_problem(self, where: str, text: str) -> None:
        self.problems.append(text)
