"""What a member leaves retained on a broker."""

from collections.abc import Iterator

from swarmd.bridges.mqtt.homeassistant import homeassistant_topic_of
from swarmd.bridges.mqtt.homie import topics_of
from swarmd.bridges.mqtt.topics import spec
from swarmd.config.bridges import MqttConfig
from swarmd_protocols.ids import NodeId


def leftovers(base: str, name: str, node: NodeId | None, config: MqttConfig) -> Iterator[str]:
    """The topics to be emptied when a member is a member no longer.

    Args:
        base: Topic base with the swarm's name.
        name: The member's name as a topic level.
        node: Its id, where it is known.
        config: What devices of this swarm publish.
    """
    for topic in ("state", "birth", "summary"):
        yield f"{base}/{spec(topic).path.format(node=name)}"
    yield f"{base}/{spec('position').path.format(peer=name)}"
    if config.homie:
        yield from topics_of(name)
    if config.homeassistant and node is not None:
        yield homeassistant_topic_of(config.homeassistant_prefix, node)
