"""Writes down what happens here and what others tell of themselves, and tells the swarm what it should know.

Rules this file keeps:

- Every row has an account that answers for it: what other members cause (their joins and failures, their user events,
  their own words) is charged to them, what may repeat without end at this node (alarms, a broker that comes and goes)
  to an account of its own kind; at `CAUSED_PER_S` after the first `CAUSED_BURST`, and bounded by the store.
- The same thing is said to the swarm at `SAID_PER_S` after the first `SAID_BURST`, so that what flaps does not push out
  the little that everybody keeps of this node.
- A kind of `Reach.WITNESS` is noticed by everybody and said by two: each waits by its rank in a hash, and holds its
  tongue when it has heard two others say it. Two, so that no single liar is the only witness.
- What others say is taken only of kinds that are told at all.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from swarmd.events.kinds import KINDS, TOLD, Reach
from swarmd.events.record import SUBJECT_MAX_CHARS, TEXT_MAX_CHARS, EventRecord, clean
from swarmd.events.store import EventStore
from swarmd.rates import TokenBucket, TokenBuckets
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.crdt.records import EVENTS_MAX, EventRow

CAUSED_PER_S = 0.2
"""Rows a second that another node may cause here, after the burst: a member that flaps every ten seconds."""
CAUSED_BURST = 64
"""Rows that another node may cause at once: its whole record of events four times over."""
ACCOUNTS_MAX = 4_096
"""Nodes whose rate is remembered, as many as the state has origins; the quietest is forgotten first."""
SAID_PER_S = 1 / 300
"""How often one kind of one subject is said to the swarm, a second, after the burst."""
SAID_BURST = 3
"""Times that one kind of one subject is said at once: it came, went and came again."""
WITNESSES = 2
RANK_S = 5.0
"""Seconds that each rank waits longer than the one before: two rounds of records between few peers."""
WAIT_MAX_S = 60.0
SAME_S = 300.0
"""Seconds within which two members' words about one subject are about one thing."""
_HEARD_MAX = 512
_DUE_MAX = 4_096
"""Rows that wait for their turn to be said: a swarm as large as a full view that fails at once, sixteen times over."""
_EPOCH_MS = EPOCH_2020_NS // 1_000_000


class _Due(msgspec.Struct):
    record: EventRecord
    at_s: float


class Recorder:
    """One node's history in the making."""

    def __init__(
        self,
        node: NodeId,
        name: str,
        life: int,
        store: EventStore,
        *,
        now_ms: Callable[[], int],
        name_of: Callable[[NodeId], str],
        members: Callable[[], Sequence[NodeId]],
        publish: Callable[[EventRecord], None],
        say: Callable[[EventRow], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin a life.

        Args:
            node: This node.
            name: Its name.
            life: Its number, which no other life of this node has.
            store: Where events are kept.
            now_ms: Swarm time, UTC milliseconds since 1970.
            name_of: A member's name.
            members: Every known member, this node among them.
            publish: Told of every event, own and others', once.
            say: Puts a row before the swarm.
            clock_s: Monotonic seconds.
        """
        self._node = node
        self._name = name
        self._life = life
        self._number = 0
        self._store = store
        self._now_ms = now_ms
        self._name_of = name_of
        self._members = members
        self._publish = publish
        self._say = say
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._said = TokenBuckets(SAID_PER_S, SAID_BURST, _HEARD_MAX)
        self._due: list[_Due] = []
        self._outbox: deque[EventRecord] = deque(maxlen=EVENTS_MAX)
        """What is said with the next tick; the record that carries it holds no more."""
        self._heard: OrderedDict[tuple[str, str], dict[NodeId, float]] = OrderedDict()
        """(kind, subject) to who has said it, and when."""
        self.counts = {"recorded": 0, "told": 0, "said": 0, "limited": 0, "left_to_others": 0, "unsaid": 0}

    def record(
        self,
        kind: str,
        subject: str = "",
        reason: str = "",
        evidence: str = "",
        cause: NodeId | None = None,
        account: str = "",
    ) -> None:
        """Write down that something happened here.

        Args:
            kind: One of `kinds.KINDS`.
            subject: What or whom it is about.
            reason: Why, in words.
            evidence: What shows it, in words or figures.
            cause: The other node that made it happen, which answers for the row.
            account: What of this node answers for it where it may repeat without end, a word; "": the node itself.
        """
        assert kind in KINDS, f"{kind} is no kind of event"
        account = account if cause is None or cause == self._node else cause.hex()
        if account and not self._admits(account):
            return
        self._number += 1
        record = EventRecord(
            self._now_ms(),
            self._name,
            self._node.hex(),
            self._life,
            self._number,
            kind,
            clean(subject, SUBJECT_MAX_CHARS),
            clean(reason, TEXT_MAX_CHARS),
            clean(evidence, TEXT_MAX_CHARS),
        )
        self.counts["recorded"] += 1
        self._store.put(record, account)
        self._publish(record)
        reach = KINDS[kind].reach
        if reach is Reach.SWARM:
            self._tell(record)
        elif reach is Reach.WITNESS:
            self._due.append(_Due(record, self._clock_s() + self._wait_s(record)))
            del self._due[:-_DUE_MAX]

    def learn(self, origin: NodeId, rows: Iterable[EventRow]) -> None:
        """Another node's rows have become known."""
        name = self._name_of(origin)
        for row in rows:
            if row.kind not in TOLD or not self._admits(origin.hex()):
                self.counts["limited"] += 1
                continue
            subject = clean(row.subject, SUBJECT_MAX_CHARS)
            self._note_heard(origin, row.kind, subject)
            record = EventRecord(
                row.at_ms + _EPOCH_MS,
                name,
                origin.hex(),
                row.life,
                row.number,
                row.kind,
                subject,
                clean(row.reason, TEXT_MAX_CHARS),
                clean(row.evidence, TEXT_MAX_CHARS),
            )
            self.counts["told"] += 1
            self._store.put(record, origin.hex())
            self._publish(record)

    def tick(self) -> None:
        """Once a second: say what is due and nobody has said in the meantime, however much, as one record's worth."""
        now_s = self._clock_s()
        due, self._due = (
            [one for one in self._due if one.at_s <= now_s],
            [one for one in self._due if one.at_s > now_s],
        )
        for one in due:
            said = self._heard.get((one.record.kind, one.record.subject), {})
            if sum(now_s - at_s < SAME_S for at_s in said.values()) >= WITNESSES:
                self.counts["left_to_others"] += 1
            else:
                self._tell(one.record)
        while self._outbox:
            record = self._outbox.popleft()
            self.counts["said"] += 1
            at_ms = max(0, record.at_ms - _EPOCH_MS)
            self._say(
                EventRow(record.life, record.number, at_ms, record.kind, record.subject, record.reason, record.evidence)
            )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _tell(self, record: EventRecord) -> None:
        if not self._said.take((record.kind, record.subject), int(self._clock_s() * 1e9)):
            self.counts["unsaid"] += 1
            return
        self._outbox.append(record)

    def _wait_s(self, record: EventRecord) -> float:
        """By rank among the members: the first two speak at once."""
        mark = f"{record.kind}\0{record.subject}".encode()
        ranks = sorted(blake2b(node + mark, digest_size=8).digest() for node in self._members())
        own = blake2b(self._node + mark, digest_size=8).digest()
        rank = sum(other < own for other in ranks)
        return min(WAIT_MAX_S, max(0, rank - WITNESSES + 1) * RANK_S)

    def _note_heard(self, origin: NodeId, kind: str, subject: str) -> None:
        said = self._heard.setdefault((kind, subject), {})
        said[origin] = self._clock_s()
        self._heard.move_to_end((kind, subject))
        while len(self._heard) > _HEARD_MAX:
            self._heard.popitem(last=False)

    def _admits(self, account: str) -> bool:
        bucket = self._buckets.get(account)
        if bucket is None:
            bucket = self._buckets[account] = TokenBucket(CAUSED_PER_S, CAUSED_BURST)
            if len(self._buckets) > ACCOUNTS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(account)
        if bucket.take(int(self._clock_s() * 1e9)):
            return True
        self.counts["limited"] += 1
        return False
