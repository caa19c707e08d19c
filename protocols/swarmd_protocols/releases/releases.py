"""The sub-protocol "releases": statements in, statements on; time, peers and messages of what `policy.py` decides.

State on disk (journal keys b"releases/…"): statements `s/<digest>`, the own last report of each model
`o/<model>`, releases seen promoted `p/<digest>`, the signed bound of the time `t`. What peers have said about health is
asked for again after a restart.

What one peer may cost is bounded: signatures to check (`CHECKS_PER_S`) and bytes of answers (`ANSWER_BYTES_PER_S`).
What is beyond is dropped, named in an alarm, and comes again with the repair once a second.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from swarmd_protocols.effects import Alarm, Persist, Rejected, StateChanged, TimerKey
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId, node_id_of, short
from swarmd_protocols.releases import requests, versions
from swarmd_protocols.releases.allowance import MAX_PEERS, Allowance
from swarmd_protocols.releases.exchange import (
    MAX_PUSH_COST,
    REPORT_COST,
    ROOT_COST,
    STATEMENT_COST,
    Catalogue,
    Exchange,
)
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.inventory import Inventory
from swarmd_protocols.releases.local import LocalModel
from swarmd_protocols.releases.messages import Have, Piece, Push, Want, decode_message
from swarmd_protocols.releases.own_word import OWN, OwnWord
from swarmd_protocols.releases.policy import PROMOTED, ReleasesConfig, RolloutPolicy, Timers
from swarmd_protocols.releases.reports import Report, ReportBook, SignedReport, admit_report
from swarmd_protocols.releases.requests import NAME
from swarmd_protocols.releases.rollout import Standing
from swarmd_protocols.releases.signed_time import TIME, SignedTime
from swarmd_protocols.releases.statements import Release
from swarmd_protocols.subprotocol import Peer, Send, SubEffect
from swarmd_protocols.trust.envelopes import Envelope, decode_envelope
from swarmd_protocols.trust.view import TrustView

__all__ = ["NAME", "LocalModel", "Releases", "ReleasesConfig"]

_STATEMENT = b"releases/s/"
CHECKS_PER_S, CHECKS_BURST = 400, 4_096
"""Units of checking that one peer may cost (a report is one: one Ed25519 verification, 50 us): 2 % of a core, and all
that a newcomer to a swarm of a thousand has to catch up with at once."""
ANSWER_BYTES_PER_S, ANSWER_BYTES_BURST = 64 << 10, 1 << 20
"""Bytes that one peer's questions may be answered with; the burst is the whole catalogue of a thousand nodes."""
QUESTIONS_PER_S, QUESTIONS_BURST = 2, 8
"""Questions of one peer that are answered: an honest one compares once a second, and asks for what it then lacks."""
_MUTE_NS = 1_000_000_000
"""A peer that is beyond that is not listened to for so long: what it sends is not even decoded."""
_ALARM_EVERY_NS = 60_000_000_000
"""A peer that costs too much is named once in so long."""
_WITHHELD_NS = 600_000_000_000
"""A release that the newest heartbeat names is missed after so long; repair takes seconds."""
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
        self._revision = trust.revision
        self._whole_ns = 0
        """When all was here last that the newest heartbeat names."""
        self.book = ReportBook()
        self.fetcher = Fetcher(rng, config.swarming, config.cast)
        self._inventory = Inventory()
        self._word = OwnWord(public_key, sign)
        self._timers = Timers()
        self.policy = RolloutPolicy(
            config, self._word, self.book, self.fetcher, self._inventory, self._timers, self._is_certified, self._fleet
        )
        self._time = SignedTime(restored.get(TIME, b""), config.stale_after_ns)
        self._exchange = Exchange(rng)
        self._checks = Allowance(CHECKS_PER_S, CHECKS_BURST)
        self._questions = Allowance(QUESTIONS_PER_S, QUESTIONS_BURST)
        self._answers = Allowance(ANSWER_BYTES_PER_S, ANSWER_BYTES_BURST)
        self._named_ns: dict[NodeId, int] = {}
        self._muted_ns: dict[NodeId, int] = {}
        self._state: dict[bytes, versions.Entry] = {}
        self._seen: tuple[object, ...] = ()
        """What the view was made of: it is made again only when that has changed."""
        self._peers: list[NodeId] = []
        self._enrolled: set[NodeId] = {self.node}
        self._summary: bytes | None = None
        self._known: tuple[bytes, Catalogue] | None = None
        """The catalogue, and the summary of what it was made from."""
        self._restore(restored)

    def _restore(self, restored: Mapping[bytes, bytes]) -> None:
        """Take the journal in; a record that does not hold any longer is left aside, never trusted."""
        for key, value in sorted(restored.items()):
            if key.startswith(_STATEMENT):
                self._try(lambda one=value: self._admit(decode_envelope(one)))  # type: ignore[misc]
            elif key.startswith(PROMOTED):
                self.policy.restore(key.removeprefix(PROMOTED))
        self._look()
        for key, value in sorted(restored.items()):
            if key.startswith(OWN):
                self._try(lambda one=value: self._restore_report(decode_envelope(one)))  # type: ignore[misc]

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (IdentityError, WireError):
            self.policy.alarmed.add("journal")

    def _restore_report(self, envelope: Envelope) -> None:
        signed = self._word.restore(envelope, self.policy.local, self.chain.verify)
        if signed is not None:
            self.book.add(signed, self.policy.known())

    def _is_certified(self, node: NodeId) -> bool:
        return node in self._enrolled

    def _fleet(self) -> int:
        return len(self._enrolled)

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
        effects: list[SubEffect] = self._timers.arm((NAME, "slow"), now_ns + _SLOW_NS)
        if "journal" in self.policy.alarmed:
            effects.append(Alarm("releases-journal", "a journal record about models does not hold and was left aside"))
        for model in self.local:
            effects += self.policy.say(model)
        return [*effects, *self._after(now_ns)]

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_message`."""
        if self._muted_ns.get(sender, now_ns) > now_ns:
            return []
        try:
            message = decode_message(payload)
        except WireError as error:
            return [Rejected(short(sender), str(error))]
        if isinstance(message, Have | Want) and not self._questions.take(sender, 1, now_ns):
            return []  # It compares again in a second.
        match message:
            case Push():
                return self._on_push(sender, message, now_ns)
            case Have():
                everything = self._catalogue()
                answers = self._exchange.answer_have(sender, message, everything.have(reply=False), everything)
                return self._within_answers(sender, answers, now_ns)
            case Want():
                return self._within_answers(sender, self._catalogue().give(sender, message), now_ns)
            case _:
                return [*self.fetcher.on_message(sender, message, now_ns), *self._after_fetch(now_ns)]

    def _within_answers(self, peer: NodeId, sends: Sequence[Send], now_ns: int) -> list[SubEffect]:
        """As many answers as the peer's allowance pays for."""
        for count, send in enumerate(sends):
            if not self._answers.take(peer, len(send.payload), now_ns):
                return [*sends[:count], *self._name(peer, "asks for more than it may be sent", now_ns)]
        return list(sends)

    def _name(self, peer: NodeId, what: str, now_ns: int) -> list[SubEffect]:
        """Listen no more for a moment to who costs too much, and say who it is, once a minute each."""
        if len(self._muted_ns) >= MAX_PEERS:
            del self._muted_ns[next(iter(self._muted_ns))]
        self._muted_ns[peer] = now_ns + _MUTE_NS
        effects: list[SubEffect] = [Rejected(short(peer), what)]
        if now_ns - self._named_ns.get(peer, -_ALARM_EVERY_NS) < _ALARM_EVERY_NS:
            return effects
        if len(self._named_ns) >= 64:
            del self._named_ns[next(iter(self._named_ns))]
        self._named_ns[peer] = now_ns
        return [*effects, Alarm("release-flood", f"member {short(peer)} {what}; the rest is dropped")]

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
                    *self._staleness(now_ns),
                    *self._withheld(now_ns),
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
            case requests.ChunkStored():
                return [*self.fetcher.on_stored(answer, now_ns), *self._after_fetch(now_ns)]
            case requests.ChunkRead():
                return [*self.fetcher.on_read(answer, now_ns), *self._after_fetch(now_ns)]
            case requests.BlobFinished(blob, ok):
                self._inventory.learn((blob.sha256,), ok)
                if not ok:
                    self.fetcher.drop(blob.sha256)  # The disk gave other bytes back: start over.
                return self._after(now_ns)
            case _:
                raise StateError(f"releases cannot carry out {type(answer).__name__}")

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_peers`."""
        self._enrolled |= {peer.node for peer in peers if self.trust.certified(peer.node) is not None}
        self.policy.trust_edition += 1
        self._peers = [peer.node for peer in peers if peer.reachable]
        return [*self.fetcher.on_peers(self._peers, now_ns), *self._after(now_ns)]

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """See `HearsTrust.on_trust`: statements are judged anew, and of whom is shut out every word is dropped."""
        gone = {node for node in self._enrolled if node != self.node and self.trust.certified(node) is None}
        self._enrolled -= gone
        self.policy.trust_edition += 1
        self.book.forget_nodes(gone)
        return self._after(now_ns)

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

    def _admit(self, envelope: Envelope) -> bool:
        """Verify and join; True when the state grew."""
        known = self._state.get(envelope.digest)
        if known is not None and set(envelope.signatures) <= set(known.envelope.signatures):
            return False
        entry = versions.admit(envelope, self.chain, known)
        joined = versions.join(self._state, {envelope.digest: entry})
        grew = joined != self._state
        self._state = joined
        return grew

    def _hear(self, data: bytes, source: str) -> tuple[bool, list[SubEffect]]:
        """One encoded statement from outside; never raises."""
        try:
            envelope = decode_envelope(data)
        except WireError as error:
            return False, [Rejected(source, str(error)), self._heard("?", b"", False, source, str(error))]
        try:
            grew = self._admit(envelope)
        except (IdentityError, WireError) as error:
            heard = self._heard(envelope.kind, envelope.digest, False, source, str(error))
            return False, [Rejected(source, str(error)), heard]
        if not grew:
            return False, []
        effects: list[SubEffect] = [
            Persist(_STATEMENT + envelope.digest, self._state[envelope.digest].envelope.encode())
        ]
        return True, [*effects, self._heard(envelope.kind, envelope.digest, True, source, "")]

    def _heard(self, kind: str, digest: bytes, accepted: bool, source: str, reason: str) -> StateChanged:
        return StateChanged(NAME, requests.Heard(kind, digest, accepted, source, reason))

    def _on_push(self, sender: NodeId, message: Push, now_ns: int) -> list[SubEffect]:
        """Check as much of a push as the peer's allowance and the bound of one event pay for."""
        effects: list[SubEffect] = []
        news: tuple[list[bytes], list[bytes]] = ([], [])
        known = (self.book.edition, self._summary)
        before = set(self._state)
        source, spent = short(sender), 0
        parts = [(ROOT_COST, one) for one in message.roots]
        parts += [(STATEMENT_COST, one) for one in message.statements]
        parts += [(REPORT_COST, one) for one in message.reports]
        for cost, data in parts:
            spent += cost
            if spent > MAX_PUSH_COST or not self._checks.take(sender, cost, now_ns):
                effects += self._name(sender, "sends more statements than are checked", now_ns)
                break
            if cost == REPORT_COST:
                effects += self._hear_report(data, source)
            elif cost == ROOT_COST:
                if self._hear_root(data, source, effects):
                    news[0].append(data)
            else:
                grew, more = self._hear(data, source)
                effects += more
                if grew:
                    news[1].append(data)
        effects += [Persist(_STATEMENT + gone, None) for gone in sorted(before - set(self._state))]
        if any(news):
            passed_on = Push(tuple(news[0]), tuple(news[1]), ())
            effects += self._exchange.push_news(self._peers, passed_on, sender)
        if any(news) or known != (self.book.edition, self._summary):
            effects += self._after(now_ns)
        return effects

    def _hear_root(self, statement: bytes, source: str, effects: list[SubEffect]) -> bool:
        try:
            return self.trust.add("root", statement)
        except IdentityError as error:
            effects.append(Rejected(source, str(error)))
            return False

    def _hear_report(self, data: bytes, source: str) -> list[SubEffect]:
        try:
            envelope = decode_envelope(data)
            report = admit_report(envelope, self.chain.verify)
        except (IdentityError, WireError) as error:
            return [Rejected(source, str(error))]
        if report.node not in self._enrolled:
            return []
        if self.book.add(SignedReport(envelope, report), self.policy.known()):
            self._word.offer(data)
            self._summary = None
        if report.node == self.node:
            return self._hear_myself(envelope, report)
        return []

    def _hear_myself(self, envelope: Envelope, report: Report) -> list[SubEffect]:
        """What this node said in an earlier life: it still counts, and its number must not be used again."""
        local = self.local.get(report.model)
        if local is None or not local.runs or report.sequence < local.sequence or envelope.digest == local.said:
            return []
        local.sequence = report.sequence
        return self.policy.say(report.model)

    def _on_publish(self, envelopes: Sequence[bytes], roots: Sequence[bytes], now_ns: int) -> list[SubEffect]:
        effects: list[SubEffect] = []
        grown = []
        for root in roots:
            refused = len(effects)
            if not self._hear_root(root, "operator", effects) and len(effects) > refused:
                raise StateError(f"not published: {getattr(effects[-1], 'reason', 'the root does not hold')}")
        for data in envelopes:
            try:
                self._admit(decode_envelope(data))
            except (IdentityError, WireError) as error:
                raise StateError(f"not published: {error}") from error
            envelope = decode_envelope(data)
            grown.append(data)
            if envelope.digest in self._state:
                held = self._state[envelope.digest].envelope
                effects.append(Persist(_STATEMENT + envelope.digest, held.encode()))
            effects.append(self._heard(envelope.kind, envelope.digest, True, "operator", ""))
        effects += self._exchange.push_news(self._peers, Push(tuple(roots), tuple(grown), ()), None)
        return [*effects, *self._after(now_ns)]

    def _catalogue(self) -> Catalogue:
        summary = self.summary()
        if self._known is None or self._known[0] != summary:
            statements = {digest: self._state[digest].envelope.encode() for digest in self.view.digests}
            reports = {digest: envelope.encode() for digest, envelope in self.book.envelopes().items()}
            self._known = summary, Catalogue(self.chain.statements, statements, reports)
        return self._known[1]

    # --- After any change -------------------------------------------------------------------------------------------

    def _after(self, now_ns: int) -> list[SubEffect]:
        """Look again, then steer every model."""
        effects = self._judge()
        before = self.view.heartbeat
        self._look()
        self._summary = None
        if self.view.heartbeat > before:
            self._time.on_heartbeat(now_ns)
            self.policy.alarmed.discard("stale")
        effects += [*self._time.keep(self.view, now_ns), *self._fork_alarms()]
        for model in self.local:
            effects += self.policy.steer(model, now_ns)
        return [*effects, *self._after_fetch(now_ns)]

    def _look(self) -> None:
        """Make the view again when something that it is made of has changed: that checks every signature."""
        made_of = (self._revision, *sorted(self._state))
        signatures = tuple(len(entry.envelope.signatures) for entry in self._state.values())
        if (*made_of, signatures) != self._seen:
            self._seen = (*made_of, signatures)
            self.policy.look(versions.view_of(self._state, self.chain), self.chain.current.epoch)

    def _judge(self) -> list[SubEffect]:
        """Judge every statement anew when what counts has changed."""
        if self._revision == self.trust.revision:
            return []
        self._revision = self.trust.revision
        before, self._state = self._state, versions.judged(self._state, self.chain)
        return [Persist(_STATEMENT + gone, None) for gone in sorted(before.keys() - self._state.keys())]

    def _after_fetch(self, now_ns: int) -> list[SubEffect]:
        """The fetch timers follow the need for them."""
        effects: list[SubEffect] = []
        if self.fetcher.active:
            effects += self._timers.arm((NAME, "fetch"), now_ns + self.policy.config.fetch_tick_ns)
        due_ns = self.fetcher.next_due_ns(now_ns)
        if due_ns is not None:
            effects += self._timers.arm((NAME, "due"), due_ns)
        return effects

    def _fork_alarms(self) -> list[SubEffect]:
        effects: list[SubEffect] = []
        for name, model in self.view.models.items():
            for release in model.releases.values():
                code = f"fork/{name}/{release.epoch}/{release.version}"
                if model.is_forked(release) and code not in self.policy.alarmed:
                    self.policy.alarmed.add(code)
                    text = f"two different releases of {name} {release.version} are signed; both are blocked"
                    effects.append(Alarm("release-equivocation", text))
        return effects

    def _withheld(self, now_ns: int) -> list[SubEffect]:
        """Say that the newest heartbeat names releases which do not come, though the heartbeat itself did."""
        if not self.view.withheld:
            self._whole_ns = now_ns
            self.policy.alarmed.discard("withheld")
        if now_ns - self._whole_ns < _WITHHELD_NS or "withheld" in self.policy.alarmed:
            return []
        self.policy.alarmed.add("withheld")
        named = ", ".join(one.hex()[:16] for one in self.view.withheld[:4])
        return [Alarm("releases-withheld", f"the newest heartbeat names releases that nobody passes on: {named}")]

    def _staleness(self, now_ns: int) -> list[SubEffect]:
        if not self.view.models or not self.is_stale(now_ns) or "stale" in self.policy.alarmed:
            return []
        self.policy.alarmed.add("stale")
        days = self._time.silent_ns(now_ns) // 86_400_000_000_000
        return [Alarm("releases-stale", f"no new heartbeat of the publisher for {days} days; releases may be withheld")]
