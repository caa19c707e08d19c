"""A source that flies by claims asks for work from where it is, not from where it might be."""

import io

from swarmd.brain.cell_pilot import PLACE_PATIENCE, CellPilot
from swarmd.logs import Logger
from swarmd_protocols.state.observations import WantCell


def pilot(place: list[tuple[int, int, int] | None]) -> tuple[CellPilot, list[object]]:
    asked: list[object] = []
    made = CellPilot(asked.append, lambda message: None, lambda: place[0], Logger("n", stream=io.StringIO()))
    made.flying = True
    return made, asked


def test_no_cell_is_asked_for_from_an_unknown_place() -> None:
    place: list[tuple[int, int, int] | None] = [None]
    made, asked = pilot(place)
    made.want()
    made.tick()
    assert asked == []
    place[0] = (100, 200, 900)
    made.want()
    assert asked == [WantCell(100, 200, 900)]


def test_a_source_that_never_says_where_it_is_works_all_the_same() -> None:
    made, asked = pilot([None])
    for _ in range(PLACE_PATIENCE):
        assert asked == []
        made.tick()
    assert asked == [WantCell(0, 0, 1000)]
    made.drop_all()
    made.flying = True
    made.want()
    assert len(asked) == 1, "a new start waits anew"
