"""Golden bytes of learning's messages, both ways."""

import json

from swarmd_protocols.learning.form import open_delta
from swarmd_protocols.learning.messages import Give, decode
from tests.support.learning_vectors import CASES, DELTA, ENTRIES, PATH, document


def test_every_case_has_its_vector_and_reads_as_it_was() -> None:
    assert json.loads(PATH.read_text()) == document()
    for vector in document()["vectors"]:  # type: ignore[attr-defined]
        assert decode(bytes.fromhex(vector["hex"])) == CASES[vector["name"]]


def test_the_delta_reads_as_it_was() -> None:
    message = decode(bytes.fromhex(json.loads(PATH.read_text())["vectors"][1]["hex"]))
    assert isinstance(message, Give)
    one = open_delta(message.deltas[0])
    assert (one.author, one.session, one.round, one.rows, one.exponent) == (DELTA.author, DELTA.session, 3, 240, 14)
    assert list(zip(one.indices, one.values, strict=True)) == ENTRIES
