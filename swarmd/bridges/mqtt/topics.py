"""Every MQTT topic in one table: the bridge publishes by it and the AsyncAPI document is generated from it."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

_NUMBER = {"type": "number"}
_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}


def _object(**properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": dict(properties), "required": sorted(properties)}


def _arguments(**properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": dict(properties)}


_GEOMETRY = {
    "oneOf": [
        {"type": "null"},
        {
            "type": "object",
            "properties": {
                "type": {"const": "Point"},
                "coordinates": {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 3},
            },
            "required": ["type", "coordinates"],
        },
    ]
}
_COVARIANCE = {"oneOf": [{"type": "null"}, {"type": "array", "items": _NUMBER, "minItems": 3, "maxItems": 3}]}
_NULLABLE_STRING = {"type": ["string", "null"]}


_NULLABLE_INTEGER = {"type": ["integer", "null"]}
_NULLABLE_NUMBER = {"type": ["number", "null"]}


def _feature(**properties: Mapping[str, object]) -> dict[str, object]:
    return _object(type={"const": "Feature"}, id=_STRING, geometry=_GEOMETRY, properties=_object(**properties))


def _seen(**properties: Mapping[str, object]) -> dict[str, object]:
    """What detections and objects have in common, and `properties`."""
    return _feature(
        id=_STRING,
        label=_STRING,
        score=_NUMBER,
        asset=_NULLABLE_STRING,
        east_m=_NULLABLE_NUMBER,
        north_m=_NULLABLE_NUMBER,
        covariance_m2=_COVARIANCE,
        last_seen_s=_NUMBER,
        **properties,
    )


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One family of topics; `{node}`, `{id}`, `{verb}` are filled in, the base goes in front."""

    name: str
    path: str
    summary: str
    retained: bool
    qos: int
    expiry_s: int | None
    schema: Mapping[str, object]
    direction: str = "send"
    """"send": swarmd publishes; "receive": swarmd subscribes."""
    parameters: Mapping[str, str] = field(default_factory=dict)


_NODE = {"node": "Name of the device."}

TOPICS: tuple[TopicSpec, ...] = (
    TopicSpec(
        "state",
        "node/{node}/state",
        "`online`, or `offline` (also the will: the broker says it when the connection is lost).",
        True,
        1,
        None,
        {"type": "string", "enum": ["online", "offline"]},
        parameters=_NODE,
    ),
    TopicSpec(
        "birth",
        "node/{node}/birth",
        "Who this device is and what it can do, once a connection.",
        True,
        1,
        None,
        _object(
            id=_STRING,
            name=_STRING,
            swarm=_STRING,
            version=_STRING,
            model=_STRING,
            model_digest=_STRING,
            labels={"type": "array", "items": _STRING},
            topics={"type": "array", "items": _STRING},
        ),
        parameters=_NODE,
    ),
    TopicSpec(
        "telemetry",
        "node/{node}/telemetry",
        "Where the device is; only with a fix.",
        False,
        0,
        5,
        _object(
            lat=_NUMBER,
            lon=_NUMBER,
            height_agl_m=_NUMBER,
            yaw_rad=_NUMBER,
            sigma_m=_NUMBER,
            battery=_NULLABLE_NUMBER,
        ),
        parameters=_NODE,
    ),
    TopicSpec(
        "position",
        "positions/{peer}",
        "One GeoJSON feature a member: where it said that it is; empty when it has lost its fix.",
        True,
        0,
        60,
        _feature(
            node=_STRING,
            height_agl_m=_NUMBER,
            yaw_deg=_NULLABLE_NUMBER,
            sigma_m=_NUMBER,
            battery=_NULLABLE_NUMBER,
            age_s=_NUMBER,
        ),
        parameters={"peer": "Name of the member."},
    ),
    TopicSpec(
        "summary",
        "node/{node}/summary",
        "Counts for dashboards and home automation.",
        True,
        1,
        60,
        _object(objects=_INTEGER, confirmed=_INTEGER, members=_INTEGER, alive=_INTEGER, detections=_INTEGER),
        parameters=_NODE,
    ),
    TopicSpec(
        "members",
        "members",
        "The membership as this device sees it: name to record.",
        True,
        1,
        30,
        {
            "type": "object",
            "additionalProperties": _object(
                id=_STRING, state=_STRING, incarnation=_INTEGER, rtt_ms=_NULLABLE_NUMBER, loss=_NUMBER
            ),
        },
    ),
    TopicSpec(
        "detections",
        "detections",
        "One GeoJSON feature a detection, own and peers'; `id` is the same on every device, `track` only the own has.",
        False,
        1,
        60,
        _seen(
            node=_STRING,
            object=_STRING,
            event={"type": "string", "enum": ["new", "update", "end"]},
            track=_NULLABLE_INTEGER,
            model_digest=_STRING,
            reports=_INTEGER,
            first_seen_s=_NUMBER,
            hlc=_INTEGER,
        ),
    ),
    TopicSpec(
        "object",
        "objects/{id}",
        "One GeoJSON feature an object of the deduplicated view; empty when it is gone.",
        True,
        1,
        None,
        _seen(
            observers={"type": "array", "items": _STRING},
            confirmed={"type": "boolean"},
            tier={"type": "string", "enum": ["candidate", "confirmed", "reviewed"]},
            review=_NULLABLE_STRING,
            detected=_NULLABLE_STRING,
            reviews={
                "type": "array",
                "items": _object(
                    operator=_STRING,
                    key=_STRING,
                    verdict={"type": "string", "enum": ["confirm", "reject", "relabel", "withdraw", "note"]},
                    text=_STRING,
                    seen=_STRING,
                    made_s=_NUMBER,
                    revision=_INTEGER,
                    digest=_STRING,
                ),
            },
            reports=_INTEGER,
            first_seen_s=_NUMBER,
            first_seen_hlc=_INTEGER,
            last_seen_hlc=_INTEGER,
        ),
        parameters={"id": "Object id."},
    ),
    TopicSpec(
        "job",
        "jobs/{id}",
        "One cell of the survey area: who works on it, who has finished it.",
        True,
        1,
        3600,
        _object(
            cell=_STRING,
            state={"type": "string", "enum": ["open", "claimed", "done"]},
            owner=_NULLABLE_STRING,
            done_by={"type": "array", "items": _STRING},
        ),
        parameters={"id": "Cell id."},
    ),
    TopicSpec(
        "event",
        "node/{node}/events",
        "What happened at a device, one event a message; of a device without a broker, what it told the swarm. `id` is "
        "the same in every outlet.",
        False,
        1,
        86_400,
        _object(
            id=_STRING,
            time=_STRING,
            at_ms=_INTEGER,
            origin=_STRING,
            origin_id=_STRING,
            kind=_STRING,
            level={"type": "string", "enum": ["info", "warning", "error"]},
            subject=_STRING,
            reason=_STRING,
            evidence=_STRING,
        ),
        parameters=_NODE,
    ),
    TopicSpec(
        "picture",
        "node/{node}/picture",
        "One frame as a JPEG, when asked; only with `mqtt.pictures`.",
        False,
        1,
        60,
        {"type": "string", "contentEncoding": "binary", "contentMediaType": "image/jpeg"},
        parameters=_NODE,
    ),
    TopicSpec(
        "aggregate",
        "node/{node}/aggregate",
        "Hourly counts of new objects by label with Laplace noise; only when `mqtt.aggregate_epsilon` is above 0.",
        False,
        1,
        86_400,
        _object(
            epsilon=_NUMBER,
            epsilon_day=_NUMBER,
            scope={"type": "string", "enum": ["own", "swarm"]},
            window_start_s=_INTEGER,
            window_s=_INTEGER,
            counts={"type": "object", "additionalProperties": _INTEGER},
        ),
        parameters=_NODE,
    ),
    TopicSpec(
        "command",
        "cmd/{node}/{verb}",
        "A request; `all` as node addresses every device. With ResponseTopic `reply/{client}` a reply comes there, "
        "with the CorrelationData of the request.",
        False,
        1,
        10,
        {"type": "object"},
        direction="receive",
        parameters={**_NODE, "verb": "One of: status, members, objects, cells, counters, event, picture."},
    ),
    TopicSpec(
        "reply",
        "reply/{client}",
        "The answer to one command; up to two more levels may follow. Commands that ask for it elsewhere are not run.",
        False,
        1,
        10,
        {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "result": {"type": "object"}, "error": _STRING},
            "required": ["ok"],
        },
        parameters={"client": "What the asker is known by; its commands are counted under this name."},
    ),
)

COMMAND_ARGUMENTS: Mapping[str, Mapping[str, object]] = {
    "status": _arguments(),
    "members": _arguments(form={"type": "string", "enum": ["rows", "geojson"]}),
    "objects": _arguments(form={"type": "string", "enum": ["rows", "geojson"]}),
    "cells": _arguments(),
    "counters": _arguments(),
    "event": {**_arguments(name=_STRING, payload=_STRING), "required": ["name"]},
    "picture": _arguments(),
}
"""Verb to the schema of its arguments."""
COMMAND_VERBS = tuple(COMMAND_ARGUMENTS)


def spec(name: str) -> TopicSpec:
    """The entry of the table with this name.

    Raises:
        KeyError: There is none: our own mistake.
    """
    return _BY_NAME[name]


_BY_NAME = {entry.name: entry for entry in TOPICS}


@functools.lru_cache(maxsize=4096)
def topic_token(text: str) -> str:
    """A name as one topic level: MQTT's separators and wildcards become `_`.

    >>> topic_token("pv/7+#")
    'pv_7__'
    """
    return "".join("_" if character in "/+#" or ord(character) < 32 else character for character in text)[:64] or "_"
