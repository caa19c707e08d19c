"""A member that says more of itself than anybody asked for: newer records, link reports, metadata, events, without end.

It is a whole member, so that it answers, and is believed; every word is signed and newer than the one before.
"""

import time
from collections.abc import Callable

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Effect, Event, SendStream, StreamReceived, TimerFired
from swarmd_protocols.reader import NEXT_NS
from swarmd_protocols.swim.messages import (
    Alive,
    AliveBody,
    EventBody,
    Links,
    LinksBody,
    Message,
    MetaBody,
    MetaEntry,
    SignedEvent,
)
from tests.support.swim_net import TICK, Host, Net

MOST = 2**63 - 1
"""The largest number that travels: a record, report, value or event that claims it is the last of its kind."""
_ROOM_BYTES = 1_000_000
"""Words in one frame."""


class Chatter:
    """Says words of one host of a network to the others, in frames of its own sessions."""

    def __init__(self, net: Net, index: int) -> None:
        self.net = net
        self.host = net.hosts[index]
        self.core = self.host.node._core
        self.number = self.core.own.incarnation
        self.most_checks = 0
        """Signatures that a host checked of what it was told at one time, in however many slices, at most."""
        self.longest_s = 0.0
        """Processor time of one event of a host, at most."""
        self.kinds: dict[str, Callable[[int], Message]] = {
            "record": lambda number: self.record(number),
            "moved": lambda number: self.record(number, address=f"10.77.{number % 250}.7:{1 + number % 60_000}"),
            "away": lambda number: self.record(number, status=2, away_s=number % 31_000_000),
            "left": lambda number: self.record(number, status=1),
            "born": lambda number: self.record(min(number << 20, MOST), session=number.to_bytes(32, "big")),
            "links": self.links,
            "one key": lambda number: self.meta(number, "k"),
            "many keys": lambda number: self.meta(number, f"k{number}"),
            "large keys": lambda number: self.meta(number, f"k{number}", bytes(900)),
            "sized keys": lambda number: self.meta(number, f"k{number}", bytes(900 * (number % 70))),
            "event": lambda number: self.event(number, b"p" * 100),
            "large event": lambda number: self.event(number, b"p" * 900),
        }

    def _signed(self, kind: str, body: object) -> tuple[bytes, bytes]:
        raw = encode(body)
        return raw, self.core.sign(kind, raw)

    def record(self, number: int, **changes: object) -> Alive:
        """A newer record; its session stays as it is, unless it is changed."""
        own = self.core.own
        fields: dict[str, object] = {
            "node": own.node,
            "incarnation": number,
            "status": 0,
            "away_s": 0,
            "address": own.address,
            "session": own.session_public,
            "version": "",
            "capability": "",
        }
        return Alive(*self._signed("alive", AliveBody(**(fields | changes))))  # type: ignore[arg-type]

    def links(self, number: int) -> Links:
        """A newer link report: deaf to one of two members in turn, which is what others pass on at once."""
        deaf = ((self.net.hosts[number % 2].node.node, 3),)
        return Links(*self._signed("links", LinksBody(self.core.own.node, number, deaf)))

    def meta(self, number: int, key: str, padding: bytes = b"") -> MetaEntry:
        """A newer value of a metadata key."""
        return MetaEntry(*self._signed("meta", MetaBody(self.core.own.node, number, key, b"%d" % number + padding)))

    def event(self, number: int, payload: bytes) -> SignedEvent:
        """A user event."""
        return SignedEvent(*self._signed("event", EventBody(self.core.own.node, number, "x", payload)))

    def words(self, kind: str, count: int, step: int = 1) -> list[Message]:
        """So many words of a kind, each newer than whatever was said before."""
        made = []
        for _ in range(count):
            self.number = min(MOST, self.number + step)
            made.append(self.kinds[kind](self.number))
        return made

    def tell(self, host: Host, words: list[Message]) -> list[Effect]:
        """Give a host all of these in as few sealed frames as hold them; returns what came of it, carried out too."""
        wire = self.host.node._wire
        self.core.now_ns = self.net.now
        wire.effects = []
        member = self.core.table.by_node[host.node.node]
        part: list[bytes] = []
        for encoded in map(encode, words):
            if sum(map(len, part)) + len(encoded) > _ROOM_BYTES:
                wire.stream(member, part)
                part = []
            part.append(encoded)
        wire.stream(member, part)
        frames = [effect.data for effect in wire.effects if isinstance(effect, SendStream)]
        effects: list[Effect] = []
        checks = self.net.crypto.checks
        for frame in frames:
            now_ns = self.net.now
            effects += self._event(host, StreamReceived(self.core.own.address, frame), now_ns)
            while host.node._reader.waiting_bytes:
                now_ns += NEXT_NS
                effects += self._event(host, TimerFired(TICK), now_ns)
        self.most_checks = max(self.most_checks, self.net.crypto.checks - checks)
        self.net.perform(host, effects)
        return effects

    def _event(self, host: Host, event: Event, now_ns: int) -> list[Effect]:
        began_s = time.process_time()
        effects = host.node.handle(event, now_ns)
        self.longest_s = max(self.longest_s, time.process_time() - began_s)
        return effects
