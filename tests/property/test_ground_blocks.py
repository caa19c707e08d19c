"""A packed block is the block, to the byte, whatever rows say; and what little changed takes little."""

import math
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from swarmd.ground.blocks import Block, changed, pack, unpack
from tests.support.ground import position, thing

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-200, 200).map(lambda value: round(value, 2))
    | st.sampled_from([0.0, -0.0, 1.0, 1, True, 1e22, 48.00000001])
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
ROWS = st.dictionaries(st.sampled_from("abcd"), JSON, min_size=0, max_size=4)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.floats(0, 2e9, allow_nan=False) | st.floats(0, 2e9).map(lambda at_s: round(at_s, 3)),
        st.sampled_from(["member", "position"]),
        st.sampled_from("xyz"),
        st.none() | ROWS | JSON,
    ),
    max_size=30,
)
PICTURES = st.dictionaries(
    st.sampled_from(["member", "position", "object"]), st.dictionaries(st.sampled_from("xyzw"), st.binary(max_size=4))
)


def told(drawn: Any) -> list[tuple[int, float, str, str, bytes | None]]:
    seq, found = 0, []
    for step, at_s, kind, name, row in drawn:
        seq += step
        found.append((seq, at_s, kind, name, None if row is None else msgspec.json.encode(row)))
    return found


@given(CHANGES)
@example([(1, 0.0, "member", "x", {"a": 0.0}), (1, 0.0, "member", "x", {"a": -0.0}), (1, 0.0, "member", "x", {"a": 0})])
@example([(1, 0.1, "member", "x", {"a": 0.1}), (1, 0.3, "member", "x", {"a": 0.30000000000000004})])
@example([(1, 1.0, "member", "x", {"a": [1.0]}), (1, 1.0, "member", "x", {"a": [1]})])
@example([(1, 1.0, "member", "x", {"a": 1, "b": 2}), (1, 1.0, "member", "x", {"b": 2, "a": 1})])
def test_changes_come_back_to_the_byte(drawn: Any) -> None:
    changes = told(drawn)
    back = unpack(pack({}, changes), {})
    assert [one[4] for one in back.changes] == [one[4] for one in changes]
    assert back.changes == changes
    assert all(math.copysign(1, a[1]) == math.copysign(1, b[1]) for a, b in zip(back.changes, changes, strict=True))


@given(CHANGES, st.floats(0, 2e9))
def test_a_moment_out_of_few_changes_is_that_out_of_all(drawn: Any, at_s: float) -> None:
    packed = pack({}, told(drawn))
    states: list[dict[tuple[str, str], bytes | None]] = []
    for block in (unpack(packed, {}), unpack(packed, {}, at_s)):
        states.append({(one[2], one[3]): one[4] for one in block.changes if one[1] <= at_s})
    assert states[0] == states[1]


@given(PICTURES, PICTURES)
def test_a_picture_comes_back_out_of_what_differs(base: Any, rows: Any) -> None:
    base, rows = ({kind: one.get(kind, {}) for kind in {**base, **rows}} for one in (base, rows))  # All have all kinds.
    assert unpack(pack(changed(base, rows), []), base) == Block(rows, [])
    assert unpack(pack(rows, []), {}) == Block(rows, [])


def test_a_minute_of_flight_takes_a_few_bytes_a_change() -> None:
    changes = []
    for second in range(60):
        for number in range(50):
            east_m, north_m = round(8.13 * second + number, 2), round(3 * math.sin(second / 7), 2)
            row = position(number, east_m, north_m, round(1.79e9 + second, 2))
            row = msgspec.structs.replace(row, latitude_deg=round(48 + north_m / 111_320, 8))
            encoded = msgspec.json.encode(row)
            changes.append((len(changes) + 1, round(1.79e9 + second + number / 50, 3), "position", row.id, encoded))
    size = len(pack({}, changes))
    assert size < 16 * len(changes)
    assert size * 12 < sum(len(one[4]) for one in changes)


def test_a_plant_that_stands_still_takes_nothing() -> None:
    rows = {"object": {f"o{n}": msgspec.json.encode(thing(n, 1.0, 2.0, 3.0)) for n in range(2_000)}}
    later = {"object": {**rows["object"], "o7": b"{}"}}
    assert len(pack(changed(rows, later), [])) < 100 < len(pack(rows, [])) // 100
