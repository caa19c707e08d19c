"""The publisher of a run: models made of chance, signed statements about them, and what is true of each.

A model of the simulation is bytes with a header that says how it behaves once it runs (`Flaw`); nobody but the eye that
loads it reads that. Statements are those of `swarmd_protocols.releases`, signed by the keys of the run's fleet, so that
only the arithmetic of the signatures is modelled (`ModelCrypto`).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.releases.statements import (
    BundleFile,
    DeltaRef,
    Floor,
    Gates,
    Release,
    Revoke,
    Rollout,
)
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.trust.envelopes import Envelope, add_signature
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.sections import ReleaseSection

MODEL = "eye"
FACTORY = 1
"""The version that is built into the image; never published."""
LATENCY_P95_US = 60_000
_MAGIC = b"sim-model"
_DELTA_MAGIC = b"sim-delta"
_BLOCK = 1_024


class Flaw(IntEnum):
    """How a model misbehaves when it runs."""

    NONE = 0
    GOLDEN = 1
    """Its golden vectors do not come out right on the device."""
    NAN = 2
    SLOW = 3
    CRASHES = 4


@dataclass(frozen=True, slots=True)
class Published:
    """One version and everything that belongs to it."""

    version: int
    flaw: Flaw
    data: bytes
    release: Release
    envelope: Envelope
    delta: bytes = b""

    @property
    def digest(self) -> bytes:
        """Names the release."""
        return self.envelope.digest


def make_model(choices: Choices, version: int, flaw: Flaw, size: int, base: bytes = b"") -> bytes:
    """Bytes of a model: a header, then noise; with a base, three blocks of four are the base's.

    Args:
        choices: All randomness.
        version: Goes into the header.
        flaw: Goes into the header.
        size: Bytes in all.
        base: The model it was trained on from.
    """
    head = _MAGIC + version.to_bytes(4, "big") + bytes([flaw])
    noise = bytearray(choices.rng("release.model").randbytes(size))
    for at in range(0, min(len(base), size), _BLOCK):
        if (at // _BLOCK) % 4:
            noise[at : at + _BLOCK] = base[at : at + _BLOCK]
    noise[: len(head)] = head
    return bytes(noise)


def flaw_of(data: bytes) -> Flaw:
    """How these bytes behave when an eye loads them; what is no model does not even load."""
    if data[: len(_MAGIC)] != _MAGIC:
        return Flaw.GOLDEN
    return Flaw(data[len(_MAGIC) + 4])


def make_delta(base: bytes, target: bytes) -> bytes:
    """The blocks of the target that the base does not have, each behind its number."""
    parts = [_DELTA_MAGIC]
    for at in range(0, len(target), _BLOCK):
        block = target[at : at + _BLOCK]
        if base[at : at + _BLOCK] != block:
            parts.append((at // _BLOCK).to_bytes(4, "big") + len(block).to_bytes(4, "big") + block)
    return b"".join(parts)


def apply_delta(base: bytes, delta: bytes, out_bytes: int) -> bytes | None:
    """What a delta makes out of a base; None for bytes that are no delta. The caller checks the digest."""
    if delta[: len(_DELTA_MAGIC)] != _DELTA_MAGIC:
        return None
    out = bytearray(base[:out_bytes].ljust(out_bytes, b"\0"))
    at = len(_DELTA_MAGIC)
    while at < len(delta):
        place, size = int.from_bytes(delta[at : at + 4], "big") * _BLOCK, int.from_bytes(delta[at + 4 : at + 8], "big")
        if size == 0 or place + size > out_bytes or at + 8 + size > len(delta):
            return None
        out[place : place + size] = delta[at + 8 : at + 8 + size]
        at += 8 + size
    return bytes(out)


@dataclass(slots=True)
class Publisher:
    """The desk: makes versions and signs what is said of them.

    Args:
        config: `[release]` of the scenario.
        choices: All randomness.
        crypto: The run's arithmetic of trust.
        officers: Whose keys sign.
    """

    config: ReleaseSection
    choices: Choices
    crypto: Crypto
    officers: Officers
    factory: bytes = b""
    signed: dict[bytes, Published] = field(default_factory=dict)
    """Every release that the publisher has signed, by digest."""
    revoked_ns: dict[bytes, int] = field(default_factory=dict)
    """When each was taken back."""
    floor: int = 0
    floor_ns: int = -1
    removals: set[bytes] = field(default_factory=set)
    """Digests of the floors and revocations that it signed."""

    def __post_init__(self) -> None:
        """The model in the image."""
        self.factory = make_model(self.choices, FACTORY, Flaw.NONE, self.config.model_kb << 10)

    def sign(self, kind: str, payload: bytes, role: str, count: int = 0) -> Envelope:
        """A statement with the signatures of a role.

        Args:
            kind: Of the statement.
            payload: Its bytes.
            role: Whose keys sign.
            count: How many of them; as many as the role needs where 0.
        """
        seeds = self.officers.seeds(role)[: count or self.officers.needed(role)]
        envelope = signed_by(self.crypto, kind, payload, list(seeds))
        self.officers.issued.append(envelope)
        return envelope

    def make(self, version: int, flaw: Flaw, previous: Published | None) -> Published:
        """A new version, signed; the publisher remembers it.

        Args:
            version: Its number.
            flaw: How it behaves.
            previous: The version it follows; None for the factory's.
        """
        base = previous.data if previous is not None else self.factory
        data = make_model(self.choices, version, flaw, self.config.model_kb << 10, base)
        delta = make_delta(base, data)
        release = self.describe(version, data, previous.digest if previous is not None else bytes(32), base, delta)
        published = Published(version, flaw, data, release, self.sign("release", release.payload(), "release"), delta)
        self.signed[published.digest] = published
        return published

    def describe(self, version: int, data: bytes, previous: bytes, base: bytes = b"", delta: bytes = b"") -> Release:
        """The manifest of a model."""
        blob, _hashes = describe(data)
        deltas: tuple[DeltaRef, ...] = ()
        if delta:
            patch, _hashes = describe(delta)
            deltas = (DeltaRef(sha256(base).digest(), blob.sha256, "blocks", patch, len(data), 1 << 20),)
        return Release(
            model=MODEL,
            epoch=self.officers.epoch,
            version=version,
            previous=previous,
            bundle=(BundleFile("eye.tflite", "model", blob),),
            deltas=deltas,
            gates=Gates(soak_s=self.config.soak_s, min_samples=1, latency_p95_us=LATENCY_P95_US),
            rollout=Rollout(self.config.rollout, 2, 0),
            swap_when="any",
            issued_at_s=version,
        )

    def revoke(self, published: Published, now_ns: int) -> Envelope:
        """Take a release back."""
        self.revoked_ns.setdefault(published.digest, now_ns)
        payload = Revoke(MODEL, self.officers.epoch, published.digest, "failed in the field").payload()
        signed = self.sign("model-revoke", payload, "revoke")
        self.removals.add(signed.digest)
        return signed

    def raise_floor(self, version: int, now_ns: int) -> Envelope:
        """Nothing below this version, ever again."""
        self.floor, self.floor_ns = version, now_ns
        signed = self.sign("floor", Floor(MODEL, self.officers.epoch, version, version).payload(), "floor")
        self.removals.add(signed.digest)
        return signed

    def newest_good(self) -> Published | None:
        """What the fleet should run in the end."""
        good = [one for one in self.signed.values() if one.flaw is Flaw.NONE and one.digest not in self.revoked_ns]
        return max(good, key=lambda one: one.version, default=None)


def signed_by(crypto: Crypto, kind: str, payload: bytes, seeds: list[bytes]) -> Envelope:
    """A statement signed by these keys, whoever they are."""
    envelope = Envelope(kind, payload)
    for seed in seeds:
        envelope = add_signature(envelope, seed, crypto)
    return envelope
