"""What a gateway passes on of a neighbour's introductions: so much of each of the neighbour's gateways.

Rules this file keeps:

- Each of the neighbour's gateways has an equal part of what members hear, and a reserve: one that varies its
  introduction all the time, a stolen one, uses up its own part and delays no other's, nor its own revocation in it.
- Only what a certified key has signed is charged to it: whoever writes under another's key takes nothing of its part.
- Of `KEYS_MAX` keys it is known what they have left. One more takes the place, and what is left, of the one that has
  most: keys that come and go have no reserve anew, and all of them together `KEYS_MAX` parts at most.
"""

from swarmd_protocols.federation.allowance import Allowance
from swarmd_protocols.neighbours.hearing import GATEWAYS_MAX

NEWS_BYTES_S, NEWS_BURST_BYTES = 1_024, 131_072
"""What is passed on of one neighbour's introductions, as many gateways of it as are known at once: each member gets
them all."""
KEYS_MAX = 16
"""Keys of one neighbour's gateways: four times those that are known at once, each certified by its officers."""


class News:
    """Of one neighbour, at one member."""

    def __init__(self) -> None:
        self._left: dict[bytes, Allowance] = {}

    def pause_ms(self, public: bytes, now_ns: int) -> int:
        """Milliseconds until something of this key's is passed on again; 0 where it is now."""
        held = self._left.get(public)
        return 0 if held is None else held.pause_ms(now_ns)

    def spend(self, public: bytes, count: int, now_ns: int) -> None:
        """So many bytes that this key has signed are passed on."""
        held = self._left.get(public)
        if held is None:
            held = Allowance(NEWS_BYTES_S // GATEWAYS_MAX, NEWS_BURST_BYTES // GATEWAYS_MAX)
            if len(self._left) >= KEYS_MAX:
                for one in self._left.values():
                    one.pause_ms(now_ns)
                held = self._left.pop(max(self._left, key=lambda one: (self._left[one].left_bytes, one)))
            self._left[public] = held
        held.pause_ms(now_ns)
        held.spend(count)
