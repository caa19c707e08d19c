"""What a gateway reads of its node, and puts into its swarm (`swarmd.federation.above.SwarmWord`)."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from swarmd.brain.node_metrics import register_gateway
from swarmd.brain.parts import Parts
from swarmd_protocols.effects import SetMeta
from swarmd_protocols.federation.objects import EPOCH_UNIX_MS
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.border import Border
from swarmd_protocols.neighbours.requests import Bring
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.evidence import Evidence
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.reviews import operators_of
from swarmd_protocols.trust.payloads import Certificate
from swarmd_protocols.trust.view import TrustView


class Above:
    """One brain, seen by its gateway.

    Args:
        parts: The brain's.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.shown: Callable[[], dict[str, object]] | None = None
        """The gateway's own figures, for `swarmd status`; None where no gateway runs beside this node."""

    @property
    def _trust(self) -> TrustView:
        return self._parts.releases.protocol.trust

    @property
    def first_root(self) -> bytes:
        """The first root statement of the fleet."""
        return self._parts.identity.roots[0]

    def now_ms(self) -> int:
        """Swarm time, milliseconds since 1970."""
        return EPOCH_UNIX_MS + self._parts.replica.clock.physical_ms(time.monotonic_ns())

    def evidence(self, wanted: Collection[str] | None) -> Iterator[Sequence[Evidence]]:
        """Shown objects with their proof, a few at a time; of these ids alone, or all."""
        return self._parts.replica.views.evidence_parts(wanted)

    def records(self, streams: Collection[Stream]) -> Sequence[Batch]:
        """The latest records of every node."""
        return self._parts.replica.views.records(streams)

    def reports(self) -> Sequence[tuple[NodeId, str, bytes]]:
        """(node, model, envelope) of what every node runs."""
        statuses = self._parts.releases.protocol.book.statuses
        return [(node, model, signed.envelope.encode()) for (node, model), signed in sorted(statuses.items())]

    def certificate(self, node: NodeId) -> Certificate | None:
        """Of a member."""
        return self._trust.certified(node)

    def certificate_statement(self, node: NodeId) -> bytes | None:
        """Its bytes."""
        return self._trust.certificate_statement(node)

    def statements(self) -> Sequence[tuple[str, bytes]]:
        """("root" or "revoke", statement) in the order in which they can be taken; the group keys are nobody's else."""
        return [one for one in self._trust.statements() if one[0] in ("root", "revoke")]

    def trust_revision(self) -> int:
        """Rises with whatever of trust was news."""
        return self._trust.news.count

    def operators(self) -> frozenset[bytes]:
        """Public keys that speak for an operator."""
        return operators_of(self._trust.chain)

    def border(self, seed: bytes, life: int) -> Border:
        """The talk with gateways of neighbouring swarms."""
        parts = self._parts
        node, crypto = parts.identity.node, parts.releases.protocol.trust.chain.crypto
        return Border(parts.neighbours, node, seed, crypto, parts.positions, life, os.urandom)

    def bring(self, brought: Bring) -> None:
        """Have the node judge what a neighbouring swarm has said."""
        self._parts.driver.command("beside", brought)

    def show(self, figures: Callable[[], dict[str, object]]) -> None:
        """Have `swarmd status` show the gateway's figures, and its metrics too."""
        if self.shown is None:
            # A gateway that starts again is read anew under the names that are there.
            register_gateway(self._parts.metrics, lambda: {} if self.shown is None else self.shown())
        self.shown = figures

    def tell(self, key: str, value: bytes) -> None:
        """Set one entry of this node's metadata."""
        self._parts.driver.request(SetMeta(key, value))

    def note(self, key: str) -> bytes:
        """A note of the swarm; b"" where there is none."""
        held = self._parts.replica.views.note(key)
        return b"" if held is None else held[0]

    def set_note(self, key: str, value: bytes) -> None:
        """Put a note into the swarm."""
        self._parts.driver.command("state", SetNote(key, value))
