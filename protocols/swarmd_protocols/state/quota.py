"""What one member may make this node do: an account of work for each, which debts silence until time has paid them.

Rules this file keeps:

- Work is counted, not timed, so that every run of the simulator decides alike; a unit is about a microsecond on the
  reference machine (`tests/bench/hostile_state.py` measures how far off that is).
- Work that was begun is finished: an account may go below zero. While it is, nothing new of its owner is taken in.
  So what an owner costs in the long run is the rate, whatever a single message makes necessary.
- Who is named is who did it. A sender is named when what it sends unasked costs more than one member may, an author
  when it brings itself what was not asked for and is not taken in (`Unasked`); nobody for what others bring of its
  words, and nobody for what this node asked for. That is at most once a minute, with what was sent.
- What a member signs costs the air beside work: an account in bytes of each author bounds what is taken in of it, and
  another what is sent of it to others (`Relays`). So what one author can make a node send is a rate, however its logs
  differ from node to node and whoever asks. In that account each asker has a copy; whoever asks for more takes what
  lies above a copy, and a sixteenth of the rate, so that it keeps nothing from the others for long.
- Answers have accounts of their own, in bytes (`Answers`): each asker may have everything that is held once and
  everything that is new once, and beyond that a trickle, whatever it asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.messages import ROOM_UNSAID_BYTES

WORK_RATE = 18_000
"""Units of work a second, 1.8 % of a core, for what a member signs and again for what it sends: with the bursts spread
over a minute and what cannot be attributed it stays below 5 %."""
AUTHOR_BURST = 500_000
"""Units that may come at once of one author: the work of a log of 2,000 sightings; its bytes have their own bound."""
SENDER_BURST = 200_000
"""Units that may come at once from one sender: questions and repairs of a newcomer that lacks 1.6 MB."""
AUTHOR_BYTES_S = 4_000
"""Bytes a second that are taken in of one author: ten times what a busy node's sightings, claims and records take."""
AUTHOR_BURST_BYTES = 98_304
"""The same at once: a log of 1,000 sightings that a newcomer reads. Every node passes one copy of it on: with that,
the rates of ten seconds and `RELAY_BURST_BYTES` it is twice a budget (`tests/sim/test_author_air.py`)."""
AUTHOR_RESUME_BYTES = 8_192
"""What a debtor must have again before it is heard: two seconds, so that peers learn of each change before the next."""
RELAY_BYTES_S = 6_000
"""Bytes of one other author's that a node sends a second beside one copy of what it takes in: repairs of what was lost
and, with that copy, 2.5 times what an author may write at length; who relays to three others passes 3 kB/s on."""
RELAY_BURST_BYTES = 16_384
"""The same at once, beside one copy of what is held: what a peer that restarted without a journal lacks."""
RELAY_ASKER_SHARE = 16
"""One part in so many of that rate is for an asker that has had its copy, while others may still want theirs."""
UNASKED_BYTES = 2 * AUTHOR_BURST_BYTES
"""Bytes of one author that one sender may bring at once though they are not taken in: what it could take in itself at
once and passes on, and as much in answers that were under way when the author's account was spent."""
SHARES_MAX = 16_384
"""Askers' shares of authors that are kept, some 3 MB; which was used longest ago is forgotten first."""
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
ANSWER_UNITS = 140_000
"""An answer that brings nothing new: 1 MiB in the smallest batches, of some 150 bytes, `OPEN_UNITS` each."""
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
            code: Of the alarms; empty where nobody is to be named for a debt.
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
        self._accounts: dict[bytes, _Account] = {}
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
        level = self._level(node, now_ns)
        return None if 2 * level >= self._full else level // _NS

    def left(self, node: NodeId, now_ns: int) -> int:
        """Units left; below zero it is a debt."""
        return self._level(node, now_ns) // _NS

    def _level(self, node: NodeId, now_ns: int) -> int:
        account = self._accounts.get(node)
        if account is None:
            return self._full
        self._refill(account, now_ns)
        return account.level

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
        account = self._spend(node, units, now_ns, things, evidence)
        if account.level >= 0:
            return ()
        self.debtors.add(node)
        return self._name(account, node, now_ns) if self._code else ()

    def _spend(self, key: bytes, units: int, now_ns: int, things: int, evidence: Batch | None) -> _Account:
        account = self._accounts.get(key)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                self._drop_full(now_ns)
            account = self._accounts[key] = _Account(self._full, now_ns)
        self._refill(account, now_ns)
        account.level -= units * _NS
        account.units += units
        account.things += things
        if evidence is not None:
            account.evidence = evidence
        return account

    def _name(self, account: _Account, node: NodeId, now_ns: int) -> Sequence[Alarm]:
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


class Unasked(Volumes):
    """Bytes of authors from whom nothing is taken in just now, by who brought them, beside what it was asked for.

    An honest sender brings what it has taken in itself, which has a rate, and what it was asked for; an honest author
    what it writes. So neither is ever in debt here, whatever others bring, ask or say.
    """

    def bring(
        self, sender: NodeId, author: NodeId, size_bytes: int, now_ns: int, evidence: Batch | None = None
    ) -> Sequence[Alarm]:
        """Book bytes that were not taken in; returns an alarm about the sender where it brings too many."""
        account = self._spend(sender + author, size_bytes, now_ns, 1, evidence)
        return self._name(account, sender, now_ns) if account.level < 0 else ()

    def ask(self, sender: NodeId, author: NodeId, size_bytes: int) -> None:
        """This node asks for so much."""
        account = self._accounts.get(sender + author)
        if account is not None:
            account.level = min(self._full, account.level + size_bytes * _NS)


@dataclass(slots=True)
class _Share:
    level: int
    """Bytes left times 10^9; below zero it is a debt."""
    at_ns: int
    joined_bytes: int
    """What had been joined when the level was last raised."""


class Relays:
    """How many bytes of each other author this node still sends, and to whom.

    In any time of `t` seconds these are at most `RELAY_BURST_BYTES`, what is held of the author at its beginning, what
    is taken in meanwhile, `t` times `RELAY_BYTES_S`, and what was begun last. Of the last copy that is left each asker
    may have one, what is new, and `RELAY_BYTES_S` / `RELAY_ASKER_SHARE`: so whoever asks without end delays another by
    the time of one copy, at 15/16 of the rate, and that once.
    """

    def __init__(self) -> None:
        """Nothing was sent."""
        self._levels: dict[NodeId, _Share] = {}
        self._shares: dict[tuple[NodeId, NodeId], _Share] = {}
        """By author and asker, what was used last at the end."""

    def join(self, author: NodeId, size_bytes: int, now_ns: int) -> None:
        """Something is new here: it may be sent once beside what may be sent anyway."""
        left = self._levels.get(author) or self._begin(author, RELAY_BURST_BYTES, now_ns)
        left.level += size_bytes * _NS
        left.joined_bytes += size_bytes

    def may_send(self, author: NodeId, held_bytes: int, now_ns: int, asker: NodeId | None = None) -> bool:
        """Whether a batch of this author may go out.

        Args:
            author: Who signed it.
            held_bytes: What is held of it here.
            now_ns: Own monotonic clock.
            asker: Whose question it answers; None: it is passed on unasked.
        """
        full = RELAY_BURST_BYTES + held_bytes
        left = self._levels.get(author) or self._begin(author, full, now_ns)
        left.level = min(full * _NS, left.level + max(0, now_ns - left.at_ns) * RELAY_BYTES_S)
        left.at_ns = max(left.at_ns, now_ns)
        if asker is None or left.level <= 0 or left.level > held_bytes * _NS:
            return left.level > 0
        share = self._share(author, asker, held_bytes, left.joined_bytes, now_ns)
        grown = share.level + (left.joined_bytes - share.joined_bytes) * _NS
        grown += max(0, now_ns - share.at_ns) * (RELAY_BYTES_S // RELAY_ASKER_SHARE)
        share.level, share.joined_bytes = min(held_bytes * _NS, grown), left.joined_bytes
        share.at_ns = max(share.at_ns, now_ns)
        return share.level > 0

    def spend(self, author: NodeId, size_bytes: int, held_bytes: int = 0, asker: NodeId | None = None) -> None:
        """So much of it was sent."""
        left = self._levels[author]
        if asker is not None and left.level <= held_bytes * _NS:
            self._shares[author, asker].level -= size_bytes * _NS
        left.level -= size_bytes * _NS

    def _begin(self, author: NodeId, level_bytes: int, now_ns: int) -> _Share:
        if len(self._levels) >= ACCOUNTS_MAX:
            # Whoever was sent longest ago: its account has filled up, or soon would have.
            del self._levels[min(self._levels, key=lambda one: self._levels[one].at_ns)]
        left = self._levels[author] = _Share(level_bytes * _NS, now_ns, 0)
        return left

    def _share(self, author: NodeId, asker: NodeId, held_bytes: int, joined_bytes: int, now_ns: int) -> _Share:
        share = self._shares.pop((author, asker), None)
        if share is None or share.joined_bytes > joined_bytes:
            share = _Share(held_bytes * _NS, now_ns, joined_bytes)
            if len(self._shares) >= SHARES_MAX:
                del self._shares[next(iter(self._shares))]
        self._shares[author, asker] = share
        return share


class Answers:
    """How many bytes each asker is still answered with.

    In any time of `t` seconds an asker gets at most `ANSWER_BURST_BYTES`, what others wrote and is held, what is joined
    of theirs meanwhile, `t` times (`ANSWER_BYTES_S` + what others wrote / `ANSWER_COPY_S`), and the one answer that was
    begun last. What it wrote itself gives it no share: else whoever fills its log first has more of everybody after.
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
            held_bytes: All batches held here, but for its own.
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
        self.authors = Accounts("", "signed", AUTHOR_BURST)
        self.volumes = Volumes("", "signed", AUTHOR_BURST_BYTES, AUTHOR_BYTES_S, AUTHOR_RESUME_BYTES)
        self.own_words = Unasked("state-flood", "signed and brought", UNASKED_BYTES, AUTHOR_BYTES_S)
        self.others_words = Unasked("state-flood-sender", "brought of others", UNASKED_BYTES, AUTHOR_BYTES_S)
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

    def refuse(self, sender: NodeId, batch: Batch, now_ns: int) -> Sequence[Alarm]:
        """Something new of an author in debt came and is not taken in: who brought it answers for it."""
        accounts = self.own_words if sender == batch.origin else self.others_words
        return accounts.bring(sender, batch.origin, len(batch.raw), now_ns, batch)

    def ask(self, peer: NodeId, author: NodeId, now_ns: int) -> int | None:
        """Bytes of an author that a peer is asked for just now; None: whatever there is."""
        room = self.room(author, now_ns)
        accounts = self.own_words if peer == author else self.others_words
        accounts.ask(peer, author, ROOM_UNSAID_BYTES if room is None else room)
        return room

    def may_ask(self, peer: NodeId, now_ns: int) -> bool:
        """Whether a peer could pay for the work of a whole answer, which it is not to be named for."""
        return self.senders.left(peer, now_ns) >= ANSWER_UNITS

    def answer_bytes(self, asker: NodeId, now_ns: int) -> int:
        """Bytes of repairs that an asker can pay for just now; 0: it is not answered at all."""
        # A quarter is left for the questions themselves, and for what is no repair.
        return max(0, self.senders.left(asker, now_ns) - SENDER_BURST // 4) * BYTES_A_UNIT
