"""What peers send: batches and proofs are admitted with a certificate that holds, in slices, each at its owner's cost.

Rules this file keeps:

- An origin is a member: without a certificate that the trust in force admits there is no log, no view, no proof of it.
  A comparison brings the certificate of who is gone before its batches. Any other batch of an unknown origin waits,
  briefly and in a bounded place, while its sender is asked for the certificate.
- What was taken in while its author had a certificate is read again when it has one again, whatever its accounts say.
- Reading is charged to the sender, what a valid batch makes necessary to its author. Whoever is in debt waits.
- A question is answered as long as its asker's share of answers lasts (`quota.Answers`), whatever it asks for.
- An author in debt is not admitted, not asked for and not passed on; anti-entropy brings the rest when it has paid.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import TypeAlias

from swarmd_protocols.effects import Alarm, Rejected
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.anti_entropy import AntiEntropy
from swarmd_protocols.state.author import Author
from swarmd_protocols.state.certificate_questions import CertificateQuestions
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch, Signer, open_batch, verify_batch
from swarmd_protocols.state.crdt.journal_keys import PROOF_PREFIX
from swarmd_protocols.state.crdt.log import Verdict
from swarmd_protocols.state.crdt.messages import (
    CERTIFICATES_MAX,
    Buckets,
    CertificateAsk,
    Certificates,
    ClockAsk,
    ClockTell,
    Have,
    Proof,
    Recent,
    Wanted,
)
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.quota import (
    BATCH_UNITS,
    BYTES_A_UNIT,
    HAVE_ROW_UNITS,
    MESSAGE_UNITS,
    OPEN_UNITS,
    VERIFY_UNITS,
    Quotas,
)
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.subprotocol import Priority, Send, SubEffect
from swarmd_protocols.trust.view import TrustView

Question: TypeAlias = Have | Buckets | Recent | Wanted | ClockAsk | CertificateAsk


class Intake:
    """Where everything from outside enters the state of one node."""

    def __init__(
        self,
        node: NodeId,
        public_key: bytes,
        config: ReplicaConfig,
        trust: TrustView,
        signer: Signer,
        holdings: Holdings,
        anti_entropy: AntiEntropy,
        author: Author,
        quotas: Quotas,
    ) -> None:
        """Nothing has come yet."""
        self._node = node
        self._public_key = public_key
        self._config = config
        self._trust = trust
        self._signer = signer
        self._holdings = holdings
        self._anti_entropy = anti_entropy
        self._author = author
        self.quotas = quotas
        self._queues: dict[NodeId, deque[bytes]] = {}
        self._queued_bytes: dict[NodeId, int] = {}
        self._back: dict[NodeId, dict[bytes, bytes]] = {}
        """Journal records, by author and key, of those who have a certificate again: `work` reads them."""
        self._reads_back = False
        """Whether they had the last turn."""
        self._waiting: dict[bytes, tuple[NodeId, Batch, int]] = {}
        """By digest: who sent it first, the batch, and when that was."""
        self._let_go: dict[bytes, None] = {}
        """What waited in vain, the latest `waiting_max`: it may wait again, but who names it is asked for it."""
        self._certificates = CertificateQuestions(config)
        self.counts = {"rejected": 0, "invalid": 0, "muted": 0, "unanswered": 0}

    @property
    def sent(self) -> Sent:
        """What was sent, by kind."""
        return self._anti_entropy.sent

    # --- Messages -------------------------------------------------------------------------------------------------

    def may_speak(self, sender: NodeId, payload_bytes: int, effects: list[SubEffect], now_ns: int) -> bool:
        """Whether a message of this size is read at all, charged to its sender."""
        if self.quotas.senders.is_in_debt(sender, now_ns):
            self.counts["muted"] += 1
            return False
        self._charge_sender(sender, MESSAGE_UNITS + payload_bytes // 512, effects, now_ns)
        return True

    def queue(self, sender: NodeId, raws: Sequence[bytes]) -> None:
        """Batches came; `work` reads them."""
        size = sum(map(len, raws))
        if not raws or self._queued_bytes.get(sender, 0) + size > self._config.queue_bytes_max:
            self.counts["muted"] += len(raws)
            return
        self._queued_bytes[sender] = self._queued_bytes.get(sender, 0) + size
        self._queues.setdefault(sender, deque()).extend(raws)

    def on_question(self, asker: NodeId, question: Question, effects: list[SubEffect], now_ns: int) -> None:
        """Answer a peer, as long as its share of answers lasts."""
        if isinstance(question, Have):
            self._anti_entropy.pauses.note(asker, question, now_ns)
        room = min(self.quotas.answer_bytes(asker, now_ns), self._config.repair_bytes_max)
        if not room or not self.quotas.answers.may_have(asker, self._holdings.store.size_without(asker), now_ns):
            self.counts["unanswered"] += 1
            return
        sent, answer, begun_bytes = self.sent, list[SubEffect](), self._anti_entropy.answered_bytes
        match question:
            case Have():
                answer = self._compare(asker, question, room, effects, now_ns)
            case Buckets():
                answer = self._anti_entropy.answer_buckets(asker, question, now_ns)
            case Recent():
                answer = self._anti_entropy.answer_recent(asker, question)
            case Wanted():
                answer = self._anti_entropy.answer_wanted(asker, question, room, now_ns)
            case ClockAsk(sent_ns):
                told = messages.encode(ClockTell(sent_ns, self._holdings.clock.physical_ns(now_ns)))
                answer = sent.count("clock", [Send(asker, told, False, Priority.SYNC)])
            case CertificateAsk(origins):
                found = [self._trust.certificate_statement(NodeId(origin)) for origin in origins]
                statements = tuple(statement for statement in found if statement is not None)
                if statements:
                    known = messages.encode(Certificates(statements))
                    answer = sent.count("keys", [Send(asker, known, True, Priority.SYNC)])
        size_bytes = sum(len(send.payload) for send in answer if isinstance(send, Send))
        # What it takes to read it is counted by whole batches, however short their heads travel: `ANSWER_UNITS`.
        size_bytes = max(size_bytes, self._anti_entropy.answered_bytes - begun_bytes)
        self.quotas.answers.spend(asker, size_bytes)
        self._charge_sender(asker, size_bytes // BYTES_A_UNIT, effects, now_ns)
        effects += answer

    def _compare(self, asker: NodeId, have: Have, room: int, effects: list[SubEffect], now_ns: int) -> list[SubEffect]:
        """Compare with a summary; returns what the peer lacks, and the question for what is lacking here."""
        self._charge_sender(asker, HAVE_ROW_UNITS * len(have.rows), effects, now_ns)
        lacking, wanted, proofs = self._holdings.store.compare(have, self.quotas.muted(now_ns))
        statement_of = self._trust.certificate_statement
        return self._anti_entropy.answer_have(asker, have, lacking, wanted, proofs, statement_of, room, now_ns)

    def on_certificates(self, sender: NodeId, came: Certificates, effects: list[SubEffect], now_ns: int) -> None:
        """Certificates that were asked for, or that go before the batches of who is gone.

        Checking one that is news is its subject's work, as with a batch; any other is charged to the sender.
        """
        is_news = False
        for statement in came.statements:
            self._charge_sender(sender, OPEN_UNITS, effects, now_ns)
            heard = self._trust.news.count
            try:
                certificate = self._trust.admit_certificate(statement)
            except IdentityError as error:
                self._charge_sender(sender, VERIFY_UNITS, effects, now_ns)
                self._refuse(effects, sender, f"a certificate does not hold: {error}")
                continue
            if self._trust.news.count > heard:
                self.quotas.authors.charge(NodeId(certificate.node), VERIFY_UNITS, now_ns)
                is_news = True
            else:
                self._charge_sender(sender, VERIFY_UNITS, effects, now_ns)
            self._certificates.came(NodeId(certificate.node))
        if is_news:
            self.judge()
            self.retry(effects, now_ns)

    # --- Batches --------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether batches wait to be read."""
        return bool(self._queues or self._back)

    @property
    def is_reading(self) -> bool:
        """Whether what differs may be what has come and is still to be read: whoever is asked sends that again."""
        return self.has_work

    @property
    def waiting(self) -> int:
        """Batches that wait for their author's certificate."""
        return len(self._waiting)

    def waiting_since(self, before_ns: int) -> int:
        """Those of them that had come before this time, own monotonic clock."""
        return sum(came_ns < before_ns for _, _, came_ns in self._waiting.values())

    def work(self, budget: int, effects: list[SubEffect], now_ns: int) -> int:
        """Read what came, every sender in turn, until the budget is spent.

        Returns:
            Units of work done.
        """
        done = 0
        fresh: dict[NodeId, list[Batch]] = {}
        unknown: dict[NodeId, dict[NodeId, None]] = {}
        while self.has_work and done < budget:
            self._reads_back = bool(self._back) and not (self._reads_back and self._queues)
            if self._reads_back:
                origin, batch, units = self._read_back(effects, now_ns)
                done += units
                if batch is not None:
                    fresh.setdefault(origin, []).append(batch)
                continue
            sender = next(iter(self._queues))
            raws = self._queues.pop(sender)
            raw = raws.popleft()
            self._queued_bytes[sender] -= len(raw)
            if raws:
                self._queues[sender] = raws
            else:
                del self._queued_bytes[sender]
            known = self._anti_entropy.came(raw)
            if known is not None and self._holdings.is_known(known):
                # Most of what comes has come from another peer before.
                self._anti_entropy.pass_over(known)
                self._charge_sender(sender, OPEN_UNITS, effects, now_ns)
                done += OPEN_UNITS
                continue
            try:
                batch = open_batch(raw)
            except WireError as error:
                self._refuse(effects, sender, str(error))
                self._charge_sender(sender, OPEN_UNITS, effects, now_ns)
                done += OPEN_UNITS
                continue
            key = self.key_of(batch.origin)
            if key is None:
                self._charge_sender(sender, OPEN_UNITS, effects, now_ns)
                done += OPEN_UNITS
                if self._wait(sender, batch, now_ns):
                    unknown.setdefault(sender, {})[batch.origin] = None
                continue
            units, is_news = self._admit(sender, batch, key, effects, now_ns)
            done += units
            if is_news:
                fresh.setdefault(sender, []).append(batch)
        for sender, origins in unknown.items():
            self._ask_certificates(sender, list(origins), effects, now_ns)
        for sender, batches in fresh.items():
            more = sender in self._queues or sender in self._back
            effects += self._anti_entropy.publish(batches, sender, now_ns, more)
        return done

    def _read_back(self, effects: list[SubEffect], now_ns: int) -> tuple[NodeId, Batch | None, int]:
        """Join one batch of those that were kept while their author had no certificate.

        It was taken in before and comes out of the own journal, not off the air: no account of its author's, which has
        room for a part of a long log, decides whether it counts again.

        Returns:
            Its author, the batch where it is news, and the work.
        """
        origin = next(iter(self._back))
        records = self._back.pop(origin)
        key = next(iter(records))
        raw = records.pop(key)
        if records:
            self._back[origin] = records
        author_key = self.key_of(origin)
        try:
            batch = open_batch(raw)
            if author_key is None or batch.origin != origin or not verify_batch(batch, author_key, self._signer):
                raise WireError("a batch that was kept has no valid signature")
            joined = self._join(origin, batch, effects, now_ns)
        except WireError as error:
            self._holdings.unwrite(key)
            self._refuse(effects, origin, str(error))
            joined = False
        return origin, batch if joined else None, OPEN_UNITS + VERIFY_UNITS + BATCH_UNITS

    def key_of(self, origin: NodeId) -> bytes | None:
        """The key of a member that the trust in force certifies, or this node's own."""
        if origin == self._node and self._public_key:
            return self._public_key
        certificate = self._trust.certified(origin)
        return None if certificate is None else certificate.public_key

    def _admit(
        self, sender: NodeId, batch: Batch, key: bytes, effects: list[SubEffect], now_ns: int
    ) -> tuple[int, bool]:
        """Verify one batch of a member, whose key this is, and join it; returns the work and whether it was news."""
        origin, holdings = batch.origin, self._holdings
        is_of_use = origin not in holdings.store.quarantined and not holdings.is_known(batch)
        # What its author has long replaced is whoever repeats it to answer for.
        is_of_use = is_of_use and not holdings.is_stale(batch)
        if is_of_use and self.quotas.is_muted(origin, now_ns):
            self.counts["muted"] += 1
            effects += self.quotas.refuse(sender, batch, now_ns)
            is_of_use = False
        if not is_of_use:
            self._anti_entropy.pass_over(batch)
            self._charge_sender(sender, OPEN_UNITS, effects, now_ns)
            return OPEN_UNITS, False
        if not verify_batch(batch, key, self._signer):
            self.counts["invalid"] += 1
            self._refuse(effects, sender, f"a batch of {origin.hex()[:8]} has no valid signature")
            self._charge_sender(sender, OPEN_UNITS + VERIFY_UNITS, effects, now_ns)
            return OPEN_UNITS + VERIFY_UNITS, False
        units = OPEN_UNITS + VERIFY_UNITS + BATCH_UNITS
        self.quotas.authors.charge(origin, units, now_ns)
        self.quotas.volumes.charge(origin, len(batch.raw), now_ns)
        try:
            return units, self._join(sender, batch, effects, now_ns)
        except WireError as error:
            self._refuse(effects, sender, f"a signed batch of {origin.hex()[:8]} cannot be read: {error}")
            return units, False

    def _join(self, sender: NodeId, batch: Batch, effects: list[SubEffect], now_ns: int) -> bool:
        """Join a batch whose signature holds; returns whether it was news.

        Raises:
            WireError: Its body cannot be read.
        """
        origin, holdings = batch.origin, self._holdings
        verdict, reading = holdings.join(batch, now_ns)
        if verdict is Verdict.CONFLICT:
            held = holdings.store.logs[origin].find(batch.stream, batch.dot)
            assert held is not None, "a conflict is with a batch that is held"
            first, second = sorted((held.raw, batch.raw))
            self._convict(origin, Proof(first, second), sender, effects)
        if verdict is Verdict.ADDED:
            self.quotas.answers.join(origin, len(batch.raw))
            self.quotas.relays.join(origin, len(batch.raw), now_ns)
        if verdict is Verdict.ADDED and origin == self._node:
            effects += self._author.meet(batch, reading, is_restored=False)
        return verdict is Verdict.ADDED

    def _charge_sender(self, sender: NodeId, units: int, effects: list[SubEffect], now_ns: int) -> None:
        effects += self.quotas.senders.charge(sender, units, now_ns, 1)

    def _refuse(self, effects: list[SubEffect], sender: NodeId, reason: str) -> None:
        self.counts["rejected"] += 1
        effects.append(Rejected(sender.hex(), reason))

    # --- Batches of origins without a certificate -----------------------------------------------------------------

    def _wait(self, sender: NodeId, batch: Batch, now_ns: int) -> bool:
        """Keep a batch until its author's certificate comes; returns whether to ask for that.

        Whoever repeats one can be asked too, but prolongs nothing.
        """
        if batch.digest in self._waiting:
            return True
        if sum(other == sender for other, _, _ in self._waiting.values()) >= self._config.waiting_a_peer_max:
            return False
        if len(self._waiting) >= self._config.waiting_max:
            return False
        self._waiting[batch.digest] = (sender, batch, now_ns)
        self._anti_entropy.await_key(batch.digest, batch.digest not in self._let_go)
        return True

    def _ask_certificates(
        self, sender: NodeId, origins: Sequence[NodeId], effects: list[SubEffect], now_ns: int
    ) -> None:
        effects += self.sent.count("keys", _questions(sender, self._certificates.ask(sender, origins, now_ns)))

    @property
    def awaits_certificates(self) -> bool:
        """Whether a certificate was asked for that has not come."""
        return self._certificates.has_open

    def ask_again(self, now_ns: int) -> list[SubEffect]:
        """Who was asked for a certificate has not shown it: ask another who brought what its subject said."""
        again = self._certificates.again(now_ns)
        asks = [ask for peer, origins in again.items() for ask in _questions(peer, origins)]
        return self.sent.count("keys", asks)

    def retry(self, effects: list[SubEffect], now_ns: int) -> None:
        """A certificate has come: let in what waited for it."""
        ready = [digest for digest, (_, batch, _) in self._waiting.items() if self.key_of(batch.origin) is not None]
        for digest in ready:
            sender, batch, _ = self._waiting.pop(digest)
            self._let_go.pop(digest, None)
            self._anti_entropy.await_key(digest, False)
            self.queue(sender, (batch.raw,))

    def expire(self, now_ns: int, here: Collection[NodeId] | None = None) -> None:
        """What has waited for too long goes, and (where given) what was sent by others than these peers."""
        limit_ns = now_ns - self._config.waiting_ns
        for digest, (sender, _, came_ns) in list(self._waiting.items()):
            if came_ns < limit_ns or (here is not None and sender not in here):
                del self._waiting[digest]
                self._anti_entropy.await_key(digest, False)
            if came_ns < limit_ns:
                self._let_go[digest] = None
        while len(self._let_go) > self._config.waiting_max:
            del self._let_go[next(iter(self._let_go))]
        self._certificates.expire(limit_ns)

    # --- Who counts -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Hold everybody against the trust in force: who has no certificate is set aside, who has one again comes back.

        Of who is revoked nothing is kept. This node's own log is always part of its own state.
        """
        holdings = self._holdings
        for origin in holdings.store.origins():
            if origin != self._node and self.key_of(origin) is None:
                holdings.set_aside(origin)
        for origin in [origin for origin in self._back if self.key_of(origin) is None]:
            for key, value in self._back.pop(origin).items():
                holdings.shelve(key, origin, value)
        for origin in holdings.shelved:
            if origin != self._node and origin in self._trust.revoked:
                holdings.expel(origin)
        self.take_back()

    def take_back(self) -> None:
        """Read again, in slices, what was kept of those who were set aside and have a certificate."""
        for origin in self._holdings.shelved:
            if self.key_of(origin) is None:
                continue
            for key, value in self._holdings.unshelve(origin).items():
                if key.startswith(PROOF_PREFIX):
                    self.restore_proof(key, value)
                else:
                    self._back.setdefault(origin, {})[key] = value

    # --- Proofs ---------------------------------------------------------------------------------------------------

    def on_proof(self, sender: NodeId, proof: Proof, effects: list[SubEffect], now_ns: int) -> None:
        """Two batches under one number: shut their author out and pass the proof on, once."""
        self._charge_sender(sender, 2 * VERIFY_UNITS, effects, now_ns)
        try:
            origin = open_batch(proof.first).origin
        except WireError as error:
            self._refuse(effects, sender, str(error))
            return
        if origin not in self._holdings.store.quarantined and self.holds(proof):
            self._convict(origin, proof, sender, effects)
        elif self.key_of(origin) is None and self._trust.certificate_statement(origin) is None:
            # The next comparison brings the proof again, when the certificate is here.
            self._ask_certificates(sender, [origin], effects, now_ns)

    def restore_proof(self, key: bytes, packed: bytes) -> bool:
        """Convict by a proof out of the journal; False where it does not read or hold."""
        try:
            message = messages.decode(packed)
            origin = NodeId(key[len(PROOF_PREFIX) :])
            if isinstance(message, Proof) and self.key_of(origin) is None:
                self._holdings.shelve(key, origin, packed)
                return True
            if isinstance(message, Proof) and self.holds(message):
                self._holdings.convict(origin, (message.first, message.second), packed)
                return True
        except WireError:
            pass
        self._holdings.unwrite(key)
        return False

    def holds(self, proof: Proof) -> bool:
        """Whether two batches convict their author."""
        try:
            a, b = open_batch(proof.first), open_batch(proof.second)
        except WireError:
            return False
        key = self.key_of(a.origin)
        if (a.origin, a.stream, a.dot) != (b.origin, b.stream, b.dot) or a.digest == b.digest or key is None:
            return False
        return verify_batch(a, key, self._signer) and verify_batch(b, key, self._signer)

    def _convict(self, origin: NodeId, proof: Proof, sender: NodeId, effects: list[SubEffect]) -> None:
        text = f"{origin.hex()} signed two batches under one number: it is quarantined"
        effects.append(Alarm("state-equivocation", text))
        packed = messages.encode(proof)
        self._holdings.convict(origin, (proof.first, proof.second), packed)
        effects += self._anti_entropy.tell(packed, sender)


def _questions(peer: NodeId, origins: Sequence[NodeId]) -> list[SubEffect]:
    """What asks a peer for the certificates of these."""
    parts = [tuple(sorted(origins[at : at + CERTIFICATES_MAX])) for at in range(0, len(origins), CERTIFICATES_MAX)]
    return [Send(peer, messages.encode(CertificateAsk(part)), True, Priority.SYNC) for part in parts]
