"""Tickets: a lender's signed word that one borrower may use one bundle so often, for so many bytes, until then.

    byte 0         1           17          33            65          73         81          85         89        97
    | version u8 | lender 16 | borrower 16 | digest 32 | number u64 | bytes u64 | count u32 | room u32 | until u64 |
    | signature 64 |

Little endian. `number` is unique to the lender (its boot shifted left by 28 plus a count), `until` swarm time in
milliseconds since 2020, `room` the largest request in bytes. The signature is the lender's over all before it, so a
ticket can be shown by nobody but its borrower (whom the channel names) to nobody but its lender, for no other bundle.

The lender keeps what is left of each ticket; a borrower that shows one too often is refused, whatever it holds. Whoever
asks again, and has not used a ticket by then, is given the same one with a new end: it may be that it never came. That
is done a few times: it may also be that the ticket came, and what was sent under it did not.
"""

import struct
from dataclasses import dataclass, replace

from swarmd_protocols.crypto import SIGNATURE_BYTES, Crypto
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId

_VERSION = 1
"""First byte of a ticket; others are refused."""
_TAG = b"swarmd/ticket/v1\0"
_BODY = struct.Struct("<B16s16s32sQQIIQ")
_AGAIN_MS = 500
"""A ticket is given again after so long: who waits for one asks each second, and each copy costs a signature."""
_AGAIN_MAX = 4
"""As often; then there is another one, and it takes the place of one that was given so often where there is no room."""
TICKET_BYTES = _BODY.size + SIGNATURE_BYTES
_BOOT_SHIFT = 28
"""Tickets of one boot: 2^28."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What was granted."""

    lender: NodeId
    borrower: NodeId
    digest: bytes
    """Of the bundle, 32 bytes."""
    number: int
    bytes_max: int
    """Of all requests together."""
    count_max: int
    request_bytes_max: int
    until_ms: int
    """Swarm time."""


def seal_ticket(ticket: Ticket, seed: bytes, crypto: Crypto) -> bytes:
    """The ticket as it travels, signed with the lender's seed."""
    body = _BODY.pack(
        _VERSION, ticket.lender, ticket.borrower, ticket.digest, ticket.number, ticket.bytes_max, ticket.count_max,
        ticket.request_bytes_max, ticket.until_ms,
    )  # fmt: skip
    return body + crypto.sign(seed, _TAG + body)


def open_ticket(data: bytes, lender_key: bytes, crypto: Crypto) -> Ticket:
    """Read a ticket; raises `WireError` where length, version or the lender's signature do not hold."""
    if len(data) != TICKET_BYTES:
        raise WireError(f"a ticket has {TICKET_BYTES} bytes, not {len(data)}")
    body, signature = data[: _BODY.size], data[_BODY.size :]
    version, lender, borrower, *rest = _BODY.unpack(body)
    if version != _VERSION or not crypto.verify(lender_key, _TAG + body, signature):
        raise WireError("a ticket of another version, or whose signature does not hold")
    return Ticket(NodeId(lender), NodeId(borrower), *rest)


@dataclass(frozen=True, slots=True)
class GrantsConfig:
    """What one lender gives away."""

    borrowers_max: int = 64
    """With live tickets at once."""
    tickets_max: int = 2
    """Live ones of one borrower: one in use, one to renew it."""
    count_max: int = 256
    """Requests a ticket is good for."""
    bytes_max: int = 64 << 20
    request_bytes_max: int = 2 << 20
    """A 640 x 640 frame in three channels, raw, and a half."""
    life_ms: int = 30_000
    """A lender that overheats is out of what it promised in half a minute."""


@dataclass(slots=True)
class _Left:
    ticket: Ticket
    count: int
    size_bytes: int
    given_ms: int
    again: int = 0
    """How often it was given again."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was spent of it."""
        return self.count == self.ticket.count_max


class Grants:
    """The lender's book."""

    def __init__(self, node: NodeId, seed: bytes, crypto: Crypto, config: GrantsConfig, boot: int) -> None:
        """Nothing is granted yet."""
        self._node = node
        self._seed = seed
        self._crypto = crypto
        self._config = config
        self._number = boot << _BOOT_SHIFT
        self._left: dict[int, _Left] = {}

    def grant(self, borrower: NodeId, digest: bytes, now_ms: int, longer_ms: int = 0) -> bytes | None:
        """A ticket for a borrower, sealed; None where it, or everybody together, has enough.

        Args:
            borrower: Who may use it.
            digest: Of the bundle.
            now_ms: Swarm time.
            longer_ms: Beyond the life of others: so long may its requests be under way.
        """
        self._expire(now_ms)
        until_ms = now_ms + self._config.life_ms + longer_ms
        whole = self._whole(borrower, digest, now_ms)
        for left in whole:
            if left.again < _AGAIN_MAX:
                left.ticket = replace(left.ticket, until_ms=max(until_ms, left.ticket.until_ms))
                left.given_ms, left.again = now_ms, left.again + 1
                return seal_ticket(left.ticket, self._seed, self._crypto)
        live = [left.ticket.borrower for left in self._left.values()]
        if whole and live.count(borrower) >= self._config.tickets_max:
            del self._left[whole[0].ticket.number]
            live.remove(borrower)
        if live.count(borrower) >= self._config.tickets_max:
            return None
        if borrower not in live and len(set(live)) >= self._config.borrowers_max:
            return None
        config = self._config
        self._number += 1
        ticket = Ticket(
            self._node, borrower, digest, self._number, config.bytes_max, config.count_max, config.request_bytes_max,
            until_ms,
        )  # fmt: skip
        self._left[ticket.number] = _Left(ticket, config.count_max, config.bytes_max, now_ms)
        return seal_ticket(ticket, self._seed, self._crypto)

    def _whole(self, borrower: NodeId, digest: bytes, now_ms: int) -> list[_Left]:
        """What was given to it a while ago, and nothing of it has been used; the oldest first."""
        return [
            left for left in self._left.values()
            if left.ticket.borrower == borrower and left.ticket.digest == digest
            and left.is_whole and now_ms - left.given_ms >= _AGAIN_MS
        ]  # fmt: skip

    def spend(self, number: int, borrower: NodeId, digest: bytes, size_bytes: int, now_ms: int) -> str:
        """One request under a ticket; why it is refused, or "" (and it is counted)."""
        left = self._left.get(number)
        if left is None or left.ticket.borrower != borrower:
            return "unknown"
        if left.ticket.until_ms <= now_ms:
            return "expired"
        if left.ticket.digest != digest:
            return "other-bundle"
        if size_bytes > left.ticket.request_bytes_max:
            return "too-large"
        if left.count < 1 or left.size_bytes < size_bytes:
            return "spent"
        left.count -= 1
        left.size_bytes -= size_bytes
        return ""

    def borrowers(self) -> set[NodeId]:
        """Who holds a ticket."""
        return {left.ticket.borrower for left in self._left.values()}

    def withdraw(self, borrower: NodeId) -> None:
        """What a borrower holds is good for nothing: it was revoked, has gone, or the lender needs itself."""
        for number in [n for n, left in self._left.items() if left.ticket.borrower == borrower]:
            del self._left[number]

    def _expire(self, now_ms: int) -> None:
        """What was given by a clock that was ahead, and has been set back since, would stand until that time comes."""
        ahead_ms = now_ms + self._config.life_ms
        for number in [
            number for number, left in self._left.items() if left.ticket.until_ms <= now_ms or left.given_ms > ahead_ms
        ]:
            del self._left[number]


_MARGIN_MS = 1_000
"""A ticket is not used in its last second: the lender's clock may be ahead."""


@dataclass(slots=True)
class HeldTicket:
    """A ticket at its borrower, and what is left of it."""

    ticket: Ticket
    count: int
    size_bytes: int

    @classmethod
    def new(cls, ticket: Ticket, before: "HeldTicket | None" = None) -> "HeldTicket":
        """All is left, or of one that was given `before` what was left then: requests under it may be on their way."""
        if before is not None and before.ticket.number == ticket.number:
            return cls(ticket, before.count, before.size_bytes)
        return cls(ticket, ticket.count_max, ticket.bytes_max)

    def is_good(self, size_bytes: int, now_ms: int) -> bool:
        """Whether a request of this size may go out under it."""
        ticket = self.ticket
        has_room = self.count > 0 and size_bytes <= min(self.size_bytes, ticket.request_bytes_max)
        return has_room and now_ms + _MARGIN_MS < ticket.until_ms
