"""The sub-protocol "releases": statements in, statements on; time, peers and messages of what `steering.py` decides.

State on disk (journal keys b"releases/…"): roots `r/<n>`, statements `s/<digest>`, the own last report of each model
`o/<model>`, the signed bound of the time `t`. What peers have said about health is asked for again after a restart.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import Alarm, Persist, Rejected, StateChanged, TimerKey
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId, node_id_of, short
from swarmd_protocols.releases import requests, versions
from swarmd_protocols.releases.exchange import Catalogue, Exchange
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import Have, Piece, Push, Want, decode_message, encode_message
from swarmd_protocols.releases.rollout import Report, ReportBook, SignedReport, Verdict, admit_report
from swarmd_protocols.releases.steering import NAME, OWN, TIME, LocalModel, ReleasesConfig, Steering
from swarmd_protocols.releases.stores import ChunkStore
from swarmd_protocols.subprotocol import Peer, SubEffect
from swarmd_protocols.trust.envelopes import Envelope, decode_envelope
from swarmd_protocols.trust.roots import RootChain

__all__ = ["NAME", "LocalModel", "Releases", "ReleasesConfig"]

_ROOT, _STATEMENT = b"releases/r/", b"releases/s/"


class Releases(Steering):
    """See the module; implements `SubProtocol`.

    Args:
        public_key: This node's Ed25519 key.
        sign: Signs bytes with it.
        roots: The fleet's root chain as installed; newer links come from peers.
        crypto: Verifies.
        store: Where chunks lie.
        config: Bounds and times.
        rng: Injected randomness.
        restored: This sub-protocol's journal records.
    """

    def __init__(
        self,
        public_key: bytes,
        sign: Callable[[bytes], bytes],
        roots: Sequence[bytes],
        crypto: Crypto,
        store: ChunkStore,
        config: ReleasesConfig,
        rng: random.Random,
        restored: Mapping[bytes, bytes],
    ) -> None:
        self.node = node_id_of(public_key)
        self._public_key = public_key
        self._sign = sign
        self._store = store
        self._config = config
        self.chain = RootChain.trust(roots[0], crypto)
        self.book = ReportBook()
        self.fetcher = Fetcher(store, rng, config.swarming, config.cast)
        self.local = {model: LocalModel(runs=False) for model in config.caches}
        self.local |= {model: LocalModel() for model in config.models}
        self._exchange = Exchange(rng)
        self._state: dict[bytes, versions.Entry] = {}
        self._peers: list[NodeId] = []
        self._enrolled: set[NodeId] = {self.node}
        self._revoked: frozenset[bytes] = frozenset()
        self._time_s = self._time_kept_s = int.from_bytes(restored.get(TIME, b"")[:8], "big")
        self._time_ns: int | None = None
        self._offers: dict[bytes, int] = {}
        self._bad_deltas: set[bytes] = set()
        self._heartbeat_ns = 0
        self._alarmed: set[str] = set()
        self._applying: set[bytes] = set()
        self._served: set[bytes] = set()
        self._timers: dict[TimerKey, int] = {}
        self._restore(roots[1:], restored)
        self.view = versions.view_of(self._state, self.chain)
        self._summary: bytes | None = None
        self._known: tuple[bytes, Catalogue] | None = None
        """The catalogue, and the summary of what it was made from."""

    def _restore(self, roots: Sequence[bytes], restored: Mapping[bytes, bytes]) -> None:
        """Take the journal in; a record that does not hold any longer is left aside, never trusted."""
        journal = [restored[key] for key in sorted(restored) if key.startswith(_ROOT)]
        for statement in (*roots, *journal):
            self._try(lambda one=statement: self.chain.extend(one))  # type: ignore[misc]
        for key, value in sorted(restored.items()):
            if key.startswith(_STATEMENT):
                self._try(lambda one=value: self._admit(decode_envelope(one)))  # type: ignore[misc]
            elif key.startswith(OWN):
                self._try(lambda one=value: self._restore_report(decode_envelope(one)))  # type: ignore[misc]

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (IdentityError, WireError):
            self._alarmed.add("journal")

    def _restore_report(self, envelope: Envelope) -> None:
        report = admit_report(envelope, self.chain.verify)
        local = self.local.get(report.model)
        if report.node != self.node or local is None:
            return
        self.book.add(SignedReport(envelope, report))
        local.said = envelope.digest
        local.sequence, local.verdict, local.about = report.sequence, report.verdict, report.release
        local.soak_s, local.samples, local.reason = report.soak_s, report.samples, report.reason
        if report.verdict is Verdict.FAIL:
            local.failed.add(report.release)

    # --- SubProtocol ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """See `SubProtocol.name`."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.start`."""
        self._heartbeat_ns = now_ns
        effects: list[SubEffect] = self._arm((NAME, "slow"), now_ns + 30_000_000_000)
        if "journal" in self._alarmed:
            effects.append(Alarm("releases-journal", "a journal record about models does not hold and was left aside"))
        for model in self.local:
            effects += self._say(model)
        return [*effects, *self._after(now_ns)]

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_message`."""
        try:
            message = decode_message(payload)
        except WireError as error:
            return [Rejected(short(sender), str(error))]
        match message:
            case Push():
                return self._on_push(sender, message, now_ns)
            case Have():
                everything = self._catalogue()
                ours = everything.have(reply=False)
                return list(self._exchange.answer_have(sender, message, ours, everything))
            case Want():
                return list(self._catalogue().give(sender, message))
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
        if self._timers.get(key, now_ns + 1) > now_ns:
            return []  # Set anew since, for another time.
        del self._timers[key]
        match key:
            case (_, "fetch"):
                return [*self.fetcher.on_tick(now_ns), *self._after_fetch(now_ns)]
            case (_, "due"):
                return [*self.fetcher.on_due(now_ns), *self._after_fetch(now_ns)]
            case (_, "slow"):
                return [
                    *self._arm((NAME, "slow"), now_ns + 30_000_000_000),
                    *self._staleness(now_ns),
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
                return [*self.fetcher.provide(blob, first_source, now_ns), *self._after_fetch(now_ns)]
            case requests.Running():
                return self._on_running(request, now_ns)
            case requests.TrialBegan(model, release):
                return self._on_trial_began(model, release, now_ns)
            case requests.TrialEnded():
                return self._on_trial_ended(request, now_ns)
            case requests.DeltaFailed(delta):
                self._bad_deltas.add(delta)
                self._applying.discard(delta)
                self.fetcher.drop(delta)
                return self._after(now_ns)
            case requests.BlobReady():
                return self._after(now_ns)
            case _:
                raise StateError(f"releases cannot carry out {type(request).__name__}")

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_peers`."""
        self._enrolled |= {peer.node for peer in peers if peer.node not in self._revoked}
        self._peers = [peer.node for peer in peers if peer.reachable]
        return [*self.fetcher.on_peers(self._peers, now_ns), *self._after(now_ns)]

    def on_revoked(self, nodes: frozenset[bytes], now_ns: int) -> list[SubEffect]:
        """See `HearsRevocations.on_revoked`: what they have said of any release counts no more."""
        self._revoked = nodes
        self._enrolled -= nodes
        self.book.forget_nodes(nodes)
        return self._after(now_ns)

    def summary(self) -> bytes:
        """See `SubProtocol.summary`."""
        if self._summary is None:
            self._summary = versions.summary_of(self.view, len(self.chain.roots), self.book.envelopes())
        return self._summary

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_summary`."""
        if summary == self.summary():
            return []
        return list(self._exchange.repair(sender, self._catalogue().have(reply=True), now_ns))

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """See `SubProtocol.piggyback`: the newest health reports, a bounded number of times each."""
        payloads: list[bytes] = []
        limit = 3 * max(1, (len(self._peers) + 1).bit_length())
        for data in sorted(self._offers, key=lambda one: self._offers[one])[:4]:
            payload = encode_message(Push((), (), (data,)))
            if len(payload) > budget_bytes:
                continue
            budget_bytes -= len(payload)
            payloads.append(payload)
            self._offers[data] += 1
            if self._offers[data] >= limit:
                del self._offers[data]
        return payloads

    # --- Statements -------------------------------------------------------------------------------------------------

    def _admit(self, envelope: Envelope) -> bool:
        """Verify and join; True when the state grew."""
        known = self._state.get(envelope.digest)
        if known is not None and set(envelope.signatures) <= set(known.envelope.signatures):
            return False
        entry = versions.admit(envelope, self.chain)
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
        effects: list[SubEffect] = []
        news: tuple[list[bytes], list[bytes]] = ([], [])
        for root in message.roots:
            if self._hear_root(root, short(sender), effects):
                news[0].append(root)
        before = set(self._state)
        for statement in message.statements[:512]:
            grew, more = self._hear(statement, short(sender))
            effects += more
            if grew:
                news[1].append(statement)
        for report in message.reports[:4_096]:
            effects += self._hear_report(report, short(sender))
        effects += [Persist(_STATEMENT + gone, None) for gone in sorted(before - set(self._state))]
        if any(news):
            passed_on = Push(tuple(news[0]), tuple(news[1]), ())
            effects += self._exchange.push_news(self._peers, passed_on, sender)
        return [*effects, *self._after(now_ns)]

    def _hear_root(self, statement: bytes, source: str, effects: list[SubEffect]) -> bool:
        forks = len(self.chain.forks)
        try:
            grew = self.chain.extend(statement)
        except IdentityError as error:
            effects.append(Rejected(source, str(error)))
            return False
        if len(self.chain.forks) > forks:
            text = "the root role signed two different roots; this node stays with the one before them"
            effects.append(Alarm("root-equivocation", text))
        elif grew:
            effects.append(Persist(_ROOT + b"%05d" % self.chain.current.version, statement))
        return grew

    def _hear_report(self, data: bytes, source: str) -> list[SubEffect]:
        try:
            envelope = decode_envelope(data)
            report = admit_report(envelope, self.chain.verify)
        except (IdentityError, WireError) as error:
            return [Rejected(source, str(error))]
        if report.node not in self._enrolled:
            return []
        if self.book.add(SignedReport(envelope, report)):
            self._offer(data)
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
        return self._say(report.model)

    def _offer(self, report: bytes) -> None:
        if len(self._offers) >= 256:
            del self._offers[max(self._offers, key=lambda one: self._offers[one])]
        self._offers[report] = 0

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
            effects.append(Persist(_STATEMENT + envelope.digest, data))
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
        before = self.view.heartbeat
        self.view = versions.view_of(self._state, self.chain)
        self._summary = None
        if self.view.heartbeat > before:
            self._heartbeat_ns = now_ns
            self._alarmed.discard("stale")
        effects = [*self._keep_time(now_ns), *self._fork_alarms()]
        for model in self.local:
            effects += self._steer(model, now_ns)
        return [*effects, *self._after_fetch(now_ns)]

    def _after_fetch(self, now_ns: int) -> list[SubEffect]:
        """Blobs that became complete lead on; the fetch timers follow the need for them."""
        effects: list[SubEffect] = []
        while self.fetcher.finished:
            self.fetcher.finished.clear()
            for model in self.local:
                effects += self._steer(model, now_ns)
        if self.fetcher.active:
            effects += self._arm((NAME, "fetch"), now_ns + self._config.fetch_tick_ns)
        due_ns = self.fetcher.next_due_ns(now_ns)
        if due_ns is not None:
            effects += self._arm((NAME, "due"), due_ns)
        return effects

    def _fork_alarms(self) -> list[SubEffect]:
        effects: list[SubEffect] = []
        for name, model in self.view.models.items():
            for release in model.releases.values():
                code = f"fork/{name}/{release.epoch}/{release.version}"
                if model.is_forked(release) and code not in self._alarmed:
                    self._alarmed.add(code)
                    text = f"two different releases of {name} {release.version} are signed; both are blocked"
                    effects.append(Alarm("release-equivocation", text))
        return effects

    def _staleness(self, now_ns: int) -> list[SubEffect]:
        if not self.view.models or not self.is_stale(now_ns) or "stale" in self._alarmed:
            return []
        self._alarmed.add("stale")
        days = (now_ns - self._heartbeat_ns) // 86_400_000_000_000
        return [Alarm("releases-stale", f"no new heartbeat of the publisher for {days} days; releases may be withheld")]
