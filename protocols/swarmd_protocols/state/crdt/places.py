"""What a register for one thing is found by: its label and where it lies."""

from typing import TypeAlias

LABEL_MAX_BYTES = 64
"""UTF-8 bytes of a label."""
PLACE_MAX = 1 << 48
"""Column or row of a lattice: beyond `POSITION_MAX_CM` at any pitch, and far from overflow."""
LATTICE = 0
"""Placed by position: `place` is (column, row) of a lattice point."""
ASSET = 1
"""Placed by the site map: `place` is the asset's name."""
TRACK = 2
"""Not placed, or moving: `place` is (incarnation, track id) of the origin."""

Place: TypeAlias = tuple[int, int] | str
SightingKey: TypeAlias = tuple[str, int, Place]
"""(label, kind of place, place): what an origin's register for one thing is found by."""
