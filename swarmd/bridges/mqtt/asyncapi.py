"""The AsyncAPI 3 document, generated from the topic table: what the code does is what the document says."""

from dataclasses import replace

from swarmd import __version__
from swarmd.bridges.mqtt.topics import COMMAND_ARGUMENTS, TOPICS, TopicSpec
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
    operations: dict[str, dict[str, object]] = {}
    messages: dict[str, object] = {}
    for entry in TOPICS:
        if entry.name == "command":
            for verb, arguments in COMMAND_ARGUMENTS.items():
                one = replace(entry, name=f"command_{verb}", path=f"cmd/{{node}}/{verb}", schema=arguments)
                parameters = {"node": entry.parameters["node"] + " `all` addresses every device."}
                _add(replace(one, parameters=parameters), f"{base}/{one.path}", channels, operations, messages)
                operations[one.name] |= {"reply": _REPLY}
        else:
            address = f"{reply_prefix}/{{client}}" if entry.name == "reply" else f"{base}/{entry.path}"
            _add(entry, address, channels, operations, messages)
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


_REPLY = {
    "address": {
        "description": "ResponseTopic of the request, below the reply prefix; CorrelationData comes back.",
        "location": "$message.header#/responseTopic",
    },
    "channel": {"$ref": "#/channels/reply"},
    "messages": [{"$ref": "#/channels/reply/messages/reply"}],
}


def _add(
    entry: TopicSpec,
    address: str,
    channels: dict[str, object],
    operations: dict[str, dict[str, object]],
    messages: dict[str, object],
) -> None:
    """One channel with its message and its operation."""
    messages[entry.name] = {
        "name": entry.name,
        "summary": entry.summary,
        "contentType": entry.schema.get("contentMediaType", "application/json"),
        "payload": dict(entry.schema),
    }
    channels[entry.name] = {
        "address": address,
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
