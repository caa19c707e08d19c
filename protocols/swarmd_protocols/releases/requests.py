"""What the daemon tells the sub-protocol "releases", what that orders of it, and the answers: plain frozen values."""

from typing import TypeAlias

import msgspec

from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Blob, DeltaRef, Release

NAME = "releases"
"""The sub-protocol's name: of its commands, orders, timers and journal keys."""

# --- Requests, wrapped in `effects.Command("releases", …)` ---


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Take signed statements in at this node, as if from a peer; raises `StateError` when one does not hold."""

    envelopes: tuple[bytes, ...]
    roots: tuple[bytes, ...] = ()
    """Newer links of the root chain, oldest first; taken in before the statements."""


class Provide(msgspec.Struct, frozen=True, gc=False):
    """The store holds this blob completely: give it to whoever asks. `first_source`: nobody else has it yet."""

    blob: Blob
    first_source: bool


class Running(msgspec.Struct, frozen=True, gc=False):
    """What this node runs of a model: the release, or b"" for the model built into the image."""

    model: str
    release: bytes
    kept: tuple[bytes, ...] = ()
    """Releases in slots that were good here."""
    rejected: tuple[bytes, ...] = ()
    """Releases that failed here, from the slots' record."""


class TrialBegan(msgspec.Struct, frozen=True, gc=False):
    """The release has taken over for its trial."""

    model: str
    release: bytes


class TrialEnded(msgspec.Struct, frozen=True, gc=False):
    """The verdict is durable in the slots' record; now it may be told to others."""

    model: str
    release: bytes
    verdict: Verdict
    soak_s: int
    samples: int
    reason: str


class DeltaFailed(msgspec.Struct, frozen=True, gc=False):
    """What came out of this delta was not the target (or it did not stay within its limits): never again, here."""

    delta: bytes
    """SHA-256 of the delta's blob."""


class BlobReady(msgspec.Struct, frozen=True, gc=False):
    """A file of a bundle is complete and verified in the store."""

    sha256: bytes


class BlobsLost(msgspec.Struct, frozen=True, gc=False):
    """These files do not lie here any longer, or do not hash: fetch them again where they are needed."""

    digests: tuple[bytes, ...]


# --- Orders about files, as `effects.Order("releases", …)`; `storage.carry_out` says what each does ---


class LookFor(msgspec.Struct, frozen=True, gc=False):
    """Say which of these files lie here whole; answered by `BlobsFound`."""

    digests: tuple[bytes, ...]


class OpenBlob(msgspec.Struct, frozen=True, gc=False):
    """Say what of this file lies here; answered by `BlobOpened`."""

    blob: Blob


class StoreList(msgspec.Struct, frozen=True, gc=False):
    """Keep a list of chunks, which was checked; not answered: it is a cache."""

    blob: Blob
    hashes: bytes


class StoreChunk(msgspec.Struct, frozen=True, gc=False):
    """Keep a chunk, which was checked; answered by `ChunkStored`."""

    blob: Blob
    index: int
    data: bytes


class ReadChunk(msgspec.Struct, frozen=True, gc=False):
    """Give a chunk back; answered by `ChunkRead`."""

    blob: Blob
    index: int


class FinishBlob(msgspec.Struct, frozen=True, gc=False):
    """Every chunk is stored: hash the whole, make it durable; answered by `BlobFinished`."""

    blob: Blob


StorageOrder: TypeAlias = LookFor | OpenBlob | StoreList | StoreChunk | ReadChunk | FinishBlob


# --- Their answers, as `effects.Command("releases", …)` ---


class BlobsFound(msgspec.Struct, frozen=True, gc=False):
    """Of the files asked for, those that lie here, hashed, and those that do not."""

    here: tuple[bytes, ...]
    absent: tuple[bytes, ...]


class BlobOpened(msgspec.Struct, frozen=True, gc=False):
    """What of a file lies here."""

    blob: Blob
    hashes: bytes | None
    """The list of its chunks, checked against the manifest."""
    have: int
    """Mask of the chunks that are here and hash."""
    is_whole: bool
    """It lies here as a file that hashes to its name, not as chunks."""


class ChunkStored(msgspec.Struct, frozen=True, gc=False):
    """A chunk was written, or there was no room for it."""

    blob: Blob
    index: int
    ok: bool


class ChunkRead(msgspec.Struct, frozen=True, gc=False):
    """A chunk's bytes; None when it has gone."""

    blob: Blob
    index: int
    data: bytes | None


class BlobFinished(msgspec.Struct, frozen=True, gc=False):
    """The file is whole and durable, or what the disk gave back does not hash and is gone."""

    blob: Blob
    ok: bool


StorageAnswer: TypeAlias = BlobsFound | BlobOpened | ChunkStored | ChunkRead | BlobFinished


# --- Orders about models, as `effects.Order("releases", …)`; the agent carries them out (`agent.py`) ---


class ApplyDelta(msgspec.Struct, frozen=True, gc=False):
    """The delta is here; make the target (in a child process) and answer `BlobReady` or `DeltaFailed`."""

    delta: DeltaRef
    target: Blob


class Prepare(msgspec.Struct, frozen=True, gc=False):
    """Every file of this release is here: verify it and put it into a slot. It may not run yet."""

    digest: bytes
    release: Release


class StartTrial(msgspec.Struct, frozen=True, gc=False):
    """It is this node's turn: run the release as a trial at the next safe moment; answer `TrialBegan`, `TrialEnded`."""

    digest: bytes
    release: Release


class GoBack(msgspec.Struct, frozen=True, gc=False):
    """Stop running `leave` now and run `to` (b"": the model built into the image); answer `Running`."""

    model: str
    leave: bytes
    to: bytes
    reason: str


class RaiseFloor(msgspec.Struct, frozen=True, gc=False):
    """Remember the signed floor beside the slots: nothing below it starts here, whatever the journal has lost.

    A floor that counts under a newer root replaces one of an older root, also downwards: recovery from stolen keys.
    """

    model: str
    root_epoch: int
    floor: tuple[int, int]
    """(epoch, version)."""


# --- Details of `effects.StateChanged("releases", …)`: for people, the log and the audit ---


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A statement was accepted or refused: a line for the audit log."""

    kind: str
    digest: bytes
    accepted: bool
    source: str
    reason: str


class RolloutChanged(msgspec.Struct, frozen=True, gc=False):
    """A release moved in its rollout, as seen from here: "seen", "stage", "promoted", "halted" or "revoked"."""

    model: str
    digest: bytes
    version: int
    what: str
    stage: int
