"""Homie 5: this device with its counts, charge and place as typed, retained properties.

Source: the Homie convention 5.0, "Device", "Node" and "Property attributes".
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from swarmd.bridges.mqtt.link import MqttLink
from swarmd.config.bridges import MqttConfig
from swarmd_protocols.ids import NodeId

_COUNTS = {
    "objects": "Objects",
    "confirmed": "Confirmed objects",
    "members": "Members",
    "alive": "Members alive",
    "detections": "Detections",
}


_DEGREES = {"datatype": "float", "unit": "°"}
_NODES: dict[str, dict[str, Any]] = {
    "swarm": {
        "name": "Swarm",
        "properties": {key: {"name": text, "datatype": "integer"} for key, text in _COUNTS.items()},
    },
    "vehicle": {
        "name": "Vehicle",
        "properties": {
            "battery": {"name": "Battery", "datatype": "integer", "unit": "%", "format": "0:100"},
            "latitude": {"name": "Latitude", **_DEGREES},
            "longitude": {"name": "Longitude", **_DEGREES},
            "height": {"name": "Height above ground", "datatype": "float", "unit": "m"},
        },
    },
}


def device_topic(node: str) -> str:
    """Where a device stands; Homie's ids have lower-case letters, digits and `-` alone."""
    return f"homie/5/{''.join(c if c.isascii() and c.isalnum() else '-' for c in node.lower())}"


def description(name: str) -> dict[str, object]:
    """The device's `$description`."""
    return {"homie": "5.0", "version": 2, "name": name, "nodes": _NODES}


def topics_of(node: str) -> Iterator[str]:
    """Every topic that a device of this name keeps retained.

    >>> sorted(topics_of("drone-1"))[:2]
    ['homie/5/drone-1/$description', 'homie/5/drone-1/$state']
    """
    device = device_topic(node)
    yield f"{device}/$state"
    yield f"{device}/$description"
    for name, described in _NODES.items():
        for key in described["properties"]:
            yield f"{device}/{name}/{key}"


class HomieDevice:
    """This device over a connection of its own: a broker speaks one will for each, and Homie wants its own."""

    def __init__(self, config: MqttConfig, node: NodeId, name: str) -> None:
        """Prepare; `link` connects when it is run.

        Args:
            config: The `[mqtt]` section.
            node: Names the connection.
            name: The device's name as a topic level.
        """
        self._name = name
        self._device = device_topic(name)
        self.link = MqttLink(
            config,
            client_id=f"swarmd-{node.hex()[:16]}-homie",
            will_topic=f"{self._device}/$state",
            will_payload=b"lost",
            on_connected=self._introduce,
            on_message=lambda _: None,
        )

    def say_state(self, state: str) -> None:
        """One of Homie's states."""
        self.link.publish(f"{self._device}/$state", state.encode(), retain=True)

    def tell_summary(self, summary: Mapping[str, int]) -> None:
        """The counts."""
        for key in _COUNTS:
            self._tell(f"swarm/{key}", summary[key])

    def tell_telemetry(self, telemetry: Mapping[str, float | None]) -> None:
        """Charge and place."""
        battery = telemetry["battery"]
        if battery is not None:
            self._tell("vehicle/battery", round(100 * battery))
        for key, source in (("latitude", "lat"), ("longitude", "lon"), ("height", "height_agl_m")):
            self._tell(f"vehicle/{key}", telemetry[source])

    def _introduce(self) -> None:
        self.link.publish(f"{self._device}/$description", msgspec.json.encode(description(self._name)), retain=True)
        self.say_state("ready")

    def _tell(self, name: str, value: float | None) -> None:
        self.link.publish(f"{self._device}/{name}", str(value).encode(), retain=True)
