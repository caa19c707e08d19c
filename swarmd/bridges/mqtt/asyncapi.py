"""The AsyncAPI 3 document, generated from the topic table: what the code does is what the document says."""

from swarmd import __version__
from swarmd.bridges.mqtt.topics import TOPICS
from swarmd.config.bridges import MqttConfig


def document(swarm: str, config: MqttConfig) -> dict[str, object]:
    """Describe every topic of one swarm.

    Args:
        swarm: The swarm's name, part of every address.
        config: The `[mqtt]` section, for broker and base.

    Returns:
        A JSON-ready AsyncAPI 3.0.0 document.
    """
    base = f"{config.base}/{swarm}"
    reply_prefix = config.reply_prefix or f"{base}/reply"
    channels: dict[str, object] = {}
    operations: dict[str, object] = {}
    messages: dict[str, object] = {}
    for entry in TOPICS:
        messages[entry.name] = {
            "name": entry.name,
            "summary": entry.summary,
            "contentType": "application/json",
            "payload": dict(entry.schema),
        }
        channels[entry.name] = {
            "address": f"{reply_prefix}/{{client}}" if entry.name == "reply" else f"{base}/{entry.path}",
            "messages": {entry.name: {"$ref": f"#/components/messages/{entry.name}"}},
            **(
                {"parameters": {key: {"description": text} for key, text in entry.parameters.items()}}
                if entry.parameters
                else {}
            ),
        }
        operations[entry.name] = {
            "action": entry.direction,
            "channel": {"$ref": f"#/channels/{entry.name}"},
            "summary": entry.summary,
            "bindings": {
                "mqtt": {
                    "qos": entry.qos,
                    "retain": entry.retained,
                    **({} if entry.expiry_s is None else {"messageExpiryInterval": entry.expiry_s}),
                    "bindingVersion": "0.2.0",
                }
            },
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"swarmd: swarm {swarm}",
            "version": __version__,
            "description": "What each device of the swarm publishes to an MQTT 5 broker, and the commands it takes.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "broker": {
                "host": f"{config.host}:{config.port}",
                "protocol": "secure-mqtt" if config.tls else "mqtt",
                "protocolVersion": "5",
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }
