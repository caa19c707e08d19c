"""What a gateway needs of the daemon beside it: what the swarm knows, as it was signed, and a way to say something."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from swarmd.api.daemon import BusEvent, NodeInfo
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.border import Border
from swarmd_protocols.neighbours.requests import Bring
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.evidence import Evidence
from swarmd_protocols.summary import MemberView
from swarmd_protocols.trust.payloads import Certificate


class SwarmWord(Protocol):
    """The swarm as its gateway sees it; every call is on the event loop and returns at once."""

    @property
    def first_root(self) -> bytes:
        """The first root statement of the fleet."""
        ...

    def now_ms(self) -> int:
        """Swarm time, milliseconds since 1970."""
        ...

    def evidence(self, wanted: Collection[str] | None) -> Iterator[Sequence[Evidence]]:
        """Shown objects with their proof, a few at a time; of these ids alone, or all."""
        ...

    def records(self, streams: Collection[Stream]) -> Sequence[Batch]:
        """The latest records of every node."""
        ...

    def reports(self) -> Sequence[tuple[NodeId, str, bytes]]:
        """(node, model, envelope) of what every node runs."""
        ...

    def certificate(self, node: NodeId) -> Certificate | None:
        """Of a member, as far as it holds."""
        ...

    def certificate_statement(self, node: NodeId) -> bytes | None:
        """Its bytes."""
        ...

    def statements(self) -> Sequence[tuple[str, bytes]]:
        """("root" or "revoke", statement), in the order in which they can be taken."""
        ...

    def trust_revision(self) -> int:
        """Rises with whatever of trust was news."""
        ...

    def operators(self) -> frozenset[bytes]:
        """Public keys that speak for an operator."""
        ...

    def show(self, figures: Callable[[], dict[str, object]]) -> None:
        """Have `swarmd status` show the gateway's figures."""
        ...

    def tell(self, key: str, value: bytes) -> None:
        """Set one entry of this node's metadata."""
        ...

    def note(self, key: str) -> bytes:
        """A note of the swarm; b"" where there is none."""
        ...

    def set_note(self, key: str, value: bytes) -> None:
        """Put a note into the swarm."""
        ...


class GatewayDaemon(Protocol):
    """The part of `swarmd.api.daemon.Operations` that a gateway uses, and its `above`."""

    @property
    def above(self) -> SwarmWord:
        """See `SwarmWord`."""
        ...

    def info(self) -> NodeInfo:
        """Who this is."""
        ...

    def members(self) -> Sequence[MemberView]:
        """All members."""
        ...

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """Hear what happens; the returned function ends it."""
        ...

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "") -> Mapping[str, object]:
        """Run a control verb."""
        ...

    def add_statement(self, kind: str, statement: bytes) -> bool:
        """Take a statement about trust; whether it was new."""
        ...

    def note_problem(self, where: str, text: str) -> None:
        """Say trouble in the log."""
        ...


class BorderWord(SwarmWord, Protocol):
    """What a gateway needs beside, to speak with neighbouring swarms."""

    def border(self, seed: bytes, life: int) -> Border:
        """The talk with gateways of neighbouring swarms, for a gateway with this key."""
        ...

    def bring(self, brought: Bring) -> None:
        """Have the node judge what a neighbouring swarm has said."""
        ...


class BorderDaemon(GatewayDaemon, Protocol):
    """The same of the daemon."""

    @property
    def above(self) -> BorderWord:
        """See `BorderWord`."""
        ...
