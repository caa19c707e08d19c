"""Every fuzz target for a moment; `make fuzz` runs each for 10⁶ inputs under libFuzzer."""

import pytest

from tests.fuzz.mutator import Fuzzer
from tests.fuzz.targets import TARGETS

RUNS = 2_000


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str) -> None:
    fuzzed = TARGETS[name]()
    for data in fuzzed.corpus:
        fuzzed.target(data)
    Fuzzer(fuzzed.target, fuzzed.corpus, 1).run(max(10, RUNS // fuzzed.cost))
