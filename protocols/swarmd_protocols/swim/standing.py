"""How far the accusations of a member are heard: whoever is refuted again and again is heard less and less.

Every accusation that direct evidence refutes soon after it was taken adds one **doubt** to its accuser; doubts fade
by half a minute. With few doubts a member is heard in full. With more, its word alone makes nobody suspect: the node
looks for itself, ever more seldom the more doubts there are.

- Direct evidence is an answer to an own ping, or a newer record of the accused, signed by it. Evidence that comes much
  later says nothing about the accuser: what was cut off and is back was rightly accused.
- Nothing is held against the accused, and nobody is shut out: a member that stops accusing wrongly is heard in full
  again after some minutes, and what it reports meanwhile is found by the others' own probes.
"""

from math import inf

from swarmd_protocols.swim.config import SwimConfig

_S = 1_000_000_000
SOON_NS = 3 * _S
"""Evidence refutes an accusation that was taken at most so long before, nanoseconds: a refutation travels in under a
second also at 30 % loss (Lifeguard's shortest suspicion timeout is of that size), a partition lasts longer."""
FREE_DOUBTS = 3.0
"""So many doubts are forgiven: at 30 % loss an honest member is refuted less than once a minute."""
_DOUBTS_MAX = 16.0
"""Doubts held at most, so that the worst accuser is heard in full again within some 75 s of its last wrong word."""
_REFUTED_GAP_MAX_NS = 1 * _S
"""The worst accuser is refuted so long after the last refutation at the earliest, nanoseconds: whoever believes it has
an answer within its longest suspicion timeout."""
_HALF_LIFE_NS = 30 * _S
"""Doubts fade by half in this time, nanoseconds; two refuted accusations a minute are forgiven for ever."""
_ACCUSERS_MAX = 512
"""Accusers remembered; the one heard longest ago is forgotten first."""
_HEALTH_GAP_NS = 60 * _S
"""One accuser's refutations count once in this time for one's own health, nanoseconds (Lifeguard counts each; but one
stolen key could then keep every node at its slowest)."""

_SPOILED_NS = 1 * _S
"""For so long nothing is verified that a member passes on after a forgery, nanoseconds: honest members verify what
they pass on, so this bounds the work of forgeries to one signature check a second and sender."""
_BURST_MAX = 136.0
"""Accusations of one accuser that are verified at once, of however many members: with 75 microseconds a check they take
10 ms of a frame. An honest one comes to as many in half a minute, at four probes a second."""
_TOLD_GAP_NS = 100_000_000
"""One member that passes on what was long refuted is told of the newer record at most so often, nanoseconds: what it
says meanwhile was said before that record came."""


class _Accuser:
    """What is known of one accuser."""

    __slots__ = ("doubts", "doubts_ns", "health_ns", "spoiled_ns", "tokens", "tokens_ns", "told_ns")

    def __init__(self, tokens: float, now_ns: int) -> None:
        self.doubts = 0.0
        self.doubts_ns = now_ns
        self.tokens = tokens
        self.tokens_ns = now_ns
        self.health_ns = -(2**62)
        self.spoiled_ns = -(2**62)
        self.told_ns = -(2**62)


class Standing:
    """Doubts and allowances of all accusers; bounded."""

    def __init__(self, config: SwimConfig) -> None:
        self._per_ns = config.accusations_per_s / _S
        self._accusers: dict[bytes, _Accuser] = {}

    def __len__(self) -> int:
        return len(self._accusers)

    def _accuser(self, node: bytes, burst: float, now_ns: int) -> _Accuser:
        accuser = self._accusers.pop(node, None)
        if accuser is None:
            accuser = _Accuser(burst, now_ns)
            if len(self._accusers) >= _ACCUSERS_MAX:
                del self._accusers[next(iter(self._accusers))]
        self._accusers[node] = accuser
        faded = 0.5 ** ((now_ns - accuser.doubts_ns) / _HALF_LIFE_NS)
        accuser.doubts *= faded
        accuser.doubts_ns = now_ns
        return accuser

    def may_speak(self, node: bytes, members: int, now_ns: int) -> bool:
        """Whether one more accusation of this accuser is looked at; asking costs nothing.

        Args:
            node: The accuser.
            members: Members known: whoever finds half a swarm gone accuses many at once.
            now_ns: The time.
        """
        burst = min(_BURST_MAX, 2.0 * members + 16)
        accuser = self._accuser(node, burst, now_ns)
        beyond = accuser.doubts - FREE_DOUBTS
        rate = self._per_ns
        if beyond > 0:
            rate *= 0.5**beyond
            burst = 1.0
        accuser.tokens = min(burst, accuser.tokens + (now_ns - accuser.tokens_ns) * rate)
        accuser.tokens_ns = now_ns
        return accuser.tokens >= 1

    def spend(self, node: bytes) -> None:
        """An accusation of its was looked at."""
        accuser = self._accusers.get(node)
        if accuser is not None:
            accuser.tokens -= 1

    def doubted(self, node: bytes, now_ns: int) -> bool:
        """Whether this accuser's word alone convinces nobody at present."""
        return node in self._accusers and self._accuser(node, 0.0, now_ns).doubts > FREE_DOUBTS

    def refuted_after_ns(self, node: bytes, least_ns: int, now_ns: int) -> int:
        """How long after its last refutation this node refutes this accuser, nanoseconds.

        Twice as long with each doubt: who hears an accuser for the first time believes it, while the accused have
        refuted it often, and waits for each answer in doubt.

        Args:
            node: The accuser.
            least_ns: For one that is heard in full.
            now_ns: The time.
        """
        doubts = self._accuser(node, 1.0, now_ns).doubts
        return min(_REFUTED_GAP_MAX_NS, int(least_ns * 2.0 ** max(0.0, doubts - FREE_DOUBTS)))

    def refuted(self, node: bytes, now_ns: int) -> None:
        """Direct evidence spoke against what this accuser said a moment ago."""
        accuser = self._accuser(node, 1.0, now_ns)
        accuser.doubts = min(_DOUBTS_MAX, accuser.doubts + 1)

    def counts_for_health(self, node: bytes, now_ns: int) -> bool:
        """Whether having to refute this accuser says something about one's own health: once a minute."""
        accuser = self._accuser(node, 1.0, now_ns)
        if now_ns - accuser.health_ns < _HEALTH_GAP_NS:
            return False
        accuser.health_ns = now_ns
        return True

    def spoiled(self, node: bytes, now_ns: int) -> None:
        """It passed on an accusation that nobody signed."""
        self._accuser(node, 1.0, now_ns).spoiled_ns = now_ns

    def may_relay(self, node: bytes, now_ns: int) -> bool:
        """Whether what this member passes on is verified: a second after it passed on a forgery, no."""
        accuser = self._accusers.get(node)
        return accuser is None or now_ns - accuser.spoiled_ns >= _SPOILED_NS

    def may_tell(self, node: bytes, now_ns: int) -> bool:
        """Whether this member is told once more that what it passes on was refuted; it counts as told if so."""
        accuser = self._accuser(node, inf, now_ns)  # It has accused nobody yet: its allowance is whole.
        if now_ns - accuser.told_ns < _TOLD_GAP_NS:
            return False
        accuser.told_ns = now_ns
        return True
