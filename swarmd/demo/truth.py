"""How the swarm's picture compares with the farm's truth."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarmd_sim.world.farm import Farm, Fault

NEAR_M = 0.6
"""Metres between a found fault and the true one, at most: half a module's width."""


def compare(farm: "Farm", objects: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count finds and errors.

    An object is a find of a fault when it carries that module's asset, or, without an asset, lies within 0.6 m of its
    centre.

    Args:
        farm: With the truth.
        objects: Rows of the control verb `objects`.

    Returns:
        faults, found, missed, false (objects on no fault), duplicates (further objects on a fault already found) and
        distinct_lost (true faults that share one object with another and have none of their own).
    """
    faults = farm.truth()
    finds: dict[str, int] = {fault.asset: 0 for fault in faults}
    false = 0
    for row in objects:
        fault = _fault_of(faults, row)
        if fault is None:
            false += 1
        else:
            finds[fault.asset] += 1
    found = sum(count > 0 for count in finds.values())
    return {
        "faults": len(faults),
        "found": found,
        "missed": len(faults) - found,
        "false": false,
        "duplicates": sum(max(0, count - 1) for count in finds.values()),
        "distinct_lost": sum(
            any(_shares(row, fault, faults) for row in objects) for fault in faults if finds[fault.asset] == 0
        ),
    }


def _fault_of(faults: "Sequence[Fault]", row: Mapping[str, Any]) -> "Fault | None":
    if row["asset"]:
        return next((fault for fault in faults if fault.asset == row["asset"]), None)
    if row["east_m"] is None:
        return None
    near = min(faults, key=lambda fault: _distance_m(row, fault), default=None)
    return near if near is not None and _distance_m(row, near) <= NEAR_M else None


def _shares(row: Mapping[str, Any], lost: "Fault", faults: "Sequence[Fault]") -> bool:
    """Whether this object, a find of another fault, stands where it has swallowed the lost one: both within a module's
    pitch and a half of it, and made of more than one sighting."""
    fault = _fault_of(faults, row)
    if fault is None or row["east_m"] is None or row["reports"] < 2:
        return False
    return _distance_m(row, lost) <= 1.5 and math.hypot(fault.east_m - lost.east_m, fault.north_m - lost.north_m) <= 1.5


def _distance_m(row: Mapping[str, Any], fault: "Fault") -> float:
    return math.hypot(row["east_m"] - fault.east_m, row["north_m"] - fault.north_m)
