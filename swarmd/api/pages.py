"""The pages that the HTTP server shows."""

import json
from collections.abc import Mapping
from typing import Any

from swarmd.api.daemon import Operations
from swarmd.api.http import Page, Reply, live_page
from swarmd.api.metrics import CONTENT_TYPE, Metrics
from swarmd.api.parts import encoded
from swarmd.api.verbs import Verbs

_JSON, _GEOJSON = "application/json", "application/geo+json"


def pages(daemon: Operations, verbs: Verbs, metrics: Metrics) -> dict[str, Page]:
    """Path to page."""
    return {
        "/": live_page,
        "/healthz": lambda: health(daemon),
        "/readyz": lambda: readiness(daemon),
        "/metrics": lambda: Reply(200, CONTENT_TYPE, metrics.render()),
        "/status": lambda: _json(200, verbs.answer("status", {})),
        "/objects": lambda: Reply(200, _GEOJSON, encoded(verbs.begin("objects", {"form": "geojson"}))),
    }


def health(daemon: Operations) -> Reply:
    """503 while an alert of level `error` stands; `alerts` names all that stand, with reason and remedy."""
    problems, alerts = list(daemon.past.problems()), [alert.row() for alert in daemon.past.standing()]
    return _json(503 if problems else 200, {"healthy": not problems, "problems": problems, "alerts": alerts})


def readiness(daemon: Operations) -> Reply:
    """200 once the eye, where there is one, has seen a frame."""
    waits_for = daemon.waits_for()
    return _json(503 if waits_for else 200, {"ready": not waits_for, "waiting_for": waits_for})


def _json(status: int, value: Mapping[str, Any]) -> Reply:
    return Reply(status, _JSON, json.dumps(value).encode() + b"\n")
