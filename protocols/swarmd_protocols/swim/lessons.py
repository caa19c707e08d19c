"""What a node that is alone may have missed: whoever greets in vain is shown the statements that may be why.

A node that was off while keys were replaced cannot verify those that were enrolled or renewed since, or its own
certificate counts no more; and one that was revoked meanwhile greets for ever. None of them would hear a word, since
statements travel between members. So a greeting is answered with one signed statement more: the roots after the first
in order, then who shut the greeter out, or its newest certificate; one a greeting, from the beginning again after the
last. Whoever is shown one believes its signatures and nothing else, so anybody may show it.

    hello (its certificate does not hold here) ─▶ statement         from the first greeting on
    hello (answered before, and it greets again) ─▶ statement       it cannot verify this node
"""

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.messages import Statement

GREETED_IN_VAIN = 2
"""Greetings of an accepted node that are answered without a lesson: the first, and one more where a frame was lost."""
_ADDRESSES_MAX = 1_024
"""Addresses whose greetings are counted, as many as `contact.py` remembers; the oldest is forgotten first."""
_LESSONS_PER_S, _LESSONS_BURST = 4, 16
"""Statements shown to strangers per second, and as a burst: one that does not fit a datagram opens a connection, so
that holders of a group key can make this node open no more than these."""


class Lessons:
    """Counts greetings, and chooses what is shown."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._greeted: dict[Address, int] = {}
        self._bucket = TokenBucket(_LESSONS_PER_S, _LESSONS_BURST)

    def on_greeting(self, source: Address, group: int, node: NodeId, *, accepted: bool) -> None:
        """A node asks for this node's record.

        Args:
            source: Where it is.
            group: Counter of the group key that it holds.
            node: The id in its record.
            accepted: Whether its record was taken.
        """
        core = self.core
        found = core.trust.lessons(node)
        if not found:
            return
        count = self._greeted.pop(source, 0)
        if len(self._greeted) >= _ADDRESSES_MAX:
            del self._greeted[next(iter(self._greeted))]
        self._greeted[source] = count + 1
        at = count - GREETED_IN_VAIN if accepted else count
        if at < 0:
            return
        if not self._bucket.take(core.now_ns):
            core.counters["lessons_over_rate"] += 1
            return
        core.counters["lessons"] += 1
        core.port.show(source, group, encode(Statement(*found[at % len(found)])))
