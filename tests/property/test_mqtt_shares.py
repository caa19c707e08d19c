"""Who tells what on a broker: one device each thing, evenly, and only a lost device's things move."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.bridges.mqtt.shares import PRESENT_MAX, Shares
from swarmd_protocols.effects import MemberState

names = st.sets(st.sampled_from([f"drone-{number}" for number in range(12)]), min_size=1, max_size=6)
THINGS = [f"object {number}" for number in range(300)]


def views(present: set[str]) -> dict[str, Shares]:
    made = {name: Shares(name) for name in present}
    for shares in made.values():
        for name in sorted(present):
            shares.heard(name, online=True)
    return made


def owners(made: dict[str, Shares], thing: str, **options: str) -> set[str]:
    return {name for name, shares in made.items() if shares.is_mine(thing, **options)}


@given(names)
def test_each_thing_is_told_by_one(present: set[str]) -> None:
    made = views(present)
    for thing in THINGS[:20]:
        assert len(owners(made, thing)) == 1


@given(names, st.data())
def test_only_what_the_lost_one_told_moves(present: set[str], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(sorted(present)))
    before, rest = views(present), present - {lost}
    after = {name: shares for name, shares in views(present).items() if name != lost}
    by_broker = data.draw(st.booleans())
    for shares in after.values():
        changed = shares.heard(lost, online=False) if by_broker else shares.dead([lost])
        assert changed
    for thing in THINGS[:20]:
        was = owners(before, thing)
        assert owners(after, thing) == (was if was <= rest else owners(after, thing))
        assert len(owners(after, thing)) == (1 if rest else 0)


@given(names, st.data())
def test_the_origin_tells_its_own_where_it_is_there(present: set[str], data: st.DataObject) -> None:
    made = views(present)
    origin = data.draw(st.sampled_from(sorted(present)))
    assert owners(made, "detection 1", first=origin) == {origin}
    assert len(owners(made, "detection 1", first="not here")) == 1
    assert owners(made, "position", never=origin) == (owners(made, "position", never=origin) - {origin})
    assert len(owners(made, "position", never=origin)) == (1 if len(present) > 1 else 0)


def test_things_are_dealt_out_evenly() -> None:
    made = views({f"drone-{number}" for number in range(8)})
    counts = [sum(shares.is_mine(thing) for thing in THINGS) for shares in made.values()]
    assert sum(counts) == len(THINGS)
    assert min(counts) > 0


@given(names, st.sets(st.text(min_size=1, max_size=4), max_size=6))
def test_who_is_no_member_has_no_share(present: set[str], invented: set[str]) -> None:
    """Whoever may publish a state can invent devices: at 400 of them the real ones told nothing."""
    made = views(present)
    for shares in made.values():
        shares.dead((), present)
        for name in sorted(invented - present):
            assert not shares.heard(name, online=True)
    for thing in THINGS[:20]:
        assert len(owners(made, thing)) == 1
        for first in sorted(invented - present):
            assert len(owners(made, thing, first=first)) == 1


def test_who_becomes_a_member_has_its_share_then() -> None:
    shares = Shares("a")
    shares.dead((), ["a"])
    assert not shares.heard("b", online=True)
    assert all(shares.is_mine(thing) for thing in THINGS)
    assert shares.dead((), ["a", "b"])
    assert not all(shares.is_mine(thing) for thing in THINGS)


@pytest.mark.parametrize("states", list(permutations((MemberState.FAILED, MemberState.ALIVE))))
def test_a_device_that_was_enrolled_again_lives_beside_its_old_self(states: tuple[MemberState, ...]) -> None:
    """Two members of one name, one of them gone for good: all that the device told was told twice for as long."""
    members = [SimpleNamespace(name="b", state=state) for state in states]
    members.append(SimpleNamespace(name="a", state=MemberState.ALIVE))
    daemon = SimpleNamespace(members=lambda: members, in_parts=SimpleNamespace(is_partial=False))
    made = views({"a", "b"})
    for shares in made.values():
        shares.look(cast("Any", daemon))
    assert all(len(owners(made, thing)) == 1 for thing in THINGS)


def test_in_a_partial_view_whoever_is_there_has_a_share() -> None:
    shares = Shares("a")
    shares.dead((), None)
    assert shares.heard("b", online=True)
    assert not all(shares.is_mine(thing) for thing in THINGS)


def test_a_member_has_the_place_of_one_that_was_invented() -> None:
    shares = Shares("a")
    shares.dead((), ["a", "b"])
    for number in range(PRESENT_MAX):
        shares.heard(f"x{number}", online=True)
    assert shares.heard("b", online=True)
    assert len(shares._online) == PRESENT_MAX


def test_a_broker_full_of_invented_devices_is_bounded() -> None:
    shares = Shares("a")
    for number in range(PRESENT_MAX + 500):
        shares.heard(f"x{number}", online=True)
    assert len(shares._online) == PRESENT_MAX
    shares.forget_all()
    assert shares.is_mine("members")
