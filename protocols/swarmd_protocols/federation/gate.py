"""What a region takes from one swarm: nothing that this swarm's own root does not stand behind, within a quota.

Rules this file keeps:

- A frame is looked at in the order of what it costs: its place, its number (a copy is dropped), the quota, the seal,
  the rows. Only what opened under a key counts against that key's swarm, and only what opened moves its numbers: who
  writes to another's place, or plays frames back, uses up nothing of the other's.
- Beyond the quota each of a swarm's first gateways has a small part for itself (`allowance.Reserves`): one whose key
  was stolen keeps neither the others' words nor the word that it was stolen away, whatever it says.
- A key counts while it is certified by the swarm's root chain with the role `shares.ROLE`. Keys that are not are read
  within one small bucket for all strangers, and only their rows of trust are: a gateway shows its certificate so.
- Everything that a row leads to belongs to this swarm: a gate knows no other.
- A word of times to come is refused: nobody's outlasts its gateway's revocation for longer than `AHEAD_MS`. So is one
  on what will be seen then: it would come first in all answers, and lie in a partition of its own for each day.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import msgspec

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.federation.allowance import TELL_NS, Allowance, Numbers, Reserves
from swarmd_protocols.federation.objects import Derived, derive, read_object
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import (
    Head,
    Pair,
    RowKind,
    SiteRow,
    Up,
    UpRow,
    Way,
    read_head,
    read_site,
    read_trust,
    read_up,
    swarm_key,
)
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases.reports import Report, admit_report
from swarmd_protocols.state.crdt.batch import Batch, NodeSigner, Stream, open_batch, verify_batch
from swarmd_protocols.state.crdt.facts import Facts, decode_facts
from swarmd_protocols.state.crdt.records import EventRow, decode_events, decode_status, decode_vitals
from swarmd_protocols.state.reviews import operators_of
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.trust import Trust

GATEWAYS_MAX = 64
"""Certified gateways of one swarm whose numbers are kept: eight times what `shares.SHARES` has work for."""
FACTS_KEPT = 256
"""Batches whose facts are kept read: a batch is the proof of several objects, and comes with each."""
STRANGERS_BYTES_S, STRANGERS_BURST_BYTES = 4_096, 1 << 18
"""What keys without a certificate may cost at one swarm's place: at another's nobody keeps its new gateways away."""
AHEAD_MS = 3_600_000
"""A word's stamp may be so far ahead of the region's clock, milliseconds: devices without a receiver or a time server
drift by minutes a month."""
EVERYBODY = NodeId(bytes(16))
"""In `Down.wanted`: all certificates, revocations and roots."""
_T = TypeVar("_T")


class RecordRow(msgspec.Struct, frozen=True):
    """A node's status, counters or events, as it signed them."""

    node: NodeId
    stream: Stream
    incarnation: int
    n: int
    stamp: int
    status: bytes = b""
    counters: dict[str, int] = {}
    events: tuple[EventRow, ...] = ()


class TrustTaken(msgspec.Struct, frozen=True):
    """A statement that holds, to be kept for the next start."""

    kind: str
    statement: bytes


Taken: TypeAlias = Derived | RecordRow | TrustTaken | Report | SiteRow


@dataclass(slots=True)
class Heard:
    """What came of one frame that opened."""

    gateway: NodeId
    public_key: bytes
    life: int
    up: Up
    taken: list[tuple[int, Taken]] = field(default_factory=list)
    """(number, what it says) of rows to be written down before they are acknowledged."""
    known_before: list[int] = field(default_factory=list)
    """Rows that say nothing new and can be acknowledged."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    wanted: list[NodeId] = field(default_factory=list)
    """Nodes whose certificates are missing; their rows wait in the gateway's outbox."""
    is_certified: bool = True
    is_past: bool = False
    """Of a life that is over (its clock was set back, or it is played back): it is told, and says nothing of now."""


class Pin(msgspec.Struct, frozen=True):
    """A swarm as a region's operators have let it in."""

    name: str
    """What it is called here."""
    swarm: str
    """Its own name."""
    root: bytes
    """The first root statement of its fleet."""
    quota_bytes_s: int = 131_072
    """1 Mbit/s: eight hours of an object a second are caught up in a minute."""
    quota_burst_bytes: int = 16_777_216
    """Two such catch-ups."""
    confirm_observers: int = 2

    @property
    def key(self) -> bytes:
        """What the swarm is known by above."""
        return swarm_key(decode_envelope(self.root).digest, self.swarm)


class Gate:
    """One swarm at a region.

    Args:
        pin: The swarm.
        seed: The region's Ed25519 seed.
        crypto: The library.
        restored: (kind, statement) of what was kept of its trust.
        lives: Gateway to the highest life that was heard, and the highest number in it.
        strangers: What keys without a certificate may cost, shared by all gates.
        clock_ms: The region's clock, milliseconds since 1970; None: any stamp is taken.

    Raises:
        IdentityError: The pinned root is none.
    """

    def __init__(
        self,
        pin: Pin,
        seed: bytes,
        crypto: Crypto,
        restored: Iterable[tuple[str, bytes]] = (),
        lives: Mapping[NodeId, tuple[int, int]] | None = None,
        strangers: Allowance | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.pin = pin
        self.key = pin.key
        self._seed, self._crypto = seed, crypto
        self._signer = NodeSigner(crypto, seed)
        self.trust = Trust(pin.swarm, [pin.root], crypto)
        self._pairs: dict[bytes, Pair] = {}
        self._clock_ms = clock_ms
        self._numbers = {node: Numbers.restored(*last) for node, last in (lives or {}).items()}
        self._allowance = Allowance(pin.quota_bytes_s, pin.quota_burst_bytes)
        self._reserves = Reserves(pin.quota_bytes_s, pin.quota_burst_bytes)
        self._strangers = strangers or Allowance(16_384, 1 << 20)
        self._own_strangers = Allowance(STRANGERS_BYTES_S, STRANGERS_BURST_BYTES)
        self._facts: dict[bytes, Facts] = {}
        self._verified: dict[bytes, None] = {}
        self.counts: dict[str, int] = {}
        waiting = list(restored)
        for _ in range(len(waiting)):
            left = [one for one in waiting if not self._takes(*one)]
            if len(left) == len(waiting):
                break
            waiting = left

    # --- Frames -------------------------------------------------------------------------------------------------------

    def is_gateway(self, public_key: bytes) -> bool:
        """Whether the swarm's root stands behind this key as a gateway's."""
        held = self.trust.certified(node_id_of(public_key))
        return held is not None and held.public_key == public_key and ROLE in held.roles

    def _is_gateway_still(self, node: NodeId) -> bool:
        held = self.trust.certified(node)
        return held is not None and ROLE in held.roles

    def hear(self, frame: bytes, now_ns: int) -> Heard | int | None:
        """A frame came to a place of this swarm.

        Args:
            frame: Bytes from anybody.
            now_ns: Monotonic clock.

        Returns:
            What it says; milliseconds to pause where the quota is used up; None where it is nothing.
        """
        try:
            head = read_head(frame)
        except WireError:
            self._count("malformed")
            return None
        if head.way is not Way.UP or head.swarm != self.key:
            self._count("misplaced")
            return None
        is_certified = self.is_gateway(head.public_key)
        gateway = head.sender
        numbers = self._numbers.get(gateway)
        if numbers is not None and numbers.is_copy(head.life, head.number):
            self._count("copies")
            if not is_certified or head.life == numbers.life or now_ns - numbers.told_ns < TELL_NS:
                return None
            numbers.told_ns = now_ns
            return self._open(head, frame, is_certified)  # An outbox or a clock was set back: it is told the life.
        allowances = (self._allowance,) if is_certified else (self._own_strangers, self._strangers)
        pause_ms = max(one.pause_ms(now_ns) for one in allowances)
        if pause_ms and is_certified and (reserve := self._reserves.of(gateway, self._is_gateway_still)) is not None:
            allowances = (reserve,)
            pause_ms = min(pause_ms, reserve.pause_ms(now_ns))
        if pause_ms:
            self._count("over_quota" if is_certified else "strangers")
            return pause_ms if is_certified else None
        heard = self._open(head, frame, is_certified)
        if heard is not None or not is_certified:
            for one in allowances:
                one.spend(len(frame))
        return heard

    def _open(self, head: Head, frame: bytes, is_certified: bool) -> Heard | None:
        try:
            pair = self.pair(head.public_key)
            up = read_up(pair.open(frame))
        except (IdentityError, WireError):
            self._count("unopened")
            return None
        heard = Heard(head.sender, head.public_key, head.life, up, is_certified=is_certified)
        numbers = self._numbers.get(head.sender)
        if numbers is not None and head.life < numbers.life:
            heard.is_past = True
            return heard
        self._read(heard, head)
        if heard.is_certified:
            if numbers is None:
                if len(self._numbers) >= GATEWAYS_MAX:
                    del self._numbers[next(iter(self._numbers))]
                numbers = self._numbers[head.sender] = Numbers()
            numbers.add(head.life, head.number)
        return heard

    def told(self, frame: bytes, life: int, number: int) -> Heard | None:
        """An answer to a question of this region's.

        Args:
            frame: Bytes from anybody.
            life: Of the question.
            number: The same; an answer to another question is nothing.

        Returns:
            What it says; None where it is no such answer of a gateway that this swarm's root stands behind.
        """
        try:
            head = read_head(frame)
            is_asked = head.way is Way.TELL and head.swarm == self.key and (head.life, head.number) == (life, number)
            if not is_asked or not self.is_gateway(head.public_key):
                self._count("misplaced")
                return None
            up = read_up(self.pair(head.public_key).open(frame))
        except (IdentityError, WireError):
            self._count("unopened")
            return None
        heard = Heard(head.sender, head.public_key, head.life, up)
        for row in up.rows:
            if row.kind in (RowKind.OBJECT, RowKind.SITE):
                self._judge(row, up.batches, heard)
        return heard

    def life_of(self, gateway: NodeId) -> int:
        """The highest life of a gateway that was heard; 0 for none."""
        numbers = self._numbers.get(gateway)
        return 0 if numbers is None else numbers.life

    def last_of(self, gateway: NodeId) -> tuple[int, int]:
        """The highest life of a gateway that was heard, and the highest number in it; (0, -1) for none."""
        numbers = self._numbers.get(gateway)
        return (0, -1) if numbers is None else (numbers.life, numbers.highest)

    def pair(self, public_key: bytes) -> Pair:
        """The seal between the region and one key.

        Raises:
            IdentityError: The key is none.
        """
        pair = self._pairs.get(public_key)
        if pair is None:
            pair = Pair(self._crypto, self._seed, public_key)
            if len(self._pairs) >= GATEWAYS_MAX:
                del self._pairs[next(iter(self._pairs))]
            self._pairs[public_key] = pair
        return pair

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def _read(self, heard: Heard, head: Head) -> None:
        up = heard.up
        for row in up.rows:
            if row.kind == RowKind.TRUST:
                self._judge(row, up.batches, heard)
        if not heard.is_certified and not self.is_gateway(head.public_key):
            heard.wanted.append(EVERYBODY)
            return
        heard.is_certified = True
        for row in up.rows:
            if row.kind != RowKind.TRUST:
                self._judge(row, up.batches, heard)

    def _judge(self, row: UpRow, batches: Sequence[bytes], heard: Heard) -> None:
        try:
            taken = self._row(row, [batches[place] for place in row.proofs], heard)
        except (WireError, IdentityError) as error:
            heard.refused.append((row.seq, str(error)[:96]))
            self._count("refused")
            return
        if taken is not None:
            heard.taken.append((row.seq, taken))

    def _row(self, row: UpRow, proofs: Sequence[bytes], heard: Heard) -> Taken | None:
        """What a row says; None where it waits, or says nothing new."""
        match row.kind:
            case RowKind.OBJECT:
                read = [self._proof(raw, heard) for raw in proofs]
                held = [one for one in read if one is not None]
                if len(held) < len(read):
                    return None
                pairs = [(batch, self._facts_of(batch)) for batch in held]
                operators = operators_of(self.trust.chain)
                said_row = read_object(row.body)
                self._check_time(said_row.stamp)
                found = derive(said_row, pairs, self.pin.swarm, operators, self._crypto.verify)
                self._check_time(found.last_ms)
                return found
            case RowKind.RECORD:
                if len(proofs) != 1:
                    raise WireError("a record is one batch")
                batch = self._proof(proofs[0], heard)
                return None if batch is None else _record(batch)
            case RowKind.TRUST:
                said = read_trust(row.body)
                if self._holds(said.kind, said.statement):
                    return TrustTaken(said.kind, said.statement)
                heard.known_before.append(row.seq)
                return None
            case RowKind.REPORT:
                report = admit_report(decode_envelope(row.body), self._crypto.verify)
                if not self._is_certified(report.node, report.public_key, heard):
                    return None
                return report
            case RowKind.SITE:
                site = read_site(row.body)
                self._check_time(site.as_of_ms)
                return site
            case _:
                raise WireError(f"rows of kind {row.kind} are not known here")

    def _check_time(self, stamp_ms: int) -> None:
        ahead_ms = 0 if self._clock_ms is None else stamp_ms - self._clock_ms()
        if ahead_ms > AHEAD_MS:
            ahead_s = min(ahead_ms // 1_000, 10**12)
            raise WireError(f"it is of {ahead_s} s to come: set the clock of the swarm, or of the region")

    def _proof(self, raw: bytes, heard: Heard) -> Batch | None:
        """A batch whose origin signed it; None where its certificate is missing."""
        batch = open_batch(raw)
        held = self.trust.certified(batch.origin)
        if held is None:
            self._miss(batch.origin, heard)
            return None
        if batch.digest not in self._verified:
            if not verify_batch(batch, held.public_key, self._signer):
                raise IdentityError(f"{batch} is not signed by its node")
            _keep(self._verified, batch.digest, None)
        return batch

    def _miss(self, node: NodeId, heard: Heard) -> None:
        if node in self.trust.revoked:
            raise IdentityError("it is of a revoked node")
        if node not in heard.wanted and len(heard.wanted) < 64:
            heard.wanted.append(node)

    def _is_certified(self, node: NodeId, public_key: bytes, heard: Heard) -> bool:
        held = self.trust.certified(node)
        if held is None:
            self._miss(node, heard)
        elif held.public_key != public_key:
            raise IdentityError("it is signed by a key that was replaced")
        return held is not None

    def _facts_of(self, batch: Batch) -> Facts:
        facts = self._facts.get(batch.digest)
        if facts is None:
            if batch.stream is not Stream.FACTS:
                raise WireError("an object's proof is a batch of facts")
            facts = decode_facts(batch.body)
            _keep(self._facts, batch.digest, facts)
        return facts

    def _holds(self, kind: str, statement: bytes) -> bool:
        """Take a statement of trust; whether it was new. Raises `IdentityError` where it does not hold."""
        before = self.trust.news.count
        if kind in ("node", "seen"):  # As `Trust.journalled` has them: what was kept is taken as it came.
            self.trust.admit_certificate(statement)
        else:
            self.trust.add(kind, statement)
        self.trust.news.take()
        self.trust.news.take_gone()
        return self.trust.news.count > before

    def _takes(self, kind: str, statement: bytes) -> bool:
        try:
            self._holds(kind, statement)
        except (IdentityError, WireError):
            return False
        return True

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def _keep(table: dict[bytes, _T], key: bytes, value: _T) -> None:
    if len(table) >= FACTS_KEPT:
        del table[next(iter(table))]
    table[key] = value


def _record(batch: Batch) -> RecordRow:
    place = (batch.origin, batch.stream, *batch.dot, batch.stamp)
    match batch.stream:
        case Stream.STATUS:
            return RecordRow(*place, status=decode_status(batch.body))
        case Stream.COUNTERS:
            said = decode_vitals(batch.body)
            return RecordRow(*place, status=said.status, counters=said.counters)
        case Stream.EVENTS:
            return RecordRow(*place, events=decode_events(batch.body))
        case _:
            raise WireError(f"records of stream {batch.stream} are not shared")
