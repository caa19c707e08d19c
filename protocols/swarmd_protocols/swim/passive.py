"""The passive view of a node in a partial view: signed records of others, to choose new neighbours from.

- Only records signed by their subject, with a certificate that holds, are kept.
- One neighbour fills at most a third of it, and pays with credit for each record that it makes this node verify.
- Three records each way are exchanged with a neighbour now and then (HyParView's shuffle).
"""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import STATUS_ALIVE, AliveBody, Record, Shuffle
from swarmd_protocols.swim.seams import Roll

_S = 1_000_000_000
_CREDIT_BURST, _CREDIT_PER_S = 16.0, 1.0
"""Records that one sender may have verified at once, and per second: two certificates' signatures each, 0.3 ms on a
small board, so 0.03 % of a core for each neighbour; a newcomer's join costs 4 and a shuffle 4."""
_CREDITS_MAX = 64
"""Senders whose credit is remembered: eight neighbours and those that were some lately."""
_SHUFFLED = 3
"""Records in a shuffle: as many as fit into a datagram."""
_SHUFFLE_ROOM = 1_080
"""Bytes of these records: a datagram of 1,200 less the frame's overhead and the heads."""
_SHUFFLE_SOON_PERIODS = 8
"""Protocol periods between shuffles while the passive view is less than half full."""


class _Known:
    """An entry of the passive view."""

    __slots__ = ("asked_ns", "incarnation", "record", "via")

    def __init__(self, record: Record, incarnation: int, via: bytes) -> None:
        self.record = record
        self.incarnation = incarnation
        self.via = via
        self.asked_ns = -(2**62)


class PassiveView:
    """Keeps, verifies and exchanges records of others."""

    def __init__(self, core: Core, roll: Roll) -> None:
        self.core = core
        self._roll = roll
        self.passive: dict[bytes, _Known] = {}
        self.credits: dict[bytes, tuple[float, int]] = {}
        """Sender to what is left of its credit, and when that was."""
        self.shuffled_ns = 0

    def credit(self, node: bytes, cost: float) -> bool:
        """Whether a sender may still make this node work for it."""
        core = self.core
        tokens, last_ns = self.credits.pop(node, (_CREDIT_BURST, core.now_ns))
        tokens = min(_CREDIT_BURST, tokens + (core.now_ns - last_ns) * _CREDIT_PER_S / _S)
        if len(self.credits) >= _CREDITS_MAX:
            del self.credits[next(iter(self.credits))]
        self.credits[node] = (tokens - cost if tokens >= cost else tokens, core.now_ns)
        if tokens < cost:
            core.counters["records_over_rate"] += 1
        return tokens >= cost

    def shelve(self, member: Member, via: bytes) -> None:
        """Keep a member's record; it was verified when the member was admitted."""
        if member.record[0] and member.status == STATUS_ALIVE and not member.failed:
            record = Record(member.certificate, *member.record)
            self._keep(member.node, _Known(record, member.incarnation, via))

    def _keep(self, node: bytes, known: _Known) -> None:
        core, passive = self.core, self.passive
        if node in passive:
            passive[node] = known
            return
        if known.via != core.own.node:
            mine = [other for other, entry in passive.items() if entry.via == known.via]
            if len(mine) >= max(1, core.config.passive_view // 3):
                del passive[mine[int(core.rng.random() * len(mine))]]
        while len(passive) >= core.config.passive_view:
            del passive[list(passive)[int(core.rng.random() * len(passive))]]
        passive[node] = known

    def learn(self, record: Record, via: bytes) -> bytes | None:
        """Take a record that somebody passes on; returns its node where it is in the passive view afterwards."""
        core = self.core
        body = self._roll.read_record(record, via)
        if body is None or body.node == core.own.node:
            return None
        if body.node in core.table.by_node:
            self._roll.on_record(record, None)
            return body.node if body.node in self.passive else None
        held = self.passive.get(body.node)
        if held is not None and held.incarnation >= body.incarnation:
            return body.node
        if not self._holds(record, body):
            return None
        if body.status != STATUS_ALIVE:
            self.passive.pop(body.node, None)
            return None
        self._keep(body.node, _Known(self.core.crypto.share(record), body.incarnation, via))
        return body.node

    def _holds(self, record: Record, body: AliveBody) -> bool:
        """Whether a record's certificate and signature hold."""
        core = self.core
        try:
            certificate = core.trust.certificate(record.certificate)
        except IdentityError as error:
            core.reject(None, str(error))
            return False
        if certificate.node == body.node and core.signed_by(
            certificate.public_key, "alive", record.body, record.signature
        ):
            return True
        core.reject(None, f"a record of {certificate.name!r} is not signed by it")
        return False

    def shuffle(self) -> None:
        """Exchange records with a neighbour where it is time for it."""
        core = self.core
        scarce = len(self.passive) < core.config.passive_view // 2
        gap_ns = _SHUFFLE_SOON_PERIODS * core.config.protocol_period_ns if scarce else core.config.shuffle_ns
        if len(self.passive) + len(core.table.reachable) < core.config.active_view:
            gap_ns //= 4  # Too few to ask.
        if core.now_ns - self.shuffled_ns < gap_ns or not core.table.reachable:
            return
        self.shuffled_ns = core.now_ns
        for member in core.table.sample(core.rng, 1):
            self.send_records(member, answer=True)

    def send_records(self, member: Member, *, answer: bool) -> None:
        """One neighbour, the rest from the passive view, as many as fit into a datagram."""
        core = self.core
        entries = [
            Record(other.certificate, *other.record)
            for other in core.table.sample(core.rng, 1, member)
            if not other.suspected
        ]
        chosen = core.rng.sample(list(self.passive), min(_SHUFFLED - len(entries), len(self.passive)))
        entries += [self.passive[node].record for node in chosen if node != member.node]
        while entries and sum(len(r.certificate) + len(r.body) + 72 for r in entries) > _SHUFFLE_ROOM:
            entries.pop()
        if entries or answer:
            core.port.push(member, [encode(Shuffle(answer, tuple(entries)))])

    def on_trust(self) -> None:
        """Forget whose certificate no longer holds."""
        trust = self.core.trust
        for node in [node for node, known in self.passive.items() if not trust.holds(known.record.certificate)]:
            del self.passive[node]

    def on_shuffle(self, member: Member, message: Shuffle) -> bool:
        """Records from a neighbour, or from somebody who could not take this node in; False where it has no credit."""
        if not self.credit(member.node, 1.0 + len(message.entries)):
            return False
        if message.answer:
            self.send_records(member, answer=False)
        for record in message.entries:
            self.learn(record, member.node)
        return True
