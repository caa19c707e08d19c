"""The sub-protocol "releases": statements in, statements on; what to fetch, try, keep and leave, decided by pure views.

State on disk (journal keys b"releases/…"): roots `r/<n>`, statements `s/<digest>`, the own last report of each model
`o/<model>`. What peers have said about health is asked for again after a restart.

Everything that is decided about a model is decided in `_steer`, after any change, from four things only: the view of
the signed statements, the counted verdicts, what runs here, and what lies here.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import Alarm, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId, node_id_of, short
from swarmd_protocols.releases import requests, rollout, versions
from swarmd_protocols.releases.casting import CastConfig
from swarmd_protocols.releases.envelopes import Envelope, decode_envelope, key_id, signed_bytes
from swarmd_protocols.releases.exchange import Catalogue, Exchange
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import Have, Piece, Push, Want, decode_message, encode_message
from swarmd_protocols.releases.rollout import Report, ReportBook, SignedReport, Standing, Verdict, admit_report
from swarmd_protocols.releases.roots import RootChain
from swarmd_protocols.releases.statements import Blob, BundleFile, DeltaRef, Release
from swarmd_protocols.releases.stores import ChunkStore
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import Peer, SubEffect

NAME = "releases"
_ROOT, _STATEMENT, _OWN, _TIME = b"releases/r/", b"releases/s/", b"releases/o/", b"releases/t"
_TIME_EVERY_S = 600
"""The bound of the time is written at most so often: flash wears."""


@dataclass(frozen=True, slots=True)
class ReleasesConfig:
    """Bounds and times."""

    models: tuple[str, ...] = ()
    """The models this node runs; an observer runs none and only passes statements on."""
    facts: versions.NodeFacts = field(default_factory=versions.NodeFacts)
    caches: tuple[str, ...] = ()
    """Models whose files this node keeps to give them to others, though it does not run them."""
    turn_ns: int = 120_000_000_000
    """How long each rank waits for a canary before it that says nothing."""
    stale_after_ns: int = 7 * 86_400_000_000_000
    """Without a new heartbeat for so long, what this node knows may be old."""
    fetch_tick_ns: int = 250_000_000
    swarming: SwarmingConfig = field(default_factory=SwarmingConfig)
    cast: CastConfig | None = None
    """Where the transport has a channel that all share: how blobs are cast on it."""


@dataclass(slots=True)
class LocalModel:
    """One model as it stands on this node."""

    known: bool = False
    """The daemon has said what runs here; before that nothing is decided."""
    runs: bool = True
    """False: a cache, which fetches and gives and has no say."""
    active: bytes = b""
    trial: bytes = b""
    retry_ns: int = 0
    """After a trial that could not be made: not before then."""
    kept: tuple[bytes, ...] = ()
    """Releases that lie in slots and were good here: one can go back to them at once."""
    phase: str = "idle"
    about: bytes = b""
    """The release that phase and verdict are about."""
    verdict: Verdict = Verdict.NONE
    soak_s: int = 0
    samples: int = 0
    reason: str = ""
    sequence: int = 0
    said: bytes = b""
    """Digest of the own last report."""
    prepared: set[bytes] = field(default_factory=set)
    started: set[bytes] = field(default_factory=set)
    failed: set[bytes] = field(default_factory=set)
    open_since_ns: dict[tuple[bytes, int], int] = field(default_factory=dict)
    announced: set[tuple[bytes, str, int]] = field(default_factory=set)
    went_back: set[bytes] = field(default_factory=set)


class Releases:
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
        self._time_s = self._time_kept_s = int.from_bytes(restored.get(_TIME, b"")[:8], "big")
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
            elif key.startswith(_OWN):
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

    # --- For status and metrics -------------------------------------------------------------------------------------

    def standing(self, model: str, digest: bytes, release: Release) -> Standing:
        """How far a release has come, as this node counts."""
        mine = self.view.models.get(model)
        forced = mine.forced_stage.get(digest, -1) if mine else -1
        nodes = [node for node in self.book.participants(model) if node in self._enrolled]
        return rollout.standing(digest, release.rollout, nodes, self.book.verdicts(digest), forced)

    def halted(self, model: str) -> list[bytes]:
        """Releases that the counted verdicts stopped."""
        mine = self.view.models.get(model)
        releases = mine.releases if mine else {}
        return [digest for digest, release in releases.items() if self.standing(model, digest, release).halted]

    def desired(self, model: str) -> tuple[bytes, Release] | None:
        """What the fleet should run, as this node knows it."""
        return versions.desired(self.view, model, None, self.halted(model))

    def release(self, model: str, digest: bytes) -> Release | None:
        """A release that counts, by digest."""
        mine = self.view.models.get(model)
        return mine.releases.get(digest) if mine else None

    def is_stale(self, now_ns: int) -> bool:
        """Whether no heartbeat was new for so long that it may be a freeze, in this life or over many."""
        if now_ns - self._heartbeat_ns > self._config.stale_after_ns:
            return True
        heard_s = self.view.heartbeat_at_s
        return bool(heard_s) and (self.time_low_s(now_ns) - heard_s) * 1_000_000_000 > self._config.stale_after_ns

    def time_low_s(self, now_ns: int) -> int:
        """It is at least this late, Unix seconds: by signed statements and by how long nodes ran since. 0: unknown.

        No wall clock has a part in it, so setting one back or forth changes nothing.
        """
        passed_s = (now_ns - self._time_ns) // 1_000_000_000 if self._time_ns is not None else 0
        return versions.advance_time_s(self._time_s, passed_s if self._time_s else 0, self.view.issued_at_s)

    def _keep_time(self, now_ns: int) -> list[SubEffect]:
        """Move the bound forward, and write it down now and then."""
        now_s = self.time_low_s(now_ns)
        if self._time_ns is None or now_s > self._time_s:
            self._time_s, self._time_ns = now_s, now_ns
        if now_s < self._time_kept_s + _TIME_EVERY_S:
            return []
        self._time_kept_s = now_s
        return [Persist(_TIME, now_s.to_bytes(8, "big"))]

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

    def _arm(self, key: TimerKey, at_ns: int) -> list[SubEffect]:
        """Set a timer that is not set yet, or set for later."""
        if self._timers.get(key, at_ns + 1) <= at_ns:
            return []
        self._timers[key] = at_ns
        return [SetTimer(key, at_ns)]

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

    # --- One model ----------------------------------------------------------------------------------------------------

    def _steer(self, model: str, now_ns: int) -> list[SubEffect]:
        """Decide what this node does about a model now."""
        local, mine = self.local[model], self.view.models.get(model)
        if mine is None or (local.runs and not local.known):
            return []
        stopped = [*self.halted(model), *local.failed]
        effects = self._announce(model, mine, now_ns)
        for running in (local.trial, local.active):
            release = mine.releases.get(running)
            if release is None or running in local.went_back:
                continue
            reason = versions.refusal(running, release, mine, self._config.facts, stopped)
            if reason is not None:
                return [*effects, *self._go_back(model, running, reason, stopped)]
        effects += self._serve(mine, local.active, now_ns)
        target = versions.desired(self.view, model, self._config.facts, stopped)
        if target is None:
            return [*effects, *self._nothing_admissible(model, mine)]
        digest, release = target
        if local.trial or digest == local.active or not self._is_newer(mine, release, local.active):
            return effects
        if digest not in local.prepared:
            if now_ns < local.retry_ns:
                return [*effects, *self._arm((NAME, "turn"), local.retry_ns)]
            return [*effects, *self._gather(model, digest, release, now_ns)]
        return [*effects, *self._try_turn(model, digest, release, now_ns)]

    def _is_newer(self, mine: versions.ModelView, release: Release, active: bytes) -> bool:
        running = mine.releases.get(active)
        return running is None or release.order > running.order

    def _nothing_admissible(self, model: str, mine: versions.ModelView) -> list[SubEffect]:
        local = self.local[model]
        if local.active or f"none/{model}" in self._alarmed or not mine.releases:
            return []
        self._alarmed.add(f"none/{model}")
        return [Alarm("no-release", f"no release of {model} may run here; the model built into the image runs")]

    def _go_back(self, model: str, leave: bytes, reason: str, stopped: Sequence[bytes]) -> list[SubEffect]:
        """Leave a release that must not run: to the last good one that lies here, else to the image's own."""
        local, mine = self.local[model], self.view.models[model]
        local.went_back.add(leave)
        to = b""
        for candidate in (local.active, *local.kept):
            release = mine.releases.get(candidate)
            if candidate == leave or release is None:
                continue
            if versions.refusal(candidate, release, mine, self._config.facts, stopped) is None:
                to = candidate
                break
        text = f"release {leave.hex()[:8]} of {model} {reason}"
        effects: list[SubEffect] = [StateChanged(NAME, requests.GoBack(model, leave, to, text))]
        if not to:
            effects.append(Alarm("no-release", f"{text}; the model built into the image runs"))
        if local.trial == leave:
            local.trial = b""
        return effects

    def _gather(self, model: str, digest: bytes, release: Release, now_ns: int) -> list[SubEffect]:
        """Get the files of a release, by delta where a base lies here; then have them prepared."""
        effects: list[SubEffect] = []
        missing = [one for one in release.bundle if not self._store.has_blob(one.blob.sha256)]
        for one in missing:
            effects += self._get(model, one, now_ns)
        if missing:
            return [*effects, *self._phase(model, "fetching", digest)]
        for one in release.bundle:
            effects += self.fetcher.provide(one.blob, super_seed=False, now_ns=now_ns)
        local = self.local[model]
        local.prepared.add(digest)
        effects.append(StateChanged(NAME, requests.Prepare(digest, release)))
        return [*effects, *self._phase(model, "ready", digest), *self._try_turn(model, digest, release, now_ns)]

    def _serve(self, mine: versions.ModelView, digest: bytes, now_ns: int) -> list[SubEffect]:
        """Give what runs here to whoever lacks it, after a restart too."""
        release = mine.releases.get(digest)
        if release is None or digest in self._served:
            return []
        self._served.add(digest)
        blobs = [one.blob for one in release.bundle] + [one.blob for one in release.deltas]
        here = [blob for blob in blobs if self._store.has_blob(blob.sha256)]
        return [effect for blob in here for effect in self.fetcher.provide(blob, False, now_ns)]

    def _get(self, model: str, wanted: BundleFile, now_ns: int) -> list[SubEffect]:
        delta = self._usable_delta(model, wanted.blob)
        if delta is None:
            return self.fetcher.want(wanted.blob, now_ns)
        if not self._store.has_blob(delta.blob.sha256):
            return self.fetcher.want(delta.blob, now_ns)
        if delta.blob.sha256 in self._applying:
            return []
        self._applying.add(delta.blob.sha256)
        return [StateChanged(NAME, requests.ApplyDelta(delta, wanted.blob))]

    def _usable_delta(self, model: str, target: Blob) -> DeltaRef | None:
        """The smallest signed delta whose base lies here and that has not failed here."""
        for delta in self.view.models[model].deltas_to(target.sha256):
            good = delta.blob.sha256 not in self._bad_deltas and delta.out_bytes == target.size
            if good and delta.blob.size < target.size and self._store.has_blob(delta.base_sha256):
                return delta
        return None

    def _try_turn(self, model: str, digest: bytes, release: Release, now_ns: int) -> list[SubEffect]:
        """Start the trial when it is this node's turn; otherwise wake up when it may be."""
        local = self.local[model]
        if digest in local.started or not local.runs:
            return []
        if now_ns < local.retry_ns:
            return self._arm((NAME, "turn"), local.retry_ns)
        standing = self.standing(model, digest, release)
        rank = rollout.ranks(digest, {*self.book.participants(model), self.node}).get(self.node, 0)
        since_ns = local.open_since_ns.setdefault((digest, standing.stage), now_ns)
        if rollout.may_try(standing, rank, now_ns - since_ns, self._config.turn_ns):
            local.started.add(digest)
            return [StateChanged(NAME, requests.StartTrial(digest, release))]
        return self._arm((NAME, "turn"), now_ns + min(self._config.turn_ns, 10_000_000_000))

    def _announce(self, model: str, mine: versions.ModelView, now_ns: int) -> list[SubEffect]:
        """Say once what has become of each release."""
        local = self.local[model]
        effects: list[SubEffect] = []
        for digest, release in mine.releases.items():
            standing = self.standing(model, digest, release)
            what, stage = "stage", standing.stage
            if digest in mine.revoked:
                what, stage = "revoked", 0
            elif standing.halted or digest in mine.halted:
                what, stage = "halted", 0
            elif standing.promoted:
                what, stage = "promoted", 0
            if (digest, what, stage) not in local.announced:
                local.announced.add((digest, what, stage))
                changed = requests.RolloutChanged(model, digest, release.version, what, stage)
                effects.append(StateChanged(NAME, changed))
        return effects

    # --- What the daemon reports ------------------------------------------------------------------------------------

    def _model(self, model: str) -> LocalModel:
        local = self.local.get(model)
        if local is None:
            raise StateError(f"this node does not run {model!r}; it runs {', '.join(self.local) or 'no model'}")
        return local

    def _on_running(self, running: requests.Running, now_ns: int) -> list[SubEffect]:
        local = self._model(running.model)
        local.known = True
        local.active, local.trial = running.release, b""
        local.kept = tuple(one for one in running.kept if one != running.release)[:4]
        local.failed |= set(running.rejected)
        local.went_back.discard(running.release)
        return [*self._say(running.model), *self._after(now_ns)]

    def _on_trial_began(self, model: str, release: bytes, now_ns: int) -> list[SubEffect]:
        local = self._model(model)
        local.trial = release
        return [*self._phase(model, "trial", release), *self._after(now_ns)]

    def _on_trial_ended(self, ended: requests.TrialEnded, now_ns: int) -> list[SubEffect]:
        local = self._model(ended.model)
        local.trial = b""
        local.verdict, local.about, local.reason = ended.verdict, ended.release, ended.reason
        local.soak_s, local.samples = ended.soak_s, ended.samples
        if ended.verdict is Verdict.PASS:
            local.kept = tuple(one for one in (local.active, *local.kept) if one)[:4]
            local.active, local.phase = ended.release, "passed"
        elif ended.verdict is Verdict.FAIL:
            local.failed.add(ended.release)
            local.phase = "failed"
        else:
            # No verdict: the trial could not be made (no eye yet, a file that has gone). Later again, not at once.
            local.started.discard(ended.release)
            local.prepared.discard(ended.release)
            self._forget_lost(ended.model, ended.release)
            local.retry_ns = now_ns + self._config.turn_ns
            local.phase = "ready"
        return [*self._say(ended.model), *self._after(now_ns)]

    def _forget_lost(self, model: str, digest: bytes) -> None:
        """Files of a release that do not lie here any longer are not given to others, and are fetched again."""
        release = self.release(model, digest)
        for one in release.bundle if release else ():
            if not self._store.has_blob(one.blob.sha256):
                self.fetcher.drop(one.blob.sha256)

    def _phase(self, model: str, phase: str, about: bytes) -> list[SubEffect]:
        local = self.local[model]
        if (local.phase, local.about) == (phase, about):
            return []
        local.phase, local.about, local.verdict, local.reason = phase, about, Verdict.NONE, ""
        local.soak_s = local.samples = 0
        return self._say(model)

    def _say(self, model: str) -> list[SubEffect]:
        """Sign and spread this node's report; durable first, so that its number never goes back."""
        local = self.local[model]
        if not local.runs:
            return []
        local.sequence += 1
        running = self.release(model, local.active)
        report = Report(
            self._public_key,
            model,
            local.sequence,
            local.active,
            running.epoch if running else 0,
            running.version if running else 0,
            local.phase,
            local.about,
            local.verdict,
            local.soak_s,
            local.samples,
            local.reason[: rollout.MAX_REASON],
        )
        payload = report.payload()
        signature = self._sign(signed_bytes("health", payload))
        envelope = Envelope("health", payload, ((key_id(self._public_key), signature),))
        self.book.add(SignedReport(envelope, report))
        local.said = envelope.digest
        data = envelope.encode()
        self._offer(data)
        self._summary = None
        return [Persist(_OWN + model.encode(), data)]
