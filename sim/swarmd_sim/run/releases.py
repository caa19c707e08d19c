"""Models on simulated devices: the daemon's own `Releases` on every node, with a modelled disk, eye and operator.

`Releases` and `ReleaseAgent` decide, as in the daemon. Modelled is what they ask of the daemon: where chunks lie
(`ModelStore`), the slots' record (two copies with a checksum in the modelled journal), applying a delta, the swap of
the eye, and what a trial measures. The operator publishes, revokes and raises the floor by a script, at nodes that
happen to be up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.releases import agent as agents
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.agent import AgentEffect, AgentEvent, ReleaseAgent, State
from swarmd_protocols.releases.health import Trial
from swarmd_protocols.releases.releases import NAME, Releases, ReleasesConfig
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.slots import Record, Slot, decode_record, encode_record, pinned
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.stores import MemoryStore, carry_out
from swarmd_protocols.releases.swarming import SwarmingConfig
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

_APPLY_NS = 200_000_000
_SWAP_NS = 300_000_000
_EYE_START_NS = 1_000_000_000
"""An eye that starts is free for no trial yet."""
_FRAMES_S = 10
_AGAIN_NS = 10 * NS_PER_S
_RECORDS = (b"slots/0", b"slots/1")
_REMOVERS = {"floor": "floor", "model-revoke": "revoke"}
"""Who may say what takes a release away."""
_CHARACTER = {
    Flaw.NONE: "good",
    Flaw.GOLDEN: "bad: its golden vectors differ",
    Flaw.NAN: "bad: gives no numbers",
    Flaw.SLOW: "bad: too slow",
    Flaw.CRASHES: "bad: crashes",
}


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

    def file(self, digest: bytes) -> bytes | None:
        """A whole file, hashed again; None when it is not here or is damaged."""
        if not self.has_blob(digest):
            return None
        chunks = self.chunks[digest]
        data = b"".join(chunks[index] for index in range(len(chunks)))
        return data if sha256(data).digest() == digest else None


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


@dataclass(frozen=True, slots=True)
class ForeignWord:
    """A node took what takes a release away, and the publisher did not sign it: a thief of the role's keys did."""

    role: str
    host: int
    life: int
    roots: int
    """How many it had heard of."""


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
    foreign_words: set[ForeignWord] = field(default_factory=set)
    """Floors and revocations that nodes took and the publisher did not sign."""
    _hosts: list[Host] = field(default_factory=list)
    _say: Callable[[int, str], None] = lambda _host, _text: None

    def __post_init__(self) -> None:
        """The operator's desk."""
        config = self.scenario.release
        if config.model_sizes_kb:
            drawn = self.choices.choose("release.model_kb", len(config.model_sizes_kb))
            config = replace(config, model_kb=config.model_sizes_kb[drawn])
        self.publisher = Publisher(config, self.choices, self.crypto, self.officers)

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
            ReleasesConfig(
                models=(MODEL,),
                turn_ns=int(self.scenario.release.turn_s * NS_PER_S),
                swarming=SwarmingConfig(upload_bytes_s=self.scenario.release.upload_bytes_s),
            ),
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
        elif isinstance(detail, requests.Heard) and detail.kind in _REMOVERS and detail.accepted:
            self._took_removal(host, _REMOVERS[detail.kind], detail.digest)

    def _took_removal(self, host: Host, role: str, digest: bytes) -> None:
        if digest in self.publisher.removals:
            return
        roots = len(host.node._core.trust.roots)
        if self.officers.falls_at(role, roots) is None:
            # The root that replaced the keys came right behind what they had signed, in one frame.
            roots = max(self.officers.replaced_at.get(role, ()), default=roots + 1) - 1
        self.foreign_words.add(ForeignWord(role, host.index, host.boots, roots))

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
        return device.is_trying or device.protocol.local[MODEL].phase in ("fetching", "trial")

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
        fit = [host for host in self._hosts if host.process_up and not (host.hostile or host.life.left or host.stalled)]
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
    """What the daemon does for the protocol and the agent on one host.

    Args:
        world: The run's releases.
        host: Whose.
    """

    protocol: Releases
    """Set by `ReleaseWorld.protocol`, one for each life."""
    agent: ReleaseAgent
    """Set by `boot`, one for each life."""

    def __init__(self, world: ReleaseWorld, host: Host) -> None:
        self._world = world
        self._host = host
        self.store = ModelStore(host.disk)
        self.running = b""
        self._meter_ns = 0

    @property
    def is_trying(self) -> bool:
        """Whether a trial is under way."""
        return hasattr(self, "agent") and self.agent.state not in (State.IDLE, State.CHECKING, State.FLOORING)

    def boot(self) -> None:
        """See `ReleaseWorld.boot`: the agent decides what the slots' record says."""
        record = self._load()
        self._take_factory_in()
        sound = frozenset(digest for digest in pinned(record) if self.store.file(digest) is not None)
        self.agent = ReleaseAgent(MODEL, record, sound)
        self._run(self.agent.running, is_trial=False)
        self._tell(self.agent.announce().request)

    def _take_factory_in(self) -> None:
        # The image is read-only and always there; the store keeps its chunks to apply deltas to them.
        full, self._host.disk.full = self._host.disk.full, False
        self.store.put_blob(self._world.publisher.factory)
        self._host.disk.full = full

    def carry_out(self, what: tuple[int, object]) -> None:
        """One order of the protocol."""
        boot, order = what
        if not self._lives(boot):
            return
        match order:
            case requests.ApplyDelta():
                self._host.engine.at(self._host.engine.now_ns + _APPLY_NS, self._apply, what)
            case requests.Prepare() | requests.StartTrial() | requests.GoBack() | requests.RaiseFloor():
                self._feed((boot, order))
            case _:
                assert isinstance(order, requests.StorageOrder)
                for answer in carry_out(self.store, order):
                    if answer is not None:
                        self._tell(answer)

    def _lives(self, boot: int) -> bool:
        return boot == self._host.boots and self._host.process_up

    def _apply(self, what: tuple[int, requests.ApplyDelta]) -> None:
        boot, wanted = what
        if not self._lives(boot):
            return
        delta = wanted.delta
        chunks = self.store.chunks.get(delta.base_sha256, {})
        base = b"".join(chunks[index] for index in sorted(chunks))
        patch = self.store.file(delta.blob.sha256)
        made = apply_delta(base, patch, delta.out_bytes) if patch is not None else None
        if made is None or sha256(made).digest() != delta.target_sha256 or self._host.disk.full:
            self._tell(requests.DeltaFailed(delta.blob.sha256))
            return
        self.store.put_blob(made)
        self._tell(requests.BlobReady(wanted.target.sha256))

    # --- The agent ----------------------------------------------------------------------------------------------------

    def _feed(self, what: tuple[int, AgentEvent]) -> None:
        """Give the agent an order or an answer of this life; perform what it asks."""
        boot, event = what
        if not self._lives(boot):
            return
        for effect in self.agent.handle(event, self._host.engine.now_ns):
            self._perform(effect)

    def _answer(self, event: AgentEvent, after_ns: int = 0) -> None:
        engine = self._host.engine
        engine.at(engine.now_ns + after_ns, self._feed, (self._host.boots, event))

    def _perform(self, effect: AgentEffect) -> None:
        engine = self._host.engine
        match effect:
            case agents.CheckFiles(digests, _):
                self._answer(agents.Checked(tuple(one for one in digests if self.store.file(one) is None)))
            case agents.SaveRecord(record):
                self._answer(agents.Saved("" if self._save(record) else "the disk is full"))
            case agents.AskMoment():
                has_eye = engine.now_ns - self._host.life.started_ns >= _EYE_START_NS
                self._answer(agents.Moment(True if has_eye else None))
            case agents.Wake(at_ns, number):
                self._answer(agents.Woke(number), max(0, at_ns - engine.now_ns))
            case agents.Swap():
                engine.at(engine.now_ns + _SWAP_NS, self._swap, (self._host.boots, effect))
            case agents.BeginMeter():
                self._meter_ns = engine.now_ns
            case agents.Measure():
                self._answer(agents.Measured(self._measure(flaw_of(self._data_of(self.running)))))
            case agents.Tell(request):
                if isinstance(request, requests.TrialEnded) and request.verdict is not Verdict.NONE:
                    host = self._host
                    said = Judged(
                        engine.now_ns, host.index, request.release, request.verdict, request.reason, host.hostile
                    )
                    self._world.judged(said)
                self._tell(request)
            case agents.EndMeter() | agents.Note():
                pass

    def _swap(self, what: tuple[int, agents.Swap]) -> None:
        boot, wanted = what
        if not self._lives(boot):
            return
        data = self._slot_data(wanted.slot)
        if wanted.slot is not None and data is None:
            lost = tuple(digest for _, digest in wanted.slot.files if self.store.file(digest) is None)
            self._run(None if not wanted.is_trial else self.agent.running, is_trial=False)
            self._feed((boot, agents.Swapped(wanted.number, False, "a file is missing or damaged", lost)))
        elif wanted.is_trial and data is not None and flaw_of(data) is Flaw.GOLDEN:
            self._feed((boot, agents.Swapped(wanted.number, False, "golden vectors differ")))
        else:
            self._run(wanted.slot, wanted.is_trial)
            self._feed((boot, agents.Swapped(wanted.number, True)))

    def _measure(self, flaw: Flaw) -> Trial:
        elapsed_ns = self._host.engine.now_ns - self._meter_ns
        return Trial(
            soak_s=elapsed_ns // NS_PER_S,
            samples=elapsed_ns * _FRAMES_S // NS_PER_S,
            golden_ok=True,
            latency_p95_us=LATENCY_P95_US * (3 if flaw is Flaw.SLOW else 1) // 2,
            bad_frames=1 if flaw is Flaw.NAN else 0,
            crashes=1 if flaw is Flaw.CRASHES else 0,
        )

    # --- The disk and the eye -----------------------------------------------------------------------------------------

    def _load(self) -> Record:
        raw = [self._host.disk.get(key) for key in _RECORDS]
        sound = [record for one in raw if one is not None and (record := decode_record(one)) is not None]
        return max(sound, key=lambda record: record.sequence, default=Record())

    def _save(self, record: Record) -> bool:
        return self._host.disk.write(_RECORDS[record.sequence % 2], encode_record(record))

    def _slot_data(self, slot: Slot | None) -> bytes | None:
        if slot is None:
            return self._world.publisher.factory
        return self.store.file(dict(slot.files)[slot.model_path])

    def _data_of(self, release: bytes) -> bytes:
        """The model that runs, by its release; the image's for b"" or for one that has gone."""
        slot = self.agent.running
        data = self._slot_data(slot) if slot is not None and slot.release == release else None
        return data if data is not None else self._world.publisher.factory

    def _run(self, slot: Slot | None, is_trial: bool) -> None:
        data = self._slot_data(slot)
        self.running = slot.release if slot is not None and data is not None else b""
        shown = data if data is not None else self._world.publisher.factory
        now_ns = self._host.engine.now_ns
        self._world.took_over(Run(now_ns, self._host.index, self.running, sha256(shown).digest(), is_trial))

    def _tell(self, request: object) -> None:
        self._host.command(NAME, request)
