"""What a node does about each model, decided by pure views.

Everything that is decided about a model is decided in `steer`, after any change, from four things only: the view of the
signed statements, the counted verdicts, what runs here, and what lies here.

**Settled** is what verdicts touch no more: a release that this node has seen promoted by most of the fleet (written to
the journal, so a restart does not reopen it), and whatever stands at or below the signed floor. A late FAIL, or a PASS
that turns into one, changes nothing about these; a signed revocation or halt still does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from swarmd_protocols.effects import Alarm, Order, Persist, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import requests, rollout, versions
from swarmd_protocols.releases.casting import CastConfig
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.floors import Floors
from swarmd_protocols.releases.inventory import Inventory
from swarmd_protocols.releases.local import LocalModel
from swarmd_protocols.releases.own_word import OwnWord
from swarmd_protocols.releases.reports import ReportBook, Verdict
from swarmd_protocols.releases.requests import NAME
from swarmd_protocols.releases.rollout import Standing
from swarmd_protocols.releases.stalls import DeltaStalls
from swarmd_protocols.releases.statements import RETIRED_CODECS, Blob, BundleFile, DeltaRef, Release
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import SubEffect

PROMOTED = b"releases/p/"
"""Journal keys of the releases that this node has seen promoted."""
MAX_PROMOTED = 256
"""Of those at most so many are remembered: 8 models with all the releases that are kept of each."""


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


def at_or_below_floor(release: Release, model: versions.ModelView) -> bool:
    """Whether the floor keys have spoken for a release: what stands at the floor has proven itself."""
    return model.floor is not None and release.order <= model.floor.order


class Timers:
    """Which timers are set, so that a firing that was replaced since is known as stale."""

    def __init__(self) -> None:
        self._due_ns: dict[TimerKey, int] = {}

    def arm(self, key: TimerKey, at_ns: int) -> list[SubEffect]:
        """Set a timer that is not set yet, or set for later."""
        if self._due_ns.get(key, at_ns + 1) <= at_ns:
            return []
        self._due_ns[key] = at_ns
        return [SetTimer(key, at_ns)]

    def fired(self, key: TimerKey, now_ns: int) -> bool:
        """Whether a firing is the one that was set last."""
        if self._due_ns.get(key, now_ns + 1) > now_ns:
            return False
        del self._due_ns[key]
        return True


class RolloutPolicy:
    """Decides about models; `Releases` hears the statements and gives it what they make.

    Args:
        config: Bounds and times.
        word: Signs this node's reports.
        book: What all nodes report.
        fetcher: Gets and gives files.
        inventory: Which files lie here.
        timers: Of the sub-protocol.
        certified: Whether a node's verdicts may count at all.
        fleet: How many certified nodes this one knows, itself included.
    """

    def __init__(
        self,
        config: ReleasesConfig,
        word: OwnWord,
        book: ReportBook,
        fetcher: Fetcher,
        inventory: Inventory,
        timers: Timers,
        certified: Callable[[NodeId], bool],
        fleet: Callable[[], int],
    ) -> None:
        self.config = config
        self.book = book
        self.view = versions.View()
        self.local = {model: LocalModel(runs=False) for model in config.caches}
        self.local |= {model: LocalModel() for model in config.models}
        self.floors = Floors(self.local)
        self.alarmed: set[str] = set()
        self.root_epoch = 0
        """Of the newest root."""
        self.trust_edition = 0
        """Changes whenever other nodes may be certified than before."""
        self._word = word
        self._fetcher = fetcher
        self._inventory = inventory
        self._timers = timers
        self._certified = certified
        self._fleet = fleet
        self._promoted: set[bytes] = set()
        self._bad_deltas: set[bytes] = set()
        self._stalls = DeltaStalls(fetcher)
        self._applying: set[bytes] = set()
        self._served: set[bytes] = set()
        self._standings: dict[bytes, tuple[tuple[object, ...], Standing]] = {}

    def restore(self, record: bytes) -> None:
        """The journal says that this release was seen promoted."""
        self._promoted.add(record)

    def look(self, view: versions.View, root_epoch: int) -> None:
        """The statements that count have changed."""
        self.view, self.root_epoch = view, root_epoch
        self.book.keep_votes(self.known())
        self._standings.clear()

    def known(self) -> set[bytes]:
        """Digests of the releases that count."""
        return {digest for model in self.view.models.values() for digest in model.releases}

    # --- For status and metrics -------------------------------------------------------------------------------------

    def standing(self, model: str, digest: bytes, release: Release) -> Standing:
        """How far a release has come, as this node counts; a verdict does not touch what is settled."""
        mine = self.view.models.get(model)
        forced = mine.forced_stage.get(digest, -1) if mine else -1
        promoted = digest in self._promoted
        key = (self.book.edition, self.trust_edition, forced, promoted)
        kept = self._standings.get(digest)
        if kept is not None and kept[0] == key:
            return kept[1]
        found = rollout.standing(digest, release.rollout, self.participants(model), self.book.verdicts(digest), forced)
        if promoted:
            found = replace(found, stage=found.stages, halted=False)
        elif mine is not None and at_or_below_floor(release, mine):
            found = replace(found, halted=False)
        self._standings[digest] = key, found
        return found

    def participants(self, model: str) -> list[NodeId]:
        """The certified nodes that say they run the model, sorted: whose verdicts count."""
        return [node for node in self.book.participants(model) if self._certified(node)]

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

    # --- One model ----------------------------------------------------------------------------------------------------

    def steer(self, model: str, now_ns: int) -> list[SubEffect]:
        """Decide what this node does about a model now."""
        return [*self._steer(model, now_ns), *self._inventory.questions(NAME)]

    def _steer(self, model: str, now_ns: int) -> list[SubEffect]:
        local, mine = self.local[model], self.view.models.get(model)
        if local.runs and not local.known:
            return []
        effects = self.floors.keep(model, self.view, self.root_epoch)
        if mine is None:
            return effects
        stopped = [*self.halted(model), *local.failed]
        effects += self._announce(model, mine, now_ns)
        for running in (local.trial, local.active):
            release = mine.releases.get(running)
            if release is None or running in local.went_back:
                continue
            reason = versions.refusal(running, release, mine, self.config.facts, stopped)
            if reason is not None:
                return [*effects, *self._go_back(model, running, reason, stopped)]
        effects += self._serve(mine, local.active)
        target = versions.desired(self.view, model, self.config.facts, stopped)
        effects += self._fetcher.only(model, mine.files_of(target[1]) if target else frozenset(), now_ns)
        if target is None:
            return [*effects, *self._nothing_admissible(model, mine)]
        digest, release = target
        if local.trial or digest == local.active or not self._is_newer(mine, release, local.active):
            return effects
        if digest not in local.prepared:
            if now_ns < local.retry_ns:
                return [*effects, *self._timers.arm((NAME, "turn"), local.retry_ns)]
            return [*effects, *self._gather(model, digest, release, now_ns)]
        return [*effects, *self._try_turn(model, digest, release, now_ns)]

    def _is_newer(self, mine: versions.ModelView, release: Release, active: bytes) -> bool:
        running = mine.releases.get(active)
        return running is None or release.order > running.order

    def _nothing_admissible(self, model: str, mine: versions.ModelView) -> list[SubEffect]:
        local = self.local[model]
        if local.active or f"none/{model}" in self.alarmed or not mine.releases:
            return []
        self.alarmed.add(f"none/{model}")
        return [Alarm("no-release", f"no release of {model} may run here; the model built into the image runs")]

    def _go_back(self, model: str, leave: bytes, reason: str, stopped: Sequence[bytes]) -> list[SubEffect]:
        """Leave a release that must not run: to the last good one that lies here, else to the image's own."""
        local, mine = self.local[model], self.view.models[model]
        local.went_back.add(leave)
        # Its own trial did not fail here: where what spoke against it falls with replaced keys, it is tried again.
        local.started.discard(leave)
        to = b""
        for candidate in (local.active, *local.kept):
            release = mine.releases.get(candidate)
            if candidate == leave or release is None:
                continue
            if versions.refusal(candidate, release, mine, self.config.facts, stopped) is None:
                to = candidate
                break
        text = f"release {leave.hex()[:8]} of {model} {reason}"
        effects: list[SubEffect] = [Order(NAME, requests.GoBack(model, leave, to, text))]
        if not to:
            effects.append(Alarm("no-release", f"{text}; the model built into the image runs"))
        if local.trial == leave:
            local.trial = b""
        return effects

    def _gather(self, model: str, digest: bytes, release: Release, now_ns: int) -> list[SubEffect]:
        """Get the files of a release, by delta where a base lies here; then have them prepared."""
        effects: list[SubEffect] = []
        here = [self._inventory.has(one.blob.sha256) for one in release.bundle]
        if None in here:
            return []  # The storage says it in a moment.
        for one, is_here in zip(release.bundle, here, strict=True):
            if not is_here:
                effects += self._get(model, one, now_ns)
        if not all(here):
            return [*effects, *self._phase(model, "fetching", digest)]
        for one in release.bundle:
            effects += self._fetcher.provide(one.blob, super_seed=False)
        local = self.local[model]
        local.prepared.add(digest)
        effects.append(Order(NAME, requests.Prepare(digest, release)))
        return [*effects, *self._phase(model, "ready", digest), *self._try_turn(model, digest, release, now_ns)]

    def _serve(self, mine: versions.ModelView, digest: bytes) -> list[SubEffect]:
        """Give what runs here to whoever lacks it, after a restart too."""
        release = mine.releases.get(digest)
        if release is None or digest in self._served:
            return []
        blobs = [one.blob for one in release.bundle] + [one.blob for one in release.deltas]
        here = [self._inventory.has(blob.sha256) for blob in blobs]
        if None in here:
            return []
        self._served.add(digest)
        found = [blob for blob, is_here in zip(blobs, here, strict=True) if is_here]
        return [effect for blob in found for effect in self._fetcher.provide(blob, super_seed=False)]

    def _get(self, model: str, wanted: BundleFile, now_ns: int) -> list[SubEffect]:
        delta, is_known = self._usable_delta(model, wanted.blob)
        if not is_known:
            return []
        if delta is None:
            return self._fetcher.want(wanted.blob)
        if not self._inventory.has(delta.blob.sha256):
            if not self._stalls.is_over(delta.blob.sha256, now_ns):
                return self._fetcher.want(delta.blob)
            self.on_delta_failed(delta.blob.sha256)
            return self._get(model, wanted, now_ns)
        if delta.blob.sha256 in self._applying:
            return []
        self._applying.add(delta.blob.sha256)
        return [Order(NAME, requests.ApplyDelta(delta, wanted.blob))]

    def _usable_delta(self, model: str, target: Blob) -> tuple[DeltaRef | None, bool]:
        """The smallest signed delta whose base lies here and that has not failed here; and whether that is known."""
        for delta in self.view.models[model].deltas_to(target.sha256):
            good = delta.blob.sha256 not in self._bad_deltas and delta.out_bytes == target.size
            good = good and delta.codec not in RETIRED_CODECS
            if good and delta.blob.size < target.size:
                has_base, has_delta = self._inventory.has(delta.base_sha256), self._inventory.has(delta.blob.sha256)
                if has_base is None or (has_base and has_delta is None):
                    return None, False
                if has_base:
                    return delta, True
        return None, True

    def _try_turn(self, model: str, digest: bytes, release: Release, now_ns: int) -> list[SubEffect]:
        """Start the trial when it is this node's turn; otherwise wake up when it may be."""
        local = self.local[model]
        if digest in local.started or not local.runs:
            return []
        if now_ns < local.retry_ns:
            return self._timers.arm((NAME, "turn"), local.retry_ns)
        standing = self.standing(model, digest, release)
        rank = rollout.ranks(digest, {*self.book.participants(model), self._word.node}).get(self._word.node, 0)
        since_ns = local.open_since_ns.setdefault((digest, standing.stage), now_ns)
        if rollout.may_try(standing, rank, now_ns - since_ns, self.config.turn_ns):
            local.started.add(digest)
            local.went_back.discard(digest)
            return [Order(NAME, requests.StartTrial(digest, release))]
        return self._timers.arm((NAME, "turn"), now_ns + min(self.config.turn_ns, 10_000_000_000))

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
                effects += self._settle(model, digest)
            if (digest, what, stage) not in local.announced:
                local.announced.add((digest, what, stage))
                changed = requests.RolloutChanged(model, digest, release.version, what, stage)
                effects.append(StateChanged(NAME, changed))
        return effects

    def _settle(self, model: str, digest: bytes) -> list[SubEffect]:
        """Remember a promotion, once most of the fleet takes part: a few nodes that were cut off do not settle it."""
        nodes = sum(self._certified(node) for node in self.book.participants(model))
        if digest in self._promoted or 2 * nodes <= self._fleet():
            return []
        effects: list[SubEffect] = [Persist(PROMOTED + digest, b"\x01")]
        if len(self._promoted) >= MAX_PROMOTED:
            gone = sorted(self._promoted - self.known())[:1] or sorted(self._promoted)[:1]
            self._promoted -= set(gone)
            effects += [Persist(PROMOTED + one, None) for one in gone]
        self._promoted.add(digest)
        return effects

    # --- What the daemon reports ------------------------------------------------------------------------------------

    def _model(self, model: str) -> LocalModel:
        local = self.local.get(model)
        if local is None:
            raise StateError(f"this node does not run {model!r}; it runs {', '.join(self.local) or 'no model'}")
        return local

    def on_running(self, running: requests.Running) -> list[SubEffect]:
        """The daemon says what runs here."""
        local = self._model(running.model)
        local.known = True
        local.active, local.trial = running.release, b""
        local.kept = tuple(one for one in running.kept if one != running.release)[:4]
        local.failed |= set(running.rejected)
        local.went_back.discard(running.release)
        return self.say(running.model)

    def on_trial_began(self, model: str, release: bytes) -> list[SubEffect]:
        """The release has taken over for its trial."""
        local = self._model(model)
        local.trial = release
        return self._phase(model, "trial", release)

    def on_trial_ended(self, ended: requests.TrialEnded, now_ns: int) -> list[SubEffect]:
        """The verdict is durable: say it, and go on from it."""
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
            local.retry_ns = now_ns + self.config.turn_ns
            local.phase = "ready"
        return self.say(ended.model)

    def on_lost(self, digests: Sequence[bytes]) -> None:
        """These files do not lie here any longer: they are not given to others, and fetched again where needed."""
        self._inventory.learn(digests, here=False)
        for digest in digests:
            self._fetcher.drop(digest)
        self._applying.clear()
        for local in self.local.values():
            local.prepared.clear()

    def _phase(self, model: str, phase: str, about: bytes) -> list[SubEffect]:
        local = self.local[model]
        if (local.phase, local.about) == (phase, about):
            return []
        local.phase, local.about, local.verdict, local.reason = phase, about, Verdict.NONE, ""
        local.soak_s = local.samples = 0
        return self.say(model)

    def on_delta_failed(self, delta: bytes) -> None:
        """What came out of this delta was not the target, or nobody has it: never again, in this life."""
        self._bad_deltas.add(delta)
        self._applying.discard(delta)
        self._fetcher.drop(delta)

    def say(self, model: str) -> list[SubEffect]:
        """Sign and spread this node's report."""
        local = self.local[model]
        if not local.runs:
            return []
        signed, record = self._word.say(model, local, self.release(model, local.active))
        self.book.add(signed, self.known())
        return [record]
