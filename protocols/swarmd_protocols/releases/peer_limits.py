"""What one peer may cost in each exchange: signatures to check, answers, words about files that bring nothing.

An honest peer meets none of these; who is beyond one is not listened to for a while and named in an alarm. What was
dropped comes again with the repair once a second.
"""

from collections.abc import Sequence

from swarmd_protocols.effects import Alarm, Rejected
from swarmd_protocols.ids import NodeId, short
from swarmd_protocols.releases.allowance import MAX_PEERS, Allowance, Seldom
from swarmd_protocols.subprotocol import Send, SubEffect

CHECKS_PER_S, CHECKS_BURST = 400, 4_096
"""Units of checking that one peer may cost (a report is one: one Ed25519 verification, 50 us): 2 % of a core, and all
that a newcomer to a swarm of a thousand has to catch up with at once."""
ANSWER_BYTES_PER_S, ANSWER_BYTES_BURST = 64 << 10, 1 << 20
"""Bytes that one peer's questions may be answered with; the burst is the whole catalogue of a thousand nodes."""
QUESTIONS_PER_S, QUESTIONS_BURST = 2, 8
"""Questions of one peer that are answered: an honest one compares once a second, and asks for what it then lacks."""
STATEMENTS_MUTE_NS = 1_000_000_000
"""A peer that is beyond that is not listened to for so long: what it sends is not even decoded."""
_ALARM_EVERY_NS = 60_000_000_000
"""A peer that costs too much is named once in so long."""
_MAX_NAMED = 64
"""Peers of whom it is remembered when they were named."""
USELESS_PER_S, USELESS_BURST = 50, 500
"""Messages about files that brought nothing, for each peer. An honest one repeats what may have been lost, four times a
second and file at most, and less with time."""
FILES_MUTE_NS = 10_000_000_000
"""A peer that is beyond that is not listened to about files for so long."""
NOTE_EVERY_NS = 200_000_000
"""A caster is told what is missing once in so long; it waits longer than that for the answers of a round."""
LIST_EVERY_NS = 1_000_000_000
"""A peer gets the list of a file's chunks once in so long: 20 bytes ask for up to 128 KiB."""


class Muted:
    """Peers that are not listened to for a while; the longest known goes first when there are too many.

    Args:
        for_ns: How long.
    """

    def __init__(self, for_ns: int) -> None:
        self._for_ns = for_ns
        self._until_ns: dict[NodeId, int] = {}

    def add(self, peer: NodeId, now_ns: int) -> None:
        """Not listened to from now on."""
        if len(self._until_ns) >= MAX_PEERS:
            del self._until_ns[next(iter(self._until_ns))]
        self._until_ns[peer] = now_ns + self._for_ns

    def has(self, peer: NodeId, now_ns: int) -> bool:
        """Whether its time is not over."""
        return self._until_ns.get(peer, now_ns) > now_ns


class StatementLimits:
    """What a peer's statements and questions about statements may cost."""

    def __init__(self) -> None:
        self._checks = Allowance(CHECKS_PER_S, CHECKS_BURST)
        self._questions = Allowance(QUESTIONS_PER_S, QUESTIONS_BURST)
        self._answers = Allowance(ANSWER_BYTES_PER_S, ANSWER_BYTES_BURST)
        self._named = Seldom(_ALARM_EVERY_NS, _MAX_NAMED)
        self._muted = Muted(STATEMENTS_MUTE_NS)

    def is_muted(self, peer: NodeId, now_ns: int) -> bool:
        """Whether nothing is heard of it at the moment."""
        return self._muted.has(peer, now_ns)

    def may_ask(self, peer: NodeId, now_ns: int) -> bool:
        """Whether its question is answered."""
        return self._questions.take(peer, 1, now_ns)

    def may_cost(self, peer: NodeId, units: int, now_ns: int) -> bool:
        """Whether so much more of what it sent is checked."""
        return self._checks.take(peer, units, now_ns)

    def within_answers(self, peer: NodeId, sends: Sequence[Send], now_ns: int) -> list[SubEffect]:
        """As many answers as the peer's allowance pays for."""
        for count, send in enumerate(sends):
            if not self._answers.take(peer, len(send.payload), now_ns):
                return [*sends[:count], *self.mute(peer, "asks for more than it may be sent", now_ns)]
        return list(sends)

    def mute(self, peer: NodeId, what: str, now_ns: int) -> list[SubEffect]:
        """Listen no more for a moment to who costs too much, and say who it is, once a minute each."""
        self._muted.add(peer, now_ns)
        effects: list[SubEffect] = [Rejected(short(peer), what)]
        if not self._named.is_due(peer, now_ns):
            return effects
        return [*effects, Alarm("release-flood", f"member {short(peer)} {what}; the rest is dropped")]


class FileLimits:
    """What a peer's words about files may cost."""

    def __init__(self) -> None:
        self._useless = Allowance(USELESS_PER_S, USELESS_BURST)
        self._muted = Muted(FILES_MUTE_NS)
        self._listed = Seldom(LIST_EVERY_NS, MAX_PEERS)
        self._noted = Seldom(NOTE_EVERY_NS, MAX_PEERS)

    def is_muted(self, peer: NodeId, now_ns: int) -> bool:
        """Whether nothing is heard of it about files at the moment."""
        return self._muted.has(peer, now_ns)

    def mute(self, peer: NodeId, now_ns: int) -> None:
        """Hear nothing of it about files for a while."""
        self._muted.add(peer, now_ns)

    def after_useless(self, peer: NodeId, count: int, now_ns: int) -> list[SubEffect]:
        """So many words brought nothing: nothing happens, or the peer is muted and named."""
        if self._useless.take(peer, count, now_ns):
            return []
        self.mute(peer, now_ns)
        seconds = FILES_MUTE_NS // 10**9
        text = f"member {short(peer)} floods the exchange of files; not heard about them for {seconds} s"
        return [Rejected(short(peer), "floods the exchange of files"), Alarm("release-flood", text)]

    def may_have_list(self, tag: bytes, peer: NodeId, now_ns: int) -> bool:
        """Whether it gets the list of a file's chunks, and not a moment after the last time."""
        return self._listed.is_due((tag, peer), now_ns)

    def may_end_round(self, tag: bytes, peer: NodeId, now_ns: int) -> bool:
        """Whether a caster that has ended a round is told what is missing."""
        return self._noted.is_due((tag, peer), now_ns)
