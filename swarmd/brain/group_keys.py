"""Follow the group key into the transport: what the node agrees on is what its connections prove."""

from collections.abc import Callable

from swarmd.brain.supervise import next_look
from swarmd.identity.files import curve_keys
from swarmd.logs import Logger
from swarmd.transports.base import Transport
from swarmd_protocols.trust.identity import Identity

_LOOK_S = 1.0
"""Seconds between two looks at the node's keys: a new one may wait that long, connections that stand are kept."""


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
            await next_look(_LOOK_S)
