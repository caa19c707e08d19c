"""What is kept of a member's metadata is its newest, in that order, however it came."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.swim.metadata import _KEYS_MAX, Metadata

BYTES_MAX = 300
_WORDS = st.lists(
    st.tuples(st.sampled_from([f"k{n}" for n in range(80)]), st.integers(1, 200), st.integers(0, 60)), max_size=120
)


def newest(entries: dict[str, tuple[int, bytes, bytes]]) -> list[tuple[str, tuple[int, bytes, bytes]]]:
    kept: list[tuple[str, tuple[int, bytes, bytes]]] = []
    for key, entry in sorted(entries.items(), key=lambda item: (-item[1][0], item[0])):
        if len(kept) >= _KEYS_MAX or sum(len(one[1][1]) for one in kept) + len(entry[1]) > BYTES_MAX:
            break
        kept.append((key, entry))
    return kept


@given(_WORDS)
def test_the_newest_are_kept_in_order(words: list[tuple[str, int, int]]) -> None:
    room: Any = SimpleNamespace(core=SimpleNamespace(config=SimpleNamespace(meta_bytes_max=BYTES_MAX)))
    held: dict[str, tuple[int, bytes, bytes]] = {}
    for key, sequence, size in words:
        entry = (sequence, bytes(size), b"")
        expected = newest({**held, key: entry})
        held = Metadata._within_bounds(room, held, key, entry)
        assert list(held.items()) == expected
