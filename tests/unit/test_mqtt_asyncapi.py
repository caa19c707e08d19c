"""The AsyncAPI document: valid against the rules of AsyncAPI 3, and true to what the bridge sends."""

import json
import os
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from swarmd.api import geojson
from swarmd.bridges.mqtt.asyncapi import document
from swarmd.bridges.mqtt.homeassistant import homeassistant_device
from swarmd.bridges.mqtt.topics import TOPICS, spec, topic_token
from swarmd.config.bridges import MqttConfig
from tests.support.bridge_world import World, detection, object_view, own_detection
from tests.support.paths import ROOT

# The parts of the AsyncAPI 3.0.0 schema that this document uses, written from the specification.
ASYNCAPI = {
    "type": "object",
    "required": ["asyncapi", "info", "channels", "operations"],
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "info": {"type": "object", "required": ["title", "version"]},
        "servers": {
            "type": "object",
            "additionalProperties": {"type": "object", "required": ["host", "protocol"]},
        },
        "channels": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["address", "messages"],
                "properties": {"address": {"type": "string"}},
                "additionalProperties": False,
                "patternProperties": {"^(messages|parameters|title|summary|description|bindings)$": {}},
            },
        },
        "operations": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["action", "channel"],
                "properties": {"action": {"enum": ["send", "receive"]}},
            },
        },
    },
}


def resolve(root: object, reference: str) -> object:
    at = root
    for part in reference.removeprefix("#/").split("/"):
        assert isinstance(at, dict)
        at = at[part]
    return at


def test_document_is_valid_and_every_reference_resolves() -> None:
    made = json.loads(json.dumps(document("farm", MqttConfig())))
    jsonschema.validate(made, ASYNCAPI)
    references: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                references.append(value["$ref"])
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)

    walk(made)
    assert references
    for reference in references:
        assert resolve(made, reference) is not None
    for message in made["components"]["messages"].values():
        jsonschema.Draft202012Validator.check_schema(message["payload"])


def test_every_parameter_of_an_address_is_described() -> None:
    import re

    for name, channel in document("farm", MqttConfig())["channels"].items():  # type: ignore[attr-defined]
        assert set(re.findall(r"{(\w+)}", channel["address"])) == set(channel.get("parameters", {})), name


def test_what_the_bridge_sends_fits_the_document() -> None:
    world = World()
    names = {bytes(member.node): member.name for member in world.members()}
    jsonschema.validate(
        json.loads(json.dumps(geojson.object_feature(object_view(), world.info(), names))), dict(spec("object").schema)
    )
    for said in (own_detection(), detection(), detection(east_cm=None)):
        feature = json.loads(json.dumps(geojson.detection_feature(said.detail, world.info(), "bob")))
        jsonschema.validate(feature, dict(spec("detections").schema))
    assert feature["geometry"] is None


def test_names_are_distinct_and_wildcards_never_reach_a_topic() -> None:
    assert len({entry.name for entry in TOPICS}) == len(TOPICS)
    assert topic_token("a/+#\x00b") == "a____b"
    assert topic_token("") == "_"


def test_home_assistant_components_have_what_discovery_needs() -> None:
    # https://www.home-assistant.io/integrations/mqtt/: device discovery needs device, origin, components; each
    # component a platform and a unique_id, a sensor a state_topic.
    made = homeassistant_device(World().info(), "swarm/v1/farm", "alice")
    assert {"device", "origin", "components"} <= set(made)
    components = made["components"]
    assert isinstance(components, dict)
    assert len({one["unique_id"] for one in components.values()}) == len(components)
    for one in components.values():
        assert {"platform", "unique_id", "name"} <= set(one)
        assert {"state_topic", "json_attributes_topic"} & set(one)


SCHEMA = Path(os.environ.get("SWARMD_ASYNCAPI_SCHEMA", ROOT / ".venv-extras/asyncapi/schemas/3.0.0.json"))


@pytest.mark.skipif(not SCHEMA.exists(), reason="AsyncAPI's own schema is not installed (make setup-extras)")
@pytest.mark.parametrize("tls", [False, True])
def test_the_official_schema_accepts_the_document(tls: bool) -> None:
    judge = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    made = json.loads(json.dumps(document("farm", MqttConfig(tls=tls))))
    assert [error.message for error in judge.iter_errors(made)] == []
    made["channels"]["state"]["adress"] = made["channels"]["state"].pop("address")
    assert list(judge.iter_errors(made))
