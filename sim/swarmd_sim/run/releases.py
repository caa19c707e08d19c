"""Models on simulated devices: the daemon's own `Releases` on every node, with a modelled disk, eye and operator.

`swarmd_protocols.releases.Releases` decides, as in the daemon. Modelled are what it asks of the daemon: where chunks
lie (`ModelStore`), the slots' record with its tries (`_Record`, two copies with a checksum in the modelled journal),
applying a delta, the swap of the eye, and what a trial measures; the verdict is the protocol's own `judge`. The
operator publishes, revokes and raises the floor by a script, at nodes that happen to be up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from zlib import crc32

import msgspec

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.health import Trial, judge
from swarmd_protocols.releases.releases import NAME, Releases, ReleasesConfig
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Blob, Release
from swarmd_protocols.releases.stores import MemoryStore, carry_out
from swarmd_protocols.trust.identity import Identity
from swarmd_protocols.trust.view import TrustView
from swarmd_sim.faults.disk import ModelledDisk
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.publisher import LATENCY_P95_US, MODEL, Flaw, Published, Publisher, apply_delta, flaw_of
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario

TRIES = 3
_APPLY_NS = 200_000_000
_SWAP_NS = 300_000_000
_SAMPLE_NS = 500_000_000
_EYE_START_NS = 1_000_000_000
"""An eye that starts is free for no trial yet."""
_FRAMES_S = 10
_AGAIN_NS = 10 * NS_PER_S
_RECORDS = (b"slots/0", b"slots/1")
_CHARACTER = {
    Flaw.NONE: "good",
    Flaw.GOLDEN: "bad: its golden vectors differ",
    Flaw.NAN: "bad: gives no numbers",
    Flaw.SLOW: "bad: too slow",
    Flaw.CRASHES: "bad: crashes",
}


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """What survives a crash: releases by digest."""

    sequence: int = 0
    active: bytes = b""
    fallback: bytes = b""
    trial: bytes = b""
    tries: int = 0
    rejected: tuple[bytes, ...] = ()
    files: tuple[tuple[bytes, bytes], ...] = ()
    """(release, SHA-256 of its model) of the slots above."""


class ModelStore(MemoryStore):
    """Chunks on a modelled disk; a hostile host gives wrong bytes.

    Args:
        disk: Whose fullness and loss it shares.
    """

    __slots__ = ("_disk", "_generation", "poisoned")

    def __init__(self, disk: ModelledDisk) -> None:
        super().__init__()
        self._disk = disk
        self._generation = disk.generation
        self.poisoned = False

    def reopen(self) -> None:
        """A life begins: a medium that was lost holds nothing."""
        if self._generation != self._disk.generation:
            self._generation = self._disk.generation
            self.lists.clear()
            self.chunks.clear()
            self.sizes.clear()

    def read(self, blob: Blob, index: int) -> bytes | None:
        """See `MemoryStore.read`."""
        data = super().read(blob, index)
        if self.poisoned and data:
            return data[:-1] + bytes([data[-1] ^ 1])
        return data

    def write(self, blob: Blob, index: int, data: bytes) -> bool:
        """See `MemoryStore.write`; refused while the disk is full."""
        return not self._disk.full and super().write(blob, index, data)

    def file(self, blob: Blob) -> bytes | None:
        """A whole file, hashed again; None when it is not here or is damaged."""
        if not self.has_blob(blob.sha256):
            return None
        chunks = self.chunks[blob.sha256]
        data = b"".join(chunks[index] for index in range(len(chunks)))
        return data if sha256(data).digest() == blob.sha256 else None


@dataclass(frozen=True, slots=True)
class Run:
    """A model took over at a host."""

    at_ns: int
    host: int
    release: bytes
    """b"" for the model in the image."""
    data_sha256: bytes
    is_trial: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A host's own verdict."""

    at_ns: int
    host: int
    release: bytes
    verdict: Verdict
    reason: str
    hostile: bool


@dataclass(slots=True)
class ReleaseWorld:
    """Everything about models in one run.

    Args:
        scenario: What was asked for.
        choices: All randomness.
        crypto: The run's arithmetic of trust.
        officers: Whose keys sign.
    """

    scenario: Scenario
    choices: Choices
    crypto: Crypto
    officers: Officers
    publisher: Publisher = field(init=False)
    devices: dict[int, "Device"] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    verdicts: list[Judged] = field(default_factory=list)
    listeners: list[Callable[[Run], None]] = field(default_factory=list)
    """Told at once that a model takes over."""
    story: list[tuple[int, str]] = field(default_factory=list)
    """(time, what the operator did), for timeline and report."""
    _hosts: list[Host] = field(default_factory=list)
    _say: Callable[[int, str], None] = lambda _host, _text: None

    def __post_init__(self) -> None:
        """The operator's desk."""
        self.publisher = Publisher(self.scenario.release, self.choices, self.crypto, self.officers)

    def bind(self, engine: Engine, hosts: list[Host], say: Callable[[int, str], None]) -> None:
        """Know the run, and put the operator's script on the heap."""
        self._hosts, self._say = hosts, say
        config = self.scenario.release
        for at_s, call in (
            (config.publish_at_s, self._publish_good),
            (config.bad_at_s, self._publish_bad),
            (config.revoke_at_s, self._revoke),
            (config.next_at_s, self._publish_next),
        ):
            if at_s > 0:
                engine.at(int(at_s * NS_PER_S), call, engine)

    # --- Nodes ------------------------------------------------------------------------------------------------------

    def protocol(self, host: Host, identity: Identity, trust: TrustView, records: dict[bytes, bytes]) -> Releases:
        """The sub-protocol of the life that begins.

        Args:
            host: Whose.
            identity: Its key.
            trust: Who may say what; the node's own.
            records: Its journal.
        """
        device = self.devices.get(host.index)
        if device is None:
            device = self.devices[host.index] = Device(self, host)
        device.store.reopen()
        crypto = self.crypto
        device.protocol = Releases(
            crypto.public_key(identity.seed),
            lambda message: crypto.sign(identity.seed, message),
            trust,
            ReleasesConfig(models=(MODEL,), turn_ns=int(self.scenario.release.turn_s * NS_PER_S)),
            self.choices.rng("node.releases"),
            {key: value for key, value in records.items() if key.startswith(b"releases/")},
        )
        return device.protocol

    def boot(self, host: Host) -> None:
        """The node has started: its eye starts with what the slots say, and the node says what it runs."""
        self.devices[host.index].boot()

    def on_detail(self, host: Host, detail: object) -> None:
        """The protocol says how a release moves on."""
        if isinstance(detail, requests.RolloutChanged):
            text = f"v{detail.version} is {detail.what}" + (f" {detail.stage}" if detail.what == "stage" else "")
            self._say(host.index, text)

    def on_order(self, host: Host, order: object) -> None:
        """The protocol asks something of the daemon; carried out on the next turn, as an event loop does."""
        host.engine.at(host.engine.now_ns, self.devices[host.index].carry_out, (host.boots, order))

    def running(self, host: Host) -> bytes:
        """Digest of what a host's eye runs now; b"" for the model in the image."""
        return self.devices[host.index].running

    def is_updating(self, index: int) -> bool:
        """Whether a host fetches or tries a release just now."""
        device = self.devices.get(index)
        if device is None or not hasattr(device, "protocol"):
            return False
        return bool(device.trial) or device.protocol.local[MODEL].phase in ("fetching", "trial")

    def took_over(self, run: Run) -> None:
        """A model begins to run."""
        self.runs.append(run)
        version = self.version_of(run.release)
        self._say(run.host, f"the eye runs {version}{' on trial' if run.is_trial else ''}")
        for listener in self.listeners:
            listener(run)

    def judged(self, judged: Judged) -> None:
        """A trial has ended."""
        self.verdicts.append(judged)
        self._say(judged.host, f"{self.version_of(judged.release)}: {judged.verdict.name} ({judged.reason})")

    def version_of(self, digest: bytes) -> str:
        """A release for people."""
        if not digest:
            return "the factory's model"
        known = self.publisher.signed.get(digest)
        return f"v{known.version}" if known is not None else f"an unknown release {digest.hex()[:8]}"

    # --- The operator -------------------------------------------------------------------------------------------------

    def _publish_good(self, engine: Engine) -> None:
        self._publish(engine, self.publisher.make(2, Flaw.NONE, None), ())

    def _publish_bad(self, engine: Engine) -> None:
        flaw = Flaw(1 + self.choices.choose("release.flaw", len(Flaw) - 1))
        self._publish(engine, self.publisher.make(3, flaw, self._version(2)), ())

    def _publish_next(self, engine: Engine) -> None:
        """A hole was found in everything before: the next version, and nothing below it any longer."""
        following = self.publisher.make(4, Flaw.NONE, self._version(3))
        floor = self.publisher.raise_floor(4, engine.now_ns).encode()
        self._publish(engine, following, (floor,))

    def _revoke(self, engine: Engine) -> None:
        which = self.scenario.release.revoke
        is_running = which == "running" or (which == "either" and self.choices.choose("release.revoke", 2) == 1)
        taken_back = self._version(2 if is_running else 3)
        assert taken_back is not None  # The scenario was checked: published before.
        statement = self.publisher.revoke(taken_back, engine.now_ns).encode()
        self._at_two_nodes(engine, (statement,), None, f"v{taken_back.version} is revoked")

    def _version(self, version: int) -> Published | None:
        return next((one for one in self.publisher.signed.values() if one.version == version), None)

    def _publish(self, engine: Engine, published: Published, more: tuple[bytes, ...]) -> None:
        statements = (published.envelope.encode(), *more)
        self._at_two_nodes(engine, statements, published, f"v{published.version} ({_CHARACTER[published.flaw]})")

    def _at_two_nodes(
        self, engine: Engine, statements: tuple[bytes, ...], published: Published | None, text: str
    ) -> None:
        """The operator plugs in at one node and, to be sure, at another one a little later."""
        self._plug_in((engine, statements, published, text))
        engine.at(engine.now_ns + _AGAIN_NS, self._plug_in, (engine, statements, published, f"{text}, again"))

    def _plug_in(self, what: tuple[Engine, tuple[bytes, ...], Published | None, str]) -> None:
        engine, statements, published, text = what
        fit = [host for host in self._hosts if host.process_up and not (host.hostile or host.left or host.stalled)]
        if not fit:
            engine.at(engine.now_ns + NS_PER_S, self._plug_in, what)
            return
        host = fit[self.choices.choose("release.host", len(fit))]
        device = self.devices[host.index]
        self.story.append((engine.now_ns, f"{text}, published at {host.name}"))
        self._say(host.index, f"the operator publishes {text}")
        if published is not None:
            for data in (published.data, published.delta):
                host.command(NAME, requests.Provide(device.store.put_blob(data), True))
        host.command(NAME, requests.Publish(statements))


class Device:
    """What the daemon does for the protocol on one host.

    Args:
        world: The run's releases.
        host: Whose.
    """

    protocol: Releases
    """Set by `ReleaseWorld.protocol`, one for each life."""

    def __init__(self, world: ReleaseWorld, host: Host) -> None:
        self._world = world
        self._host = host
        self.store = ModelStore(host.disk)
        self.running = b""
        self.trial = b""
        self._record = _Record()
        self._trial_began_ns = 0

    def boot(self) -> None:
        """See `ReleaseWorld.boot`: the active slot, hashed again, else the one before, else the image's own."""
        self.trial = b""
        self._record = self._load()
        self._take_factory_in()
        release = next((one for one in (self._record.active, self._record.fallback) if one and self._data_of(one)), b"")
        self._run(release, is_trial=False)
        self._announce()

    def _take_factory_in(self) -> None:
        # The image is read-only and always there; the store keeps its chunks to apply deltas to them.
        full, self._host.disk.full = self._host.disk.full, False
        self.store.put_blob(self._world.publisher.factory)
        self._host.disk.full = full

    def _announce(self) -> None:
        record = self._record
        kept = tuple(one for one in (record.active, record.fallback) if one)
        self._tell(requests.Running(MODEL, self.running, kept, record.rejected))

    def carry_out(self, what: tuple[int, object]) -> None:
        """One request of the protocol."""
        boot, detail = what
        host = self._host
        if boot != host.boots or not host.process_up:
            return
        match detail:
            case requests.ApplyDelta():
                host.engine.at(host.engine.now_ns + _APPLY_NS, self._apply, what)
            case requests.Prepare(digest, release):
                if self._model_data(release) is None:
                    self._end(digest, Verdict.FAIL, 0, 0, "a file does not hash any longer")
            case requests.StartTrial(digest, release):
                self._start_trial(digest, release)
            case requests.GoBack():
                self._go_back(detail)
            case _ if isinstance(detail, requests.StorageOrder):
                for answer in carry_out(self.store, detail):
                    if answer is not None:
                        self._tell(answer)

    def _apply(self, what: tuple[int, requests.ApplyDelta]) -> None:
        boot, wanted = what
        if boot != self._host.boots or not self._host.process_up:
            return
        delta = wanted.delta
        chunks = self.store.chunks.get(delta.base_sha256, {})
        base = b"".join(chunks[index] for index in sorted(chunks))
        patch = self.store.file(delta.blob)
        made = apply_delta(base, patch, delta.out_bytes) if patch is not None else None
        if made is None or sha256(made).digest() != delta.target_sha256 or self._host.disk.full:
            self._tell(requests.DeltaFailed(delta.blob.sha256))
            return
        self.store.put_blob(made)
        self._tell(requests.BlobReady(wanted.target.sha256))

    # --- Slots ------------------------------------------------------------------------------------------------------

    def _load(self) -> _Record:
        sound = []
        for key in _RECORDS:
            raw = self._host.disk.get(key) or b""
            if len(raw) > 4 and crc32(raw[4:]).to_bytes(4, "big") == raw[:4]:
                sound.append(msgspec.msgpack.decode(raw[4:], type=_Record))
        return max(sound, key=lambda record: record.sequence, default=_Record())

    def _save(self, **changes: object) -> None:
        record = msgspec.structs.replace(self._record, sequence=self._record.sequence + 1, **changes)
        used = {record.active, record.fallback, record.trial}
        record = msgspec.structs.replace(record, files=tuple(one for one in record.files if one[0] in used))
        body = msgspec.msgpack.encode(record)
        self._host.disk.write(_RECORDS[record.sequence % 2], crc32(body).to_bytes(4, "big") + body)
        self._record = record

    def _data_of(self, release: bytes) -> bytes:
        """The model of a slot, hashed again; b"" when it is missing or damaged."""
        wanted = dict(self._record.files).get(release, b"")
        chunks = self.store.chunks.get(wanted, {}) if wanted and self.store.has_blob(wanted) else {}
        data = b"".join(chunks[index] for index in range(len(chunks)))
        return data if chunks and sha256(data).digest() == wanted else b""

    def _model_data(self, release: Release) -> bytes | None:
        found = None
        for one in release.bundle:
            data = self.store.file(one.blob)
            if data is None:
                return None
            found = data if one.role == "model" else found
        return found

    # --- Trials -----------------------------------------------------------------------------------------------------

    def _start_trial(self, digest: bytes, release: Release) -> None:
        host = self._host
        if self.trial or host.engine.now_ns - host.started_ns < _EYE_START_NS:
            self._tell(requests.TrialEnded(MODEL, digest, Verdict.NONE, 0, 0, "no eye is free here"))
            return
        data = self._model_data(release)
        if digest in self._record.rejected or data is None:
            reason = "was rejected on this node" if data is not None else "a file is missing or damaged"
            self._end(digest, Verdict.FAIL, 0, 0, reason)
            return
        if self._record.trial != digest:
            files = (*self._record.files, (digest, sha256(data).digest()))
            self._save(trial=digest, tries=TRIES, files=files)
        self.trial = digest
        host.engine.at(host.engine.now_ns + _SWAP_NS, self._begin, (host.boots, digest, release))

    def _still(self, boot: int, digest: bytes) -> bool:
        return boot == self._host.boots and self._host.process_up and self.trial == digest

    def _begin(self, what: tuple[int, bytes, Release]) -> None:
        boot, digest, _release = what
        if not self._still(boot, digest):
            return
        if self._record.tries <= 0:
            self._save(trial=b"", tries=0)
            self._end(digest, Verdict.FAIL, 0, 0, "its tries are used up")
            return
        self._save(tries=self._record.tries - 1)
        data = self._data_of(digest)
        if not data or flaw_of(data) is Flaw.GOLDEN:
            self._save(trial=b"", tries=0, rejected=(*self._record.rejected, digest)[-64:])
            self._end(digest, Verdict.FAIL, 0, 0, "golden vectors differ")
            return
        self._run(digest, is_trial=True)
        self._tell(requests.TrialBegan(MODEL, digest))
        now_ns = self._trial_began_ns = self._host.engine.now_ns
        self._host.engine.at(now_ns + _SAMPLE_NS, self._sample, what)

    def _sample(self, what: tuple[int, bytes, Release]) -> None:
        boot, digest, release = what
        if not self._still(boot, digest):
            return
        now_ns = self._host.engine.now_ns
        trial = self._measure(flaw_of(self._data_of(digest)), now_ns - self._trial_began_ns)
        verdict, reason = judge(trial, release.gates)
        if verdict is Verdict.NONE:
            self._host.engine.at(now_ns + _SAMPLE_NS, self._sample, what)
            return
        if verdict is Verdict.PASS:
            self._save(active=digest, fallback=self._record.active, trial=b"", tries=0)
        else:
            self._save(trial=b"", tries=0, rejected=(*self._record.rejected, digest)[-64:])
            self._run(self._record.active, is_trial=False)
        self._end(digest, verdict, trial.soak_s, trial.samples, reason)

    def _measure(self, flaw: Flaw, elapsed_ns: int) -> Trial:
        soak_s = elapsed_ns // NS_PER_S
        return Trial(
            soak_s=soak_s,
            samples=elapsed_ns * _FRAMES_S // NS_PER_S,
            golden_ok=True,
            latency_p95_us=LATENCY_P95_US * (3 if flaw is Flaw.SLOW else 1) // 2,
            bad_frames=1 if flaw is Flaw.NAN else 0,
            crashes=1 if flaw is Flaw.CRASHES else 0,
        )

    def _end(self, digest: bytes, verdict: Verdict, soak_s: int, samples: int, reason: str) -> None:
        host = self._host
        self.trial = b""
        self._world.judged(Judged(host.engine.now_ns, host.index, digest, verdict, reason, host.hostile))
        self._tell(requests.TrialEnded(MODEL, digest, verdict, soak_s, samples, reason))

    def _go_back(self, wanted: requests.GoBack) -> None:
        if self.trial == wanted.leave:
            self.trial = b""
        if self._record.active == wanted.to:
            self._save(trial=b"", tries=0)
        else:
            known = wanted.to in (self._record.active, self._record.fallback)
            self._save(active=wanted.to if known else b"", fallback=b"", trial=b"", tries=0)
        to = self._record.active
        self._run(to if to and self._data_of(to) else b"", is_trial=False)
        self._announce()

    def _run(self, release: bytes, is_trial: bool) -> None:
        self.running = release
        data = self._data_of(release) if release else self._world.publisher.factory
        now_ns = self._host.engine.now_ns
        self._world.took_over(Run(now_ns, self._host.index, release, sha256(data).digest(), is_trial))

    def _tell(self, request: object) -> None:
        self._host.command(NAME, request)
