"""What one member may ask of this node's membership: probes, accusations, refusals by number, answers by bytes. Pure.

Whoever asks beyond is not heard until time has paid, and is named in an alarm. Nothing is lost by that: an honest
member asks again, since its digest still differs. Probes have an account of their own, so that a large repair never
makes anybody look dead; what does not hold is counted by the signatures that were checked for it. Whoever was answered
with as much as one member may have has no answer for a while, and is not named: it may lack much.
"""

from collections.abc import Sequence

from swarmd_protocols.effects import Alarm, Effect, Rejected, SendDatagram, SendStream
from swarmd_protocols.ids import NodeId, copies
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.swim.messages import (
    Accusation,
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
"""Pings, requests for pings and statements of trust that bring nothing, of one member: a hundred times what an honest
one says."""
_ACCUSATIONS_PER_S, _ACCUSATIONS_BURST = 200, 1_024
"""Accusations that one member brings, its own and others': where half of 256 members go dark, some 90 come of each of
the other half. With 5 microseconds each the burst takes 5 ms of a frame, and the rate 0.1 % of a core."""
_REFUSALS_PER_S, _REFUSALS_BURST = 50, 100
"""Signatures checked for words of one member that do not hold: an honest one brings few, after keys were replaced. With
75 microseconds a check the burst takes 8 ms of a frame, and the rate 0.4 % of a core."""
_REFUSAL_UNCHECKED = 0.2
"""What a refusal costs for which nothing was checked, as signatures: it is counted, and told to the driver."""
_ANSWER_BYTES_PER_S, _ANSWER_BYTES_BURST = 2_000, 1_048_576
"""Bytes of answers to one member's comparisons: twice the budget of a node; the burst is the records of 3,000 members.
An answer that was begun is finished. A datagram counts once for each way that it takes: who names many ways and answers
by none pays for all."""
_QUESTIONS_PER_S, _QUESTIONS_BURST = 32, 512
"""Comparisons of one member: ten times what an honest one asks of one other; 512 at once take 20 ms in a large
swarm."""
_MEMBERS_MAX, _ACCOUNTS_MAX = 1_024, 3_072
"""Members of whom it is kept what was not heard, and accounts of members; what was used longest ago is forgotten
first."""

_NAMED_GAP_NS = 60 * _S
"""A member is named for its floods at most so often, nanoseconds."""

_PROBES = (Ping, PingReq, Statement)
QUESTIONS = (Sections, Fingerprints, Buckets, Want, EventVector)


_PROBED, _ASKED, _REFUSED, _ACCUSED, _ANSWERED, _SUB_REFUSED = range(6)
_RATES = {
    _PROBED: (_PROBES_PER_S, _PROBES_BURST),
    _ASKED: (_QUESTIONS_PER_S, _QUESTIONS_BURST),
    _REFUSED: (_REFUSALS_PER_S, _REFUSALS_BURST),
    _ACCUSED: (_ACCUSATIONS_PER_S, _ACCUSATIONS_BURST),
    _ANSWERED: (_ANSWER_BYTES_PER_S, _ANSWER_BYTES_BURST),
    _SUB_REFUSED: (_REFUSALS_PER_S, _REFUSALS_BURST),
}


class _Flood:
    """What of one member was not heard since it was named."""

    __slots__ = ("count", "named_ns", "since_ns")

    def __init__(self) -> None:
        self.count = 0
        self.since_ns = 0
        self.named_ns = -_NAMED_GAP_NS


class Allowance:
    """Accounts of all members; below zero, a kind of message is not heard."""

    def __init__(self) -> None:
        self._left: dict[tuple[NodeId, int], tuple[float, int]] = {}
        self._floods: dict[NodeId, _Flood] = {}

    def __len__(self) -> int:
        return len(self._left) + len(self._floods)

    def hears(self, member: NodeId, message: Message, now_ns: int) -> bool:
        """Whether this message of a member is looked at."""
        kind = _ASKED if isinstance(message, QUESTIONS) else _ACCUSED if isinstance(message, Accusation) else _PROBED
        return self._has_left((member, _REFUSED), now_ns) and self._has_left((member, kind), now_ns)

    def answers(self, member: NodeId, message: Message, now_ns: int) -> bool:
        """Whether a question of a member is answered; what is no question is."""
        return not isinstance(message, QUESTIONS) or self._has_left((member, _ANSWERED), now_ns)

    def hears_sub(self, member: NodeId, now_ns: int) -> bool:
        """Whether a sub-protocol hears this member: not while too much of what it said there did not hold."""
        return self._has_left((member, _SUB_REFUSED), now_ns)

    def spend_sub(self, member: NodeId, effects: Sequence[SubEffect], checks: int, now_ns: int) -> None:
        """A sub-protocol has looked at a message; what it refused is counted apart from membership's.

        Args:
            member: Whose the message was.
            effects: What came of it.
            checks: Signatures checked for it.
            now_ns: The time.
        """
        if effects and any(isinstance(one, Rejected) for one in effects):
            self._take((member, _SUB_REFUSED), checks or _REFUSAL_UNCHECKED, now_ns)

    def _has_left(self, key: tuple[NodeId, int], now_ns: int) -> bool:
        held = self._left.get(key)
        # An account only fills by itself: what was above zero when last looked at still is.
        return held is None or held[0] > 0 or self._left_of(key, now_ns) > 0

    def spend(
        self, member: NodeId, message: Message, effects: Sequence[Effect], checks: int, now_ns: int, *, brought: bool
    ) -> None:
        """A message was looked at.

        Args:
            member: Whose it was.
            message: The message.
            effects: What came of it.
            checks: Signatures checked for it.
            now_ns: The time.
            brought: It brought news of trust.
        """
        if effects and any(isinstance(one, Rejected) for one in effects):
            self._take((member, _REFUSED), checks or _REFUSAL_UNCHECKED, now_ns)
        if isinstance(message, QUESTIONS):
            answers = sum(len(one.data) * copies(one.destination) for one in effects if isinstance(one, SendDatagram))
            answers += sum(len(one.data) for one in effects if isinstance(one, SendStream))
            self._take((member, _ASKED), 1, now_ns)
            if answers:
                self._take((member, _ANSWERED), answers, now_ns)
        elif isinstance(message, Accusation):
            self._take((member, _ACCUSED), 1, now_ns)
        elif isinstance(message, _PROBES) and not brought:
            self._take((member, _PROBED), 1, now_ns)

    def flooded(self, member: NodeId, name: str, what: str, now_ns: int) -> Alarm | None:
        """A message of a member was not heard; an alarm that names it, once a minute at most.

        Args:
            member: Whose it was.
            name: Its name, for people.
            what: What was not heard.
            now_ns: The time.
        """
        flood = self._floods.pop(member, None) or _Flood()
        if len(self._floods) >= _MEMBERS_MAX:
            del self._floods[next(iter(self._floods))]
        self._floods[member] = flood
        if not flood.count:
            flood.since_ns = now_ns
        flood.count += 1
        if now_ns - flood.named_ns < _NAMED_GAP_NS:
            return None
        count, seconds = flood.count, (now_ns - flood.since_ns) / _S
        flood.named_ns, flood.count = now_ns, 0
        return Alarm(
            "member-flood",
            f"member {name!r} ({member.hex()}) says more to this node's membership than one member may: {what}, in a "
            f"frame that it sealed; {count} such in {seconds:.0f} s; revoke it if it goes on",
        )

    def _take(self, key: tuple[NodeId, int], cost: float, now_ns: int) -> None:
        left = self._left_of(key, now_ns) - cost
        self._left.pop(key, None)
        if len(self._left) >= _ACCOUNTS_MAX:
            del self._left[next(iter(self._left))]
        self._left[key] = left, now_ns

    def _left_of(self, key: tuple[NodeId, int], now_ns: int) -> float:
        per_s, burst = _RATES[key[1]]
        held = self._left.get(key)
        return float(burst) if held is None else min(float(burst), held[0] + (now_ns - held[1]) * per_s / _S)
