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

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import WireError
from swarmd_protocols.trust.envelopes import DAMAGE, DIGEST_BYTES
from swarmd_protocols.trust.roots import Mark

MAX_BLOB_BYTES = 256 << 20
"""One file: fifty times the largest model that is meant for a drone."""
MAX_BUNDLE_FILES = 16
"""Files of one bundle: model, TOML, labels, golden vectors, a second stage."""
MAX_DELTAS = 16
"""Deltas that a manifest offers: one from each of the last versions that fly."""
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4_096, 65_536
CODECS = ("blocks", "tflite-brotli", "tflite-rans", "tflite-xz")
"""Codecs that a signed statement may name."""
RETIRED_CODECS = frozenset({"tflite-rans"})
"""Of these no delta is made or applied: who signed one has a release that holds, and nodes fetch the whole file."""
SWAP_MOMENTS = ("any", "disarmed", "idle")
U63 = (1 << 63) - 1
"""Largest integer here: signed 64 bits, as SQLite and every language's decoder hold it."""
MODEL_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def _one_of(*words: str) -> str:
    return rf"\A(?:{'|'.join(words)})\Z"


ModelId = Annotated[str, Meta(pattern=rf"\A{MODEL_ID.pattern}\Z", max_length=64)]
Count = Annotated[int, Meta(ge=0, le=U63)]
Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
DigestOrNone = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
_Epoch = Annotated[int, Meta(ge=0, le=1 << 32)]
_Version = Annotated[int, Meta(ge=1, le=U63)]
_Size = Annotated[int, Meta(ge=1, le=MAX_BLOB_BYTES)]
_KiB = Annotated[int, Meta(ge=0, le=1 << 40)]
_FileName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z", max_length=128)]
_Word = Annotated[str, Meta(max_length=64)]
_Reason = Annotated[str, Meta(max_length=256)]
_encode = msgspec.msgpack.Encoder().encode


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What keys sign: the bytes of `payload` travel and are kept; they are read, never written again."""

    def payload(self) -> bytes:
        """The bytes to sign."""
        return _encode(self)


def chunk_bytes_for(blob_bytes: int) -> int:
    """Chunk size of a blob: about 64 chunks, a power of two within [4 KiB, 64 KiB].

    >>> chunk_bytes_for(300 << 10), chunk_bytes_for(3 << 20), chunk_bytes_for(1 << 30)
    (4096, 32768, 65536)
    """
    size = MIN_CHUNK_BYTES
    while size < MAX_CHUNK_BYTES and size * 2 * 64 <= blob_bytes:
        size *= 2
    return size if size * 96 >= blob_bytes else min(MAX_CHUNK_BYTES, size * 2)


class Blob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes by content address, with the means to check every chunk of them on its own."""

    size: _Size
    sha256: Digest
    chunk_bytes: Annotated[int, Meta(ge=MIN_CHUNK_BYTES, le=MAX_CHUNK_BYTES)]
    chunks_sha256: Digest
    """SHA-256 of the chunk list: the SHA-256 of every chunk, joined; the list travels as a blob of its own."""

    @property
    def chunk_count(self) -> int:
        """How many chunks there are; an empty blob has none."""
        return -(-self.size // self.chunk_bytes)

    def chunk_size(self, index: int) -> int:
        """Bytes of one chunk; the last may be short."""
        return min(self.chunk_bytes, self.size - index * self.chunk_bytes)


class BundleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the bundle; its name is a plain file name."""

    path: _FileName
    role: Annotated[str, Meta(pattern=_one_of("bundle", "golden", "labels", "model", "other"))]
    """"model", "bundle" (the description), "labels", "golden" or "other"."""
    blob: Blob


class DeltaRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to make `target` out of `base`; nothing here is trusted beyond the digest of what comes out."""

    base_sha256: Digest
    target_sha256: Digest
    codec: Annotated[str, Meta(pattern=_one_of(*CODECS))]
    blob: Blob
    out_bytes: _Size
    memory_bytes: Annotated[int, Meta(ge=1 << 20, le=4 * MAX_BLOB_BYTES)]
    """The decoder may not take more than this."""


class Targets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a release may run; an empty tuple or 0 means "anywhere"."""

    hardware: Annotated[tuple[_Word, ...], Meta(max_length=32)] = ()
    arch: Annotated[tuple[_Word, ...], Meta(max_length=8)] = ()
    runtimes: Annotated[tuple[_Word, ...], Meta(max_length=8)] = ()
    """Such as "litert>=2.1": name, or name and the least version."""
    free_ram_kib: _KiB = 0
    free_flash_kib: _KiB = 0


class Gates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a trial has to hold; 0 means "no limit", except for `nan_frames`, of which none is ever allowed."""

    soak_s: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 600
    min_samples: Annotated[int, Meta(ge=0, le=1 << 32)] = 100
    latency_p95_us: _KiB = 0
    memory_kib: _KiB = 0
    shadow_milli: Annotated[int, Meta(ge=0, le=1_000)] = 0
    """Largest distance of the outputs' distribution to the incumbent's, thousandths."""
    crashes: Annotated[int, Meta(ge=0, le=1_000)] = 0


class Rollout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes try it at which stage."""

    stages_percent: Annotated[tuple[Annotated[int, Meta(ge=1, le=100)], ...], Meta(min_length=1, max_length=8)] = (
        5,
        25,
        100,
    )
    min_reports: Annotated[int, Meta(ge=1, le=10_000)] = 2
    max_fails: Annotated[int, Meta(ge=0, le=10_000)] = 0


class Release(Payload, frozen=True, forbid_unknown_fields=True):
    """One version of one model."""

    model: ModelId
    epoch: _Epoch
    version: _Version
    previous: DigestOrNone
    """Digest of the release before; b"" for the first."""
    bundle: Annotated[tuple[BundleFile, ...], Meta(max_length=MAX_BUNDLE_FILES)]
    deltas: Annotated[tuple[DeltaRef, ...], Meta(max_length=MAX_DELTAS)] = ()
    operators: Annotated[tuple[_Word, ...], Meta(max_length=256)] = ()
    """Every operator the model uses; a model with another one is refused."""
    targets: Targets = Targets()
    gates: Gates = Gates()
    rollout: Rollout = Rollout()
    swap_when: Annotated[str, Meta(pattern=_one_of(*SWAP_MOMENTS))] = "idle"
    encrypt: bool = False
    provenance: Annotated[tuple[tuple[_Word, _Reason], ...], Meta(max_length=16)] = ()
    issued_at_s: Count = 0

    @property
    def order(self) -> tuple[int, int]:
        """What is newer: first the epoch, then the version."""
        return self.epoch, self.version


class DeltaOffer(Payload, frozen=True, forbid_unknown_fields=True):
    """A delta published after the release it leads to."""

    model: ModelId
    epoch: _Epoch
    delta: DeltaRef


class Floor(Payload, frozen=True, forbid_unknown_fields=True):
    """Nothing of the model below (epoch, version), ever again."""

    model: ModelId
    epoch: _Epoch
    version: _Version
    issued_at_s: Count = 0

    @property
    def order(self) -> tuple[int, int]:
        """Comparable with `Release.order`."""
        return self.epoch, self.version


class Revoke(Payload, frozen=True, forbid_unknown_fields=True):
    """Never this release; `halt` has the same fields."""

    model: ModelId
    epoch: _Epoch
    release: Digest
    reason: _Reason = ""
    issued_at_s: Count = 0


class Halt(Revoke, frozen=True, forbid_unknown_fields=True):
    """Stop the rollout of this release; who runs it goes back."""


class Force(Payload, frozen=True, forbid_unknown_fields=True):
    """Stage `stage` (counted from 0) of this release is open."""

    model: ModelId
    epoch: _Epoch
    release: Digest
    stage: Annotated[int, Meta(ge=0, le=8)]
    issued_at_s: Count = 0


class Heartbeat(Payload, frozen=True, forbid_unknown_fields=True):
    """The publisher was alive; `sequence` only rises, until the keys of the role are replaced."""

    epoch: _Epoch
    sequence: Count
    issued_at_s: Count = 0
    newest: Annotated[tuple[Mark, ...], Meta(max_length=64)] = ()
    """`mark` of the newest release of every model: one of them cannot be withheld while another one passes."""


Statement: TypeAlias = Release | DeltaOffer | Floor | Revoke | Halt | Force | Heartbeat

_DECODERS: dict[str, msgspec.msgpack.Decoder[Statement]] = {
    "release": msgspec.msgpack.Decoder(Release),
    "delta": msgspec.msgpack.Decoder(DeltaOffer),
    "floor": msgspec.msgpack.Decoder(Floor),
    "model-revoke": msgspec.msgpack.Decoder(Revoke),
    "halt": msgspec.msgpack.Decoder(Halt),
    "force": msgspec.msgpack.Decoder(Force),
    "heartbeat": msgspec.msgpack.Decoder(Heartbeat),
}


def parse_statement(kind: str, payload: bytes) -> Statement:
    """Read a payload by its kind; call it only after the signatures held.

    Raises:
        WireError: The payload is no such statement, or contradicts itself.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise WireError(f"{kind!r} is no statement about models")
    try:
        statement = decoder.decode(payload)
    except DAMAGE as error:
        raise WireError(f"{kind}: {error}") from error
    blobs: list[Blob] = []
    if isinstance(statement, Release):
        _check_release(statement)
        blobs = [*(one.blob for one in statement.bundle), *(one.blob for one in statement.deltas)]
    elif isinstance(statement, DeltaOffer):
        blobs = [statement.delta.blob]
    if any(blob.chunk_bytes & (blob.chunk_bytes - 1) for blob in blobs):
        raise WireError(f"{kind}: a blob's chunk size must be a power of two")
    return statement


def parse_release(payload: bytes) -> Release:
    """Read the payload of a release; its signatures were checked before.

    Raises:
        WireError: Not a release, or one that contradicts itself.
    """
    release = parse_statement("release", payload)
    assert isinstance(release, Release), "its decoder makes releases"
    return release


def _check_release(release: Release) -> None:
    """What goes beyond the limits of single fields."""
    names = [one.path for one in release.bundle]
    if not _rise(names) or sum(one.role == "model" for one in release.bundle) != 1:
        raise WireError("release: bundle files must be sorted, distinct, and exactly one of them the model")
    lists = (release.operators, release.targets.hardware, release.targets.arch, release.targets.runtimes)
    if not all(map(_rise, lists)):
        raise WireError("release: lists of words must be sorted and distinct")
    if not _rise(release.rollout.stages_percent) or release.rollout.stages_percent[-1] != 100:
        raise WireError("release: rollout stages are percentages that rise and end with 100")
    if len(release.previous) != DIGEST_BYTES and (release.previous or release.version > 1):
        raise WireError("release: only the first version names no release before it")


def _rise(values: Sequence[str] | Sequence[int]) -> bool:
    return all(one < other for one, other in pairwise(values))  # type: ignore[operator]
