"""Free blocks between used ones go back to the system."""

import re
import sys
from pathlib import Path

import pytest

from swarmd.brain.heap import give_back_heap

BLOCK_BYTES = 32_768
"""Below glibc's mmap threshold, above Python's own pools: each is a block of the C library's heap."""


def _anonymous_kb() -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="no Linux here, whose /proc it reads")
def test_free_blocks_below_one_in_use_are_handed_back() -> None:
    if not give_back_heap():
        pytest.skip("this C library has no malloc_trim")
    blocks = [bytes(b"x" * BLOCK_BYTES) for _ in range(1_000)]
    last = blocks.pop()
    blocks.clear()
    held_kb = _anonymous_kb()
    give_back_heap()
    assert held_kb - _anonymous_kb() > 1_000 * BLOCK_BYTES / 1024 / 2
    assert len(last) == BLOCK_BYTES
