"""Sealed frames between pairs of nodes, and first contact under the group key. No I/O, no clocks.

    pair frame    version|kind 1B · sender's session tag 4B · counter 4B · XSalsa20-Poly1305(body)      25 B overhead
    group frame   version|kind 1B · group key counter 4B · nonce 24B · XSalsa20-Poly1305(body)          45 B overhead
    cast frame    the same, under a key derived from the group's: for everybody, from some member
    notice, cookie, contact: see `contact.py`

A session is a boot of a node: a fresh X25519 key pair whose public half stands in the node's signed record, so two
nodes that know each other's records can seal at once, without a handshake. The pair's keys mix the static identities
(who) and both sessions (which boots): a frame from before either side's restart opens nowhere, and past traffic stays
closed when a node is captured later. Each direction has its own key; each path (datagram, stream, bulk) its own counter
and a replay window (64 frames for datagrams, 1,024 for streams).
"""

import struct
from hashlib import blake2b
from typing import TypeAlias

from swarmd_protocols.crypto import SEAL_BYTES, Crypto
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId

WIRE_VERSION = 3
"""The upper half of a frame's first byte; frames of other versions are refused and counted."""
DATAGRAM, STREAM, BULK, GROUP, CAST, NOTICE, COOKIE, CONTACT = range(1, 9)
PAIR_OVERHEAD_BYTES = 1 + 4 + 4 + SEAL_BYTES
"""First byte, tag of the session, counter, seal."""
GROUP_OVERHEAD_BYTES = 1 + 4 + 24 + SEAL_BYTES
"""First byte, counter of the group key, nonce, seal: a nonce that is drawn needs XSalsa20's full 24 bytes."""
MAC_BYTES = 16
"""As long as Poly1305's: nobody guesses one at any rate that a network carries."""
NONCE_START_BYTES = 8
"""Start of the nonce of the frame that is answered: it names the frame to its sender."""
NOTICE_BYTES = 1 + 4 + 4 + MAC_BYTES
"""First byte, tag, counter, MAC."""
COOKIE_BYTES = 1 + NONCE_START_BYTES + MAC_BYTES + MAC_BYTES
"""First byte, start of the nonce, the cookie, MAC."""
CONTACT_OVERHEAD_BYTES = 1 + MAC_BYTES
"""First byte and the cookie's MAC, before the group frame."""
REPLAY_WINDOW = 64
"""Datagrams that may overtake each other: those of some seconds to one peer (RFC 4303 asks for 32 at least)."""
STREAM_REPLAY_WINDOW = 1_024
"""Streams are sent in bursts of many frames, and a transport may use several connections for them."""
TAG_BYTES = 4
"""Bytes of a session's public key that name it in frames: a look-up, not a proof."""
PAST_MAX = 512
"""Sessions remembered after their peer was forgotten, 0.2 kB each."""
_PAST = struct.Struct("<8I")
"""What is kept of each: counters have four bytes in a frame."""

_HEAD = {kind: bytes((WIRE_VERSION << 4 | kind,)) for kind in range(DATAGRAM, CONTACT + 1)}
"""First byte of each kind."""
_LENGTH_MIN = {
    GROUP: GROUP_OVERHEAD_BYTES,
    CAST: GROUP_OVERHEAD_BYTES,
    COOKIE: COOKIE_BYTES,
    CONTACT: CONTACT_OVERHEAD_BYTES + GROUP_OVERHEAD_BYTES,
}
_COUNTER_MAX = 2**32 - 1
"""Frames of one boot to one peer on one path: 13 years at ten a second."""
_NONCE_HEAD = {kind: bytes(19) + bytes((kind,)) for kind in (DATAGRAM, STREAM, BULK)}
"""What precedes the counter in a nonce: one counter a path, so the path stands in it."""


Past: TypeAlias = tuple[int, ...]
"""Of a session that is over, by kind: the last counter used, then the highest seen."""


class ReplayWindow:
    """Which of the last counters (64 by default) were seen; older ones count as seen."""

    __slots__ = ("_mask", "_top", "_width")

    def __init__(self, width: int = REPLAY_WINDOW) -> None:
        self._top = 0
        self._mask = 0
        self._width = width

    @property
    def top(self) -> int:
        """The highest counter that was accepted."""
        return self._top

    def resume(self, top: int) -> None:
        """Count everything up to here as seen."""
        self._top = top
        self._mask = (1 << self._width) - 1

    def fresh(self, counter: int) -> bool:
        """Whether `accept` would take this counter (1 is the first)."""
        behind = self._top - counter
        if behind < 0:
            return True
        return behind < self._width and not self._mask >> behind & 1

    def accept(self, counter: int) -> None:
        """Remember a counter whose frame opened."""
        ahead = counter - self._top
        if ahead > 0:
            width = self._width
            self._mask = (self._mask << ahead | 1) & (1 << width) - 1 if ahead < width else 1
            self._top = counter
        else:
            self._mask |= 1 << -ahead


class Session:
    """Keys and counters between this boot of this node and one boot of a peer; small, since there may be thousands."""

    __slots__ = ("_datagrams", "_others", "_window", "_windows", "node", "receive_key", "send_key", "tag")

    def __init__(self, node: NodeId, tag: bytes, send_key: bytes, receive_key: bytes) -> None:
        self.node = node
        self.tag = tag
        self.send_key = send_key
        self.receive_key = receive_key
        self._datagrams = 0
        self._window: ReplayWindow | None = None
        # Most pairs only ever exchange datagrams: the other paths cost nothing before they are used.
        self._others: dict[int, int] | None = None
        self._windows: dict[int, ReplayWindow] | None = None

    def past(self) -> Past:
        """What must outlive the session: counters that were used, and counters that were seen."""
        used, windows = self._others or {}, self._windows or {}
        tops = (windows[kind].top if kind in windows else 0 for kind in (STREAM, BULK))
        top = 0 if self._window is None else self._window.top
        return (0, self._datagrams, used.get(STREAM, 0), used.get(BULK, 0), 0, top, *tops)

    def resume(self, past: Past) -> None:
        """Go on where an earlier session of the same two boots ended; all that may have been seen counts as seen."""
        self._datagrams = past[DATAGRAM]
        self._others = {kind: past[kind] for kind in (STREAM, BULK) if past[kind]} or None
        for kind in (DATAGRAM, STREAM, BULK):
            if past[4 + kind]:
                self.window(kind).resume(past[4 + kind])

    def next_counter(self, kind: int) -> int:
        """The counter of the next frame on a path; raises `WireError` when this boot's counters are used up."""
        if kind == DATAGRAM:
            counter = self._datagrams + 1
            if counter <= _COUNTER_MAX:
                self._datagrams = counter
                return counter
        else:
            others = self._others
            if others is None:
                others = self._others = {}
            counter = others.get(kind, 0) + 1
            if counter <= _COUNTER_MAX:
                others[kind] = counter
                return counter
        raise WireError("this boot has sent 2**32 frames to one peer: restart the node")

    def window(self, kind: int) -> ReplayWindow:
        """The replay window of a path."""
        if kind == DATAGRAM:
            window = self._window
            if window is None:
                window = self._window = ReplayWindow()
            return window
        windows = self._windows
        if windows is None:
            windows = self._windows = {}
        other = windows.get(kind)
        if other is None:
            other = windows[kind] = ReplayWindow(STREAM_REPLAY_WINDOW)
        return other


class Channel:
    """Seals and opens the frames of one boot of one node."""

    __slots__ = (
        "_cast",
        "_contact_keys",
        "_crypto",
        "_exchange_secret",
        "_floor",
        "_group_keys",
        "_group_seal",
        "_nonces",
        "_past",
        "_secret",
        "public",
        "tag",
    )

    def __init__(self, seed: bytes, boot_entropy: bytes, crypto: Crypto) -> None:
        """Begin a boot.

        Args:
            seed: The node's Ed25519 seed.
            boot_entropy: At least 16 bytes that never repeat with the same seed (boot number and random bits).
            crypto: The library to seal with.
        """
        self._crypto = crypto
        self._exchange_secret = crypto.exchange_secret(seed)
        self._secret = blake2b(boot_entropy, key=seed, digest_size=32, person=b"swarmd-session").digest()
        self.public = crypto.ephemeral_public(self._secret)
        self.tag = self.public[:TAG_BYTES]
        self._group_keys: dict[int, bytes] = {}
        self._group_seal = 0
        self._contact_keys: dict[int, bytes] = {}
        self._cast = (b"", b"")
        self._nonces = 0
        self._past: dict[bytes, bytes] = {}
        self._floor = 0

    # --- group frames ------------------------------------------------------------------------------------------------

    def set_group_keys(self, keys: dict[int, bytes]) -> None:
        """Counter to key; the highest counter seals, all open."""
        self._group_keys = dict(keys)
        self._group_seal = max(keys, default=0)
        self._contact_keys = {
            counter: blake2b(key, digest_size=32, person=b"swarmd-contact").digest() for counter, key in keys.items()
        }

    def older_group(self, turn: int) -> int | None:
        """Counter of one of the group keys before the newest, each in its turn; None where there is no other."""
        others = sorted((counter for counter in self._group_keys if counter != self._group_seal), reverse=True)
        return others[turn % len(others)] if others else None

    def seal_group(self, body: bytes, counter: int | None = None) -> bytes:
        """A frame that every holder of the group key can open; the newest key where no counter is given."""
        chosen = self._group_seal if counter is None else counter
        return self._seal_for_all(GROUP, chosen, self._group_keys[chosen], body)

    def _seal_for_all(self, kind: int, counter: int, key: bytes, body: bytes) -> bytes:
        self._nonces += 1
        entropy = self._nonces.to_bytes(8, "big")
        nonce = blake2b(entropy, key=self._secret, digest_size=24, person=b"swarmd-nonce").digest()
        return _HEAD[kind] + counter.to_bytes(4, "big") + nonce + self._crypto.seal(key, nonce, body)

    def open_group(self, frame: bytes) -> tuple[int, bytes]:
        """Group key counter and body of a group frame; raises `WireError`."""
        counter = int.from_bytes(frame[1:5], "big")
        key = self._group_keys.get(counter)
        if key is None:
            raise WireError("first contact under a group key that this node does not hold")
        body = self._crypto.open(key, frame[5:29], frame[29:])
        if body is None:
            raise WireError("first contact does not open under its group key")
        return counter, body

    # --- notices and cookies -----------------------------------------------------------------------------------------

    @staticmethod
    def nonce_start(group_frame: bytes) -> bytes:
        """What tells one group frame from all others."""
        return group_frame[5 : 5 + NONCE_START_BYTES]

    def seal_notice(self, frame: bytes, group: int | None = None) -> bytes:
        """Tell the sender of a pair frame, by its tag and counter, that it does not open here.

        Args:
            frame: What does not open.
            group: Counter of the group key that its sender is known to hold; the newest where None or not held here.
        """
        key = self._contact_keys.get(self._group_seal if group is None else group)
        if key is None:
            key = self._contact_keys[self._group_seal]
        return _HEAD[NOTICE] + frame[1:9] + _mac(key, b"notice", frame[1:9])

    def open_notice(self, notice: bytes) -> tuple[int, int] | None:
        """Counter of the sender's group key and of this node's frame that did not open; None where it is forged."""
        if len(notice) != NOTICE_BYTES or notice[1:5] != self.tag:
            return None
        for group, key in self._contact_keys.items():
            if _mac(key, b"notice", notice[1:9]) == notice[9:]:
                return group, int.from_bytes(notice[5:9], "big")
        return None

    def _cookie(self, source: str, epoch: int) -> bytes:
        return _mac(self._secret, b"address", epoch.to_bytes(8, "big", signed=True) + source.encode())

    def seal_cookie(self, hello: bytes, source: str, epoch: int, group: int) -> bytes:
        """Ask the sender of a group frame to return a cookie from the address that it claims to have."""
        told = self.nonce_start(hello) + self._cookie(source, epoch)
        return _HEAD[COOKIE] + told + _mac(self._contact_keys[group], b"cookie", told)

    def open_cookie(self, frame: bytes, nonce: bytes) -> bytes | None:
        """The cookie given for the hello whose nonce begins like this; None where it is forged or for another one."""
        if len(frame) != COOKIE_BYTES or frame[1 : 1 + NONCE_START_BYTES] != nonce:
            return None
        told, mac = frame[1:-MAC_BYTES], frame[-MAC_BYTES:]
        if any(_mac(key, b"cookie", told) == mac for key in self._contact_keys.values()):
            return told[NONCE_START_BYTES:]
        return None

    @staticmethod
    def contact(cookie: bytes, hello: bytes) -> bytes:
        """A group frame that returns a cookie."""
        return _HEAD[CONTACT] + cookie + hello

    @staticmethod
    def hello_in(contact: bytes) -> bytes:
        """The group frame in a contact frame; raises `WireError`."""
        hello = contact[CONTACT_OVERHEAD_BYTES:]
        if hello[:1] != _HEAD[GROUP]:
            raise WireError("a contact without a first contact")
        return hello

    def cookie_holds(self, contact: bytes, source: str, epoch: int) -> bool:
        """Whether a contact returns the cookie of its source."""
        return contact[1:CONTACT_OVERHEAD_BYTES] == self._cookie(source, epoch)

    # --- casts -------------------------------------------------------------------------------------------------------

    def seal_cast(self, body: bytes) -> bytes:
        """A frame for every member that listens on a shared channel."""
        return self._seal_for_all(CAST, self._group_seal, self._cast_key(self._group_seal), body)

    def open_cast(self, frame: bytes) -> bytes:
        """The body of a cast frame: some member sealed it, some time. Raises `WireError`."""
        counter = int.from_bytes(frame[1:5], "big")
        body = self._crypto.open(self._cast_key(counter), frame[5:29], frame[29:])
        if body is None:
            raise WireError("a cast does not open under its group key")
        return body

    def _cast_key(self, counter: int) -> bytes:
        """Its own key, so that a cast can never be read as a first contact, nor the other way round."""
        key = self._group_keys.get(counter)
        if key is None:
            raise WireError("a cast under a group key that this node does not hold")
        if self._cast[0] != key:
            self._cast = (key, blake2b(key, digest_size=32, person=b"swarmd-cast").digest())
        return self._cast[1]

    # --- pair frames -------------------------------------------------------------------------------------------------

    def session(self, node: NodeId, public_key: bytes, session_public: bytes) -> Session:
        """Derive the keys between this boot and a peer's boot, from the peer's verified record.

        Raises:
            IdentityError: One of the peer's keys is no valid point.
        """
        crypto = self._crypto
        static = crypto.shared_key(self._exchange_secret, crypto.exchange_public(public_key))
        moment = crypto.shared_key(self._secret, session_public)
        base = blake2b(static + moment, digest_size=32, person=b"swarmd-pair").digest()
        send = blake2b(self.public + session_public, key=base, digest_size=32).digest()
        receive = blake2b(session_public + self.public, key=base, digest_size=32).digest()
        session = Session(node, session_public[:TAG_BYTES], send, receive)
        kept = self._past.pop(session_public, None)
        session.resume((self._floor,) * 4 + (0,) * 4 if kept is None else _PAST.unpack(kept))
        return session

    def retire(self, session: Session, session_public: bytes) -> None:
        """The peer is forgotten. Should it be met again in the same boot, no counter is used a second time."""
        if len(self._past) >= PAST_MAX:
            oldest = self._past.pop(next(iter(self._past)))
            self._floor = max(self._floor, *_PAST.unpack(oldest)[:4])
        self._past[session_public] = _PAST.pack(*session.past())

    def seal(self, session: Session, kind: int, body: bytes) -> bytes:
        """A frame for one peer on one path."""
        counter = session.next_counter(kind).to_bytes(4, "big")
        return _HEAD[kind] + self.tag + counter + self._crypto.seal(session.send_key, _NONCE_HEAD[kind] + counter, body)

    def open(self, session: Session, frame: bytes) -> bytes | None:
        """The body of a pair frame, or None where this session did not seal it or its counter was seen before.

        The frame has passed `frame_kind`; a frame that does not open changes nothing.
        """
        kind = frame[0] & 15
        header = frame[5:9]
        counter = int.from_bytes(header, "big")
        window = session.window(kind)
        if not window.fresh(counter):
            return None
        body = self._crypto.open(session.receive_key, _NONCE_HEAD[kind] + header, frame[9:])
        if body is not None:
            window.accept(counter)
        return body


def frame_kind(frame: bytes) -> int:
    """The path a frame was sealed for; raises `WireError` for another version or a stump."""
    if len(frame) < PAIR_OVERHEAD_BYTES:
        raise WireError(f"frame of {len(frame)} bytes; the shortest has {PAIR_OVERHEAD_BYTES}")
    if frame[0] >> 4 != WIRE_VERSION:
        raise WireError(f"frame of wire version {frame[0] >> 4}; this node speaks {WIRE_VERSION}")
    kind = frame[0] & 15
    if kind not in _HEAD or len(frame) < _LENGTH_MIN.get(kind, 0):
        raise WireError(f"frame of unknown kind {kind}, or cut short")
    return kind


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=MAC_BYTES, person=b"swarmd-" + purpose).digest()
