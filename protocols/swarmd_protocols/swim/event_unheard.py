"""What this node said and nobody is known to have heard: it goes out again with the next event that it says. Pure.

Who lacks an event asks for it; but a node that hears nothing is asked in vain, and what it said while nobody heard it
would be given up as soon as a later event shows the gap.
"""

UNHEARD_NS = 3_000_000_000
"""An event of which no word came back for so long, nanoseconds, is said again: three probes, each with a digest."""
UNHEARD_MAX = 16
"""The latest of them that are: what a node says in a minute at one in four seconds, in datagrams of at most 1 kB."""


class Unheard:
    """Own events without a word that somebody has them; bounded."""

    def __init__(self) -> None:
        self._said_ns: dict[int, int] = {}
        """By sequence: when it was said last."""

    def say(self, sequence: int, now_ns: int) -> list[int]:
        """An event is said.

        Args:
            sequence: Its number.
            now_ns: The time.

        Returns:
            Those to say again before it, in order.
        """
        again = [older for older, said_ns in self._said_ns.items() if now_ns - said_ns >= UNHEARD_NS]
        self._said_ns[sequence] = now_ns
        while len(self._said_ns) > UNHEARD_MAX:
            del self._said_ns[next(iter(self._said_ns))]
        kept = [older for older in again if older in self._said_ns]
        self._said_ns |= dict.fromkeys(kept, now_ns)
        return kept

    def heard(self, first: int, last: int) -> None:
        """Somebody has these."""
        if self._said_ns:
            self._said_ns = {one: said_ns for one, said_ns in self._said_ns.items() if not first <= one <= last}
