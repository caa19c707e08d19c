"""The sub-protocol "releases": statements in, statements on; time, peers and messages of what `policy.py` decides.

State on disk (journal keys b"releases/…"): statements `s/<digest>`, the own last report of each model
`o/<model>`, releases seen promoted `p/<digest>`, floors that fell `f/<model>`, who takes part `w/<node>`, the signed
bound of the time `t`. What peers have said about health is asked for again after a restart.

`StatementBook` holds the statements, `peer_limits.py` bounds what one peer may cost, `Lookout` says what an operator
should know, `Fetcher` gets and gives the files.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from swarmd_protocols.effects import Alarm, Rejected, TimerKey
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId, node_id_of, short
from swarmd_protocols.releases import requests, versions
from swarmd_protocols.releases.exchange import (
    MAX_PUSH_COST,
    REPORT_COST,
    ROOT_COST,
    STATEMENT_COST,
    Catalogue,
    Exchange,
)
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.floors import FELL
from swarmd_protocols.releases.inventory import Inventory
from swarmd_protocols.releases.local import LocalModel
from swarmd_protocols.releases.lookout import Lookout
from swarmd_protocols.releases.messages import Have, Piece, Push, Want, decode_message
from swarmd_protocols.releases.own_word import OWN, OwnWord
from swarmd_protocols.releases.peer_limits import StatementLimits
from swarmd_protocols.releases.policy import PROMOTED, ReleasesConfig, RolloutPolicy, Timers
from swarmd_protocols.releases.reports import ReportBook, SignedReport, decode_report
from swarmd_protocols.releases.requests import NAME
from swarmd_protocols.releases.rollout import Standing
from swarmd_protocols.releases.room import Room
from swarmd_protocols.releases.roster import PLACE, Roster
from swarmd_protocols.releases.signed_time import TIME, SignedTime
from swarmd_protocols.releases.statement_book import STATEMENT, StatementBook, heard
from swarmd_protocols.releases.statements import Release
from swarmd_protocols.subprotocol import Peer, SubEffect
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.view import TrustView

__all__ = ["NAME", "LocalModel", "Releases", "ReleasesConfig"]

_SLOW_NS = 30_000_000_000
"""Between two looks at staleness and at turns that nothing else reminds of."""


class Releases:
    """See the module; implements `SubProtocol`.

    Args:
        public_key: This node's Ed25519 key.
        sign: Signs bytes with it.
        trust: Who may say what.
        config: Bounds and times.
        rng: Injected randomness.
        restored: This sub-protocol's journal records.
    """

    def __init__(
        self,
        public_key: bytes,
        sign: Callable[[bytes], bytes],
        trust: TrustView,
        config: ReleasesConfig,
        rng: random.Random,
        restored: Mapping[bytes, bytes],
    ) -> None:
        self.node = node_id_of(public_key)
        self.trust = trust
        self.chain = trust.chain
        self.statements = StatementBook(trust)
        self.book = ReportBook()
        self.fetcher = Fetcher(rng, config.swarming, config.cast)
        self.traffic = self.fetcher.budget
        """See `MindsTraffic`: chunks take what the node's other words leave."""
        self._inventory = Inventory()
        self._word = OwnWord(public_key, sign)
        self._timers = Timers()
        self._enrolled: set[NodeId] = {self.node}
        """Certified nodes that this one has met; the policy reads it where it stands, so it is changed in place."""
        self._roster = Roster(self.book, {*config.models, *config.caches}, self._enrolled)
        self.policy = RolloutPolicy(
            config,
            self._word,
            self.book,
            self.fetcher,
            self._inventory,
            self._timers,
            self._enrolled.__contains__,
            self._enrolled.__len__,
        )
        self._time = SignedTime(restored.get(TIME, b""), config.stale_after_ns)
        self._lookout = Lookout(self._time, self.policy.alarmed)
        self._exchange = Exchange(rng)
        self._limits = StatementLimits()
        self._room = Room()
        self._peers: list[NodeId] = []
        self._summary: bytes | None = None
        self._known: tuple[bytes, Catalogue] | None = None
        """The catalogue, and the summary of what it was made from."""
        self._restore(restored)

    def _restore(self, restored: Mapping[bytes, bytes]) -> None:
        """Take the journal in; a record that does not hold any longer is left aside, never trusted."""

        def take(action: Callable[[bytes], object], record: bytes) -> None:
            try:
                action(record)
            except (IdentityError, WireError):
                self.policy.alarmed.add("journal")

        def report(record: bytes) -> None:
            signed = self._word.restore(decode_envelope(record), self.policy.local, self.chain.verify)
            if signed is not None:
                self.book.add(signed, self.policy.known())

        for key, value in sorted(restored.items()):
            if key.startswith(STATEMENT):
                take(partial(self.statements.restore, key), value)
            elif key.startswith(PROMOTED):
                self.policy.restore(key.removeprefix(PROMOTED))
            elif key.startswith(FELL):
                self.policy.floors.restore(key)
            elif key.startswith(PLACE):
                self._roster.restore(key, value, self.trust.certified)
        self._look()
        for key, value in sorted(restored.items()):
            if key.startswith(OWN):
                take(report, value)

    # --- For status, metrics and the daemon -------------------------------------------------------------------------

    @property
    def view(self) -> versions.View:
        """All statements that count."""
        return self.policy.view

    @property
    def local(self) -> dict[str, LocalModel]:
        """Every model as it stands here."""
        return self.policy.local

    def standing(self, model: str, digest: bytes, release: Release) -> Standing:
        """See `RolloutPolicy.standing`."""
        return self.policy.standing(model, digest, release)

    def halted(self, model: str) -> list[bytes]:
        """See `RolloutPolicy.halted`."""
        return self.policy.halted(model)

    def desired(self, model: str) -> tuple[bytes, Release] | None:
        """See `RolloutPolicy.desired`."""
        return self.policy.desired(model)

    def release(self, model: str, digest: bytes) -> Release | None:
        """See `RolloutPolicy.release`."""
        return self.policy.release(model, digest)

    def is_stale(self, now_ns: int) -> bool:
        """See `SignedTime.is_stale`."""
        return self._time.is_stale(self.view, now_ns)

    def time_low_s(self, now_ns: int) -> int:
        """See `SignedTime.low_s`."""
        return self._time.low_s(self.view, now_ns)

    # --- SubProtocol ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """See `SubProtocol.name`."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.start`."""
        self._time.on_heartbeat(now_ns)
        effects: list[SubEffect] = [*self.statements.mend(), *self._roster.start(now_ns)]
        effects += self._timers.arm((NAME, "slow"), now_ns + _SLOW_NS)
        if "journal" in self.policy.alarmed:
            effects.append(Alarm("releases-journal", "a journal record about models does not hold and was left aside"))
        for model in self.local:
            effects += self.policy.say(model)
        return [*effects, *self._after(now_ns)]

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_message`."""
        if self._limits.is_muted(sender, now_ns):
            return []
        try:
            message = decode_message(payload)
        except WireError as error:
            return [Rejected(short(sender), str(error))]
        if isinstance(message, Have | Want) and not self._limits.may_ask(sender, now_ns):
            return []  # It compares again in a second.
        match message:
            case Push():
                return self._on_push(sender, message, now_ns)
            case Have():
                everything = self._catalogue()
                answers = self._exchange.answer_have(sender, message, everything.have(reply=False), everything)
                return self._limits.within_answers(sender, answers, now_ns)
            case Want():
                return self._limits.within_answers(sender, self._catalogue().give(sender, message), now_ns)
            case _:
                return [*self.fetcher.on_message(sender, message, now_ns), *self._after_fetch(now_ns)]

    def on_cast(self, payload: bytes, now_ns: int) -> list[SubEffect]:
        """See `HearsCasts.on_cast`: pieces of blobs, and nothing else, since nobody answers for a cast."""
        try:
            message = decode_message(payload)
        except WireError as error:
            return [Rejected("?", str(error))]
        if not isinstance(message, Piece):
            return [Rejected("?", f"a cast may not carry {type(message).__name__}")]
        return [*self.fetcher.on_cast(message, now_ns), *self._after_fetch(now_ns)]

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_timer`."""
        if not self._timers.fired(key, now_ns):
            return []
        match key:
            case (_, "fetch"):
                return [*self.fetcher.on_tick(now_ns), *self._after_fetch(now_ns)]
            case (_, "due"):
                return [*self.fetcher.on_due(now_ns), *self._after_fetch(now_ns)]
            case (_, "slow"):
                return [
                    *self._timers.arm((NAME, "slow"), now_ns + _SLOW_NS),
                    *self._roster.on_slow(now_ns),
                    *self._lookout.staleness(self.view, now_ns),
                    *self._lookout.withheld(self.view, now_ns),
                    *self._after(now_ns),
                ]
            case (_, "turn"):
                return self._after(now_ns)
            case _:
                return []

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_command`."""
        match request:
            case requests.Publish(envelopes, roots):
                return self._on_publish(envelopes, roots, now_ns)
            case requests.Provide(blob, first_source):
                self._inventory.learn((blob.sha256,), here=True)
                return [*self.fetcher.provide(blob, first_source), *self._after(now_ns)]
            case requests.Running():
                return [*self.policy.on_running(request), *self._after(now_ns)]
            case requests.TrialBegan(model, release):
                return [*self.policy.on_trial_began(model, release), *self._after(now_ns)]
            case requests.TrialEnded():
                return [*self.policy.on_trial_ended(request, now_ns), *self._after(now_ns)]
            case requests.DeltaFailed(delta):
                self.policy.on_delta_failed(delta)
                return self._after(now_ns)
            case requests.BlobReady(sha256):
                self._inventory.learn((sha256,), here=True)
                return self._after(now_ns)
            case requests.BlobsLost(digests):
                self.policy.on_lost(digests)
                return self._after(now_ns)
            case _:
                return self._on_storage(request, now_ns)

    def _on_storage(self, answer: object, now_ns: int) -> list[SubEffect]:
        """The storage has answered an order."""
        match answer:
            case requests.BlobsFound(here, absent):
                self._inventory.learn(here, here=True)
                self._inventory.learn(absent, here=False)
                return self._after(now_ns)
            case requests.BlobOpened(blob, _, _, is_whole):
                self._inventory.learn((blob.sha256,), is_whole)
                effects = self.fetcher.on_opened(answer, now_ns)
                return [*effects, *(self._after(now_ns) if is_whole else self._after_fetch(now_ns))]
            case requests.ChunkStored(ok=ok):
                effects = [] if ok else self._timers.arm((NAME, "turn"), self._room.due_ns(now_ns))
                return [*effects, *self.fetcher.on_stored(answer, now_ns), *self._after_fetch(now_ns)]
            case requests.ChunkRead():
                return [*self.fetcher.on_read(answer, now_ns), *self._after_fetch(now_ns)]
            case requests.BlobFinished(blob, ok):
                self._inventory.learn((blob.sha256,), ok)
                self._room.found()
                if not ok:
                    self.fetcher.drop(blob.sha256)  # The disk gave other bytes back: start over.
                return self._after(now_ns)
            case _:
                raise StateError(f"releases cannot carry out {type(answer).__name__}")

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_peers`."""
        self._enrolled |= {peer.node for peer in peers if self.trust.certified(peer.node) is not None}
        self.policy.trust_edition += 1
        self._peers = [peer.node for peer in peers if peer.reachable and not peer.far]
        return [*self.fetcher.on_peers(self._peers, now_ns), *self._after(now_ns)]

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """See `HearsTrust.on_trust`: statements are judged anew, and of whom is shut out every word is dropped."""
        gone = {node for node in self._enrolled if node != self.node and self.trust.certified(node) is None}
        self._enrolled -= gone
        self.policy.trust_edition += 1
        self.book.forget_nodes(gone)
        return [*self._roster.gone(gone), *self._after(now_ns)]

    def summary(self) -> bytes:
        """See `SubProtocol.summary`."""
        if self._summary is None:
            self._summary = versions.summary_of(self.view, len(self.chain.links), self.book.envelopes())
        return self._summary

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_summary`."""
        if summary == self.summary():
            return []
        return list(self._exchange.repair(sender, self._catalogue().have(reply=True), now_ns))

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """See `SubProtocol.piggyback`: the newest health reports, a bounded number of times each."""
        return self._word.piggyback(budget_bytes, len(self._peers))

    # --- Statements -------------------------------------------------------------------------------------------------

    def _on_push(self, sender: NodeId, message: Push, now_ns: int) -> list[SubEffect]:
        """Check as much of a push as the peer's allowance and the bound of one event pay for."""
        effects: list[SubEffect] = []
        news: tuple[list[bytes], list[bytes]] = ([], [])
        known = (self.book.edition, self._summary)
        before = self.statements.entries
        source, spent = short(sender), 0
        parts = [(ROOT_COST, one) for one in message.roots]
        parts += [(STATEMENT_COST, one) for one in message.statements]
        parts += [(REPORT_COST, one) for one in message.reports]
        for cost, data in parts:
            spent += cost
            if spent > MAX_PUSH_COST or not self._limits.may_cost(sender, cost, now_ns):
                effects += self._limits.mute(sender, "sends more statements than are checked", now_ns)
                break
            if cost == REPORT_COST:
                effects += self._hear_report(data, source)
            else:
                is_root = cost == ROOT_COST
                hear = self.statements.hear_root if is_root else self.statements.hear
                is_new, more = hear(data, source)
                effects += more
                if is_new:
                    news[0 if is_root else 1].append(data)
        effects += self.statements.written(before)
        if any(news):
            passed_on = Push(tuple(news[0]), tuple(news[1]), ())
            effects += self._exchange.push_news(self._peers, passed_on, sender)
        if any(news) or known != (self.book.edition, self._summary):
            effects += self._after(now_ns)
        return effects

    def _hear_report(self, data: bytes, source: str) -> list[SubEffect]:
        try:
            signed = decode_report(data, self.chain.verify)
        except (IdentityError, WireError) as error:
            return [Rejected(source, str(error))]
        node = signed.report.node
        if node not in self._enrolled:
            return []
        if self.book.add(signed, self.policy.known()):
            self._word.offer(data)
            self._summary = None
        return self._hear_myself(signed) if node == self.node else self._roster.heard(node)

    def _hear_myself(self, signed: SignedReport) -> list[SubEffect]:
        """What this node said in an earlier life: it still counts, and its number must not be used again."""
        report = signed.report
        local = self.local.get(report.model)
        if local is None or not local.runs or report.sequence < local.sequence or signed.envelope.digest == local.said:
            return []
        local.sequence = report.sequence
        return self.policy.say(report.model)

    def _on_publish(self, envelopes: Sequence[bytes], roots: Sequence[bytes], now_ns: int) -> list[SubEffect]:
        effects: list[SubEffect] = []
        grown = []
        for root in roots:
            _, refusals = self.statements.hear_root(root, "operator")
            if refusals:
                raise StateError(f"not published: {getattr(refusals[-1], 'reason', 'the root does not hold')}")
        before = self.statements.entries
        for data in envelopes:
            try:
                envelope = decode_envelope(data)
                self.statements.admit(envelope)
            except (IdentityError, WireError) as error:
                self.statements.entries = before  # What came before the bad one was neither written nor said.
                raise StateError(f"not published: {error}") from error
            grown.append(data)
            effects.append(heard(envelope.kind, envelope.digest, True, "operator", ""))
        effects += self.statements.written(before)
        effects += self._exchange.push_news(self._peers, Push(tuple(roots), tuple(grown), ()), None)
        return [*effects, *self._after(now_ns)]

    def _catalogue(self) -> Catalogue:
        summary = self.summary()
        if self._known is None or self._known[0] != summary:
            statements = {digest: self.statements.entries[digest].envelope.encode() for digest in self.view.digests}
            reports = {digest: envelope.encode() for digest, envelope in self.book.envelopes().items()}
            self._known = summary, Catalogue(self.chain.statements, statements, reports)
        return self._known[1]

    # --- After any change -------------------------------------------------------------------------------------------

    def _after(self, now_ns: int) -> list[SubEffect]:
        """Look again, then steer every model."""
        judged = self.statements.judge()
        before = self.view.heartbeat
        self._look()
        effects = [*self.policy.floors.fell(self.view), *judged]
        self._summary = None
        if self.view.heartbeat > before:
            self._lookout.on_heartbeat(now_ns)
        self._time.judge(self.chain.current.epoch)
        effects += [*self._time.keep(self.view, now_ns), *self._lookout.forks(self.view)]
        for model in self.local:
            effects += self.policy.steer(model, now_ns)
        return [*effects, *self._after_fetch(now_ns)]

    def _look(self) -> None:
        view = self.statements.look()
        if view is not None:
            self.policy.look(view, self.chain.current.epoch)

    def _after_fetch(self, now_ns: int) -> list[SubEffect]:
        """The fetch timers follow the need for them."""
        effects: list[SubEffect] = []
        if self.fetcher.active:
            effects += self._timers.arm((NAME, "fetch"), now_ns + self.policy.config.fetch_tick_ns)
        due_ns = self.fetcher.next_due_ns(now_ns)
        if due_ns is not None:
            effects += self._timers.arm((NAME, "due"), due_ns)
        return effects
