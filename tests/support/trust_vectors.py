"""Golden bytes of every kind of signed statement, with the keys of fixed seeds: `protocols/vectors/trust.json`."""

from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.releases.reports import Report, Verdict
from swarmd_protocols.releases.statements import (
    Blob,
    BundleFile,
    DeltaOffer,
    DeltaRef,
    Floor,
    Force,
    Halt,
    Heartbeat,
    Release,
    Revoke,
)
from swarmd_protocols.trust.envelopes import KINDS, sign_statement
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import ROLES, make_root

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "trust.json"
CRYPTO = NaClCrypto()
FORMAT = 1
"""Of `trust/envelopes.py`: the `/v1` of what is signed."""


def _seed(number: int) -> bytes:
    return bytes([number]) * 32


def payloads() -> dict[str, object]:
    """One of each kind."""
    public = CRYPTO.public_key(_seed(9))
    officers = [CRYPTO.public_key(_seed(1)), CRYPTO.public_key(_seed(2))]
    blob = Blob(9_000, b"s" * 32, 4_096, b"c" * 32)
    delta = DeltaRef(b"b" * 32, b"t" * 32, "blocks", Blob(70, b"d" * 32, 4_096, b"e" * 32), 9_000, 1 << 20)
    return {
        "root": make_root("acme", dict.fromkeys(("root", *ROLES[:5]), (2, officers)), version=2, epoch=2,
                          previous=b"p" * 32, kept=[b"k" * 16]),
        "node": Certificate(node_id_of(public), public, "drone-1", ("eye",), "farm", 7),
        "group": GroupKey("farm", 3, b"g" * 32, (b"k" * 16,)),
        "revoke": Revocation("farm", 4, (b"n" * 16,), "lost"),
        "release": Release("person", 2, 2, b"r" * 32, (BundleFile("model.tflite", "model", blob),), (delta,)),
        "delta": DeltaOffer("person", 2, delta),
        "floor": Floor("person", 2, 2, 1_700_000_000),
        "model-revoke": Revoke("person", 2, b"r" * 32, "bad", 1_700_000_000),
        "halt": Halt("person", 2, b"r" * 32, "hot", 1_700_000_000),
        "force": Force("person", 2, b"r" * 32, 1, 1_700_000_000),
        "heartbeat": Heartbeat(2, 12, 1_700_000_000, (b"m" * 16,)),
        "health": Report(public, "person", 3, b"r" * 32, 2, 2, "passed", b"r" * 32, Verdict.PASS, 600, 100, ""),
    }  # fmt: skip


def build() -> list[dict[str, str]]:
    """The vectors; two officers sign, and a health report its node."""
    made = payloads()
    assert set(made) == KINDS
    vectors = []
    for kind, payload in made.items():
        body = payload.payload() if hasattr(payload, "payload") else payload
        seeds = [_seed(9)] if kind == "health" else [_seed(1), _seed(2)]
        data = sign_statement(kind, body, seeds, CRYPTO)  # type: ignore[arg-type]
        vectors.append({"name": kind, "message": repr(payload), "hex": data.hex()})
    return vectors


def document() -> dict[str, object]:
    """The file's content."""
    return {"format": FORMAT, "vectors": build()}
