"""What a node does about each model, decided by pure views: the rules behind `releases.py`.

Everything that is decided about a model is decided in `_steer`, after any change, from four things only: the view of
the signed statements, the counted verdicts, what runs here, and what lies here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swarmd_protocols.effects import Alarm, Persist, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import requests, rollout, versions
from swarmd_protocols.releases.casting import CastConfig
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.rollout import Report, ReportBook, SignedReport, Standing, Verdict
from swarmd_protocols.releases.statements import Blob, BundleFile, DeltaRef, Release
from swarmd_protocols.releases.stores import ChunkStore
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.trust.envelopes import Envelope, key_id, signed_bytes

NAME = "releases"
OWN, TIME = b"releases/o/", b"releases/t"
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


class Steering:
    """The half of `Releases` that decides about models; `Releases` fills the attributes and hears the statements."""

    node: NodeId
    view: versions.View
    book: ReportBook
    fetcher: Fetcher
    local: dict[str, LocalModel]
    _public_key: bytes
    _sign: Callable[[bytes], bytes]
    _store: ChunkStore
    _config: ReleasesConfig
    _enrolled: set[NodeId]
    _alarmed: set[str]
    _bad_deltas: set[bytes]
    _applying: set[bytes]
    _served: set[bytes]
    _timers: dict[TimerKey, int]
    _heartbeat_ns: int
    _time_s: int
    _time_kept_s: int
    _time_ns: int | None
    _summary: bytes | None

    def _after(self, now_ns: int) -> list[SubEffect]:
        """Look again after a change, then steer."""
        raise NotImplementedError

    def _offer(self, report: bytes) -> None:
        """Let a report ride in datagrams."""
        raise NotImplementedError

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
        return [Persist(TIME, now_s.to_bytes(8, "big"))]

    def _arm(self, key: TimerKey, at_ns: int) -> list[SubEffect]:
        """Set a timer that is not set yet, or set for later."""
        if self._timers.get(key, at_ns + 1) <= at_ns:
            return []
        self._timers[key] = at_ns
        return [SetTimer(key, at_ns)]

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
        return [Persist(OWN + model.encode(), data)]
