"""What goes back to a program: bodies, and headers that say who has answered."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from swarmd.worker.borrowing import GRADE_HEADER, number_of
from swarmd.worker.elsewhere import Found
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.oip import JSON_LENGTH, OipError, port_row
from swarmd.worker.residency import Residency, Resident, bare
from swarmd_models.service import SERIES, TEXT, Port, Service

FORM_HEADER = "Swarmd-Form"
"""Of an answer: the form in which its lender got the picture (`pictures.FORMS`)."""
LENDER_HEADER = "Swarmd-Lender"
"""Of an answer: the device that gave it, where it was another."""
PARTS_HEADER, KEPT_HEADER = "Swarmd-Parts", "Swarmd-Kept"
"""Digests of the bundles whose answers are in one that a plan gave; `yes` where the answer was kept."""
ABLE = "able:"
"""Before an ability, in place of a model's name: whichever bundle is able to it."""
JSON = ("Content-Type", "application/json")
TEXT_IN = (Port("text_input", (1,), np.dtype(object)),)
TEXT_OUT = (Port("text_output", (1,), np.dtype(object)),)
"""What programs send a language model and get, as their protocol calls it; tokens travel between devices alone."""


def able_named(call: Call, name: str) -> tuple[str, int]:
    """The ability and the least grade that stand in place of a model's name; "" where they do not."""
    if not name.startswith(ABLE):
        return "", 0
    return bare(name.removeprefix(ABLE)), round(number_of(call, GRADE_HEADER, 1.0) * 1e3)


def binary(json_bytes: int) -> tuple[tuple[str, str], ...]:
    """Headers of a body whose JSON part has so many bytes."""
    return ("Content-Type", "application/octet-stream"), (JSON_LENGTH, str(json_bytes))


def borrowed(found: Found) -> Answer:
    """What another device, or at the last moment this one, has said."""
    headers = (JSON,) if found.json_bytes is None else binary(found.json_bytes)
    said = ((LENDER_HEADER, found.lender), (FORM_HEADER, found.form), (KEPT_HEADER, "yes" if found.is_kept else ""))
    return Answer(200, (found.body,), (*headers, *(row for row in said if row[1])))


def metadata(residency: Residency, name: str, resident: Resident, lane: str) -> Mapping[str, Any]:
    """What a model takes and gives, for its programs."""
    service = resident.service
    inputs, outputs = (TEXT_IN, TEXT_OUT) if lane == TEXT else (service.inputs(lane), service.outputs(lane))
    return {
        "name": name,
        "versions": residency.versions(name),
        "platform": f"swarmd_{service.backend.kind}",
        "inputs": [port_row(port) for port in inputs],
        "outputs": [port_row(port) for port in outputs],
        "parameters": {
            "release": service.bundle.version,
            "labels": service.bundle.labels,
            **_text_rule(service),
            **_series_rule(service, lane),
        },
    }


def _text_rule(service: Service) -> Mapping[str, Any]:
    """What a device without the model needs to make texts of its tokens."""
    if (text := service.text) is None:
        return {}
    rule = service.bundle.text
    return {"window": text.window, "end": rule.end, "after": rule.after}


def _series_rule(service: Service, lane: str) -> Mapping[str, Any]:
    """What a program needs to cut a recording as the model wants it."""
    if lane != SERIES:
        return {}
    rule = service.series_rule
    return {"task": rule.task, "rate_hz": rule.rate_hz, "window": rule.window, "hop": rule.hop, "unit": rule.unit}


def late() -> OipError:
    """Nobody has answered in time."""
    return OipError(504, "the deadline has passed")


def json_answer(value: object, status: int = 200) -> Answer:
    """An answer that is JSON."""
    return Answer(status, (msgspec.json.encode(value),), (JSON,))
