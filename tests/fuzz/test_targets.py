"""Every fuzz target for a moment; `make fuzz` runs each for 10⁶ inputs under libFuzzer.

Without it: `SWARMD_FUZZ_RUNS=1000000 pytest --timeout 0 tests/fuzz/test_targets.py -k mesh`.
"""

import os

import pytest

from tests.fuzz.mutator import Fuzzer
from tests.fuzz.targets import TARGETS

RUNS = 2_000
WANTED = int(os.environ.get("SWARMD_FUZZ_RUNS", "0"))
"""Inputs of each target, however dear one is; 0: as many as a moment allows."""


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str) -> None:
    fuzzed = TARGETS[name]()
    for data in fuzzed.corpus:
        fuzzed.target(data)
    Fuzzer(fuzzed.target, fuzzed.corpus, 1).run(WANTED or max(10, RUNS // fuzzed.cost))


def test_the_fuzzer_finds_a_planted_fault() -> None:
    """What lets an exception through is found: without this, a mutator that changes nothing would pass every target."""

    def target(data: bytes) -> None:
        if data[:1] == b"\x11" and data[3:4] == b"\xff":
            raise AssertionError("planted")

    with pytest.raises(AssertionError, match="planted"):
        Fuzzer(target, [bytes.fromhex("11000000")], 1).run(RUNS)
