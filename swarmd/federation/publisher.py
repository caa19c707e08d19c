"""What a gateway has to say: the swarm's state compared with what the region is known to have.

Rules this file keeps:

- An object of the gateway's shares is said where the region has something else of it: at once where people would see a
  difference (it is new, confirmed, named otherwise, seen by somebody else, elsewhere), and at most every `refresh_s`
  where it only was seen again.
- A row is derived here as the region will derive it; one that does not hold is not sent.
- What the outbox had no room for, or the region refused, counts as never said: it is said again once half of the outbox
  is free, or with the next comparison. A refused statement of trust is said again after `AGAIN_S`, and then less and
  less often: it may have overtaken the root that it needs.
- Status and counters are said every `health_s`, events and reports when they change, the site's own word every
  `SITE_S`, trust when it is asked for and when it changes.
"""

import asyncio
import heapq
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from swarmd import __version__
from swarmd.errors import DaemonError
from swarmd.federation.above import GatewayDaemon
from swarmd.federation.outbox import KNOWN_MAX, LOST_MAX, Done, Outbox, Waiting
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import MemberState, StateChanged
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.federation.gate import EVERYBODY
from swarmd_protocols.federation.objects import Derived, Joined, Member, ObjectRow, derive, encode_object
from swarmd_protocols.federation.shares import share_of
from swarmd_protocols.federation.wire import DIGEST_BYTES, Ask, Known, RowKind, SiteRow, TrustRow, encode_row
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.crdt.facts import Facts, decode_facts
from swarmd_protocols.state.evidence import Evidence
from swarmd_protocols.state.observations import ObjectChanged

SITE_S = 10.0
"""Seconds between two words on the site itself, 70 bytes: how old "as of" is where all is well."""
RECONCILE_S = 60.0
"""Seconds between two comparisons of all objects: finds what a lost word or a power cut left out."""
SCAN_S = 0.25
"""Seconds between two looks at what changed: with a second for the way up an object is readable above within one."""
MOVED_CM = 100
"""An object that moved by less is where it was."""
SAID_MAX = 50_000
"""Objects of which it is kept what was said last, 15 MB; others are compared with what the region has."""
TRIES = 5
"""Looks at an object whose proof is not whole; after that it waits for the next change, or the next comparison."""
AGAIN_S = 2.0
"""Seconds before refused statements of trust are said again; twice as long each time, up to `RECONCILE_S`."""
_SLOT_BYTES = 25
"""Of a record's key: stream, node and incarnation."""
_FACTS_KEPT = 256
"""Batches whose facts are kept read."""


class _Said(NamedTuple):
    """The last word on an object that went into the outbox."""

    at_s: float
    stamp: int
    digest: bytes
    news: tuple[object, ...]


@dataclass(slots=True)
class _Again:
    """Statements of trust that the region has refused, by their keys, and when they are said again."""

    keys: set[bytes] = field(default_factory=set)
    due_s: float = 0.0
    wait_s: float = AGAIN_S

    def add(self, key: bytes, now_s: float) -> None:
        """The region does not take it."""
        if not self.keys:
            self.due_s, self.wait_s = now_s + self.wait_s, min(2 * self.wait_s, RECONCILE_S)
        self.keys.add(key)

    def take(self, now_s: float) -> set[bytes]:
        """What is to be said again now."""
        if now_s < self.due_s:
            return set()
        keys, self.keys = self.keys, set()
        return keys


class Publisher:
    """Fills one outbox.

    Args:
        daemon: The node.
        outbox: Where rows go.
        crypto: Checks what is said.
        refresh_s: Seconds between two words on an object that only was seen again.
        health_s: Seconds between two words on status and counters.
    """

    def __init__(
        self, daemon: GatewayDaemon, outbox: Outbox, crypto: Crypto, refresh_s: float, health_s: float
    ) -> None:
        self._daemon = daemon
        self._above = daemon.above
        self._outbox = outbox
        self._crypto = crypto
        self._refresh_s, self._health_s = refresh_s, health_s
        self.known = outbox.known()
        """Object to (stamp, digest) as the region has it."""
        self.shares: frozenset[int] = frozenset()
        self.gateways = 1
        self.unproven = 0
        """Objects that could not be said, for their proof did not hold."""
        self._said: dict[bytes, _Said] = {}
        self._changed: set[str] = set()
        self._missed: dict[str, int] = {}
        self._later: dict[str, float] = {}
        """Objects that were only seen again, and when they are looked at."""
        self._records: dict[bytes, bytes] = {}
        self._reports: dict[tuple[NodeId, str], bytes] = {}
        self._facts: dict[bytes, Facts] = {}
        self._lost: dict[tuple[int, bytes], None] = {}
        """(kind, key) of what the outbox has dropped."""
        self._trust_seen = -1
        self._again = _Again()
        self._compare_s = 0.0
        self._health_due_s = 0.0
        self._site_due_s = 0.0
        self.shown = 0

    # --- What happens -------------------------------------------------------------------------------------------------

    def on_event(self, event: object) -> None:
        """The daemon's bus."""
        if isinstance(event, StateChanged) and isinstance(event.detail, ObjectChanged):
            change = event.detail
            # What became part of another is said with that one.
            self._changed.add(change.superseded_by or change.view.object_id)

    def claim(self, shares: frozenset[int], gateways: int) -> None:
        """These shares are this gateway's from now on."""
        if shares - self.shares:
            self._compare_s = 0.0
            self._records.clear()
            self._reports.clear()
        if (shares, gateways) != (self.shares, self.gateways):
            self._site_due_s = 0.0
        self.shares, self.gateways = shares, gateways

    def on_done(self, rows: Iterable[Done]) -> None:
        """The region has these."""
        news = {}
        for row in rows:
            if row.kind == RowKind.OBJECT and row.mark:
                news[row.key] = (int.from_bytes(row.mark[:8], "big"), row.mark[8:])
        self._learn(news)

    def on_refused(self, rows: Iterable[Done]) -> None:
        """The region does not take these: objects and statements of trust among them are said again, in case that what
        was wrong is mended."""
        for row in rows:
            if row.kind == RowKind.OBJECT:
                self._said.pop(row.key, None)
            elif row.kind == RowKind.TRUST:
                self._again.add(row.key, time.monotonic())

    def on_taken_back(self, rows: Iterable[Done]) -> None:
        """These left without the region having them: what the swarm shows of it then is said again."""
        self._lost.update(((row.kind, row.key), None) for row in rows)

    def on_known(self, objects: Iterable[Known]) -> None:
        """The region has these, from another gateway."""
        self._learn({one.object_id: (one.stamp, one.digest) for one in objects})

    def forget(self) -> None:
        """The region has lost what it had: everything that the swarm still shows is said again."""
        self.known.clear()
        self._outbox.forget_known()
        self._unsay()

    def _unsay(self) -> None:
        """What was said last may be in no outbox: the next look compares everything with what the region has."""
        self._said.clear()
        self._records.clear()
        self._reports.clear()
        self._trust_seen = -1
        self._compare_s = self._health_due_s = self._site_due_s = 0.0

    def _unsay_lost(self) -> None:
        """What was dropped for want of room is said again where there is some."""
        self._lost.update(dict.fromkeys(self._outbox.take_lost()))
        while len(self._lost) > LOST_MAX:
            del self._lost[next(iter(self._lost))]
        if not self._lost or not self._outbox.has_room:
            return
        for kind, key in self._lost:
            match kind:
                case RowKind.OBJECT:
                    self._said.pop(key, None)
                    self._compare_s = 0.0
                case RowKind.RECORD:
                    self._records.pop(key[:_SLOT_BYTES], None)
                case RowKind.REPORT:
                    self._reports.pop((NodeId(key[:16]), key[16:].decode()), None)
                case RowKind.TRUST:
                    self._trust_seen = -1
        self._lost.clear()

    def _learn(self, news: dict[bytes, tuple[int, bytes]]) -> None:
        if not news:
            return
        for key, word in news.items():
            if word > self.known.get(key, (-1, b"")):
                self.known[key] = word
        while len(self.known) > KNOWN_MAX:
            del self.known[next(iter(self.known))]
        self._outbox.learn(news)

    # --- What is said -------------------------------------------------------------------------------------------------

    async def scan(self) -> int:
        """Look at what changed, and put what is news into the outbox; returns how many rows.

        Raises:
            DaemonError: The outbox takes nothing; what would have gone there is looked for again.
        """
        now_s = time.monotonic()
        self._unsay_lost()
        rows = self._trust_rows()
        if now_s >= self._health_due_s:
            self._health_due_s = now_s + self._health_s
            rows += self._record_rows((Stream.STATUS, Stream.COUNTERS))
        rows += self._record_rows((Stream.EVENTS,))
        rows += self._report_rows()
        self._changed.update(name for name, due_s in self._later.items() if due_s <= now_s)
        wanted: Collection[str] | None = self._changed
        if now_s >= self._compare_s:
            self._compare_s, wanted = now_s + RECONCILE_S, None
            self._forget_lives()
        self._changed = set()
        if wanted is None or wanted:
            rows += await self._object_rows(wanted, now_s)
        if now_s >= self._site_due_s:
            self._site_due_s = now_s + SITE_S
            rows.append(Waiting(RowKind.SITE, b"site", encode_row(self.site())))
        try:
            return self._outbox.put(rows, round(time.time() * 1000)) if rows else 0
        except DaemonError:
            self._unsay()
            raise

    async def _object_rows(self, wanted: Collection[str] | None, now_s: float) -> list[Waiting]:
        rows: list[Waiting] = []
        shown, missing = 0, set(wanted or ())
        for part in self._above.evidence(wanted):
            for one in part:
                self._missed.pop(one.view.object_id, None)
                missing.discard(one.view.object_id)
                is_candidate = one.view.tier == "candidate"
                if is_candidate and bytes.fromhex(one.view.object_id) not in self.known:
                    self._later.pop(one.view.object_id, None)
                    continue
                # What the region shows and who confirmed it is out is said too: it is no more than a candidate there.
                shown += not is_candidate
                row = self._object_row(one, now_s)
                if row is not None:
                    rows.append(row)
            await asyncio.sleep(0)
        if wanted is None:
            self.shown = shown
            self._missed.clear()
        for name in missing:
            # It is gone, or its proof is just being replaced: it is looked for a few times more.
            self._missed[name] = tries = self._missed.get(name, 0) + 1
            if tries < TRIES:
                self._later[name] = now_s + tries * SCAN_S
            else:
                del self._missed[name]
                self._later.pop(name, None)
        return rows

    def _object_row(self, one: Evidence, now_s: float) -> Waiting | None:
        """One object's row, where the region lacks what it says."""
        key = bytes.fromhex(one.view.object_id)
        self._later.pop(one.view.object_id, None)
        if share_of(key) not in self.shares:
            return None
        try:
            found, row = self._derived(one)
        except (WireError, IdentityError):
            self.unproven += 1
            return None
        held = self.known.get(key)
        digest = found.digest
        # A part of it that was said later than it, by who did not know yet, would be shown beside it for ever.
        is_hidden = held is None or all(self.known.get(part, (-1,))[0] < held[0] for part in found.merged)
        if held is not None and held[1] == digest and is_hidden:
            return None
        said, news = self._said.get(key), _news(found)
        is_waiting = said is not None and (held is None or held[0] < said.stamp)
        if said is not None and is_hidden and is_waiting and said.digest == digest:
            return None
        # Another gateway's word on top of the own one is answered at once: the own one counts, or its view differs.
        is_own = said is not None and (held is None or held[0] <= said.stamp)
        if said is not None and is_own and is_hidden and said.news == news and now_s - said.at_s < self._refresh_s:
            self._later[one.view.object_id] = said.at_s + self._refresh_s
            return None
        above = max(self.known.get(part, (-1, b""))[0] for part in (key, *found.merged))
        stamp = max(self._above.now_ms(), above + 1)
        if len(self._said) >= SAID_MAX:
            del self._said[next(iter(self._said))]
        self._said.pop(key, None)
        self._said[key] = _Said(now_s, stamp, digest, news)
        body = encode_object(ObjectRow(stamp, row.object_id, row.group, row.members, row.joins, row.reviews))
        return Waiting(
            RowKind.OBJECT, key, body, tuple(batch.raw for batch in one.batches), stamp.to_bytes(8, "big") + digest
        )

    async def shown_now(self, ask: Ask) -> tuple[list[Waiting], bool]:
        """What the swarm shows at this moment, whoever publishes it; (rows, whether these are all, else the newest).

        Args:
            ask: Which objects.
        """
        found: list[tuple[bool, int, Waiting]] = []
        for part in self._above.evidence(None):
            for one in part:
                row = self._row_now(one, ask) if one.view.tier != "candidate" else None
                if row is not None:
                    found.append(row)
            await asyncio.sleep(0)
        # The newest of those that were asked for; in the order of the batches, which several rows share.
        first = heapq.nlargest(ask.limit, range(len(found)), key=lambda at: found[at][:2])
        return [found[at][2] for at in sorted(first)], len(found) <= ask.limit

    def _row_now(self, one: Evidence, ask: Ask) -> tuple[bool, int, Waiting] | None:
        """(Whether it was asked for, when it was seen last, what says so); None where nothing is to be said."""
        try:
            found, row = self._derived(one)
        except (WireError, IdentityError):
            return None
        is_late = bool(ask.until_ms) and found.last_ms >= ask.until_ms
        is_asked = ask.label in ("", found.label) and found.last_ms >= ask.since_ms and not is_late
        # The word that the region has, or one above it: an answer and the present table order the same way.
        held = [self.known.get(part, (-1, b"")) for part in (found.object_id, *found.merged)]
        above = max(stamp for stamp, _ in held)
        is_known = held[0][1] == found.digest
        said = self._said.get(found.object_id)
        # Of another label by now, it goes up all the same where the region shows it under the one it had.
        is_renamed = above >= 0 and not is_known and (said is None or said.news[0] != found.label)
        if not is_asked and not is_renamed:
            return None
        stamp = held[0][0] if is_known else max(self._above.now_ms(), above + 1)
        body = encode_object(ObjectRow(stamp, row.object_id, row.group, row.members, row.joins, row.reviews))
        proofs = tuple(batch.raw for batch in one.batches)
        return is_asked, found.last_ms, Waiting(RowKind.OBJECT, found.object_id, body, proofs)

    def _derived(self, one: Evidence) -> tuple[Derived, ObjectRow]:
        row = ObjectRow(
            0,
            bytes.fromhex(one.view.object_id),
            one.group,
            tuple(Member(place, *key) for place, key in one.members),
            tuple(Joined(place, member) for place, member in one.joins),
            tuple(said.statement for said in one.view.reviews[:16]),
        )
        proofs = [(batch, self._facts_of(batch)) for batch in one.batches]
        swarm = self._daemon.info().swarm
        return derive(row, proofs, swarm, self._above.operators(), self._crypto.verify), row

    def _facts_of(self, batch: Batch) -> Facts:
        facts = self._facts.get(batch.digest)
        if facts is None:
            if len(self._facts) >= _FACTS_KEPT:
                del self._facts[next(iter(self._facts))]
            facts = self._facts[batch.digest] = decode_facts(batch.body)
        return facts

    def _record_rows(self, streams: Collection[Stream]) -> list[Waiting]:
        rows = []
        for batch in self._above.records(streams):
            if share_of(batch.origin) not in self.shares:
                continue
            slot = _slot(batch)
            if self._records.get(slot) == batch.digest:
                continue
            self._records[slot] = batch.digest
            # Of status and counters only the last counts; an earlier record of events may hold rows of its own.
            key = slot + batch.digest[:DIGEST_BYTES] if batch.stream is Stream.EVENTS else slot
            rows.append(Waiting(RowKind.RECORD, key, b"", (batch.raw,)))
        return rows

    def _forget_lives(self) -> None:
        """What was said of lives that the swarm keeps no more: a node may begin one each second, for weeks."""
        held = {_slot(batch) for batch in self._above.records((Stream.STATUS, Stream.COUNTERS, Stream.EVENTS))}
        self._records = {slot: digest for slot, digest in self._records.items() if slot in held}

    def _report_rows(self) -> list[Waiting]:
        rows = []
        for node, model, envelope in self._above.reports():
            if share_of(node) in self.shares and self._reports.get((node, model)) != envelope:
                self._reports[node, model] = envelope
                rows.append(Waiting(RowKind.REPORT, node + model.encode(), envelope))
        return rows

    def _trust_rows(self) -> list[Waiting]:
        revision = self._above.trust_revision()
        if revision != self._trust_seen:
            self._trust_seen, self._again = revision, _Again()
            return self.trust_of([EVERYBODY])
        again = self._again.take(time.monotonic())
        # What is no more among these is nothing that the swarm still says.
        return [row for row in self.trust_of([EVERYBODY]) if row.key in again] if again else []

    def trust_of(self, nodes: Iterable[NodeId]) -> list[Waiting]:
        """Statements of trust that a region asked for; `gate.EVERYBODY` stands for all."""
        wanted = list(nodes)
        said: list[tuple[str, bytes]] = []
        if EVERYBODY in wanted:
            own = self._daemon.info().node
            said += [one for one in self._above.statements() if one[0] == "root"]
            wanted = [own, *(member.node for member in self._daemon.members() if member.node != own)]
        for node in wanted:
            statement = self._above.certificate_statement(node)
            if statement is not None:
                said.append(("node", statement))
        said += [one for one in self._above.statements() if one[0] == "revoke"]
        return [
            Waiting(RowKind.TRUST, kind.encode() + statement[-64:], encode_row(TrustRow(kind, statement)))
            for kind, statement in said
        ]

    def site(self) -> SiteRow:
        """The gateway's own word of its swarm, as of now."""
        info, members = self._daemon.info(), self._daemon.members()
        alive = (MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEGRADED)
        return SiteRow(
            self._above.now_ms(),
            len(members),
            sum(member.state in alive for member in members),
            self.gateways,
            self.shown,
            len(self._outbox),
            self._outbox.size_bytes,
            info.has_origin,
            round(info.origin_latitude_deg * 1e7),
            round(info.origin_longitude_deg * 1e7),
            __version__[:64],
            sum(1 << share for share in self.shares),
        )


def _slot(batch: Batch) -> bytes:
    return bytes((batch.stream,)) + batch.origin + batch.dot[0].to_bytes(8, "big")


def _news(found: Derived) -> tuple[object, ...]:
    """What people would see a difference in."""
    east, north = found.east_cm, found.north_cm
    place = None if east is None or north is None else (east // MOVED_CM, north // MOVED_CM)
    return (found.label, found.detected, found.review, found.asset, found.observers, found.merged, place)
