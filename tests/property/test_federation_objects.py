"""Laws: what a region derives from the signed rows is what every member of the swarm sees, whatever they saw."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import StateError
from swarmd_protocols.federation.objects import (
    EPOCH_UNIX_MS,
    Derived,
    Joined,
    Member,
    ObjectRow,
    derive,
    encode_object,
    read_object,
)
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.crdt.facts import Sighting, decode_facts
from swarmd_protocols.state.dedup import judged
from swarmd_protocols.state.dedup.judged import verdict_on
from swarmd_protocols.state.evidence import Evidence
from swarmd_protocols.state.observations import Judged
from swarmd_protocols.state.reviews import operators_of
from tests.support.reviewing import ALICE, BOB, name_operators, say
from tests.support.state_mesh import SWARM, Mesh, detection

SPOTS = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-40, 40), st.integers(300, 990))
"""(node, thing, centimetres off, score)"""


def row_of(one: Evidence, stamp: int = 1) -> ObjectRow:
    return ObjectRow(
        stamp,
        bytes.fromhex(one.view.object_id),
        one.group,
        tuple(Member(place, *key) for place, key in one.members),
        tuple(Joined(place, member) for place, member in one.joins),
        tuple(said.statement for said in one.view.reviews),
    )


def derived(mesh: Mesh, one: Evidence) -> Derived:
    row = read_object(encode_object(row_of(one)))
    proofs = [(batch, decode_facts(batch.body)) for batch in one.batches]
    operators = operators_of(mesh.members[0].trust.chain)
    return derive(row, proofs, SWARM, operators, mesh.crypto.verify)


def check(mesh: Mesh) -> int:
    """Every object of every member, derived from its proof, is as the member sees it; returns how many."""
    count = 0
    for member in mesh.members:
        assert member.replica is not None
        views = member.replica.views
        proven = [one for part in views.evidence_parts() for one in part]
        assert [one.view for one in proven] == views.objects()
        for one in proven:
            found, seen = derived(mesh, one), one.view
            count += 1
            assert found.object_id.hex() == seen.object_id
            assert (found.label, found.detected, found.review) == (seen.label, seen.detected, seen.review)
            assert found.score_milli == seen.score_milli
            place = (seen.east_cm, seen.north_cm, seen.covariance_cm2)
            assert (found.east_cm, found.north_cm, found.covariance_cm2) == place
            assert (found.asset, found.observers, found.reports) == (seen.asset, seen.observers, seen.reports)
            assert found.first_ms == EPOCH_UNIX_MS + stamp_ms(seen.first_hlc)
            assert found.last_ms == EPOCH_UNIX_MS + stamp_ms(seen.last_hlc)
            assert found.tier(2) == seen.tier
    return count


@settings(max_examples=25, deadline=None)
@given(st.lists(SPOTS, min_size=1, max_size=12), st.booleans())
def test_a_region_sees_what_the_swarm_sees(spots: list[tuple[int, int, int, int]], has_assets: bool) -> None:
    mesh = Mesh(3, seed=1)
    for track, (node, thing, off, score) in enumerate(spots):
        asset = f"t{thing:02}" if has_assets and thing else ""
        mesh.see(node, detection(mesh.now_ns, track, thing * 900 + off, off, score=score, asset=asset))
        mesh.run(0.25)
    mesh.run(6)
    assert check(mesh) > 0


def test_reviews_come_along_and_count_by_the_root() -> None:
    mesh = Mesh(3, seed=1)
    name_operators(mesh, ALICE)
    mesh.see(0, detection(mesh.now_ns, asset="t01"))
    mesh.run(3)
    say(mesh, 1, ALICE, "relabel", "bird-dropping")
    with pytest.raises(StateError, match="no operator"):
        say(mesh, 2, BOB, "reject")
    mesh.run(4)
    assert check(mesh) == 3
    assert mesh.members[0].replica is not None
    [seen] = mesh.members[0].replica.views.objects()
    assert (seen.label, seen.review) == ("bird-dropping", "relabelled")


@settings(max_examples=30, deadline=None)
@given(
    leads=st.booleans(),
    ahead_s=st.integers(-3_000, 3_000),
    positioned=st.booleans(),
    has_asset=st.booleans(),
    score=st.integers(0, 1000),
)
def test_what_a_verdict_bears_beside_its_score_is_told_nowhere(
    leads: bool, ahead_s: int, positioned: bool, has_asset: bool, score: int
) -> None:
    """Of its author's making: it may claim a place, a time, a picture, and to be the first."""

    def crafted(*args: Any) -> Sighting:
        row = verdict_on(*args)
        last = max(1 << 17, row.last + (ahead_s * 1_000 << 16))
        first = 1 << 16 if leads else last
        return row._replace(
            first=min(first, last), last=last, positioned=positioned, thumb=b"x" * 16, score_milli=score
        )

    mesh = Mesh(3, seed=3)
    mesh.run(2)
    seen = replace(detection(mesh.now_ns, score=600), need_milli=968)
    if has_asset:
        seen = replace(seen, asset="t01", east_cm=None, north_cm=None, covariance_cm2=None)
    mesh.see(0, seen)
    mesh.run(5)
    [before] = mesh.replicas[2].views.objects()
    with patch.object(judged, "verdict_on", crafted):
        mesh.command(1, Judged(before.object_id, 500, 900, b"judge--1"))
    mesh.run(5)
    for replica in mesh.replicas:
        [after] = replica.views.objects()
        told = (after.label, after.score_milli, after.east_cm, after.north_cm, after.first_hlc, after.last_hlc)
        assert told == (before.label, 600, before.east_cm, before.north_cm, before.first_hlc, before.last_hlc)
        assert (after.thumb, after.reports, after.observers) == (before.thumb, 1, before.observers)
    assert check(mesh) == 3
