"""What the daemon asks of the sub-protocol "releases", and what it is told: plain frozen values."""

from dataclasses import dataclass

from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Blob, DeltaRef, Release

# --- Requests, wrapped in `effects.Command("releases", …)` ---


@dataclass(frozen=True, slots=True)
class Publish:
    """Take signed statements in at this node, as if from a peer; raises `StateError` when one does not hold."""

    envelopes: tuple[bytes, ...]
    roots: tuple[bytes, ...] = ()
    """Newer links of the root chain, oldest first; taken in before the statements."""


@dataclass(frozen=True, slots=True)
class Provide:
    """The store holds this blob completely: give it to whoever asks. `first_source`: nobody else has it yet."""

    blob: Blob
    first_source: bool


@dataclass(frozen=True, slots=True)
class Running:
    """What this node runs of a model: the release, or b"" for the model built into the image."""

    model: str
    release: bytes
    kept: tuple[bytes, ...] = ()
    """Releases in slots that were good here."""
    rejected: tuple[bytes, ...] = ()
    """Releases that failed here, from the slots' record."""


@dataclass(frozen=True, slots=True)
class TrialBegan:
    """The release has taken over for its trial."""

    model: str
    release: bytes


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """The verdict is durable in the slots' record; now it may be told to others."""

    model: str
    release: bytes
    verdict: Verdict
    soak_s: int
    samples: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeltaFailed:
    """What came out of this delta was not the target (or it did not stay within its limits): never again, here."""

    delta: bytes
    """SHA-256 of the delta's blob."""


@dataclass(frozen=True, slots=True)
class BlobReady:
    """A file of a bundle is complete and verified in the store."""

    sha256: bytes


# --- Details of `effects.StateChanged("releases", …)` ---


@dataclass(frozen=True, slots=True)
class Heard:
    """A statement was accepted or refused: a line for the audit log."""

    kind: str
    digest: bytes
    accepted: bool
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplyDelta:
    """The delta is here; make the target (in a child process) and answer `BlobReady` or `DeltaFailed`."""

    delta: DeltaRef
    target: Blob


@dataclass(frozen=True, slots=True)
class Prepare:
    """Every file of this release is here: verify it and put it into a slot. It may not run yet."""

    digest: bytes
    release: Release


@dataclass(frozen=True, slots=True)
class StartTrial:
    """It is this node's turn: run the release as a trial at the next safe moment; answer `TrialBegan`, `TrialEnded`."""

    digest: bytes
    release: Release


@dataclass(frozen=True, slots=True)
class GoBack:
    """Stop running `leave` now and run `to` (b"": the model built into the image); answer `Running`."""

    model: str
    leave: bytes
    to: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class RolloutChanged:
    """A release moved in its rollout, as seen from here: "seen", "stage", "promoted", "halted" or "revoked"."""

    model: str
    digest: bytes
    version: int
    what: str
    stage: int
