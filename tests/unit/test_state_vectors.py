"""Golden bytes of the replicated state's wire formats, checked both ways; a changed vector means a new wire version."""

import json

import pytest

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt.batch import HEAD_BYTES
from swarmd_protocols.state.crdt.facts import decode_facts
from tests.support.state_vectors import PATH, read_again, samples


def test_vectors_both_ways():
    stored = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in json.loads(PATH.read_text())}
    assert stored == samples()
    for name, data in stored.items():
        assert read_again(name, data) == data, name


@pytest.mark.parametrize("name", list(samples()))
def test_every_truncation_and_flip_reads_or_is_refused(name):
    data = samples()[name]
    broken = [data[:end] for end in range(len(data))]
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        broken.append(bytes(flipped))
    for mutant in broken:
        try:
            read_again(name, mutant)
            if name == "batch of facts":
                decode_facts(mutant[HEAD_BYTES:-SIGNATURE_BYTES])
        except WireError:
            continue
