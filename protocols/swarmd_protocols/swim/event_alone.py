"""What this node says before it has met anybody in this life: numbered anew once its life is known.

A node whose journal was lost does not know how many lives it has had, and numbers its events as if this were the first.
Whoever knew an earlier one takes these numbers for what was delivered long ago. The first whose word this node can read
knows this life, and has shown it every later record of its own that it holds: the boot number is above these by then.

What earlier lives said and the journal has kept may be held by nobody else, and the first event of a life follows
whatever its origin has said before: so it is not pushed, and comparison brings all in order, until somebody shows that
it has heard what was said last, or for a while.
"""

import msgspec

from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_claims import PATIENCE_NS
from swarmd_protocols.swim.event_ledgers import EventLedger
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.event_shelf import EventShelf
from swarmd_protocols.swim.messages import CertifiedEvent, EventBody, SignedEvent
from swarmd_protocols.swim.rules import BOOT_SHIFT

_BODY = msgspec.msgpack.Decoder(EventBody)
_KEPT: msgspec.msgpack.Decoder[SignedEvent | CertifiedEvent] = msgspec.msgpack.Decoder(SignedEvent | CertifiedEvent)


class Alone:
    """Own events that were said to nobody; as many of them are told as the log keeps."""

    def __init__(self, core: Core, shelf: EventShelf) -> None:
        self.core = core
        self._shelf = shelf
        self._first = 0
        self.is_over = False
        """Whether this node has met anybody in this life."""
        self.is_founder = False
        """Whether it has nobody to look for: whoever comes is not told what was said before."""
        self._earlier = self._met_ns = 0
        """The last event of earlier lives that is kept and nobody is known to have heard; when somebody was met."""

    def say(self, sequence: int) -> None:
        """An event is said; it counts until somebody was met."""
        if not self.is_over:
            self._first = self._first or sequence

    def holds(self, origin: bytes) -> bool:
        """Whether events of this origin are held back, since their numbers may be forgotten ones."""
        return self._first > 0 and not self.is_founder and origin == self.core.own.node

    def keeps(self, origin: bytes, sequence: int) -> None:
        """An event that an earlier life delivered is kept again."""
        if origin == self.core.own.node and sequence >> BOOT_SHIFT < self.core.own.boot:
            self._earlier = max(self._earlier, sequence)

    def heard(self, sequence: int) -> None:
        """Somebody has heard this node up to here."""
        if sequence >= self._earlier:
            self._earlier = 0

    def waits(self, origin: bytes) -> bool:
        """Whether events of this origin are not pushed: held back, or earlier ones of it have to come first."""
        if origin != self.core.own.node or not self._earlier:
            return self.holds(origin)
        return not self.is_over or self.core.now_ns < self._met_ns + PATIENCE_NS

    def met(self, log: EventLog, ledger: EventLedger) -> list[tuple[int, bytes]]:
        """Somebody knows this life: what was numbered as a forgotten one did is numbered anew.

        Args:
            log: This node's own events.
            ledger: Says in which form they are kept.

        Returns:
            What is to be told of what was said alone: sequence, encoded message; in order.
        """
        core, own = self.core, self.core.own
        first, self._first, self.is_over, self._met_ns = self._first, 0, True, core.now_ns
        start = (own.boot << BOOT_SHIFT) + 1
        if first == 0 or first >= start:
            return [] if first == 0 or self.is_founder else log.after(first - 1)

        def anew(encoded: bytes, sequence: int) -> bytes:
            said = decode_body(_BODY, _KEPT.decode(encoded).body)
            body = encode(EventBody(own.node, sequence, said.name, said.payload))
            return ledger.encoded(own.certificate, SignedEvent(body, core.sign("event", body)))

        before = [sequence for sequence, _ in log.after(first - 1)]
        log.number_anew(first, start, anew)
        told = log.after(start - 1)
        for sequence, encoded in told:
            self._shelf.put(own.node, sequence, encoded)
        self._shelf.write()
        for sequence in before:
            core.queue.drop(("event", own.node, sequence))
            self._shelf.remove(own.node, sequence)
        ledger.mark(own.node, log)
        return told
