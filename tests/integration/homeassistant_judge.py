"""Home Assistant's own discovery code judges one message; runs in an interpreter that has the package `homeassistant`.

Standard input: {"topic": …, "payload": …, "states": {topic: payload}}. Standard output: {"version": …, "components":
{id: {"platform": …, "shows": …}}}, where `shows` is what its templates make of the states; or exit status 1 and a
sentence. Ends with status 77 where the package is not there.
"""

import asyncio
import importlib
import json
import sys
from typing import Any


async def judge(given: dict[str, Any]) -> dict[str, Any]:
    """What is accepted; raises `voluptuous.Invalid`."""
    import voluptuous as vol
    from homeassistant.components.mqtt import discovery
    from homeassistant.components.mqtt.models import MqttValueTemplate
    from homeassistant.components.mqtt.schemas import DEVICE_DISCOVERY_SCHEMA
    from homeassistant.const import __version__
    from homeassistant.core import HomeAssistant
    from homeassistant.helpers import frame
    from homeassistant.helpers.template import Template

    hass = HomeAssistant("/nonexistent")
    frame.async_setup(hass)
    prefix, _, rest = given["topic"].partition("/")
    match = discovery.TOPIC_MATCHER.match(rest)
    if match is None or match.group("component") != "device":
        raise vol.Invalid(f"not a topic of device discovery: {prefix}/{rest}")
    payload: Any = discovery.MQTTDiscoveryPayload(json.loads(given["payload"]))
    discovery._replace_all_abbreviations(payload)
    DEVICE_DISCOVERY_SCHEMA(payload)
    accepted = {}
    for name, config in payload["components"].items():
        platform = config.pop("platform")
        one = discovery.MQTTDiscoveryPayload(config)
        one["device"], one["origin"] = payload["device"], payload.get("origin")
        discovery._merge_common_device_options(one, payload)
        checked = importlib.import_module(f"homeassistant.components.mqtt.{platform}").DISCOVERY_SCHEMA(one)
        lost = set(one) - set(checked)
        if lost:
            raise vol.Invalid(f"{name}: unknown keys {sorted(lost)}")
        kind = "value_template" if "state_topic" in one else "json_attributes_template"
        state = given["states"].get(one.get("state_topic") or one.get("json_attributes_topic"), "")
        template = Template(one[kind], hass) if kind in one else None
        shows = MqttValueTemplate(template).async_render_with_possible_json_value(state)
        accepted[name] = {"platform": platform, "shows": shows}
    return {"version": __version__, "components": accepted}


def main() -> int:
    try:
        import voluptuous as vol
        from homeassistant.components.mqtt import discovery  # noqa: F401
    except ImportError as error:
        print(error, file=sys.stderr)
        return 77
    try:
        print(json.dumps(asyncio.run(judge(json.load(sys.stdin)))))
    except vol.Invalid as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
