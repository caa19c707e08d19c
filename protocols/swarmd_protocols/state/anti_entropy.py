"""How news travels and differences are repaired. It decides whom to tell what, and holds no fact itself.

Rules this file keeps:

- News goes at once: to everybody in a small swarm, to a few in a large one, and each who hears it for the first time
  passes it on.
- For a few rounds after news, a node tells one other six bytes of each batch (`Recent`), which asks for those it lacks
  (`Wanted`): that closes the gaps that loss leaves.
- Records, which tick at every node of a large swarm, are pushed by nobody but their origin: their names ride in probes.
- A digest that differs in a probe starts a comparison: all positions in a small swarm, hashes of 32 groups first in a
  large one. A `Have` is also an acknowledgement: what it shows is not sent again. What was asked for and does not come
  is asked for again. While news goes round digests differ anyway: then comparisons are rare.
- Certificates of who is gone go before its batches. Repairs that are small are cut to datagrams, others to frames.
- An author in debt (`quota.py`) is not passed on, not asked for, and shown as paused in summaries. Where a peer's
  summary shows that, the peer is neither sent nor told anything of that author until its next summary shows a log
  again, or has been missing for long. What is sent of one author is bounded whatever peers say (`quota.Relays`).
- Everything is bounded: what goes round, who is asked how often, how much one answer may hold.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.asked import Asked
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.contradictions import Contradictions
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch, Stream, batch_digest
from swarmd_protocols.state.crdt.messages import (
    BUCKET_HASH_BYTES,
    BUCKETS,
    CERTIFICATES_MAX,
    ID_BYTES,
    IDS_MAX,
    LASTING,
    VITALS,
    Buckets,
    Certificates,
    Have,
    Proof,
    Recent,
    Wanted,
)
from swarmd_protocols.state.crdt.store import Store, bucket_of
from swarmd_protocols.state.packing import (
    DATAGRAM_BYTES,
    ENVELOPE_BYTES,
    asked_for,
    author_of,
    certificates_for,
    grouped,
    is_news,
    names_in,
    send_of,
)
from swarmd_protocols.state.pauses import Pauses
from swarmd_protocols.state.quota import Quotas
from swarmd_protocols.state.record_names import RecordNames
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.state.time_questions import TimeQuestions
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect

_ROWS_AT_ONCE = 24
"""Origins that a summary shows one by one in one datagram; more are compared by groups first."""
_DATAGRAMS_A_REPAIR = 4
"""What is more takes the reliable path: of so many datagrams one is lost in most cases at 30 %."""
_KNOWN_MAX = 1_024
"""Batches by which a `Recent` is judged: those of the last seconds."""
_SMALL_SWARM = 8
"""Peers up to which everybody is compared with at the configured rate; in larger swarms each is that much more
seldom."""
NAMED_SELDOM = 3
"""Records whose names go round are compared so much more seldom: that finds what the names have missed."""
_HAVE_ORIGINS = 1_000
"""Origins in the summary that answers differing groups: with about five positions each it stays within the bounds of
`messages.Have`."""
_NONE: Mapping[NodeId, bytes] = {}
"""No certificates go ahead."""
_LONG_AGO_NS = -(1 << 62)
"""Before any clock began."""


class AntiEntropy:
    """Dissemination and anti-entropy of one node."""

    def __init__(self, node: NodeId, config: ReplicaConfig, rng: random.Random, store: Store, quotas: Quotas) -> None:
        """Nobody is known yet."""
        self._node = node
        self._config = config
        self._rng = rng
        self._store = store
        self._quotas = quotas
        self.sent = Sent()
        self.time = TimeQuestions(rng, self.sent)
        self.answered_bytes = 0
        """Of whole batches, in answers to questions, ever."""
        self._peers: list[NodeId] = []
        self._swarm = 0
        """Members of the whole swarm, where the peers are only this node's neighbours."""
        self._is_large = False
        """Whether news takes more than one step: its origin does not tell everybody itself."""
        self._news: dict[bytes, int] = {}
        """Rounds in which others are still told of a batch, by the first bytes of its digest."""
        self._known: dict[bytes, Batch | None] = {}
        """What came lately, by the same; None: of no use here."""
        self._leases: dict[NodeId, Batch] = {}
        """The last that was news of each origin: an older one need not go round."""
        self.records = RecordNames()
        self._compared_ns = _LONG_AGO_NS
        self._synced_ns: dict[tuple[NodeId, int], int] = {}
        self._asked = Asked(config, store, self._known)
        self._contradictions = Contradictions(store)
        self.pauses = Pauses()
        self._second = 0
        self._passed_on: dict[NodeId, int] = {}
        """Batches of each origin that were passed on in the present second."""

    def stretch(self, period_ns: int) -> int:
        """A period of what every node says, longer in larger swarms, so that a node's share of the air stays."""
        return period_ns * max(1, max(len(self._peers), self._swarm) // _SMALL_SWARM)

    @property
    def peers(self) -> Sequence[NodeId]:
        """Who is spoken to."""
        return self._peers

    def know_peers(self, peers: Sequence[Peer]) -> None:
        """Who can be reached."""
        self._swarm = max((peer.swarm for peer in peers), default=0)
        self._peers = [peer.node for peer in peers if peer.reachable and not peer.far]
        self._is_large = len(self._peers) > self._config.direct_peers_max or bool(self._swarm)
        reachable = set(self._peers)
        for slot in [slot for slot in self._synced_ns if slot[0] not in reachable and slot[0] != self._node]:
            del self._synced_ns[slot]
        self.time.know_peers(peers)
        self._asked.keep(reachable)
        self.pauses.keep(reachable)
        self._contradictions.keep(reachable)

    # --- Who takes what -----------------------------------------------------------------------------------------

    def _for(
        self,
        peer: NodeId,
        batches: Sequence[Batch],
        now_ns: int,
        most_bytes: int | None = None,
        certificates: Mapping[NodeId, bytes] = _NONE,
    ) -> list[Batch]:
        """What of these may be sent to a peer at once, charged to its authors; nothing else is.

        Args:
            peer: Who gets it.
            batches: What it lacks, or news.
            now_ns: Own monotonic clock.
            most_bytes: Of an answer to the peer's question; None: it is news.
            certificates: What goes ahead of the first batch of an author, and counts as bytes of the answer.
        """
        found, relays, total = list[Batch](), self._quotas.relays, ENVELOPE_BYTES
        asker = None if most_bytes is None else peer
        ahead = dict(certificates)
        for batch in batches:
            author = batch.origin
            if not self.pauses.takes(peer, author, now_ns):
                continue
            log = self._store.logs.get(author)
            held_bytes = 0 if log is None else log.size_bytes
            if author != self._node and not relays.may_send(author, held_bytes, now_ns, asker):
                continue
            total += len(batch.raw) + len(ahead.pop(author, b"")) + 3
            if found and most_bytes is not None and total > most_bytes:
                break
            if author != self._node:
                relays.spend(author, len(batch.raw), held_bytes, asker)
            found.append(batch)
        return found

    # --- News ---------------------------------------------------------------------------------------------------

    def publish(self, batches: Sequence[Batch], heard_from: NodeId, now_ns: int, more: bool = False) -> list[SubEffect]:
        """Pass news on.

        Args:
            batches: Fresh at this node.
            heard_from: Who sent them; this node itself for its own.
            now_ns: Own monotonic clock.
            more: More that came with them is still to be read.
        """
        if not self._peers:
            return []
        batches = [batch for batch in batches if self._may_pass_on(batch.origin, now_ns)]
        if not batches:
            return []
        repaired = more or len(batches) > _DATAGRAMS_A_REPAIR
        for batch in batches:
            self._know(batch.digest, batch)
            if is_news(batch):
                self._go_round(batch)
            elif self._is_large:
                self.records.add(batch)
        targets = self._targets(batches, heard_from)
        if not targets:
            return []
        if repaired and heard_from != self._node:
            # A repair brought these: others may have had the same one, so they are named at once and not pushed around.
            return self._name([batch.digest[:ID_BYTES] for batch in batches if is_news(batch)], targets, now_ns)
        return self._send_batches(targets, batches, now_ns)

    def _may_pass_on(self, origin: NodeId, now_ns: int) -> bool:
        """Whether an origin has not used up the batches of it that are passed on unasked in this second."""
        second = now_ns // 1_000_000_000
        if second != self._second:
            self._second = second
            self._passed_on.clear()
        self._passed_on[origin] = self._passed_on.get(origin, 0) + 1
        return origin == self._node or self._passed_on[origin] <= self._config.passed_on_max

    def _know(self, digest: bytes, batch: Batch | None) -> None:
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[digest[:ID_BYTES]] = batch

    def came(self, raw: bytes) -> Batch | None:
        """The batch of exactly these bytes, where it came lately and was of use."""
        batch = self._known.get(batch_digest(raw)[:ID_BYTES])
        return batch if batch is not None and batch.raw == raw else None

    def pass_over(self, batch: Batch) -> None:
        """A batch came that is known or of no use: nobody need be asked for it."""
        self._know(batch.digest, self._known.get(batch.digest[:ID_BYTES]))

    def await_key(self, digest: bytes, waits: bool = True) -> None:
        """A batch has come that waits for its author's certificate, or waits no more."""
        if waits:
            self._asked.keyless[digest[:ID_BYTES]] = None
        else:
            self._asked.keyless.pop(digest[:ID_BYTES], None)

    def _go_round(self, batch: Batch) -> None:
        if batch.stream is Stream.LEASES:
            old = self._leases.get(batch.origin)
            if old is not None:
                self._news.pop(old.digest[:ID_BYTES], None)
            self._leases[batch.origin] = batch
        if len(self._news) < _KNOWN_MAX // 2:
            self._news[batch.digest[:ID_BYTES]] = self._config.rumor_rounds

    def _targets(self, batches: Sequence[Batch], heard_from: NodeId) -> list[NodeId]:
        peers = self._peers
        if not self._is_large:
            if heard_from == self._node:
                return list(peers)
            # The origin tells everybody itself; only what came through a third party is passed on.
            batches = [batch for batch in batches if batch.origin != heard_from]
            if not batches:
                return []
            skip = {heard_from, *(batch.origin for batch in batches)}
            return [peer for peer in peers if peer not in skip][: self._config.fanout]
        if heard_from != self._node and all(batch.stream >= Stream.COUNTERS for batch in batches):
            # Records tick at every node: in a large swarm only their names are told on.
            return []
        skip = {heard_from, *(batch.origin for batch in batches)}
        fanout = self._config.fanout + (heard_from == self._node)
        chosen = self._rng.sample(peers, min(len(peers), fanout + len(skip)))
        return [peer for peer in chosen if peer not in skip][:fanout]

    def _send_batches(self, targets: Sequence[NodeId], batches: Sequence[Batch], now_ns: int) -> list[SubEffect]:
        out: list[SubEffect] = []
        alike: dict[tuple[bytes, ...], tuple[list[NodeId], list[Batch]]] = {}
        for target in targets:
            part = self._for(target, batches, now_ns)
            alike.setdefault(tuple(batch.digest for batch in part), ([], part))[0].append(target)
        urgent = any(batch.stream is Stream.LEASES for batch in batches)
        facts = any(batch.stream is Stream.FACTS for batch in batches)
        priority = Priority.LEASE if urgent else Priority.DETECTION if facts else Priority.SYNC
        for takers, part in alike.values():
            for payload, fits in grouped(part, DATAGRAM_BYTES):
                out += [Send(target, payload, not fits, priority) for target in takers]
        return self.sent.count("news" if facts else "claims" if urgent else "records", out)

    def has_news(self) -> bool:
        """Whether rumours are still going round."""
        return bool(self._news) and bool(self._peers)

    def rumor(self, now_ns: int) -> list[SubEffect]:
        """Tell somebody which batches were news of late, but for authors in debt: comparison brings theirs."""
        muted = self._quotas.muted(now_ns)
        for one in [one for one in self._news if author_of(self._known.get(one)) in muted] if muted else ():
            del self._news[one]
        if not self._peers:
            self._news.clear()
        if not self._news:
            return []
        ids = list(self._news)[:IDS_MAX]
        for one in ids:
            if self._news[one] <= 1:
                del self._news[one]
            else:
                self._news[one] -= 1
        targets = self._rng.sample(self._peers, min(len(self._peers), self._config.rumor_peers))
        return self._name(ids, targets, now_ns)

    def _name(self, ids: Sequence[bytes], targets: Sequence[NodeId], now_ns: int) -> list[SubEffect]:
        out: list[SubEffect] = []
        for peer in targets:
            part = [one for one in ids if self._may_name(peer, one, now_ns)]
            for at in range(0, len(part), IDS_MAX):
                out.append(Send(peer, messages.encode(Recent(b"".join(part[at : at + IDS_MAX]))), False, Priority.SYNC))
        return self.sent.count("names", out)

    def _may_name(self, peer: NodeId, one: bytes, now_ns: int) -> bool:
        batch = self._known.get(one)
        return batch is None or self.pauses.takes(peer, batch.origin, now_ns)

    def answer_recent(self, peer: NodeId, recent: Recent) -> list[SubEffect]:
        """Ask for what a peer has heard and this node has not."""
        missing = self._asked.missing(peer, names_in(recent.ids))
        return self.sent.count("asks", [asked_for(peer, missing)] if missing else [])

    def answer_wanted(self, peer: NodeId, wanted: Wanted, room_bytes: int, now_ns: int) -> list[SubEffect]:
        """Send what a peer has asked for by name, but for what authors in debt said."""
        muted = self._quotas.muted(now_ns)
        known = {one: self._known.get(one) for one in names_in(wanted.ids)}
        found = [batch for batch in known.values() if batch is not None and batch.origin not in muted]
        return self._repair(peer, found, room_bytes, now_ns)

    def tell(self, payload: bytes, but: NodeId) -> list[SubEffect]:
        """A proof, which each node that learns it tells once: to everybody in a small swarm, else to some."""
        peers = [peer for peer in self._peers if peer != but]
        if len(peers) > self._config.direct_peers_max:
            peers = self._rng.sample(peers, min(len(peers), self._config.fanout))
        return self.sent.count("proofs", [Send(peer, payload, True, Priority.LEASE) for peer in peers])

    # --- Repair -------------------------------------------------------------------------------------------------

    def due(self, now_ns: int) -> tuple[bool, bool]:
        """Whether facts, and whether records, may be compared with somebody now."""
        last = self._synced_ns.get((self._node, VITALS))
        pause_ns = self.stretch(self._config.vitals_sync_ns) * (NAMED_SELDOM if self._is_large else 1)
        return (
            not self._news or now_ns - self._compared_ns >= self._config.busy_sync_ns,
            last is None or now_ns - last >= pause_ns,
        )

    def ask_sync(self, peer: NodeId, lasting: bool, vitals: bool, now_ns: int, theirs: bytes = b"") -> list[SubEffect]:
        """A peer's digest differs, `theirs` that of its facts: begin a comparison, at a bounded rate."""
        scope = 0
        if not self._quotas.may_ask(peer, now_ns):
            return []
        facts_due, records_due = self.due(now_ns)
        last_ns = self._synced_ns.get((peer, LASTING), _LONG_AGO_NS)
        may_come = now_ns - last_ns < self._config.sync_ns or self._asked.may_answer(peer, self._config.sync_ns, now_ns)
        if lasting and facts_due and not may_come:
            self._synced_ns[peer, LASTING] = now_ns
            scope |= LASTING
        if vitals and records_due:
            self._synced_ns[self._node, VITALS] = now_ns
            scope |= VITALS
        if not scope:
            return []
        if scope & LASTING:
            self._compared_ns = now_ns
        is_in_vain = scope == LASTING and self._contradictions.is_in_vain(peer, theirs)
        if len(self._store.origins()) <= _ROWS_AT_ONCE and not is_in_vain:
            origins = self._origins(now_ns)
            message: messages.Message = self._have(peer, origins, scope, True, (1 << BUCKETS) - 1, now_ns)
            self._asked.note_shown(peer, scope, now_ns)
        else:
            hashes = self._store.bucket_hashes()
            nothing = bytes(BUCKETS * BUCKET_HASH_BYTES)
            message = Buckets(hashes[0] if scope & LASTING else nothing, hashes[1] if scope & VITALS else nothing)
            if scope == LASTING:
                self._contradictions.note_shown(peer, hashes[0])
        return self.sent.count("digests", [send_of(peer, message)])

    def _origins(self, now_ns: int) -> list[NodeId]:
        """Who stands in a summary: those of whom something is held, and those of whom nothing is taken."""
        muted = self._quotas.muted(now_ns)
        return sorted({*self._store.origins(), *muted}) if muted else self._store.origins()

    def _have(
        self, peer: NodeId, origins: Sequence[NodeId], scope: int, reply: bool, buckets: int, now_ns: int
    ) -> Have:
        return self._store.have(origins, scope, reply, buckets, lambda origin: self._quotas.ask(peer, origin, now_ns))

    def answer_buckets(self, peer: NodeId, theirs: Buckets, now_ns: int) -> list[SubEffect]:
        """Say what is held in the groups that differ."""
        own = self._store.bucket_hashes()
        nothing = bytes(BUCKETS * BUCKET_HASH_BYTES)
        mask = scope = 0
        for bit, mine, other in ((LASTING, own[0], theirs.lasting), (VITALS, own[1], theirs.vitals)):
            if other == nothing:
                continue
            for bucket in range(BUCKETS):
                at = bucket * BUCKET_HASH_BYTES
                if mine[at : at + BUCKET_HASH_BYTES] != other[at : at + BUCKET_HASH_BYTES]:
                    mask |= 1 << bucket
                    scope |= bit
        if not mask:
            return []
        # As many whole groups as one summary holds, the first ones in the order of a draw: all come in the end.
        groups = [bucket for bucket in range(BUCKETS) if mask >> bucket & 1]
        self._rng.shuffle(groups)
        by_group: dict[int, list[NodeId]] = {}
        for origin in self._origins(now_ns):
            by_group.setdefault(bucket_of(origin), []).append(origin)
        origins: list[NodeId] = []
        covered = 0
        for group in groups:
            if not covered or len(origins) + len(by_group.get(group, ())) <= _HAVE_ORIGINS:
                origins += by_group.get(group, ())
                covered |= 1 << group
        summary = self._have(peer, sorted(origins), scope, True, covered, now_ns)
        self._asked.note_shown(peer, scope, now_ns)
        return self.sent.count("digests", [send_of(peer, summary)])

    def answer_have(
        self,
        peer: NodeId,
        have: Have,
        lacking: list[Batch],
        wanted: list[NodeId],
        proofs: list[tuple[bytes, bytes]],
        statement_of: Callable[[NodeId], bytes | None],
        room_bytes: int,
        now_ns: int,
    ) -> list[SubEffect]:
        """Send what the peer lacks and, when it asked for that, say what is lacking here.

        Args:
            peer: Who asked.
            have: Its summary.
            lacking: Batches that it lacks.
            wanted: Origins of which something is lacking here.
            proofs: Of quarantines that it does not know of.
            statement_of: The certificate of an author as it was signed, where there is one.
            room_bytes: Bytes of batches that it may be sent.
            now_ns: Own monotonic clock.
        """
        out = self.sent.count(
            "proofs",
            [Send(peer, messages.encode(Proof(first, second)), True, Priority.LEASE) for first, second in proofs],
        )
        differing = [*wanted, *(batch.origin for batch in lacking)]
        hidden = [] if proofs else self._contradictions.to_name(peer, have, differing, self._quotas.muted(now_ns))
        for batch in hidden:
            self._know(batch.digest, batch)
        out += self._name([batch.digest[:ID_BYTES] for batch in hidden], [peer], now_ns)
        if lacking:
            met = {self._node, *self._peers, *(origin for origin, positions in have.rows if have.reply or positions)}
            out += self._repair(peer, lacking, room_bytes, now_ns, certificates_for(lacking, met, statement_of))
        if have.reply and self._quotas.may_ask(peer, now_ns):
            known = {origin for origin, _ in have.rows}
            if have.buckets:
                # What the peer did not name it does not hold; it cannot be asked for it.
                wanted = [origin for origin in wanted if origin in known]
            if wanted:
                self._asked.remember(peer, have, wanted)
                if not self._asked.may_answer(peer, self._config.ask_ns, now_ns):
                    # Else two questions have crossed: the answer is under way, or what is remembered is asked for soon.
                    question = send_of(peer, self._have(peer, wanted, have.scope, False, 0, now_ns))
                    out += self.sent.count("asks", [question])
                    self._asked.note_shown(peer, have.scope, now_ns)
        return out

    def has_wants(self) -> bool:
        """Whether something that was asked for has not come yet."""
        return self._asked.has_open

    def ask_again(self, now_ns: int) -> list[SubEffect]:
        """The question or the answer was lost: ask once more, for a bounded number of times."""
        asked = self._asked.origins_again(self._quotas.muted(now_ns))
        out: list[SubEffect] = [
            send_of(peer, self._have(peer, origins, scope, False, 0, now_ns))
            for (peer, scope), origins in asked.items()
            if self._quotas.may_ask(peer, now_ns)
        ]
        out += [asked_for(peer, names) for peer, names in self._asked.names_again().items()]
        return self.sent.count("asks", out)

    def _repair(
        self,
        peer: NodeId,
        batches: list[Batch],
        room_bytes: int,
        now_ns: int,
        certificates: Mapping[NodeId, bytes] = _NONE,
    ) -> list[SubEffect]:
        batches = self._for(peer, batches, now_ns, min(room_bytes, self._config.repair_bytes_max), certificates)
        authors = {batch.origin: None for batch in batches}
        ahead = [certificates[author] for author in authors if author in certificates]
        keys = [tuple(ahead[at : at + CERTIFICATES_MAX]) for at in range(0, len(ahead), CERTIFICATES_MAX)]
        told: list[SubEffect] = [Send(peer, messages.encode(Certificates(part)), True, Priority.SYNC) for part in keys]
        out: list[SubEffect] = []
        total = sum(len(batch.raw) for batch in batches)
        self.answered_bytes += total
        small = total <= _DATAGRAMS_A_REPAIR * (DATAGRAM_BYTES - 100)
        for payload, fits in grouped(batches, DATAGRAM_BYTES if small else self._config.stream_bytes_max):
            out.append(Send(peer, payload, not (small and fits), Priority.SYNC))
        return self.sent.count("keys", told) + self.sent.count("answers", out)
