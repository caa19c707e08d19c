"""Neighbouring swarms for people and machines: rows, GeoJSON, and the verbs `neighbours` and `neighbour_agree`.

Everything here is another swarm's word, or about it: rows bear its name, and nothing of it is mixed with own rows.
"""

from collections.abc import Mapping
from typing import Any

from swarmd.api.daemon import Operations
from swarmd.api.geojson import Feature, collection
from swarmd.api.verbs import Verbs, text_argument
from swarmd.errors import DaemonError
from swarmd_protocols.errors import WireError
from swarmd_protocols.neighbours.requests import Agree, NeighbourView
from swarmd_protocols.neighbours.words import AGREEMENT_MAX_BYTES, ClaimRow, PlaceRow, read_agreement


def register_neighbours(daemon: Operations, verbs: Verbs) -> None:
    """Add both to the registry."""
    verbs.add("neighbours", lambda arguments: _neighbours(daemon, arguments))
    verbs.add("neighbour_agree", lambda arguments: _agree(daemon, arguments), changes=True)


def brief_row(view: NeighbourView) -> dict[str, Any]:
    """One neighbour at a glance."""
    return {
        "name": view.name,
        "swarm": view.swarm,
        "state": view.state,
        "until_ms": view.until_ms,
        "heard_ms": view.heard_ms or None,
        "gateways": view.gateways,
        "positions": len(view.places),
        "claims": len(view.claims),
        "spent_cells": view.spent_cells,
        **view.counts,
    }


def neighbour_row(view: NeighbourView) -> dict[str, Any]:
    """One neighbour with all that it shares."""
    return {
        **brief_row(view),
        "positions": [place_row(view, row, age_ms) for row, age_ms in view.places],
        "claims": [claim_row(view, row, left_ms) for row, left_ms in view.claims],
    }


def place_row(view: NeighbourView, row: PlaceRow, age_ms: int) -> dict[str, Any]:
    """Where one of its members is."""
    return {
        "id": _named(view, row.alias),
        "neighbour": view.name,
        "latitude_deg": row.latitude_e7 / 1e7,
        "longitude_deg": row.longitude_e7 / 1e7,
        "height_agl_m": row.height_agl_cm / 100,
        "sigma_m": row.sigma_cm / 100,
        "age_s": age_ms / 1000,
    }


def claim_row(view: NeighbourView, row: ClaimRow, left_ms: int) -> dict[str, Any]:
    """A piece of space that it claims."""
    return {
        "id": _named(view, row.alias),
        "neighbour": view.name,
        "latitude_deg": row.latitude_e7 / 1e7,
        "longitude_deg": row.longitude_e7 / 1e7,
        "radius_m": row.radius_cm / 100,
        "bottom_m": row.bottom_cm / 100,
        "top_m": row.top_cm / 100,
        "working": row.is_working,
        "left_s": left_ms / 1000,
    }


def neighbour_features(view: NeighbourView) -> list[Feature]:
    """Its members and its claims, as points; `kind` says which."""
    rows = [("position", place_row(view, *one)) for one in view.places]
    rows += [("claim", claim_row(view, *one)) for one in view.claims]
    return [_feature(kind, row) for kind, row in rows]


def _feature(kind: str, row: dict[str, Any]) -> Feature:
    point = {"type": "Point", "coordinates": [row.pop("longitude_deg"), row.pop("latitude_deg")]}
    return {"type": "Feature", "id": row.pop("id"), "geometry": point, "properties": {"kind": kind, **row}}


def _named(view: NeighbourView, alias: bytes) -> str:
    """A name that no own member has: a tilde is in none."""
    return f"{view.name}~{alias.hex()}"


def _neighbours(daemon: Operations, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    views = daemon.in_parts.neighbours()
    if text_argument(arguments, "form", "rows", most=16) == "geojson":
        return collection([feature for view in views for feature in neighbour_features(view)])
    return {"neighbours": [neighbour_row(view) for view in views]}


def _agree(daemon: Operations, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take an agreement that an operator has signed; it holds whoever hands it over."""
    try:
        statement = bytes.fromhex(text_argument(arguments, "statement", most=2 * AGREEMENT_MAX_BYTES))
        said = read_agreement(statement)[1]
    except (ValueError, WireError) as error:
        raise DaemonError(f"statement: it is no agreement about a neighbour: {error}") from error
    for view in daemon.in_parts.neighbours() if said.until_ms else ():  # None keeps an end out.
        if view.name == said.name and view.key != said.key and view.state != "ended":
            # Alarms and rows name a neighbour by it alone.
            raise DaemonError(
                f"another neighbour is called {said.name} here (the swarm {view.swarm}): sign this agreement with "
                "another name"
            )
    daemon.ask("beside", Agree(statement))
    return {"name": said.name, "swarm": said.other, "revision": said.revision, "until_ms": said.until_ms}
