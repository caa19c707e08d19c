"""What the keys of a fleet can say about models; each a frozen value with its deterministic payload.

    release    this bundle of files is model M, version V (release keys; never an order, it has to prove itself)
    delta      these bytes make blob T out of blob B (release keys; trusted no further than T's own digest)
    floor      nothing of M below this version, ever again (floor keys, after a release has proven itself)
    model-revoke  never this release (one of the revoke keys: it can only remove; the tag differs from a node's)
    halt       stop the rollout of this release and go back (one of the revoke keys)
    force      this stage of this release is open, whatever the canaries say (release keys)
    heartbeat  the fleet was alive at this sequence number: without one for long, what a node knows may be stale
    health     one node's signed verdict and status (node key; `rollout.py`)

No statement carries an expiry that can stop a running model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swarmd_protocols.errors import WireError
from swarmd_protocols.trust import canonical
from swarmd_protocols.trust.canonical import Value
from swarmd_protocols.trust.envelopes import DIGEST_BYTES
from swarmd_protocols.trust.fields import FILE_NAME, MODEL_ID, Fields

MAX_BLOB_BYTES = 256 << 20
MAX_BUNDLE_FILES = 16
MAX_DELTAS = 16
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4_096, 65_536
CODECS = ("blocks", "tflite-brotli", "tflite-rans", "tflite-xz")
SWAP_MOMENTS = ("any", "disarmed", "idle")


def chunk_bytes_for(blob_bytes: int) -> int:
    """Chunk size of a blob: about 64 chunks, a power of two within [4 KiB, 64 KiB].

    >>> chunk_bytes_for(300 << 10), chunk_bytes_for(3 << 20), chunk_bytes_for(1 << 30)
    (4096, 32768, 65536)
    """
    size = MIN_CHUNK_BYTES
    while size < MAX_CHUNK_BYTES and size * 2 * 64 <= blob_bytes:
        size *= 2
    return size if size * 96 >= blob_bytes else min(MAX_CHUNK_BYTES, size * 2)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes by content address, with the means to check every chunk of them on its own."""

    size: int
    sha256: bytes
    chunk_bytes: int
    chunks_sha256: bytes
    """SHA-256 of the chunk list: the SHA-256 of every chunk, joined; the list travels as a blob of its own."""

    @property
    def chunk_count(self) -> int:
        """How many chunks there are; an empty blob has none."""
        return -(-self.size // self.chunk_bytes)

    def chunk_size(self, index: int) -> int:
        """Bytes of one chunk; the last may be short."""
        return min(self.chunk_bytes, self.size - index * self.chunk_bytes)

    def value(self) -> dict[str, Value]:
        """For encoding."""
        return {"len": self.size, "sha256": self.sha256, "chunk": self.chunk_bytes, "chunks": self.chunks_sha256}


def _blob(fields: Fields) -> Blob:
    blob = Blob(
        fields.integer("len", 1, MAX_BLOB_BYTES),
        fields.octets("sha256", DIGEST_BYTES),
        fields.integer("chunk", MIN_CHUNK_BYTES, MAX_CHUNK_BYTES),
        fields.octets("chunks", DIGEST_BYTES),
    )
    if blob.chunk_bytes & (blob.chunk_bytes - 1):
        raise WireError("blob: the chunk size must be a power of two")
    return blob


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of the bundle; its name is a plain file name."""

    path: str
    role: str
    """"model", "bundle" (the description), "labels", "golden" or "other"."""
    blob: Blob


@dataclass(frozen=True, slots=True)
class DeltaRef:
    """How to make `target` out of `base`; nothing here is trusted beyond the digest of what comes out."""

    base_sha256: bytes
    target_sha256: bytes
    codec: str
    blob: Blob
    out_bytes: int
    memory_bytes: int
    """The decoder may not take more than this."""

    def value(self) -> dict[str, Value]:
        """For encoding."""
        return {
            **self.blob.value(),
            "base": self.base_sha256,
            "target": self.target_sha256,
            "codec": self.codec,
            "out_len": self.out_bytes,
            "mem": self.memory_bytes,
        }


def _delta(value: Value) -> DeltaRef:
    with Fields(value, "delta") as fields:
        return DeltaRef(
            fields.octets("base", DIGEST_BYTES),
            fields.octets("target", DIGEST_BYTES),
            fields.choice("codec", *CODECS),
            _blob(fields),
            fields.integer("out_len", 1, MAX_BLOB_BYTES),
            fields.integer("mem", 1 << 20, 4 * MAX_BLOB_BYTES),
        )


@dataclass(frozen=True, slots=True)
class Targets:
    """Where a release may run; an empty tuple or 0 means "anywhere"."""

    hardware: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    """Such as "litert>=2.1": name, or name and the least version."""
    free_ram_kib: int = 0
    free_flash_kib: int = 0


@dataclass(frozen=True, slots=True)
class Gates:
    """What a trial has to hold; 0 means "no limit", except for `nan_frames`, of which none is ever allowed."""

    soak_s: int = 600
    min_samples: int = 100
    latency_p95_us: int = 0
    memory_kib: int = 0
    shadow_milli: int = 0
    """Largest distance of the outputs' distribution to the incumbent's, thousandths."""
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    """How many nodes try it at which stage."""

    stages_percent: tuple[int, ...] = (5, 25, 100)
    min_reports: int = 2
    max_fails: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """One version of one model."""

    model: str
    epoch: int
    version: int
    previous: bytes
    """Digest of the release before; b"" for the first."""
    bundle: tuple[BundleFile, ...]
    deltas: tuple[DeltaRef, ...] = ()
    operators: tuple[str, ...] = ()
    """Every operator the model uses; a model with another one is refused."""
    targets: Targets = Targets()
    gates: Gates = Gates()
    rollout: Rollout = Rollout()
    swap_when: str = "idle"
    encrypt: bool = False
    provenance: tuple[tuple[str, str], ...] = ()
    issued_at_s: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """What is newer: first the epoch, then the version."""
        return self.epoch, self.version

    def payload(self) -> bytes:
        """The bytes to sign."""
        targets, gates, rollout = self.targets, self.gates, self.rollout
        return canonical.encode(
            {
                "model": self.model,
                "epoch": self.epoch,
                "version": self.version,
                "prev": self.previous,
                "bundle": [{"path": one.path, "role": one.role, **one.blob.value()} for one in self.bundle],
                "deltas": [one.value() for one in self.deltas],
                "ops": list(self.operators),
                "targets": {
                    "hw": list(targets.hardware),
                    "arch": list(targets.arch),
                    "runtime": list(targets.runtimes),
                    "ram_kib": targets.free_ram_kib,
                    "flash_kib": targets.free_flash_kib,
                },
                "health": {
                    "soak_s": gates.soak_s,
                    "samples": gates.min_samples,
                    "p95_us": gates.latency_p95_us,
                    "memory_kib": gates.memory_kib,
                    "shadow": gates.shadow_milli,
                    "crashes": gates.crashes,
                },
                "rollout": {
                    "stages": list(rollout.stages_percent),
                    "reports": rollout.min_reports,
                    "fails": rollout.max_fails,
                },
                "swap_when": self.swap_when,
                "encrypt": self.encrypt,
                "provenance": dict(self.provenance),
                "issued_at": self.issued_at_s,
            }
        )


_BUNDLE_ROLES = ("bundle", "golden", "labels", "model", "other")


def _bundle_file(value: Value) -> BundleFile:
    with Fields(value, "bundle file") as fields:
        return BundleFile(fields.text("path", 128, FILE_NAME), fields.choice("role", *_BUNDLE_ROLES), _blob(fields))


def _targets(value: Value) -> Targets:
    with Fields(value, "targets") as fields:
        return Targets(
            fields.strings("hw", 32),
            fields.strings("arch", 8),
            fields.strings("runtime", 8),
            fields.integer("ram_kib", 0, 1 << 40),
            fields.integer("flash_kib", 0, 1 << 40),
        )


def _gates(value: Value) -> Gates:
    with Fields(value, "health") as fields:
        return Gates(
            fields.integer("soak_s", 0, 30 * 86_400),
            fields.integer("samples", 0, 1 << 32),
            fields.integer("p95_us", 0, 1 << 40),
            fields.integer("memory_kib", 0, 1 << 40),
            fields.integer("shadow", 0, 1_000),
            fields.integer("crashes", 0, 1_000),
        )


def _rollout(value: Value) -> Rollout:
    with Fields(value, "rollout") as fields:
        stages = fields.sequence("stages", 8)
        percents = tuple(one for one in stages if isinstance(one, int) and not isinstance(one, bool))
        rollout = Rollout(percents, fields.integer("reports", 1, 10_000), fields.integer("fails", 0, 10_000))
    if len(percents) != len(stages) or not percents or percents[-1] != 100 or percents[0] < 1:
        raise WireError("rollout: stages are percentages that end with 100")
    if list(percents) != sorted(set(percents)):
        raise WireError("rollout: stages must rise")
    return rollout


def _provenance(value: Value) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > 16:
        raise WireError("provenance: at most 16 entries")
    pairs = tuple((key, text) for key, text in value.items() if isinstance(text, str) and len(text) <= 256)
    if len(pairs) != len(value) or any(len(key) > 64 for key, _ in pairs):
        raise WireError("provenance: short texts only")
    return pairs


def parse_release(payload: bytes) -> Release:
    """Read the payload of a release; its signatures were checked before.

    Raises:
        WireError: Not a release, or one that contradicts itself.
    """
    with Fields(canonical.decode(payload), "release") as fields:
        version = fields.integer("version", 1)
        release = Release(
            model=fields.text("model", 64, MODEL_ID),
            epoch=fields.integer("epoch", 0, 1 << 32),
            version=version,
            previous=fields.octets("prev", DIGEST_BYTES, *([0] if version == 1 else [])),
            bundle=tuple(map(_bundle_file, fields.sequence("bundle", MAX_BUNDLE_FILES))),
            deltas=tuple(map(_delta, fields.sequence("deltas", MAX_DELTAS))),
            operators=fields.strings("ops", 256),
            targets=_targets(fields.map("targets")),
            gates=_gates(fields.map("health")),
            rollout=_rollout(fields.map("rollout")),
            swap_when=fields.choice("swap_when", *SWAP_MOMENTS),
            encrypt=fields.boolean("encrypt"),
            provenance=_provenance(fields.map("provenance")),
            issued_at_s=fields.integer("issued_at"),
        )
    names = [one.path for one in release.bundle]
    if names != sorted(set(names)) or sum(one.role == "model" for one in release.bundle) != 1:
        raise WireError("release: bundle files must be sorted, distinct, and exactly one of them the model")
    return release


@dataclass(frozen=True, slots=True)
class DeltaOffer:
    """A delta published after the release it leads to."""

    model: str
    epoch: int
    delta: DeltaRef

    def payload(self) -> bytes:
        """The bytes to sign."""
        return canonical.encode({"model": self.model, "epoch": self.epoch, "delta": self.delta.value()})


@dataclass(frozen=True, slots=True)
class Floor:
    """Nothing of the model below (epoch, version), ever again."""

    model: str
    epoch: int
    version: int
    issued_at_s: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Comparable with `Release.order`."""
        return self.epoch, self.version

    def payload(self) -> bytes:
        """The bytes to sign."""
        return canonical.encode(
            {"model": self.model, "epoch": self.epoch, "version": self.version, "issued_at": self.issued_at_s}
        )


@dataclass(frozen=True, slots=True)
class Revoke:
    """Never this release; `halt` has the same fields."""

    model: str
    epoch: int
    release: bytes
    reason: str = ""
    issued_at_s: int = 0

    def payload(self) -> bytes:
        """The bytes to sign."""
        return canonical.encode(
            {
                "model": self.model,
                "epoch": self.epoch,
                "release": self.release,
                "reason": self.reason,
                "issued_at": self.issued_at_s,
            }
        )


@dataclass(frozen=True, slots=True)
class Halt(Revoke):
    """Stop the rollout of this release; who runs it goes back."""


@dataclass(frozen=True, slots=True)
class Force:
    """Stage `stage` (counted from 0) of this release is open."""

    model: str
    epoch: int
    release: bytes
    stage: int
    issued_at_s: int = 0

    def payload(self) -> bytes:
        """The bytes to sign."""
        return canonical.encode(
            {
                "model": self.model,
                "epoch": self.epoch,
                "release": self.release,
                "stage": self.stage,
                "issued_at": self.issued_at_s,
            }
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The publisher was alive; `sequence` only rises."""

    epoch: int
    sequence: int
    issued_at_s: int = 0

    def payload(self) -> bytes:
        """The bytes to sign."""
        return canonical.encode({"epoch": self.epoch, "seq": self.sequence, "issued_at": self.issued_at_s})


Statement: TypeAlias = Release | DeltaOffer | Floor | Revoke | Halt | Force | Heartbeat


def _parse_delta(payload: bytes) -> DeltaOffer:
    with Fields(canonical.decode(payload), "delta") as fields:
        return DeltaOffer(
            fields.text("model", 64, MODEL_ID), fields.integer("epoch", 0, 1 << 32), _delta(fields.map("delta"))
        )


def _parse_floor(payload: bytes) -> Floor:
    with Fields(canonical.decode(payload), "floor") as fields:
        return Floor(
            fields.text("model", 64, MODEL_ID),
            fields.integer("epoch", 0, 1 << 32),
            fields.integer("version", 1),
            fields.integer("issued_at"),
        )


def _parse_removal(payload: bytes, make: Callable[[str, int, bytes, str, int], Revoke]) -> Revoke:
    with Fields(canonical.decode(payload), "revoke") as fields:
        return make(
            fields.text("model", 64, MODEL_ID),
            fields.integer("epoch", 0, 1 << 32),
            fields.octets("release", DIGEST_BYTES),
            fields.text("reason", 256),
            fields.integer("issued_at"),
        )


def _parse_force(payload: bytes) -> Force:
    with Fields(canonical.decode(payload), "force") as fields:
        return Force(
            fields.text("model", 64, MODEL_ID),
            fields.integer("epoch", 0, 1 << 32),
            fields.octets("release", DIGEST_BYTES),
            fields.integer("stage", 0, 8),
            fields.integer("issued_at"),
        )


def _parse_heartbeat(payload: bytes) -> Heartbeat:
    with Fields(canonical.decode(payload), "heartbeat") as fields:
        return Heartbeat(fields.integer("epoch", 0, 1 << 32), fields.integer("seq"), fields.integer("issued_at"))


_PARSERS: dict[str, Callable[[bytes], Statement]] = {
    "release": parse_release,
    "delta": _parse_delta,
    "floor": _parse_floor,
    "model-revoke": lambda payload: _parse_removal(payload, Revoke),
    "halt": lambda payload: _parse_removal(payload, Halt),
    "force": _parse_force,
    "heartbeat": _parse_heartbeat,
}


def parse_statement(kind: str, payload: bytes) -> Statement:
    """Read a payload by its kind; call it only after the signatures held.

    Raises:
        WireError: The payload is no such statement.
    """
    parser = _PARSERS.get(kind)
    if parser is None:
        raise WireError(f"{kind!r} is no statement about models")
    return parser(payload)


def bundle_bytes(files: Sequence[BundleFile]) -> int:
    """Bytes of a whole bundle."""
    return sum(one.blob.size for one in files)
