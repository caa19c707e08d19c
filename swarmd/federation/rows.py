"""What a region keeps of its swarms, as rows, and what is asked of them: one form for SQLite, Parquet and answers."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from swarmd_models.geo.positions import Plane
from swarmd_protocols.federation.objects import Derived
from swarmd_protocols.ids import NodeId

OBJECT_COLUMNS: tuple[tuple[str, str], ...] = (
    ("swarm", "TEXT"),
    ("object", "TEXT"),
    ("stamp", "INTEGER"),
    ("digest", "TEXT"),
    ("label", "TEXT"),
    ("detected", "TEXT"),
    ("score", "REAL"),
    ("tier", "TEXT"),
    ("review", "TEXT"),
    ("east_m", "REAL"),
    ("north_m", "REAL"),
    ("sigma_m", "REAL"),
    ("latitude_deg", "REAL"),
    ("longitude_deg", "REAL"),
    ("asset", "TEXT"),
    ("observers", "INTEGER"),
    ("reports", "INTEGER"),
    ("first_ms", "INTEGER"),
    ("last_ms", "INTEGER"),
    ("models", "TEXT"),
    ("evidence", "TEXT"),
    ("picture", "TEXT"),
    ("gateway", "TEXT"),
    ("learned_ms", "INTEGER"),
)
"""Columns of an object and their types in SQLite, in order. Ids and digests are hexadecimal digits, `picture` is the
name of the surest author's picture, which stays in the swarm; `models` and `evidence` are separated by spaces; times
are milliseconds since 1970 (`first_ms`, `last_ms`: swarm time; `learned_ms`: the region's clock); places and `sigma_m`
are null where nobody knows. `(swarm, object)` is the key of the present table, `(swarm, object, stamp, digest)` that of
history."""


class ObjectQuery(msgspec.Struct, frozen=True):
    """What `swarmd fleet objects` asks; the same of the present table and of history."""

    label: str = ""
    """"" for all."""
    swarm: str = ""
    """Name or key of one swarm; "" for all."""
    since_ms: int = 0
    """Last seen at or after this, milliseconds since 1970."""
    until_ms: int = 0
    """Last seen before this; 0 for no end."""
    tier: str = ""
    """"confirmed" or "reviewed"; "" for both."""
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000


class SiteAnswer(msgspec.Struct, frozen=True):
    """How far the answer can be trusted for one swarm."""

    swarm: str
    """Its name, as the region's operators pinned it."""
    key: str
    """32 hexadecimal digits."""
    as_of_ms: int | None
    """Milliseconds since 1970: everything that its gateways had confirmed up to then is in the answer; None: never
    heard."""
    stale: bool
    """Nothing was heard of it for `region.stale_s`."""
    gateways: int
    """Heard within that time."""
    waiting: int
    """Rows that its gateways still had to send when they were last heard."""
    dropped: int
    """Rows that its gateways had to drop, ever."""
    objects: int
    """In this answer."""


class ObjectsAnswer(msgspec.Struct, frozen=True):
    """What comes back."""

    asked_ms: int
    sites: tuple[SiteAnswer, ...]
    objects: tuple[dict[str, object], ...]
    """Rows with the names of `OBJECT_COLUMNS`, and `name`: the swarm's; the newest first."""
    is_cut: bool = False
    """There are more than `limit`."""


_NAMES = tuple(name for name, _ in OBJECT_COLUMNS)


def told(row: Sequence[Any], plane: Plane | None) -> dict[str, Any]:
    """A kept word by its columns; it has a latitude also where no origin was known yet when it was said."""
    found = dict(zip(_NAMES, row, strict=True))
    is_placed = found["east_m"] is not None and found["north_m"] is not None
    if found["latitude_deg"] is None and is_placed and plane is not None:
        found["latitude_deg"], found["longitude_deg"] = plane.to_wgs84(found["east_m"], found["north_m"])
    return found


def object_row(
    swarm: str, found: Derived, gateway: NodeId, tier: str, plane: Plane | None, now_ms: int
) -> tuple[Any, ...]:
    """One word on an object, in the order of `OBJECT_COLUMNS`.

    Args:
        swarm: Key of its swarm, hexadecimal digits.
        found: What it says.
        gateway: Who said it.
        tier: "reviewed", "confirmed" or "candidate".
        plane: Where the swarm's coordinates lie on earth; None: nobody knows.
        now_ms: The region's clock, milliseconds since 1970.
    """
    latitude = longitude = sigma_m = None
    if found.east_cm is not None and found.north_cm is not None and plane is not None:
        latitude, longitude = plane.to_wgs84(found.east_cm / 100, found.north_cm / 100)
    if found.covariance_cm2 is not None:
        sigma_m = round(math.sqrt(max(0, found.covariance_cm2[0] + found.covariance_cm2[2]) / 2) / 100, 3)
    return (
        swarm,
        found.object_id.hex(),
        found.stamp,
        found.digest.hex(),
        found.label,
        found.detected,
        found.score_milli / 1000,
        tier,
        found.review,
        None if found.east_cm is None else found.east_cm / 100,
        None if found.north_cm is None else found.north_cm / 100,
        sigma_m,
        latitude,
        longitude,
        found.asset,
        len(found.observers),
        found.reports,
        found.first_ms,
        found.last_ms,
        " ".join(model.hex() for model in found.models),
        " ".join(digest.hex() for digest in found.evidence),
        found.picture.hex(),
        gateway.hex(),
        now_ms,
    )
