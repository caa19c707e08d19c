"""What one member may make this node do: an account of work for each, which debts silence until time has paid them.

Rules this file keeps:

- Work is counted, not timed, so that every run of the simulator decides alike; a unit is about a microsecond on the
  reference machine (`tests/bench/hostile_state.py` measures how far off that is).
- Work that was begun is finished: an account may go below zero. While it is, nothing new of its owner is taken in.
  So what an owner costs in the long run is the rate, whatever a single message makes necessary.
- Who goes below zero is named, at most once a minute, with what it sent since its account was last full.
- What a member signs costs the air beside work: an account in bytes of each author bounds what is taken in of it, and
  another what is sent of it to others (`Relays`). So what one author can make a node send is a rate, however its logs
  differ from node to node and whoever asks.
- Answers have accounts of their own, in bytes (`Answers`): each asker may have everything that is held once and
  everything that is new once, and beyond that a trickle, whatever it asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch

WORK_RATE = 18_000
"""Units of work a second, 1.8 % of a core, for what a member signs and again for what it sends: with the bursts spread
over a minute and what cannot be attributed it stays below 5 %."""
AUTHOR_BURST = 500_000
"""Units that may come at once of one author: the work of a log of 2,000 sightings; its bytes have their own bound."""
SENDER_BURST = 200_000
"""Units that may come at once from one sender: questions and repairs of a newcomer that lacks 1.6 MB."""
AUTHOR_BYTES_S = 4_000
"""Bytes a second that are taken in of one author: ten times what a busy node's sightings, claims and records take."""
AUTHOR_BURST_BYTES = 131_072
"""The same at once: a log of 1,300 sightings that a newcomer reads; in ten seconds it is two thirds of a budget."""
AUTHOR_RESUME_BYTES = 8_192
"""What a debtor must have again before it is heard: two seconds, so that peers learn of each change before the next."""
RELAY_BYTES_S = 6_000
"""Bytes of one other author's that a node sends a second beside one copy of what it takes in: repairs of what was lost
and, with that copy, 2.5 times what an author may write at length; who relays to three others passes 3 kB/s on."""
RELAY_BURST_BYTES = 32_768
"""The same at once, beside one copy of what is held: what a peer that restarted without a journal lacks."""
ALARM_NS = 60_000_000_000
"""Least time between two alarms about one member: an alarm is for people."""
ACCOUNTS_MAX = 8_192
"""More accounts than a swarm has members are not kept; those that are full are dropped first."""
MESSAGE_UNITS = 20
"""Reading one message, whatever it says."""
OPEN_UNITS = 20
"""Reading the header of one batch and looking whether it is known."""
VERIFY_UNITS = 150
"""Checking one Ed25519 signature (libsodium: 100 to 150 us on the reference machine)."""
BATCH_UNITS = 150
"""Keeping one batch: hashes, frontier, journal, passing on."""
ROW_UNITS = 25
"""Decoding a row and putting it into a view, beside the decisions it causes, which the view counts itself."""
HAVE_ROW_UNITS = 5
"""Comparing one origin of a peer's summary."""
BYTES_A_UNIT = 8
"""Repairs sent on request: 18,000 units are 144 kB a second to one peer after a first 1.6 MB."""
ANSWER_BYTES_S = 8_000
"""Answers to one asker beyond what it may have once: what loss makes necessary again, and small talk. Three members who
ask without end take 24 kB/s of each other one."""
ANSWER_BURST_BYTES = 16_384
"""The same at once: summaries of a thousand origins, and some proofs."""
ANSWER_COPY_S = 16
"""One more copy of everything held in this time: whoever reads a large log at its author's rate asks for it again."""

_NS = 1_000_000_000
"""Nanoseconds a second."""


@dataclass(slots=True)
class _Account:
    level: int
    """Units left times 10^9; below zero it is a debt."""
    at_ns: int
    units: int = 0
    """Spent since the account was last full."""
    things: int = 0
    """Batches or messages since then."""
    evidence: Batch | None = None
    alarmed_ns: int = -ALARM_NS


class Accounts:
    """One account for each member, in one role: what it wrote, or what it sent."""

    def __init__(self, code: str, what: str, burst: int, rate: int = WORK_RATE, resume: int = 0) -> None:
        """All accounts are full.

        Args:
            code: Of the alarms.
            what: What the members do here, for people: "signed" or "sent".
            burst: Units that an account holds.
            rate: Units that come back in a second.
            resume: Units from which on a debtor is heard again.
        """
        self._burst = burst
        self._rate = rate
        self._resume = resume * _NS
        self._full = burst * _NS
        """A full account's level."""
        self._code = code
        self._what = what
        self._accounts: dict[NodeId, _Account] = {}
        self.debtors: set[NodeId] = set()
        """Who went below zero and had not paid when last asked."""

    def is_in_debt(self, node: NodeId, now_ns: int) -> bool:
        """Whether nothing new of this member is to be taken in."""
        account = self._accounts.get(node)
        if account is None:
            return False
        if account.level < self._resume:
            self._refill(account, now_ns)
            if account.level < (self._resume if node in self.debtors else 0):
                return True
        if self.debtors:
            self.debtors.discard(node)
        return False

    def room(self, node: NodeId, now_ns: int) -> int | None:
        """Units that this member may still cause before it is in debt; None where that is half of the burst."""
        if self.is_in_debt(node, now_ns):
            return 0
        account = self._accounts.get(node)
        if account is None:
            return None
        self._refill(account, now_ns)
        return None if 2 * account.level >= self._full else account.level // _NS

    def charge(
        self, node: NodeId, units: int, now_ns: int, things: int = 0, evidence: Batch | None = None
    ) -> Sequence[Alarm]:
        """Book work.

        Args:
            node: Who caused it.
            units: How much.
            now_ns: Own monotonic clock.
            things: Batches or messages among it.
            evidence: What the member did last, which says so in the alarm; signed by it where it is its own.

        Returns:
            An alarm when the account has just gone below zero.
        """
        account = self._accounts.get(node)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                self._drop_full(now_ns)
            account = self._accounts[node] = _Account(self._full, now_ns)
        self._refill(account, now_ns)
        account.level -= units * _NS
        account.units += units
        account.things += things
        if evidence is not None:
            account.evidence = evidence
        if account.level >= 0:
            return ()
        self.debtors.add(node)
        if now_ns - account.alarmed_ns < ALARM_NS:
            return ()
        account.alarmed_ns = now_ns
        text = f"{node.hex()} {self._what} {account.things} things {self._excess(account)}: what else it says waits"
        return (Alarm(self._code, text if account.evidence is None else f"{text}; the last was {account.evidence}"),)

    def _excess(self, account: _Account) -> str:
        return (
            f"that cost {account.units / 1e6:.2f} s of work, more than {self._burst / 1e6} s and "
            f"{self._rate / 1e4} % of a core after that"
        )

    def _refill(self, account: _Account, now_ns: int) -> None:
        if now_ns > account.at_ns:
            account.level += (now_ns - account.at_ns) * self._rate
            account.at_ns = now_ns
        if account.level >= self._full:
            account.level = self._full
            account.units = account.things = 0

    def _drop_full(self, now_ns: int) -> None:
        for node, account in list(self._accounts.items()):
            self._refill(account, now_ns)
            if account.level == self._full:
                del self._accounts[node]
        while len(self._accounts) >= ACCOUNTS_MAX:
            del self._accounts[next(iter(self._accounts))]


class Volumes(Accounts):
    """The same in bytes."""

    def _excess(self, account: _Account) -> str:
        return f"of {account.units:,} B, more than {self._burst:,} B at once and {self._rate:,} B/s after that"


class Relays:
    """How many bytes of each other author this node still sends.

    In any time of `t` seconds these are at most `RELAY_BURST_BYTES`, what is held of the author at its beginning, what
    is taken in meanwhile, `t` times `RELAY_BYTES_S`, and what was begun last.
    """

    def __init__(self) -> None:
        """Nothing was sent."""
        self._levels: dict[NodeId, tuple[int, int]] = {}
        """Bytes left times 10^9, and when that was."""

    def join(self, author: NodeId, size_bytes: int, now_ns: int) -> None:
        """Something is new here: it may be sent once beside what may be sent anyway."""
        level, at_ns = self._levels.get(author) or self._begin(author, RELAY_BURST_BYTES, now_ns)
        self._levels[author] = level + size_bytes * _NS, at_ns

    def may_send(self, author: NodeId, held_bytes: int, now_ns: int) -> bool:
        """Whether a batch of this author may go out.

        Args:
            author: Who signed it.
            held_bytes: What is held of it here.
            now_ns: Own monotonic clock.
        """
        full = RELAY_BURST_BYTES + held_bytes
        level, at_ns = self._levels.get(author) or self._begin(author, full, now_ns)
        level = min(full * _NS, level + max(0, now_ns - at_ns) * RELAY_BYTES_S)
        self._levels[author] = level, max(at_ns, now_ns)
        return level > 0

    def spend(self, author: NodeId, size_bytes: int) -> None:
        """So much of it was sent."""
        level, at_ns = self._levels[author]
        self._levels[author] = level - size_bytes * _NS, at_ns

    def _begin(self, author: NodeId, level_bytes: int, now_ns: int) -> tuple[int, int]:
        if len(self._levels) >= ACCOUNTS_MAX:
            # Whoever was sent longest ago: its account has filled up, or soon would have.
            del self._levels[min(self._levels, key=lambda one: self._levels[one][1])]
        return level_bytes * _NS, now_ns


@dataclass(slots=True)
class _Share:
    level: int
    """Bytes left times 10^9; below zero it is a debt."""
    at_ns: int
    joined_bytes: int
    """What had been joined when the level was last raised."""


class Answers:
    """How many bytes each asker is still answered with.

    In any time of `t` seconds an asker gets at most `ANSWER_BURST_BYTES`, what is held, what is joined meanwhile (but
    for its own), `t` times (`ANSWER_BYTES_S` + what is held / `ANSWER_COPY_S`), and the one answer that was begun last.
    """

    def __init__(self) -> None:
        """Nobody has asked."""
        self._shares: dict[NodeId, _Share] = {}
        self._joined_bytes = 0

    def join(self, origin: NodeId, size_bytes: int) -> None:
        """Something is new here: everybody may have it once, unasked but for its author."""
        self._joined_bytes += size_bytes
        share = self._shares.get(origin)
        if share is not None:
            share.joined_bytes += size_bytes

    def may_have(self, asker: NodeId, held_bytes: int, now_ns: int) -> bool:
        """Whether a question of this asker is answered.

        Args:
            asker: Who asks.
            held_bytes: All batches held here.
            now_ns: Own monotonic clock.
        """
        full = (ANSWER_BURST_BYTES + held_bytes) * _NS
        share = self._shares.get(asker)
        if share is None:
            if len(self._shares) >= ACCOUNTS_MAX:
                # Whoever asked longest ago: its share has filled up, or soon would have.
                del self._shares[min(self._shares, key=lambda node: self._shares[node].at_ns)]
            share = self._shares[asker] = _Share(full, now_ns, self._joined_bytes)
        level = share.level + (self._joined_bytes - share.joined_bytes) * _NS
        level += max(0, now_ns - share.at_ns) * (ANSWER_BYTES_S + held_bytes // ANSWER_COPY_S)
        share.level = min(full, level)
        share.at_ns = max(share.at_ns, now_ns)
        share.joined_bytes = self._joined_bytes
        return share.level > 0

    def spend(self, asker: NodeId, size_bytes: int) -> None:
        """It was answered with so much."""
        self._shares[asker].level -= size_bytes * _NS


class Quotas:
    """All accounts of one node."""

    def __init__(self) -> None:
        """All are full."""
        self.authors = Accounts("state-flood", "signed", AUTHOR_BURST)
        self.volumes = Volumes("state-flood", "signed", AUTHOR_BURST_BYTES, AUTHOR_BYTES_S, AUTHOR_RESUME_BYTES)
        self.senders = Accounts("state-flood-sender", "sent", SENDER_BURST)
        self.answers = Answers()
        self.relays = Relays()

    def is_muted(self, author: NodeId, now_ns: int) -> bool:
        """Whether nothing new of this author is taken in just now."""
        return self.authors.is_in_debt(author, now_ns) or self.volumes.is_in_debt(author, now_ns)

    def room(self, author: NodeId, now_ns: int) -> int | None:
        """Bytes of this author that are taken in just now; None: whatever there is."""
        return 0 if self.authors.is_in_debt(author, now_ns) else self.volumes.room(author, now_ns)

    def muted(self, now_ns: int) -> set[NodeId]:
        """Authors in debt: they are not admitted, not asked for and not passed on, and peers are told so."""
        if not self.authors.debtors and not self.volumes.debtors:
            return set()
        debtors = self.authors.debtors | self.volumes.debtors
        return {author for author in debtors if self.is_muted(author, now_ns)}
