"""What people and machines see of a neighbouring swarm: marked as another's wherever it is shown."""

from typing import Any

import msgspec

from swarmd.api.neighbours import brief_row, neighbour_features, neighbour_row
from swarmd.ground.beside import beside_rows, is_beside
from swarmd.ground.rows import Position
from swarmd_models.geo.positions import Plane
from swarmd_protocols.neighbours.requests import NeighbourView
from tests.support.neighbour_world import ORIGIN, neighbours


def shared() -> NeighbourView:
    """Amber's drone flies and its gateway works on a cell; blue sees it."""
    world = neighbours()
    world.survey("amber")
    world.want("amber")
    world.place("amber", ORIGIN[0] + 0.001)
    world.run(15)
    return world.nodes["blue"][1].view(world.fleets["amber"], world.now_ns)


def test_rows_and_features_bear_the_name_of_the_other_swarm() -> None:
    view = shared()
    assert brief_row(view)["state"] == "agreed"
    row = neighbour_row(view)
    assert (len(row["positions"]), len(row["claims"])) == (1, 2)
    assert [one["working"] for one in row["claims"]] == [True, False]
    assert {one["neighbour"] for one in (*row["positions"], *row["claims"])} == {"amber"}
    features: list[Any] = neighbour_features(view)
    assert [one["properties"]["kind"] for one in features] == ["position", "claim", "claim"]
    assert all(is_beside(one["id"]) for one in features)
    assert features[0]["geometry"]["coordinates"] == [8.0, 47.001]


def test_the_ground_view_shows_them_as_positions_of_another_swarm() -> None:
    rows = list(beside_rows([shared()], Plane(*ORIGIN), 1_800_000_030.0))
    assert {row.swarm for row in rows} == {"amber"}
    member, *claims = rows
    assert member.claim_m is None
    assert abs((member.north_m or 0.0) - 111.2) < 1.0
    assert [claim.claim_m for claim in claims] == [10.0, 10.0]
    assert msgspec.json.decode(msgspec.json.encode(member), type=Position) == member
    assert [row.north_m for row in beside_rows([shared()], None, 0.0)] == [None] * 3
