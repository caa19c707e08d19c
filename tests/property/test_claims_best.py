"""The best claim to a cell is kept between events, and is at every time what looking at all claims would find."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.state.claims.claims import Claims, cell_hash
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.crdt.records import Lease

S = 1_000_000_000
CELLS = ("a", "b")
CONFIG = ClaimConfig(squat_renewals=2)

leases = st.lists(
    st.builds(
        Lease,
        st.sampled_from([cell_hash(name) for name in CELLS]),
        st.integers(1, 2),
        st.integers(0, 6),
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=2,
    unique_by=lambda lease: lease.cell,
)
steps = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4), st.one_of(st.none(), leases)), max_size=12)


def node(number: int) -> bytes:
    return bytes([number]) * 8


def looked_at_all(claims: Claims, key: bytes, now_ns: int) -> bytes | None:
    live = [
        (not heard.lease.working, heard.lease.bid, who)
        for who, heard in claims._heard.get(key, {}).items()
        if now_ns - heard.renewed_ns <= CONFIG.observer_ns and heard.idle_renewals < CONFIG.squat_renewals
        if not claims.takes.ignores(who)
    ]
    return min(live)[2] if live else None


def check(told: list[tuple[int, int, list[Lease] | None]]) -> None:
    claims, now_ns = Claims(node(9), CONFIG), 0
    claims.define([(name, 0, 0) for name in CELLS])
    for later_s, who, said in told:
        now_ns += later_s * S
        if said is None:
            claims.forget(node(who))
        else:
            claims.hear(node(who), tuple(said), now_ns)
        for name in CELLS:
            assert claims.holder(cell_hash(name), now_ns) == looked_at_all(claims, cell_hash(name), now_ns)
    assert claims._best.keys() <= claims._heard.keys()


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_holder_is_what_all_claims_say(told: list[tuple[int, int, list[Lease] | None]]) -> None:
    check(told)


class Forgetful(dict[bytes, Any]):
    """A table that keeps what is dropped from it."""

    def pop(self, key: bytes, default: Any = None) -> Any:  # type: ignore[override]
        return default


class Endless(dict[bytes, Any]):
    """A table whose entries never end."""

    def __setitem__(self, key: bytes, entry: Any) -> None:
        super().__setitem__(key, (1 << 62, entry[1]))


@pytest.mark.parametrize("table", [Forgetful, Endless])
def test_the_law_sees_a_best_that_is_kept_too_long(table: type, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Claims.__init__

    def broken(self: Claims, *arguments: Any) -> None:
        begin(self, *arguments)
        self._best = table()

    monkeypatch.setattr(Claims, "__init__", broken)
    lease = Lease(cell_hash("a"), 1, 0, False, 1, 0)
    told = [(0, 1, [lease]), (1, 2, [lease._replace(bid=0)]), (1, 2, []), (20, 3, []), (20, 3, [])]
    with pytest.raises(AssertionError):
        check(told)


class Counted(dict[bytes, Any]):
    """A cell's claims, which say how often all were looked at."""

    looks = 0

    def items(self) -> Any:
        Counted.looks += 1
        return super().items()


def test_claims_are_looked_at_when_something_was_heard_of_their_cell() -> None:
    """Not at every event: a hundred drones that wait for ten cells would look at a thousand claims each time."""
    claims = Claims(node(9), CONFIG)
    claims.define([(name, 0, 0) for name in CELLS])
    for name in CELLS:
        claims._heard[cell_hash(name)] = Counted()
    for who in range(50):
        claims.hear(bytes([200, who]) * 4, tuple(Lease(cell_hash(name), 1, 0, True, 1, 0) for name in CELLS), 0)
    claims.want(0, 0, 1000)
    for tick in range(100):
        claims.step(tick * S // 10)
    assert Counted.looks == len(CELLS)
