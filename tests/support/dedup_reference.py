"""The dedup rule as it is written, from nothing, without index or increment: what the view is held against."""

from collections.abc import Callable

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import ASSET, LATTICE, Sighting, SightingKey
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.gate import distance_milli
from swarmd_protocols.state.dedup.view import rank_of

Name = tuple[NodeId, SightingKey]


def decide(rows: dict[Name, Sighting], config: DedupConfig) -> dict[Name, Name]:
    """Every sighting to its leader."""

    def group(row: Sighting) -> str:
        return config.groups.get(row.label, row.label)

    def rank(name: Name) -> int:
        return rank_of(name[0], rows[name])

    leader_of: dict[Name, Name] = {}
    for name in sorted(rows, key=rank):
        row = rows[name]
        best = None
        for leader in dict.fromkeys(leader_of.values()):
            order = _may_join(name, row, leader, rows, config, group, leader_of)
            if order is not None and (best is None or (order, rank(leader)) < best[:2]):
                best = (order, rank(leader), leader)
        leader_of[name] = name if best is None else best[2]
    return leader_of


def _may_join(
    name: Name,
    row: Sighting,
    leader: Name,
    rows: dict[Name, Sighting],
    config: DedupConfig,
    group: Callable[[Sighting], str],
    leader_of: dict[Name, Name],
) -> int | None:
    other = rows[leader]
    if group(row) != group(other):
        return None
    if row.kind == ASSET:
        return 0 if other.kind == ASSET and other.place == row.place else None
    if row.moving or other.moving or not (row.positioned and other.positioned):
        return None
    dx, dy = row.east_cm - other.east_cm, row.north_cm - other.north_cm
    if dx * dx + dy * dy > config.radius_cm**2:
        return None
    distance = distance_milli(dx, dy, row.covariance_cm2, other.covariance_cm2, config.floor_cm)
    if config.use_covariance and distance > config.gate_milli:
        return None
    for member, lead in leader_of.items():
        if lead == leader and member[0] == name[0] and _beside(name[1], row, member[1], rows[member]):
            return None
    return distance if config.use_covariance else dx * dx + dy * dy


def _beside(a_key: SightingKey, a: Sighting, b_key: SightingKey, b: Sighting) -> bool:
    if a.kind != LATTICE or b.kind != LATTICE or a_key == b_key:
        return False
    assert isinstance(a.place, tuple)
    assert isinstance(b.place, tuple)
    dx, dy = b.place[0] - a.place[0], b.place[1] - a.place[1]
    return (dx, dy) in a.beside or (-dx, -dy) in b.beside
