"""First contacts: who is answered, how often, and what strangers cost. No I/O, no clocks.

    notice     kind 1B · tag 4B · counter 4B · MAC 16B                              25 B
    cookie     kind 1B · start of the hello's nonce 8B · cookie 16B · MAC 16B       41 B
    contact    kind 1B · cookie 16B · a group frame                                 17 B more than the hello

    ping that does not open ─▶ notice ─▶ hello                              the asker shows its record
    hello ─▶ hello                                                          at rest
    hello ─▶ cookie ─▶ contact (the same hello) ─▶ hello                    under load

Rules that this file keeps:

- A stranger is answered with no more bytes than it sent: a notice is as long as the shortest pair frame, a cookie is
  shorter than the shortest group frame. The full answer goes to holders of the group key alone; under load, only to
  the address that returned its cookie.
- Nothing is remembered of an address that has proven nothing. A cookie is a MAC of the address under a secret of this
  boot, so it is checked, not looked up.
- What is unproven, what is proven, and what this node begins itself spend from buckets of their own.
- A group frame opens once: a recorded one that is played again is dropped before it is opened.
- Who has the newest group key may be the only one: of what it says first to an address whose key it does not know every
  third hello and every other notice goes under one before. What a hello says is no secret of a key's.

Source:
    Donenfeld, "WireGuard: Next Generation Kernel Network Tunnel" (NDSS 2017), section 5.3 (cookies under load).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.channel import CONTACT, CONTACT_OVERHEAD_BYTES, Channel
from swarmd_protocols.channel.codec import DATAGRAM_MAX_BYTES, join
from swarmd_protocols.ids import Address

_K = TypeVar("_K")
_V = TypeVar("_V")
_S = 1_000_000_000
_MS = 1_000_000
_HELLO_GAP_NS = 200 * _MS
"""Shortest time between two hellos to one address, nanoseconds: a first contact is repeated every 300 ms."""
_ADDRESSES_MAX = 1_024
"""Addresses whose last hello, notice or cookie is remembered; the oldest is forgotten first."""
_OWN_PER_S = 200
"""Hellos begun by this node, per second and as a burst: 140 kB/s, what a seed spends while a fleet starts at once."""
_UNPROVEN_PER_S = 200
"""Hellos taken per second without a cookie, and as a burst. Each may cost a signature check (0.1 ms on a small
board), so at most 2 % of a core; joins at rest stay far below, and a fleet that starts at once gets cookies."""
_PROVEN_PER_S = 400
"""Hellos taken per second from addresses that returned their cookie, and as a burst; at most 4 % of a core."""
_COOKIES_PER_S = 2_000
"""Cookies given per second, and as a burst: each costs some 20 microseconds and 41 bytes."""
_NOTICES_PER_S = 100
"""Notices given per second to addresses of no member, and as a burst; a newcomer does not depend on them."""
_REPORTS_PER_S, _REPORTS_BURST = 10, 50
"""Refused frames reported one by one, per second; all are counted."""
_NONCES_MAX = 2_048
"""Nonces of opened group frames remembered in each of two generations: 10 s of hellos at the highest rates taken."""
_COOKIE_NS = 60 * _S
"""How long a cookie's secret is used; it is accepted for as long again. WireGuard takes two minutes in all too."""
_TURNS = 3
"""Of so many hellos to an address one goes under a group key before the newest."""
_COUNTERS_BACK = 64
"""A notice speaks of one of the last so many frames to its sender, or it is not believed: the replay window's width."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A hello that may be processed."""

    group: int
    """Counter of the group key that the sender holds."""
    body: bytes


@dataclass(frozen=True, slots=True)
class _Hello:
    """What was last said to an address, in case it asks for a cookie."""

    nonce: bytes
    parts: tuple[bytes, ...]
    group: int | None
    turn: int = 0
    """How many hellos went there before, while it was remembered."""


class Contacts:
    """Decides which first contacts are sent, taken and answered."""

    def __init__(self, channel: Channel, counters: "Counter[str]") -> None:
        self._channel = channel
        self._counters = counters
        self._own = TokenBucket(_OWN_PER_S, _OWN_PER_S)
        self._unproven = TokenBucket(_UNPROVEN_PER_S, _UNPROVEN_PER_S)
        self._proven = TokenBucket(_PROVEN_PER_S, _PROVEN_PER_S)
        self._cookie_bucket = TokenBucket(_COOKIES_PER_S, _COOKIES_PER_S)
        self._notice_bucket = TokenBucket(_NOTICES_PER_S, _NOTICES_PER_S)
        self._reports = TokenBucket(_REPORTS_PER_S, _REPORTS_BURST)
        self._hello_sent_ns: dict[tuple[Address, bool, bool], int] = {}
        self._noticed: dict[Address, tuple[int, int]] = {}
        """When an address was last told that its frame does not open, and how often it has been."""
        self._groups: dict[Address, int] = {}
        """Counter of the group key of the last hello from an address: who was off while keys changed reads no newer."""
        self._said: dict[Address, _Hello] = {}
        self._cookies: dict[Address, tuple[bytes, int]] = {}
        """Cookies that others gave this node, and when."""
        self._nonces: dict[bytes, None] = {}
        self._nonces_before: dict[bytes, None] = {}

    # --- out ---------------------------------------------------------------------------------------------------------

    def hello(
        self, address: Address, parts: Sequence[bytes], group: int | None, now_ns: int, *, extra: bytes, paid: bool
    ) -> bytes | None:
        """The frame of a hello, or None where the address or this node has had its share.

        Args:
            address: Whom it goes to.
            parts: Own record and hello, encoded.
            group: Counter of the group key that the other side is known to hold; the newest where None.
            now_ns: The time.
            extra: One more message, or b"".
            paid: It answers a hello that was taken, and so was paid for.
        """
        # An answer does not wait for the greeting before it, which came before the other was there; nor does one that
        # tells a node its later life.
        hello_key = (address, bool(extra), paid)
        last_ns = self._hello_sent_ns.get(hello_key)
        if last_ns is not None and now_ns - last_ns < _HELLO_GAP_NS:
            return None
        if not paid and not self._own.take(now_ns):
            self._counters["hellos_over_rate"] += 1
            return None
        self._hello_sent_ns.pop(hello_key, None)
        _remember(self._hello_sent_ns, hello_key, now_ns)
        said = self._said.get(address)
        if group is None and not extra and said is not None and said.turn % _TURNS == _TURNS - 1:
            group = self._channel.older_group(said.turn // _TURNS)
        return self._seal(address, (*parts, extra) if extra else tuple(parts), group, now_ns)

    def _seal(self, address: Address, parts: tuple[bytes, ...], group: int | None, now_ns: int) -> bytes:
        frame = self._channel.seal_group(join(parts), group)
        before = self._said.pop(address, None)
        turn = 0 if before is None else before.turn + 1
        _remember(self._said, address, _Hello(self._channel.nonce_start(frame), parts, group, turn))
        cookie, since_ns = self._cookies.get(address, (b"", 0))
        if cookie and now_ns - since_ns < _COOKIE_NS and len(frame) + CONTACT_OVERHEAD_BYTES <= DATAGRAM_MAX_BYTES:
            return self._channel.contact(cookie, frame)
        return frame

    def on_cookie(self, source: Address, frame: bytes, now_ns: int) -> bytes | None:
        """An address wants to see its cookie returned: the last hello to it, once more, with the cookie."""
        said = self._said.get(source)
        if said is None:
            return None
        cookie = self._channel.open_cookie(frame, said.nonce)
        if cookie is None or not self._own.take(now_ns):
            return None
        self._cookies.pop(source, None)
        _remember(self._cookies, source, (cookie, now_ns))
        self._counters["cookies_returned"] += 1
        return self._seal(source, said.parts, said.group, now_ns)

    # --- in ----------------------------------------------------------------------------------------------------------

    def take(self, source: Address, kind: int, frame: bytes, now_ns: int) -> Opened | bytes | None:
        """Judge a hello.

        Returns:
            What is to be processed; a cookie to send back; or None for nothing.

        Raises:
            WireError: It does not open.
        """
        channel = self._channel
        proven = False
        if kind == CONTACT:
            epoch = now_ns // _COOKIE_NS
            proven = any(channel.cookie_holds(frame, source, number) for number in (epoch, epoch - 1))
            frame = channel.hello_in(frame)
        nonce = channel.nonce_start(frame)
        if nonce in self._nonces or nonce in self._nonces_before:
            self._counters["hellos_replayed"] += 1
            return None
        group, body = channel.open_group(frame)
        if len(self._nonces) >= _NONCES_MAX:
            self._nonces_before, self._nonces = self._nonces, {}
        self._nonces[nonce] = None
        if self._proven.take(now_ns) if proven else self._unproven.take(now_ns):
            self._groups.pop(source, None)
            _remember(self._groups, source, group)
            return Opened(group, body)
        self._counters["hellos_refused"] += 1
        if proven or not self._cookie_bucket.take(now_ns):
            return None
        self._counters["cookies_given"] += 1
        return channel.seal_cookie(frame, source, now_ns // _COOKIE_NS, group)

    def notice(self, source: Address, frame: bytes, now_ns: int, *, member: bool) -> bytes | None:
        """What to answer a pair frame that does not open; `member` where the source is a member's address."""
        last_ns, turn = self._noticed.get(source, (now_ns - _HELLO_GAP_NS, 0))
        if now_ns - last_ns < _HELLO_GAP_NS:
            return None
        if not member and not self._notice_bucket.take(now_ns):
            self._counters["notices_over_rate"] += 1
            return None
        # In turn: a hello proves a group key, and not that it came from this address.
        known = self._groups.get(source)
        if known is not None:
            group = None if turn % 2 else known
        else:
            group = self._channel.older_group(turn // 2) if turn % 2 else None
        self._noticed.pop(source, None)
        _remember(self._noticed, source, (now_ns, turn + 1))
        return self._channel.seal_notice(frame, group)

    def on_notice(self, frame: bytes, last_counter: int) -> int | None:
        """Whether a frame of this node's really did not open there.

        Args:
            frame: The notice.
            last_counter: Of the last datagram to its sender.

        Returns:
            Counter of the group key that the sender holds; None where the notice is not to be believed.
        """
        found = self._channel.open_notice(frame)
        if found is None:
            return None
        group, counter = found
        return group if max(0, last_counter - _COUNTERS_BACK) < counter <= last_counter else None

    def reports(self, now_ns: int) -> bool:
        """Whether one more refused frame is reported; all are counted."""
        return self._reports.take(now_ns)


def _remember(held: dict[_K, _V], key: _K, value: _V) -> None:
    if len(held) >= _ADDRESSES_MAX:
        del held[next(iter(held))]
    held[key] = value
