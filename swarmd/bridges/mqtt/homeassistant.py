"""Home Assistant's discovery of this device: one retained message that says which topics are its sensors."""

from swarmd import __version__
from swarmd.api.daemon import NodeInfo
from swarmd_protocols.ids import NodeId


def homeassistant_topic(prefix: str, info: NodeInfo) -> str:
    """Where this device is announced; by its id, since Home Assistant hears only letters, digits, `_` and `-` there."""
    return homeassistant_topic_of(prefix, info.node)


def homeassistant_topic_of(prefix: str, node: NodeId) -> str:
    """The same of any member."""
    return f"{prefix}/device/swarmd_{node.hex()[:16]}/config"


def homeassistant_device(info: NodeInfo, base: str, node: str, *, pictures: bool = False) -> dict[str, object]:
    """Home Assistant's device discovery message: one device with its counts, battery, place and connectivity.

    Args:
        info: This daemon.
        base: Topic base with the swarm's name.
        node: The device's name as a topic level.
        pictures: Whether it shows what it sees when asked.

    Returns:
        A JSON-ready mapping for `homeassistant_topic`.

    Source:
        Home Assistant documentation, MQTT, "Discovery messages": device discovery payload.
    """
    here = f"{base}/node/{node}"
    unique = f"swarmd_{info.node.hex()[:16]}"
    components = _readings(here)
    if pictures:
        components |= _picture(here, f"{base}/cmd/{node}/picture")
    return {
        "device": {
            "identifiers": [unique],
            "name": f"swarmd {info.name}",
            "manufacturer": "swarmd",
            "model": info.model or "observer",
            "sw_version": info.version,
        },
        "origin": {"name": "swarmd", "sw_version": __version__},
        "components": {
            f"{unique}_{key}": {**config, "unique_id": f"{unique}_{key}"} for key, config in components.items()
        },
        "qos": 1,
    }


def _availability(here: str) -> list[dict[str, str]]:
    """Of each component but the one that says that the device is offline: that must stay available then."""
    return [{"topic": f"{here}/state", "payload_available": "online", "payload_not_available": "offline"}]


def _readings(here: str) -> dict[str, dict[str, object]]:
    """What a device measures and whether it is there, by component."""
    availability = _availability(here)
    components: dict[str, dict[str, object]] = {
        key: {
            "platform": "sensor",
            "name": name,
            "state_topic": f"{here}/summary",
            "value_template": f"{{{{ value_json.{key} }}}}",
            "state_class": "measurement",
            "availability": availability,
        }
        for key, name in (
            ("objects", "Objects"),
            ("confirmed", "Confirmed objects"),
            ("alive", "Members alive"),
            ("detections", "Detections"),
        )
    }
    components["battery"] = {
        "platform": "sensor",
        "name": "Battery",
        "device_class": "battery",
        "unit_of_measurement": "%",
        "state_topic": f"{here}/telemetry",
        "value_template": "{{ None if value_json.battery is none else (value_json.battery * 100) | round }}",
        "state_class": "measurement",
        "availability": availability,
    }
    components["place"] = {
        "platform": "device_tracker",
        "name": "Place",
        "source_type": "gps",
        "json_attributes_topic": f"{here}/telemetry",
        "json_attributes_template": "{{ {'latitude': value_json.lat, 'longitude': value_json.lon, "
        "'gps_accuracy': value_json.sigma_m} | tojson }}",
        "availability": availability,
    }
    components["online"] = {
        "platform": "binary_sensor",
        "name": "Online",
        "device_class": "connectivity",
        "state_topic": f"{here}/state",
        "payload_on": "online",
        "payload_off": "offline",
    }
    return components


def _picture(here: str, command: str) -> dict[str, dict[str, object]]:
    """What it sees, and a button that asks for it."""
    availability = _availability(here)
    return {
        "picture": {
            "platform": "image",
            "name": "Picture",
            "content_type": "image/jpeg",
            "image_topic": f"{here}/picture",
            "availability": availability,
        },
        "look": {
            "platform": "button",
            "name": "Take a picture",
            "command_topic": command,
            "payload_press": "{}",
            "availability": availability,
        },
    }
