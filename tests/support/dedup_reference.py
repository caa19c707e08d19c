"""The dedup rule as it is written, from nothing, without index or increment: what the view is held against."""

from collections.abc import Callable
from math import isqrt
from typing import TypeAlias

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import ASSET, LATTICE, Sighting, SightingKey
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import rank_of
from swarmd_protocols.state.dedup.gate import distance_milli

Name = tuple[NodeId, SightingKey]


def decide(rows: dict[Name, Sighting], config: DedupConfig) -> dict[Name, Name]:
    """Every sighting to its leader."""

    def group(row: Sighting) -> str:
        return config.groups.get(row.label, row.label)

    def rank(name: Name) -> int:
        return rank_of(name[0], rows[name])

    crowded = _crowded(rows, config, group, rank)
    unheard = _unheard(rows, config, group, rank)
    leader_of: dict[Name, Name] = {}
    for name in sorted(rows, key=rank):
        row = rows[name]
        best = None
        for leader in dict.fromkeys(leader_of.values()):
            order = _may_join(name, row, leader, rows, config, group, leader_of, crowded, unheard)
            if order is not None and (best is None or (order, rank(leader)) < best[:2]):
                best = (order, rank(leader), leader)
        leader_of[name] = name if best is None else best[2]
    return leader_of


Group: TypeAlias = Callable[[Sighting], str]
Rank: TypeAlias = Callable[[Name], int]
Unheard: TypeAlias = set[tuple[Name, tuple[int, int]]]


def _crowded(rows: dict[Name, Sighting], config: DedupConfig, group: Group, rank: Rank) -> set[Name]:
    """The youngest of one origin and group in one square, beyond as many as are told apart by place."""
    squares: dict[tuple[NodeId, str, int, int], list[Name]] = {}
    for name in sorted(rows, key=rank):
        row = rows[name]
        if row.positioned and not row.moving:
            square = (name[0], group(row), row.east_cm // config.radius_cm, row.north_cm // config.radius_cm)
            squares.setdefault(square, []).append(name)
    return {name for names in squares.values() for name in names[config.crowd_max :]}


def _unheard(rows: dict[Name, Sighting], config: DedupConfig, group: Group, rank: Rank) -> Unheard:
    """(Sighting, lattice point) where others of its origin that are older have named the point often enough."""
    points: dict[tuple[NodeId, str, tuple[int, int]], list[tuple[Name, tuple[int, int]]]] = {}
    for name in sorted(rows, key=rank):
        row = rows[name]
        if row.kind == LATTICE:
            assert isinstance(row.place, tuple)
            for dx, dy in dict.fromkeys(row.beside):
                point = (row.place[0] + dx, row.place[1] + dy)
                points.setdefault((name[0], group(row), point), []).append((name, point))
    return {pair for pairs in points.values() for pair in pairs[config.listed_max :]}


def _may_join(
    name: Name,
    row: Sighting,
    leader: Name,
    rows: dict[Name, Sighting],
    config: DedupConfig,
    group: Group,
    leader_of: dict[Name, Name],
    crowded: set[Name],
    unheard: Unheard,
) -> int | None:
    other = rows[leader]
    if group(row) != group(other):
        return None
    if row.kind == ASSET:
        return 0 if other.kind == ASSET and other.place == row.place else None
    if row.moving or other.moving or not (row.positioned and other.positioned):
        return None
    if name in crowded or leader in crowded:
        return None
    dx, dy = row.east_cm - other.east_cm, row.north_cm - other.north_cm
    if dx * dx + dy * dy > config.radius_cm**2:
        return None
    distance = distance_milli(dx, dy, row.covariance_cm2, other.covariance_cm2, config.floor_cm)
    if config.use_covariance and distance > config.gate_milli:
        return None
    for member, lead in leader_of.items():
        if lead == leader and member[0] == name[0] and _beside(name, row, member, rows[member], unheard):
            return None
    if not config.use_covariance:
        return dx * dx + dy * dy
    spread = row.covariance_cm2[0] + other.covariance_cm2[0] + row.covariance_cm2[2] + other.covariance_cm2[2]
    alike = likeness(row, other) if spread > 2 * config.poor_cm**2 else None
    if alike is not None and alike < 400:
        return None
    return distance + 30 * (1000 - (600 if alike is None else alike))


def likeness(a: Sighting, b: Sighting) -> int | None:
    """The cosine of what two sightings say of their looks, thousandths; None where that cannot be compared."""
    if not (a.features and b.features) or a.model != b.model or not any(a.model) or a.features[0] != b.features[0]:
        return None
    x, y = ([one - 256 * (one > 127) for one in row.features[1:]] for row in (a, b))
    lengths = isqrt(sum(n * n for n in x) * sum(n * n for n in y))
    if not lengths:
        return None
    turned = y[:8] + [-n for n in y[8:]]
    dot = max(sum(m * n for m, n in zip(x, way, strict=True)) for way in (y, turned))
    return min(1000, max(-1000, 1000 * dot // lengths))


def _beside(a_name: Name, a: Sighting, b_name: Name, b: Sighting, unheard: Unheard) -> bool:
    if a.kind != LATTICE or b.kind != LATTICE or a_name == b_name:
        return False
    assert isinstance(a.place, tuple)
    assert isinstance(b.place, tuple)
    dx, dy = b.place[0] - a.place[0], b.place[1] - a.place[1]
    a_says = (dx, dy) in a.beside and (a_name, b.place) not in unheard
    return a_says or ((-dx, -dy) in b.beside and (b_name, a.place) not in unheard)
