"""Damaged deltas, envelopes, messages and records: each decodes or raises its own error, never anything else.

`RELEASE_FUZZ=2000` sets how many mutations of each (default 60 in the ordinary run).
"""

import contextlib
import os
import random
from collections.abc import Callable

import numpy as np
import pytest

from swarmd.release import at_rest
from swarmd.release.audit import verify_lines
from swarmd.release.delta import codec, flatbuffer
from swarmd.release.errors import DeltaError
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.releases import messages, slots
from swarmd_protocols.releases.reports import Report, Verdict, parse_report
from swarmd_protocols.releases.statements import Floor, Revoke, parse_release, parse_statement
from swarmd_protocols.trust import roots
from swarmd_protocols.trust.envelopes import decode_envelope
from tests.support.deltas import ZOO, tuned
from tests.support.release_world import Keys, make_release

ROUNDS = int(os.environ.get("RELEASE_FUZZ", "60"))
OLD = ZOO.read_bytes()
NEW = tuned(OLD, 0.02)


def mutations(data: bytes, seed: int, rounds: int = ROUNDS) -> list[bytes]:
    rng = random.Random(seed)
    made = []
    for _ in range(rounds):
        piece = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(piece))
            choice = rng.randrange(4)
            if choice == 0:
                piece[at] ^= 1 << rng.randrange(8)
            elif choice == 1:
                piece[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
            elif choice == 2:
                piece = piece[: max(1, at)]
            else:
                piece[at] = rng.choice((0, 0xFF, 0x7F, 0x80))
        made.append(bytes(piece))
    return made


@pytest.fixture(scope="module")
def deltas() -> dict[str, bytes]:
    return codec.make_all(OLD, NEW)


@pytest.mark.parametrize("name", codec.CODECS)
def test_damaged_deltas(name: str, deltas: dict[str, bytes]) -> None:
    refused = 0
    for damaged in mutations(deltas[name], 1, max(10, ROUNDS // 3)):
        try:
            made = codec.apply_delta(OLD, damaged, len(NEW))
        except DeltaError:
            refused += 1
            continue
        assert len(made) == len(NEW)
    assert refused


def test_damaged_models() -> None:
    refused = read = 0
    for damaged in mutations(OLD[:12_000], 2) + mutations(OLD, 3, max(5, ROUNDS // 10)):
        try:
            found = flatbuffer.regions(damaged)
            flatbuffer.operators(damaged)
        except DeltaError:
            refused += 1
            continue
        assert all(one.start + one.size <= len(damaged) for one in found)
        read += 1
    assert refused
    assert read


SAMPLES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "envelope": (Keys().sign("release", make_release().payload(), "release").encode(), decode_envelope),
    "release": (make_release().payload(), parse_release),
    "root": (Keys().root(), lambda data: roots.RootChain.trust(data, NaClCrypto())),
    "message": (messages.encode_message(messages.Chunk(b"12345678", 3, b"data" * 20)), messages.decode_message),
    "have": (messages.encode_message(messages.Have(1, b"12345678", b"", True)), messages.decode_message),
    "report": (Report(b"k" * 32, "m", 1, b"", 0, 0, "idle", b"", Verdict.NONE, 0, 0, "").payload(), parse_report),
    "floor": (
        Floor("m", 1, 3).payload(),
        lambda data: parse_statement("floor", data),
    ),
    "revoke": (
        Revoke("m", 1, b"r" * 32).payload(),
        lambda data: parse_statement("model-revoke", data),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_statements(name: str) -> None:
    data, read = SAMPLES[name]
    read(data)
    for damaged in mutations(data, 4, 10 * ROUNDS):
        with contextlib.suppress(WireError, IdentityError):
            read(damaged)
    for cut in range(len(data)):
        with pytest.raises((WireError, IdentityError)):
            read(data[:cut])


def test_damaged_records_and_blobs_at_rest() -> None:
    slot = slots.fresh_slot(b"r" * 32, {"model.tflite": b"d" * 32}, "model.tflite")
    record = slots.encode_record(slots.Record(sequence=3, active=slot))
    assert slots.decode_record(record) is not None
    for damaged in mutations(record, 6):
        assert damaged == record or slots.decode_record(damaged) is None
    data, key = np.random.default_rng(1).bytes(150_000), b"k" * 32
    digest = at_rest.sha256(data).digest()
    sealed = at_rest.seal(data, digest, key)
    assert at_rest.unseal(sealed, digest, key) == data
    for damaged in mutations(sealed, 7):
        assert damaged == sealed or at_rest.unseal(damaged, digest, key) is None


def test_damaged_audit_lines() -> None:
    text = '{"hash": "x", "n": 1, "prev": "0", "t_s": 0, "what": "accepted"}'
    for damaged in mutations(text.encode(), 8):
        count, _, finding = verify_lines([damaged.decode("utf-8", "replace")])
        assert count == 0
        assert finding is not None
