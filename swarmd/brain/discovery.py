"""Finds members on the local network by mDNS/DNS-SD, so that nobody has to write addresses down.

    _swarmd._udp.local.   instance "<first 16 hex digits of the node id>"   TXT: v=1, swarm=<tag>, address=<address>

What is announced is a hint and nothing more: an address to try. Whoever answers there still has to show a certificate
of the swarm, so a liar on the network can waste a datagram and nothing else. The swarm appears as the hash of its name,
so that a passer-by learns how many nodes there are, and not whose.
"""

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from swarmd.brain.supervise import next_look
from swarmd.config.sections import Config
from swarmd.errors import TransportError
from swarmd.transports.address import is_ipv6, parse_address, parse_ways
from swarmd.transports.base import Transport
from swarmd.transports.reach import is_loopback
from swarmd_protocols.ids import WAYS, Address, NodeId
from swarmd_protocols.trust.identity import Identity

if TYPE_CHECKING:
    from zeroconf import ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

SERVICE_TYPE = "_swarmd._udp.local."
_LOOKUP_MS = 3_000
"""Milliseconds until an announced service must have answered with its record: three of mDNS's own repeats."""
_LOOKUPS_MAX = 32
"""Lookups at once: whoever announces more at a time is heard when they announce again."""
_LOOK_S = 1.0
"""Seconds between two looks at the own address."""
_FOUND_MAX = 1_024
"""Addresses that are remembered as told, so that a liar on the network cannot fill the memory."""


def swarm_tag(swarm: str) -> str:
    """What stands for a swarm's name on the network: 16 hex digits."""
    return blake2b(swarm.encode(), digest_size=8, person=b"swarmd-mdns").hexdigest()


class Discovery:
    """Announces this node and reports the addresses of others of its swarm. Everything runs on the event loop."""

    def __init__(self, swarm: str, node: NodeId, address: Address, found: Callable[[Address], None]) -> None:
        """Prepare; nothing is opened before `start`.

        Args:
            swarm: The swarm's name.
            node: This node, whose own announcement is ignored.
            address: Where this node is reached.
            found: Called once for each new address.
        """
        self._tag = swarm_tag(swarm)
        self._instance = f"{node.hex()[:16]}.{SERVICE_TYPE}"
        self._address = address
        self._found = found
        self._known: dict[str, Address] = {}
        self._lookups: set[asyncio.Task[None]] = set()
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._info: AsyncServiceInfo | None = None
        self.counts = {"announcements_in": 0, "addresses_found": 0, "refused": 0, "lookups_dropped": 0}

    async def start(self) -> None:
        """Announce and browse.

        Raises:
            TransportError: No multicast here; names the remedy.
        """
        # Costs 30 ms and 8 MB: only who browses pays for it.
        from zeroconf import IPVersion
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

        ways = [parse_address(way) for way in self._address.split(WAYS)]
        hosts, port = [host for host, _ in ways], ways[0][1]
        version = IPVersion.V4Only
        if any(map(is_ipv6, hosts)):
            version = IPVersion.V6Only if all(map(is_ipv6, hosts)) else IPVersion.All
        try:
            # The interfaces of the ways: on the others the address may not be reachable at all.
            self._zeroconf = AsyncZeroconf(interfaces=hosts, ip_version=version)
            self._info = AsyncServiceInfo(
                SERVICE_TYPE,
                self._instance,
                port=port,
                parsed_addresses=hosts,
                properties={"v": "1", "swarm": self._tag, "address": self._address},
            )
            await self._zeroconf.async_register_service(self._info, allow_name_change=True)
        except OSError as error:
            await self.close()
            raise TransportError(
                f"mDNS does not start on {self._address}: {error}; free UDP port 5353, enable multicast on the "
                "interface, or turn swarm.mdns off and give --join"
            ) from error
        self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE_TYPE, handlers=[self._on_change])

    async def close(self) -> None:
        """Take the announcement back and stop; may be called twice."""
        zeroconf, self._zeroconf = self._zeroconf, None
        if zeroconf is None:
            return
        for lookup in self._lookups:
            lookup.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._info is not None:
            await zeroconf.async_unregister_service(self._info)
        await zeroconf.async_close()

    def _on_change(
        self, zeroconf: "Zeroconf", service_type: str, name: str, state_change: "ServiceStateChange"
    ) -> None:
        from zeroconf import ServiceStateChange

        if state_change is ServiceStateChange.Removed:
            self._known.pop(name, None)
            return
        if name == self._instance:
            return
        self.counts["announcements_in"] += 1
        if len(self._lookups) >= _LOOKUPS_MAX:
            self.counts["lookups_dropped"] += 1
            return
        lookup = asyncio.get_running_loop().create_task(self._look_up(zeroconf, name))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._lookups.discard)

    async def _look_up(self, zeroconf: "Zeroconf", name: str) -> None:
        from zeroconf.asyncio import AsyncServiceInfo

        info = AsyncServiceInfo(SERVICE_TYPE, name)
        if not await info.async_request(zeroconf, _LOOKUP_MS):
            return
        address = announced_address(dict(info.properties), self._tag)
        if address is None:
            self.counts["refused"] += 1
            return
        if address == self._address or self._known.get(name) == address:
            return
        if len(self._known) >= _FOUND_MAX:
            self._known.clear()
        self._known[name] = address
        self.counts["addresses_found"] += 1
        self._found(address)


def announced_address(properties: "dict[bytes, bytes | None]", tag: str) -> Address | None:
    """The address that an announcement offers, or None when it is another swarm's, of another version, or nonsense.

    Args:
        properties: The TXT record; anybody on the network may have written it.
        tag: `swarm_tag` of the own swarm.
    """
    if properties.get(b"v") != b"1" or properties.get(b"swarm") != tag.encode():
        return None
    try:
        return parse_ways((properties.get(b"address") or b"").decode("ascii"))
    except ValueError:
        return None


def wants_mdns(config: Config, address: Address) -> bool:
    """Whether to look for members by mDNS: as configured, or where it makes sense.

    Args:
        config: `swarm.mdns` is "on", "off" or "auto".
        address: Where this node is reached; on loopback there is nobody to find.
    """
    if config.swarm.mdns != "auto":
        return config.swarm.mdns == "on"
    local = all(is_loopback(parse_address(way)[0]) for way in address.split(WAYS))
    return not local and not config.swarm.dev_fleet and config.transport.gossip != "dds"


async def discover(config: Config, identity: Identity, transport: Transport, found: Callable[[Address], None]) -> None:
    """Announce this node and report others, anew whenever its address changes; runs for ever.

    Raises:
        TransportError: No multicast here.
    """
    while True:
        address = transport.local_address
        discovery = None
        if wants_mdns(config, address):
            discovery = Discovery(identity.swarm, identity.node, address, found)
            await discovery.start()
        try:
            while transport.local_address == address:
                await next_look(_LOOK_S)
        finally:
            if discovery is not None:
                await discovery.close()
