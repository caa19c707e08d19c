"""Trace contexts that no message has to carry: every node derives the same ones from the shared state.

A sighting is named by its origin, its register at that origin and the time of first sight; origin and neighbours all
hold these three. The trace id is their hash, and the id of each span the hash of the trace, the span's name and the
node that makes it. So a neighbour knows the origin's span ids without having been told, all nodes sample the same
traces, and a frame on the radio stays as small as it was.

A request that was borrowed is named by its borrower and that one's number of it, which its lenders were told with it.

Source:
    W3C Trace Context, sections 3.2.2.3 (trace-id), 3.2.2.4 (parent-id) and 3.2.2.5.1 (sampled flag).
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import DetectionView

_LOW_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SightingTrace:
    """The trace of one sighting, or of one borrowed request, the same on every node."""

    origin: NodeId
    trace_id: int
    """128 bits, never 0."""

    def span_id(self, name: str, node: NodeId) -> int:
        """The id of the span `name` that `node` makes in this trace; 64 bits, never 0."""
        text = self.trace_id.to_bytes(16, "big") + bytes(node) + name.encode()
        return int.from_bytes(blake2b(text, digest_size=8, person=b"swarmd-span").digest(), "big") or 1

    def is_sampled(self, ratio: float) -> bool:
        """Whether this trace is exported at this ratio; OpenTelemetry's own rule, so that all nodes agree."""
        return self.trace_id & _LOW_64 < round(ratio * (_LOW_64 + 1))

    def traceparent(self, node: NodeId, ratio: float) -> str:
        """The W3C header for what `node` says of this sighting: its `share` span at the origin, else its `learn` span.

        Args:
            node: The node that speaks.
            ratio: Part of the sightings that it exports, 0..1; decides the sampled flag.
        """
        span = self.span_id("share" if node == self.origin else "learn", node)
        return f"00-{self.trace_id:032x}-{span:016x}-{int(self.is_sampled(ratio)):02x}"


def trace_of(origin: NodeId, sighting: str, first_hlc: int) -> SightingTrace:
    """The trace of a sighting.

    Args:
        origin: The node that saw it.
        sighting: The register at the origin (`DetectionView.sighting`).
        first_hlc: When the origin first saw it, swarm time.
    """
    text = bytes(origin) + first_hlc.to_bytes(8, "big") + sighting.encode()
    return SightingTrace(
        origin, int.from_bytes(blake2b(text, digest_size=16, person=b"swarmd-trace").digest(), "big") or 1
    )


def trace_of_request(borrower: NodeId, number: int) -> SightingTrace:
    """The trace of a request that was borrowed: its borrower and every lender derive the same one.

    Args:
        borrower: Whose request it is.
        number: Its own number of it, which no other request of any of its lives has.
    """
    text = bytes(borrower) + number.to_bytes(8, "big")
    return SightingTrace(
        borrower, int.from_bytes(blake2b(text, digest_size=16, person=b"swarmd-borrow").digest(), "big") or 1
    )


_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def parse_traceparent(text: str) -> tuple[int, int, bool] | None:
    """Trace id, span id and whether it is sampled, of a W3C header; None where it is none.

    >>> parse_traceparent("00-000000000000000000000000000000ab-00000000000000cd-01")
    (171, 205, True)
    """
    found = _TRACEPARENT.fullmatch(text)
    trace, span, flags = (int(part, 16) for part in found.groups()) if found is not None else (0, 0, 0)
    return (trace, span, bool(flags & 1)) if trace and span else None


def trace_of_view(view: DetectionView) -> SightingTrace:
    """The trace of a sighting as the shared state shows it."""
    return trace_of(view.origin, view.sighting, view.first_hlc)
