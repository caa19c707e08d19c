"""Follow the device's addresses: when an interface comes, goes or gets another lease, peers are told where we are."""

import asyncio
from collections.abc import Callable

from swarmd.logs import Logger
from swarmd.transports.base import Transport
from swarmd.transports.interfaces import AddressBell
from swarmd_protocols.effects import Alarm, Moved

_LOOK_S = 10.0
"""Seconds between two looks without a bell: on systems that have none, and in case one was lost."""
LOOPBACK = "loopback-advertised"
"""Code of the alarm."""


async def follow_addresses(
    transport: Transport, moved: Callable[[Moved], None], alarm: Callable[[Alarm], None], log: Logger
) -> None:
    """Look at the addresses when the kernel says that they changed; runs for ever.

    Args:
        transport: Whose address is told.
        moved: Called when peers are to be told another one.
        alarm: Called when nobody can reach this node by what it tells, once for each cause.
        log: Where changes are told.
    """
    rung = asyncio.Event()
    bell = AddressBell(rung.set)
    bell.start()
    told = ""
    try:
        while True:
            before = transport.local_address
            if transport.look_around():
                log.info("address_changed", before=before, address=transport.local_address)
                moved(Moved(transport.local_address))
            problem = transport.reach.problem
            if problem and problem != told:
                alarm(Alarm(LOOPBACK, problem))
            told = problem
            try:
                await asyncio.wait_for(rung.wait(), _LOOK_S)
            except TimeoutError:
                continue
            rung.clear()
    finally:
        bell.close()
