"""What an operator can choose about the `dds` transport."""

import msgspec


class DdsOptions(msgspec.Struct, frozen=True):
    """Domain and discovery of the participant."""

    domain: int = 42
    """DDS domain, 0..232; not that of ROS 2 (0 by default), so that robots' topics and the swarm's do not meet."""
    peers: tuple[str, ...] = ()
    """Numeric addresses of other devices, needed where multicast does not reach; one side is enough."""
    multicast: bool = True
    """Whether to discover by multicast."""
