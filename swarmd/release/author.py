"""What the publisher does, on any machine, without a network: build a publication, sign statements, check them.

A publication is a folder:

    release.swm        the envelope (`swarmd_protocols.trust.envelopes`), signed by nobody at first
    blobs/<sha256>     every file of the bundle, and the deltas to it

`release.swm` is what officers pass around to sign; it is a few kilobytes and holds no secret.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from swarmd.identity.files import write_named_file, write_public_file
from swarmd.release.delta.codec import make_best
from swarmd.release.delta.flatbuffer import operators
from swarmd.release.errors import DeltaError, ReleaseError
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.releases.statements import (
    BundleFile,
    DeltaRef,
    Gates,
    Release,
    Rollout,
    Targets,
    parse_release,
)
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.releases.versions import admit
from swarmd_protocols.trust.envelopes import Envelope, add_signature, decode_envelope
from swarmd_protocols.trust.roots import RootChain

STATEMENT = "release.swm"
_ROLES = {".toml": "bundle", ".npz": "golden", ".txt": "labels"}
_DELTA_MEMORY = 64 << 20


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What a release says besides its files."""

    model: str
    version: int
    epoch: int
    previous: bytes = b""
    bases: tuple[Path, ...] = ()
    """Bundles or model files from which deltas are made."""
    rollout: Rollout = field(default_factory=Rollout)
    gates: Gates = field(default_factory=Gates)
    targets: Targets = field(default_factory=Targets)
    swap_when: str = "idle"
    encrypt: bool = False
    provenance: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication folder, read."""

    folder: Path
    envelope: Envelope
    release: Release

    @property
    def digest(self) -> bytes:
        """Names the release."""
        return self.envelope.digest

    @property
    def delta_ratio(self) -> float | None:
        """Bytes of the smallest delta over the bytes of the model file."""
        sizes = [one.blob.size / one.out_bytes for one in self.release.deltas]
        return min(sizes, default=None)


def bundle_files(bundle: Path) -> dict[str, tuple[str, bytes]]:
    """The files of a bundle: name -> (role, bytes).

    Args:
        bundle: A bundle's description (`.toml`) or a bare `.tflite` or `.onnx`.

    Raises:
        ReleaseError: It cannot be read.
    """
    from swarmd_models.bundle import load_bundle
    from swarmd_models.errors import ModelError

    try:
        loaded = load_bundle(bundle)
        model = Path(loaded.model_path)
        description = bundle if bundle.suffix == ".toml" else None
        paths = [model, *([description] if description else [])]
        paths += loaded.files()[1:]
        found = {path.name: (_role(path, model, description), path.read_bytes()) for path in paths}
    except (ModelError, OSError) as error:
        raise ReleaseError(f"{bundle}: {error}") from error
    return dict(sorted(found.items()))


def _role(path: Path, model: Path, description: Path | None) -> str:
    """What a file is to a release, of which exactly one is the model: a second stage's net is one of the others.

    So are the descriptions of an ensemble's members: a device runs the one that names them.
    """
    if path.suffix == ".toml" and path != description:
        return "other"
    return "model" if path == model else _ROLES.get(path.suffix, "other")


def build(bundle: Path, options: BuildOptions, out: Path) -> Publication:
    """Make a publication, unsigned.

    Args:
        bundle: A bundle's description or a bare `.tflite` or `.onnx`.
        options: What the release says.
        out: A new folder.

    Raises:
        ReleaseError: The bundle cannot be read, or the folder is not new.
    """
    if (out / STATEMENT).exists():
        raise ReleaseError(f"{out} holds a publication already; choose another folder")
    files = bundle_files(bundle)
    (out / "blobs").mkdir(parents=True, exist_ok=True)
    bundled = []
    for name, (role, data) in files.items():
        blob, _ = describe(data)
        bundled.append(BundleFile(name, role, blob))
        (out / "blobs" / blob.sha256.hex()).write_bytes(data)
    model = next(data for role, data in files.values() if role == "model")
    release = Release(
        model=options.model,
        epoch=options.epoch,
        version=options.version,
        previous=options.previous,
        bundle=tuple(bundled),
        deltas=tuple(_deltas(options.bases, model, out)),
        operators=_operators(model),
        targets=options.targets,
        gates=options.gates,
        rollout=options.rollout,
        swap_when=options.swap_when,
        encrypt=options.encrypt,
        provenance=options.provenance,
        issued_at_s=int(time.time()),
    )
    parse_release(release.payload())  # What nobody would accept is not written.
    envelope = Envelope("release", release.payload())
    write_public_file(out / STATEMENT, envelope.encode())
    return Publication(out, envelope, release)


def _operators(model: bytes) -> tuple[str, ...]:
    try:
        return tuple(operators(model))
    except DeltaError:
        return ()  # Not a .tflite: the runtime itself says what it can run.


def _deltas(bases: Iterable[Path], model: bytes, out: Path) -> list[DeltaRef]:
    """The smallest delta from each base that is worth having."""
    made = []
    for base in bases:
        old = base.read_bytes() if base.suffix == ".tflite" else _model_of(base)
        best = make_best(old, model)
        if best is None:
            continue
        codec, delta = best
        blob, _ = describe(delta)
        (out / "blobs" / blob.sha256.hex()).write_bytes(delta)
        made.append(DeltaRef(sha256(old).digest(), sha256(model).digest(), codec, blob, len(model), _DELTA_MEMORY))
    return made


def _model_of(bundle: Path) -> bytes:
    return next(data for role, data in bundle_files(bundle).values() if role == "model")


def read_publication(folder: Path) -> Publication:
    """Read a publication folder and check its blobs against the manifest.

    Raises:
        ReleaseError: Something is missing or does not hash.
    """
    if not (folder / STATEMENT).exists():
        raise ReleaseError(f"{folder} is no publication: it holds no {STATEMENT}; make one by swarmd model build")
    envelope = read_statement(folder / STATEMENT)
    try:
        release = parse_release(envelope.payload)
    except ProtocolError as error:
        raise ReleaseError(f"{folder / STATEMENT}: {error}") from error
    publication = Publication(folder, envelope, release)
    for digest in blob_digests(release):
        path = folder / "blobs" / digest.hex()
        if not path.exists() or sha256(path.read_bytes()).digest() != digest:
            raise ReleaseError(f"{path} is missing or damaged; build the publication again")
    return publication


def blob_digests(release: Release) -> list[bytes]:
    """Every blob of a release, deltas first: the swarm gets those first."""
    blobs = [one.blob.sha256 for one in release.deltas] + [one.blob.sha256 for one in release.bundle]
    return list(dict.fromkeys(blobs))


def read_statement(path: Path) -> Envelope:
    """Read a statement file.

    Raises:
        ReleaseError: It is none.
    """
    try:
        return decode_envelope(path.read_bytes())
    except OSError as error:
        raise ReleaseError(f"{path}: {error.strerror}") from error
    except ProtocolError as error:
        raise ReleaseError(f"{path} is no statement: {error}") from error


def sign_file(path: Path, seeds: Sequence[bytes], out: Path | None = None) -> Envelope:
    """Add signatures to a statement file; needs no network and no fleet folder.

    Args:
        path: The statement.
        seeds: Ed25519 seeds of the officers at this desk.
        out: Where to write; in place where absent.
    """
    return write_signed(out or path, read_statement(path), seeds)


def write_signed(path: Path, envelope: Envelope, seeds: Sequence[bytes]) -> Envelope:
    """Write a statement with these signatures too; what was there stays as it was where that fails.

    Raises:
        IdentityFileError: It cannot be written.
        OSError: A pipe or a terminal does not take it.
    """
    for seed in seeds:
        envelope = add_signature(envelope, seed, NaClCrypto())
    write_named_file(path, envelope.encode())
    return envelope


def check_file(path: Path, roots: Sequence[bytes]) -> Envelope:
    """Check a statement as a node would.

    Args:
        path: The statement.
        roots: The fleet's root chain, oldest first.

    Raises:
        ReleaseError: A node would refuse it; says why.
    """
    envelope = read_statement(path)
    try:
        chain = RootChain.trust(roots[0], NaClCrypto())
        for root in roots[1:]:
            chain.extend(root)
        admit(envelope, chain)
    except ProtocolError as error:
        raise ReleaseError(f"{path}: {error}") from error
    return envelope
