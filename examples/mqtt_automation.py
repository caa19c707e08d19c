"""An automation over MQTT: when the swarm sees something of a kind, a switch goes on; when it is gone, off.

    swarmd run -c swarmd.toml                                   # with [mqtt] enabled
    python examples/mqtt_automation.py person yard/light/set    # broker at 127.0.0.1:1883
    python examples/mqtt_automation.py person yard/light/set broker.example 8883

It needs nothing of swarmd but the topics (docs/interfaces.md), so it may run anywhere.
"""

import contextlib
import json
import sys
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion


def main(label: str, switch: str, host: str = "127.0.0.1", port: str = "1883") -> None:
    seen: set[str] = set()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)

    def on_connect(client: mqtt.Client, *_: Any) -> None:
        client.subscribe("swarm/v1/+/objects/+", qos=1)  # Retained: what is known already comes at once.

    def on_message(client: mqtt.Client, _: Any, message: mqtt.MQTTMessage) -> None:
        was_on = bool(seen)
        if message.payload and json.loads(message.payload)["properties"]["label"] == label:
            seen.add(message.topic)
        else:  # Empty: the object is gone. Another label: an operator has corrected it.
            seen.discard(message.topic)
        if bool(seen) != was_on:
            client.publish(switch, "ON" if seen else "OFF", qos=1, retain=True)
            print("ON" if seen else "OFF", flush=True)

    client.on_connect, client.on_message = on_connect, on_message
    client.connect(host, int(port))
    client.loop_forever(retry_first_connection=True)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit("give a label and the topic of a switch, then perhaps the broker's host and port")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"no broker answers ({error}); start one, or name its host and port")
