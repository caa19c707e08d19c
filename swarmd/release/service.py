"""The daemon's side of releases: what the protocol decides is carried out here, on disk, in the eye, in the log.

    Heard → audit log (accepted), log of refusals (refused): see `refusals.py`
    orders about files → the thread that owns them (`storage.py`)
    ApplyDelta → child process → blob, or "this delta never again"
    Prepare, StartTrial, GoBack, RaiseFloor → the agent, which decides; `agent_driver.py` performs

Files belong to one thread (`storage.py`), children and the audit log to another; the loop never waits for a disk.
"""

import asyncio
import contextlib
import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from swarmd.api.bus import Bus, Notice
from swarmd.logs import Logger
from swarmd.rates import TokenBuckets
from swarmd.release.agent_driver import AgentDriver, ModelRunner
from swarmd.release.at_rest import MemoryFolders, NodeKey, SealedBlobs, open_node_key
from swarmd.release.audit import AuditLog
from swarmd.release.chunks import FileChunks
from swarmd.release.delta.child import Limits, apply_in_child
from swarmd.release.errors import DeltaError, ReleaseError, SlotError
from swarmd.release.fsx import RealFiles
from swarmd.release.refusals import FILE_NAME, RefusalLog
from swarmd.release.slots import SlotFiles
from swarmd.release.storage import StorageThread
from swarmd_models.errors import ModelError
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import Alarm, StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.agent import Note, ReleaseAgent
from swarmd_protocols.releases.casting import CastConfig
from swarmd_protocols.releases.releases import NAME, Releases, ReleasesConfig
from swarmd_protocols.releases.slots import Record, Slot, pinned, to_start
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.releases.versions import NodeFacts
from swarmd_protocols.trust.identity import Identity
from swarmd_protocols.trust.view import TrustView

_T = TypeVar("_T")
_ALARMS = ("release", "root-", "no-release")
"""How the codes of alarms about releases begin."""
ALARM_LINES_PER_S = 1 / 60
"""Audit lines a second of one alarm code; the daemon's log has every one."""
ALARM_LINES_BURST = 8
"""Audit lines of one alarm code at once."""
ALARM_CODES_MAX = 64
"""Alarm codes that are counted apart; the protocols have a dozen."""
_RUNTIME = Path("/dev/shm")


class ServiceConfig(msgspec.Struct, frozen=True):
    """What the daemon's configuration says about models."""

    model: str
    """Model id that this node runs; "" for an observer."""
    factory: str
    """The bundle that the configuration names: what runs when no release may."""
    quota_bytes: int = 256 << 20
    encrypt: bool = False
    cache: str = ""
    """Model id whose files an observer keeps, to give them to others."""
    turn_s: float = 120.0
    upload_bytes_s: int = 0
    """What is given of files a second over any ten seconds; 0: as fast as the links carry."""
    cast_bytes_s: int = 0
    """How fast blobs are cast on a channel that all share; 0 where there is none."""
    soak_scale: float = 1.0
    """Below 1 only in demonstrations: the manifest's soak times this."""


class _Hide(msgspec.Struct, frozen=True):
    """Seal these blobs, which lie here in the open."""

    digests: set[bytes]


class ReleaseService:
    """One node's releases. `open` makes it; `protocol` goes into the node; `run` carries out.

    Args:
        folder: "releases" below the daemon's state folder.
        config: See `ServiceConfig`.
        key: The key for blobs at rest.
        log: Where the daemon speaks.
    """

    protocol: Releases
    """Set by `open`."""
    agent: AgentDriver
    """Set by `open`."""
    _first: str
    """The bundle to start the eye with."""

    def __init__(self, folder: Path, config: ServiceConfig, key: NodeKey, log: Logger) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.config = config
        self.key = key
        self._log = log
        files = RealFiles(str(folder))
        self._blobs = SealedBlobs(files, key.key)
        self.store = FileChunks(files, self._blobs, config.quota_bytes, config.encrypt)
        self._slots = SlotFiles(files, f"slots/{config.model or 'none'}")
        self.audit = AuditLog(folder)
        self.refusals = RefusalLog(folder, self._on_flood)
        self._alarm_lines = TokenBuckets(ALARM_LINES_PER_S, ALARM_LINES_BURST, ALARM_CODES_MAX)
        self._runtime: Path | None = None
        """Where the slots' files are laid out; made when a slot first is."""
        self.memory = MemoryFolders()
        self._worker = ThreadPoolExecutor(1, "releases")
        self._storage = StorageThread(self.store, self._tell, log)
        self._secrets_of: object = None
        self._work: asyncio.Queue[object] = asyncio.Queue()
        self._command: Callable[[str, object], None] = lambda name, request: None
        self._bus: Bus | None = None
        self.on_note: Callable[[Note, int], None] = lambda note, version: None
        """Told what the agent did here, and to which version, for the history."""

    @classmethod
    def open(
        cls,
        folder: Path,
        config: ServiceConfig,
        identity: Identity,
        trust: TrustView,
        crypto: Crypto,
        restored: Mapping[bytes, bytes],
        log: Logger,
    ) -> "ReleaseService":
        """Make the service and its protocol.

        Args:
            folder: The daemon's state folder.
            config: See `ServiceConfig`.
            identity: This node's key.
            trust: Who may say what; the node's own.
            crypto: Verifies and signs.
            restored: The journal.
            log: Where the daemon speaks.
        """
        service = cls(folder / "releases", config, open_node_key(folder / "releases"), log)
        service._first = service._start()
        service.protocol = Releases(
            crypto.public_key(identity.seed),
            lambda message: crypto.sign(identity.seed, message),
            trust,
            ReleasesConfig(
                models=(config.model,) if config.model else (),
                caches=(config.cache,) if config.cache and not config.model else (),
                facts=_facts(),
                turn_ns=int(config.turn_s * 1e9),
                swarming=SwarmingConfig(upload_bytes_s=config.upload_bytes_s),
                cast=CastConfig(bytes_s=config.cast_bytes_s) if config.cast_bytes_s else None,
            ),
            random.Random(random.SystemRandom().getrandbits(64)),
            {key: value for key, value in restored.items() if key.startswith(b"releases/")},
        )
        return service

    def attach(self, bus: Bus, command: Callable[[str, object], None]) -> None:
        """Join the daemon: listen on the bus, give commands to the node."""
        self._command = command
        self._bus = bus
        bus.subscribe(self._on_notice)

    def carry_out(self, order: object) -> None:
        """Take an order of the protocol; returns at once."""
        match order:
            case requests.ApplyDelta():
                self._work.put_nowait(order)
            case requests.Prepare() | requests.StartTrial() | requests.GoBack() | requests.RaiseFloor():
                self.agent.feed(order)
            case _:
                assert isinstance(order, requests.StorageOrder)
                self._keep_secrets()
                self._storage.give(order)

    def use_runner(self, runner: ModelRunner) -> None:
        """The eye, once there is one."""
        self.agent.runner = runner

    def start_model(self) -> str:
        """The bundle to start the eye with: the active release, re-hashed, else the configured model; "" for neither.

        The configured model's file was taken in as a blob, so that a delta from it can be applied.
        """
        return self._first

    def _start(self) -> str:
        """Before the node starts: the slots are read and hashed, so that nobody waits for that later."""
        record = self._slots.load() if self.config.model else Record()
        sound = frozenset(digest for digest in pinned(record) if self._blobs.verify(digest))
        first = self.config.factory
        if self.config.model:
            try:
                first = self._materialise(to_start(record, sound))
            except (SlotError, MemoryError) as error:
                # A member without its newest model is worth more than none: the release is tried anew, in its turn.
                sound = frozenset()
                self._say("no_room", text=str(error) or "there is no memory for a model", runs=first)
        agent = ReleaseAgent(self.config.model, record, sound)
        self.agent = AgentDriver(
            agent,
            self._slots,
            self.store,
            self._storage,
            self._materialise,
            self._tell,
            self._on_note,
            self.config.soak_scale,
            self._log,
        )
        if self.config.model:
            if self._slots.damaged:
                self._say("slots_damaged", text="no record of the slots can be read; the configured model runs")
            self._take_factory_in()
        return first

    def _take_factory_in(self) -> None:
        path = _bundle_path(self.config.factory)
        if path is None:
            return
        try:
            self.store.put(path.read_bytes())
        except (SlotError, OSError) as error:  # It runs from where it is; peers cannot fetch it here.
            self._log.warning("factory_model_not_shared", path=str(path), error=str(error))

    def announce(self) -> None:
        """After the node has started: say what runs here."""
        if self.config.model:
            self._tell(self.agent.agent.announce().request)

    def close(self) -> None:
        """Stop; plaintext in memory goes with it."""
        self.agent.close()
        with contextlib.suppress(ReleaseError):
            self.refusals.close()
        self._worker.shutdown(wait=True, cancel_futures=True)
        self._storage.close()
        self.memory.close()
        if self._runtime is not None:
            import shutil

            shutil.rmtree(self._runtime, ignore_errors=True)

    # --- The loop ---------------------------------------------------------------------------------------------------

    def _on_notice(self, notice: Notice) -> None:
        if isinstance(notice, StateChanged) and notice.subprotocol == NAME:
            match notice.detail:
                case requests.Heard(kind, digest, False, source, reason):
                    self.refusals.note(kind, digest.hex(), source, reason)
                case detail:
                    self._work.put_nowait(detail)
        elif isinstance(notice, Alarm) and notice.code.startswith(_ALARMS):
            # The daemon's log has every alarm; the audit log's history is not for one that repeats itself.
            is_told = self._alarm_lines.take(notice.code, time.monotonic_ns())
            if is_told:
                self._work.put_nowait(notice)

    def _on_flood(self, source: str, count: int) -> None:
        text = (
            f"{source} keeps sending release statements that are refused ({count} so far); {FILE_NAME} beside the "
            "audit log says which; revoke that node if it does not stop"
        )
        self._log.warning("alarm", code="refusal-flood", text=text)
        if self._bus is not None:
            self._bus.publish(Alarm("refusal-flood", text))

    async def run(self) -> None:
        """Carry out what the protocol decides, in order, until cancelled; refusals are written beside it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_refusals())
            tasks.create_task(self._carry_out_all())

    async def _write_refusals(self) -> None:
        while True:
            try:
                await self.refusals.run()
            except ReleaseError as error:
                self._log.error("release_problem", error=str(error))

    async def _carry_out_all(self) -> None:
        while True:
            detail = await self._work.get()
            try:
                await self._carry_out(detail)
            except (ReleaseError, OSError) as error:
                self._log.error("release_problem", error=str(error))

    def _on_note(self, note: Note) -> None:
        """What the agent has to say: verdicts, ways back, damaged files."""
        release = self.protocol.release(self.config.model, note.release)
        version = release.version if release else 0
        self._say(note.what.split()[0], text=note.what, version=version, reason=note.text)
        self.on_note(note, version)
        self._work.put_nowait(note)

    async def _carry_out(self, detail: object) -> None:
        match detail:
            case requests.Heard(kind, digest, _, source, reason):
                await self._audit("accepted", kind=kind, digest=digest.hex(), source=source, reason=reason)
            case Alarm(code, text):
                await self._audit("alarm", code=code, text=text)
            case requests.ApplyDelta():
                await self._apply(detail)
            case Note(what, release, text):
                await self._audit(what.split()[0], digest=release.hex(), state=what, reason=text)
            case _Hide(digests):
                await self._storage.run(lambda: self.store.hide(digests))
            case requests.RolloutChanged():
                self._say("rollout", what=detail.what, version=detail.version, stage=detail.stage)
                await self._audit("rollout", digest=detail.digest.hex(), state=detail.what, stage=detail.stage)
                if detail.what == "promoted":
                    keep, lists = self._needed()
                    await self._storage.run(lambda: self._collect(keep, lists))

    async def _apply(self, wanted: requests.ApplyDelta) -> None:
        delta, target = wanted.delta, wanted.target
        try:
            await self._apply_now(wanted)
        # An order without an answer is waited for for ever; without the delta the whole file is fetched.
        except (DeltaError, SlotError, OSError, MemoryError) as error:
            await self._audit("delta_refused", delta=delta.blob.sha256.hex(), reason=str(error))
            self._say("delta_refused", reason=str(error))
            self._tell(requests.DeltaFailed(delta.blob.sha256))
        else:
            await self._audit("delta_applied", delta=delta.blob.sha256.hex(), target=target.sha256.hex())
            self._tell(requests.BlobReady(target.sha256))

    async def _apply_now(self, wanted: requests.ApplyDelta) -> None:
        """Read in the storage's thread, apply in a child, write in the storage's thread."""
        delta = wanted.delta
        base = await self._storage.run(lambda: self.store.get(delta.base_sha256))
        patch = await self._storage.run(lambda: self.store.get(delta.blob.sha256))
        if base is None or patch is None:
            raise DeltaError("the base or the delta is missing or damaged on this disk")
        limits = Limits(memory_bytes=min(delta.memory_bytes, 256 << 20))
        made = await self._in_worker(lambda: apply_in_child(base, patch, delta.out_bytes, delta.target_sha256, limits))
        self._keep_secrets()
        await self._storage.run(lambda: self.store.put(made))

    # --- Small parts ------------------------------------------------------------------------------------------------

    def _materialise(self, slot: Slot | None) -> str:
        """The bundle's files, re-hashed, in memory under their own names; the path of its description.

        Without a slot, the bundle that the configuration names. Raises `SlotError` when a file has gone.
        """
        if slot is None:
            return self.config.factory
        if self._runtime is None:
            import tempfile  # With what it needs 0.6 MB, of which a brain without a release has no use.

            try:
                place = tempfile.mkdtemp(prefix="swarmd-model-", dir=_RUNTIME if _RUNTIME.is_dir() else None)
            except OSError as error:
                raise SlotError(f"there is no room for a model in memory: {error.strerror}") from error
            self._runtime = Path(place)
        folder = self._runtime / slot.release.hex()[:16]
        files: dict[str, bytes] = {}
        for name, digest in slot.files:
            data = self._blobs.get(digest)
            if data is None:
                raise SlotError(f"{name} of release {slot.release.hex()[:8]} is missing or damaged")
            files[name] = data
        self.memory.fill(folder, files)
        return str(folder / slot.model_path)

    def _needed(self) -> tuple[frozenset[bytes], list[Blob]]:
        """What the slots and the releases in view need."""
        blobs: list[Blob] = []
        for model in self.protocol.view.models.values():
            for release in model.releases.values():
                blobs += [one.blob for one in release.bundle]
                blobs += [one.blob for one in release.deltas]
            blobs += [one.blob for one in model.deltas]
        return pinned(self.agent.agent.record) | {one.sha256 for one in blobs}, blobs

    def _collect(self, keep: frozenset[bytes], lists: list[Blob]) -> None:
        """Remove what nobody needs."""
        self.store.collect(keep, lists)
        self._take_factory_in()

    async def put_blob(self, data: Sequence[bytes], chunk_bytes: int | None = None) -> Blob:
        """Take a blob of a publication in, durably, and offer it to the swarm in chunks of this size.

        Raises:
            SlotError: There is no room, or the disk refuses.
        """

        def put() -> Blob:
            whole = b"".join(data)
            self.store.put(whole)
            blob, hashes = describe(whole, chunk_bytes)
            self.store.put_hashes(blob, hashes)
            return blob

        blob = await self._storage.run(put)
        self._tell(requests.Provide(blob, True))
        return blob

    def publish(self, envelopes: tuple[bytes, ...], roots: tuple[bytes, ...] = ()) -> None:
        """Give signed statements, and newer roots before them, to the swarm.

        Raises:
            StateError: One of them does not hold.
        """
        self._command(NAME, requests.Publish(envelopes, roots))
        self._work.put_nowait(_Hide(self._secrets()))

    def _secrets(self) -> set[bytes]:
        """Blobs of releases that are to be sealed wherever they lie."""
        models = self.protocol.view.models.values()
        releases = [release for model in models for release in model.releases.values() if release.encrypt]
        files = {one.blob.sha256 for release in releases for one in release.bundle}
        return files | {one.blob.sha256 for release in releases for one in release.deltas}

    def _keep_secrets(self) -> None:
        """Let the store know what is to be sealed, whenever the view has changed."""
        if self._secrets_of is not self.protocol.view:
            self._secrets_of = self.protocol.view
            self.store.secret = frozenset(self._secrets())

    def _tell(self, request: object) -> None:
        try:
            self._command(NAME, request)
        except StateError as error:
            self._log.warning("releases_refused", request=type(request).__name__, error=str(error))

    def _say(self, event: str, **fields: object) -> None:
        self._log.info(f"release_{event}", model=self.config.model, **fields)

    async def _audit(self, what: str, **fields: str | int | bool) -> None:
        await self._in_worker(lambda: self.audit.add(what, int(time.time()), **fields))

    async def _in_worker(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)


def _bundle_path(name: str) -> Path | None:
    """The file of a configured model: a path, or an entry of the zoo."""
    from swarmd_models.bundle import load_bundle

    try:
        return Path(load_bundle(name).model_path) if name else None
    except ModelError:
        return None


def _facts() -> NodeFacts:
    return NodeFacts(hardware=platform.node(), arch=platform.machine())
