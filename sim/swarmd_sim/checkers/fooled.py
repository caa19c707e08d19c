"""Whom a thief's word made leave a release: what stolen keys say is their role's word to a node, until it hears better.

A node that takes a floor or a revocation which the publisher did not sign, before it has heard of the root that
replaced the keys, leaves what it runs, as it must; when it hears of that root the word falls, and the node goes back.
"""

from swarmd_sim.run.officers import Officers
from swarmd_sim.run.releases import ForeignWord

BACK_NS = 5_000_000_000
"""Within this after it has heard of the root a node runs again what it left: it leaves, waits a turn, and swaps."""


class Fooled:
    """See the module.

    Args:
        officers: Who replaces keys.
        words: What nodes took that the publisher did not sign; read where it stands.
    """

    def __init__(self, officers: Officers, words: set[ForeignWord]) -> None:
        self._officers = officers
        self._words = words
        self._fell_ns: dict[ForeignWord, int] = {}

    def on_step(self, host: int, roots: int, now_ns: int) -> None:
        """About once a second, of every host that lives.

        Args:
            host: Its number.
            roots: How many it has heard of.
            now_ns: Virtual time.
        """
        for word in self._words:
            falls_at = self._officers.falls_at(word.role, word.roots)
            if word.host == host and falls_at is not None and roots >= falls_at:
                self._fell_ns.setdefault(word, now_ns)

    def is_excused(self, host: int, now_ns: int) -> bool:
        """Whether a host has not heard, or only just, that what a thief told it counts no more."""
        return any(
            word.host == host
            and self._officers.falls_at(word.role, word.roots) is not None
            and now_ns - self._fell_ns.get(word, now_ns) <= BACK_NS
            for word in self._words
        )
