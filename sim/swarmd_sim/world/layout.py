"""Where nodes stand when radios reach a few of them only: lines, grids, and connected graphs at random.

A layout depends on the scenario and the seed alone, never on who asks.
"""

import random
from collections.abc import Sequence
from math import cos, isqrt, pi, sin, sqrt
from typing import TypeAlias

from swarmd_sim.errors import ScenarioError

Place: TypeAlias = tuple[int, int]
"""East and north, centimetres."""
_TRIES, _MOVES = 400, 200
"""Random graphs that are begun before the layout is given up, and places tried for each node that stands apart."""
_LARGEST_LEAST = 0.6
"""A graph whose largest group is a smaller share of all is begun anew: whoever is moved to it would crowd it."""
_SHIFT_LOW, _SHIFT_HIGH = 0.6, 0.95
"""A node that stood apart is put so far from one that does not, as a share of the range."""


def are_near(a: Place, b: Place, range_cm: int) -> bool:
    """Whether two places are within a radio's range.

    >>> are_near((0, 0), (300, 400), 500)
    True
    """
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 <= range_cm * range_cm


def reached(places: Sequence[Place], start: int, range_cm: int) -> set[int]:
    """Who is reached from a node by hops of at most the range, itself included.

    Args:
        places: Of all nodes, by index.
        start: Where to begin.
        range_cm: Of every radio.

    Returns:
        Indices.
    """
    left, todo = dict.fromkeys(range(len(places))), [start]
    del left[start]
    found = {start}
    while todo:
        place = places[todo.pop()]
        near = [index for index in left if are_near(place, places[index], range_cm)]
        for index in near:
            del left[index]
        found.update(near)
        todo += near
    return found


def is_connected(places: Sequence[Place], range_cm: int) -> bool:
    """Whether everybody is reached from everybody."""
    return len(reached(places, 0, range_cm)) == len(places)


def line(count: int, spacing_cm: int) -> list[Place]:
    """One after the other."""
    return [(index * spacing_cm, 0) for index in range(count)]


def grid(count: int, spacing_cm: int) -> list[Place]:
    """Row by row, as square as it can be."""
    columns = max(1, isqrt(count - 1) + 1)
    return [(index % columns * spacing_cm, index // columns * spacing_cm) for index in range(count)]


def islands(count: int, spacing_cm: int, range_cm: int) -> list[Place]:
    """Two lines that never hear each other, ten ranges apart, and a mule between them, the last of all."""
    first = (count - 1) // 2
    places = line(first, spacing_cm)
    away_cm = first * spacing_cm + 10 * range_cm
    places += [(away_cm + index * spacing_cm, 0) for index in range(count - 1 - first)]
    return [*places, (away_cm // 2, 0)]


def scattered(count: int, range_cm: int, degree: float, rng: random.Random) -> list[Place]:
    """At random on a square so large that a node has about `degree` others in its range, all of them connected.

    Args:
        count: How many nodes.
        range_cm: Of every radio.
        degree: Others in range, on average, before those that stand apart are moved.
        rng: Decides the places.

    Returns:
        The places, by index.

    Raises:
        ScenarioError: No connected graph was found; a higher degree makes one likelier.
    """
    side_cm = sqrt(count * pi / degree) * range_cm
    for _ in range(_TRIES):
        places = [(int(rng.random() * side_cm), int(rng.random() * side_cm)) for _ in range(count)]
        if _gather(places, range_cm, side_cm, rng) and is_connected(places, range_cm):
            return places
    raise ScenarioError(f"layout.degree is {degree:g}: no connected graph of {count} nodes was found; raise it")


def _gather(places: list[Place], range_cm: int, side_cm: float, rng: random.Random) -> bool:
    """Move whoever stands apart from the largest group next to somebody of it; False where that is too small."""
    groups: list[set[int]] = []
    for index in range(len(places)):
        if not any(index in group for group in groups):
            groups.append(reached(places, index, range_cm))
    if max(map(len, groups)) < _LARGEST_LEAST * len(places):
        return False
    largest: set[int] = max(groups, key=len)
    inside = sorted(largest)
    apart = [index for index in range(len(places)) if index not in set(inside)]
    for index in apart:
        for _ in range(_MOVES):
            east, north = places[inside[int(rng.random() * len(inside))]]
            angle = 2 * pi * rng.random()
            away = range_cm * (_SHIFT_LOW + (_SHIFT_HIGH - _SHIFT_LOW) * rng.random())
            place = (int(east + away * cos(angle)), int(north + away * sin(angle)))
            if 0 <= place[0] <= side_cm and 0 <= place[1] <= side_cm:
                places[index] = place
                inside.append(index)
                break
    return True
