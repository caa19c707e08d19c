"""Two tasks of the brain beside the node: follow the group key into the transport, look for members by mDNS."""

import asyncio
from collections.abc import Callable

from swarmd.brain.discovery import Discovery
from swarmd.config.sections import Config
from swarmd.identity.files import curve_keys
from swarmd.logs import Logger
from swarmd.transports.address import parse_address
from swarmd.transports.base import Transport
from swarmd_protocols.ids import Address
from swarmd_protocols.trust.identity import Identity

_LOOK_S = 1.0


async def follow_group_keys(
    identity: Identity, group_keys: Callable[[], list[bytes]], transport: Transport, log: Logger
) -> None:
    """Keep the transport's CURVE keys those of the node's newest group key; runs for ever.

    Args:
        identity: The node's own, whose keys the transport was started with.
        group_keys: The raw group keys the node holds by now, newest first.
        transport: What to rekey; connections that stand are kept.
        log: Where a change is told.

    Raises:
        TransportError: The port was lost while it changed hands; calling again tries again.
    """
    known = curve_keys(identity)
    while True:
        keys = curve_keys(identity, group_keys())
        if keys != known:
            await transport.rekey(keys)
            log.info("group_key_changed", known=len(keys.server_publics))
            known = keys
        held = group_keys()
        while group_keys() == held:
            await asyncio.sleep(_LOOK_S)


def wants_mdns(config: Config, address: Address) -> bool:
    """Whether to look for members by mDNS: as configured, or where it makes sense.

    Args:
        config: `swarm.mdns` is "on", "off" or "auto".
        address: Where this node is reached; on loopback there is nobody to find.
    """
    if config.swarm.mdns != "auto":
        return config.swarm.mdns == "on"
    host = parse_address(address)[0]
    local = host.startswith("127.") or host == "::1"
    return not local and not config.swarm.dev_fleet and config.transport.gossip != "dds"


async def discover(identity: Identity, address: Address, found: Callable[[Address], None]) -> None:
    """Announce this node and report others; runs for ever.

    Raises:
        TransportError: No multicast here.
    """
    discovery = Discovery(identity.swarm, identity.node, address, found)
    await discovery.start()
    try:
        await asyncio.Event().wait()
    finally:
        await discovery.close()
