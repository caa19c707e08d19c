"""The pages that the HTTP server shows of a brain."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from swarmd.api.http import Page, Reply, live_page
from swarmd.api.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from swarmd.brain.brain import Brain

_JSON = "application/json"


def pages(brain: "Brain") -> dict[str, Page]:
    """Path to page."""
    return {
        "/": live_page,
        "/healthz": lambda: health(brain),
        "/readyz": lambda: readiness(brain),
        "/metrics": lambda: Reply(200, CONTENT_TYPE, brain.metrics.render()),
        "/status": lambda: _json(200, brain.verbs.answer("status", {})),
        "/objects": lambda: _json(200, brain.verbs.answer("objects", {"form": "geojson"}), "application/geo+json"),
    }


def health(brain: "Brain") -> Reply:
    """503 once a person has to do something: the eye is given up, or facts wait in memory for a disk."""
    problems = []
    if brain.eye is not None and brain.eye.state == "failed":
        problems.append(f"the eye is given up: {brain.eye.problem}")
    if brain.journal.degraded:
        problems.append("the journal cannot be written; own facts wait in memory")
    return _json(503 if problems else 200, {"healthy": not problems, "problems": problems})


def readiness(brain: "Brain") -> Reply:
    """200 once the eye, where there is one, has seen a frame."""
    waiting = brain.eye is not None and brain.eye.frames == 0
    return _json(503 if waiting else 200, {"ready": not waiting, "waiting_for": "the first frame" if waiting else ""})


def _json(status: int, value: Mapping[str, Any], content_type: str = _JSON) -> Reply:
    return Reply(status, content_type, json.dumps(value).encode() + b"\n")
