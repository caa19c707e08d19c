"""The bytes of signed statements: as they were, and what damage makes of them."""

import contextlib
import json

import pytest

from swarmd_protocols.errors import WireError
from swarmd_protocols.releases.reports import parse_report
from swarmd_protocols.releases.statements import parse_statement
from swarmd_protocols.trust.envelopes import decode_envelope, key_id, signed_bytes, signers
from swarmd_protocols.trust.payloads import read_payload
from swarmd_protocols.trust.roots import Link
from tests.support import trust_vectors
from tests.support.trust_vectors import CRYPTO

GOLDEN = {item["name"]: bytes.fromhex(item["hex"]) for item in json.loads(trust_vectors.PATH.read_text())["vectors"]}


def _read(kind: str, payload: bytes) -> object:
    match kind:
        case "root":
            return Link.of(decode_envelope(GOLDEN["root"])).root
        case "node" | "group" | "revoke":
            return read_payload(kind, payload)
        case "health":
            return parse_report(payload)
        case _:
            return parse_statement(kind, payload)


def test_statements_have_not_changed() -> None:
    assert trust_vectors.document() == json.loads(trust_vectors.PATH.read_text())


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_golden_bytes_say_what_was_meant_and_are_signed(kind: str) -> None:
    envelope = decode_envelope(GOLDEN[kind])
    assert (envelope.kind, envelope.encode()) == (kind, GOLDEN[kind])
    assert _read(kind, envelope.payload) == trust_vectors.payloads()[kind]
    publics = [CRYPTO.public_key(bytes([number]) * 32) for number in (1, 2, 9)]
    keys = {key_id(public): public for public in publics}
    assert len(signers(envelope, keys, CRYPTO.verify)) == (1 if kind == "health" else 2)
    assert signed_bytes(kind, envelope.payload).startswith(f"swarmd/{kind}/v1\0".encode())


@pytest.mark.parametrize("kind", GOLDEN)
def test_stumps_and_bit_flips_decode_or_are_wire_errors(kind: str) -> None:
    data = GOLDEN[kind]
    payload = decode_envelope(data).payload
    for at in range(len(data)):
        with pytest.raises(WireError):
            decode_envelope(data[:at])
        with contextlib.suppress(WireError):
            decode_envelope(bytes((*data[:at], data[at] ^ 1 << at % 8, *data[at + 1 :])))
    if kind == "root":
        return
    for at in range(len(payload)):
        for broken in (payload[:at], bytes((*payload[:at], payload[at] ^ 1 << at % 8, *payload[at + 1 :]))):
            with contextlib.suppress(WireError):
                _read(kind, broken)
