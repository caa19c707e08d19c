"""Golden bytes of thumbnails' messages, both ways; a reader that knows no pictures reads what it knew before."""

import json

import msgspec
import pytest

from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt import facts as module
from swarmd_protocols.state.crdt.facts import Facts, decode_facts, encode_facts
from swarmd_protocols.thumbs.messages import decode, encode
from tests.support.state_vectors import REVIEWS, pictured
from tests.support.thumb_vectors import CASES, PATH, document


def test_every_case_has_its_vector_and_reads_as_it_was() -> None:
    assert json.loads(PATH.read_text()) == document()
    for vector in document()["vectors"]:  # type: ignore[attr-defined]
        assert decode(bytes.fromhex(vector["hex"])) == CASES[vector["name"]]


def test_every_truncation_and_flip_is_refused_or_reads_as_something_else() -> None:
    for one in CASES.values():
        data = encode(one)
        broken = [data[:size] for size in range(len(data))] + [data + b"\0"]
        broken += [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]
        for bytes_ in broken:
            try:
                assert encode(decode(bytes_)) == bytes_
            except WireError:
                continue


def test_off_means_not_one_byte() -> None:
    """Without pictures a body ends where it ended; with them a reader that knows none reads the rest."""
    for reviews in ((), REVIEWS):
        with_them = pictured(reviews)
        without = Facts([row._replace(thumb=b"") for row in with_them.sightings], reviews=with_them.reviews)
        plain, full = encode_facts(without), encode_facts(with_them)
        before: type = module._Reviewed if reviews else module._Body
        assert len(msgspec.msgpack.decode(plain)) == len(before.__struct_fields__)
        assert msgspec.msgpack.decode(full, type=before) == msgspec.msgpack.decode(plain, type=before)
        assert list(decode_facts(full).sightings) == sorted(with_them.sightings, key=module._sighting_order)
        assert list(decode_facts(plain).sightings) == sorted(without.sightings, key=module._sighting_order)


@pytest.mark.parametrize("names", [[b""], [b"", b"", b"", b""], [b"short", b"", b""], [b"x" * 17, b"", b""]])
def test_names_that_do_not_fit_make_a_body_worthless(names: list[bytes]) -> None:
    body = msgspec.msgpack.decode(encode_facts(pictured(())))
    body[6] = names
    with pytest.raises(WireError):
        decode_facts(msgspec.msgpack.encode(body))
