"""What one member may ask of this node's membership: probes and refusals by number, answers by bytes. Pure; no clocks.

Whoever asks beyond is not heard until time has paid, and is named in an alarm. Nothing is lost by that: an honest
member asks again, since its digest still differs. Probes have an account of their own, so that a large repair never
makes anybody look dead.
"""

from collections.abc import Sequence

from swarmd_protocols.effects import Effect, Rejected, SendDatagram, SendStream
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.messages import (
    Buckets,
    EventVector,
    Fingerprints,
    Message,
    Ping,
    PingReq,
    Sections,
    Statement,
    Want,
)

_S = 1_000_000_000
_PROBES_PER_S, _PROBES_BURST = 200, 250
"""Pings, requests for pings, statements of trust that bring nothing and whatever is refused, of one member: a hundred
times what an honest one says. The burst takes 20 ms where a signature check takes 75 microseconds."""
_ANSWER_BYTES_PER_S, _ANSWER_BYTES_BURST = 65_536, 1_048_576
"""Bytes of answers to one member's comparisons: the burst is the records of 3,000 members. An answer that was begun is
finished."""
_QUESTION_BYTES = 2_048
"""What a comparison costs that finds nothing, as bytes: 512 at once take 20 ms in a large swarm."""
_MEMBERS_MAX = 1_024
"""Members whose accounts are kept; the one heard longest ago is forgotten first."""

_PROBES = (Ping, PingReq, Statement)
_QUESTIONS = (Sections, Fingerprints, Buckets, Want, EventVector)


class Allowance:
    """Accounts of all members; below zero, a kind of message is not heard."""

    def __init__(self) -> None:
        self._left: dict[tuple[NodeId, bool], tuple[float, int]] = {}

    def hears(self, member: NodeId, message: Message, now_ns: int) -> bool:
        """Whether this message of a member is looked at."""
        return self._left_of((member, isinstance(message, _QUESTIONS)), now_ns) > 0

    def spend(
        self, member: NodeId, message: Message, effects: Sequence[Effect], now_ns: int, *, brought_news: bool
    ) -> None:
        """A message was looked at, and these are its effects."""
        asks = isinstance(message, _QUESTIONS)
        if asks:
            cost = _QUESTION_BYTES + sum(len(one.data) for one in effects if isinstance(one, SendDatagram | SendStream))
        else:
            cost = sum(isinstance(one, Rejected) for one in effects)
            if not cost and not brought_news:
                cost = isinstance(message, _PROBES)
        if not cost:
            return
        key = (member, asks)
        left = self._left_of(key, now_ns) - cost
        self._left.pop(key, None)
        if len(self._left) >= 2 * _MEMBERS_MAX:
            del self._left[next(iter(self._left))]
        self._left[key] = left, now_ns

    def _left_of(self, key: tuple[NodeId, bool], now_ns: int) -> float:
        per_s, burst = (_ANSWER_BYTES_PER_S, _ANSWER_BYTES_BURST) if key[1] else (_PROBES_PER_S, _PROBES_BURST)
        held = self._left.get(key)
        return float(burst) if held is None else min(float(burst), held[0] + (now_ns - held[1]) * per_s / _S)
