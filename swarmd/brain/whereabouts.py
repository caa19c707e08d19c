"""Follow the device's addresses: when an interface comes, goes or gets another lease, peers are told where we are."""

import asyncio
from collections.abc import Callable

from swarmd.logs import Logger
from swarmd.transports.base import Transport
from swarmd.transports.interfaces import AddressBell
from swarmd_protocols.effects import Alarm, Moved

_LOOK_S = 10.0
"""Seconds between two looks without a bell: on systems that have none, and in case one was lost."""
_SAID_MAX = 64
"""Problems with casts that are told, each once in a life."""
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
    said: set[str] = set()
    try:
        while True:
            before, silent = transport.local_address, transport.cast_problem
            if transport.look_around():
                log.info("address_changed", before=before, address=transport.local_address)
                moved(Moved(transport.local_address))
            problem = transport.reach.problem
            if problem and problem != told:
                alarm(Alarm(LOOPBACK, problem))
            told = problem
            for why in (silent, transport.cast_problem):  # The look opens again what can be.
                if why and why not in said and len(said) < _SAID_MAX:
                    log.warning("casts_fail", problem=why)
                    said.add(why)
            try:
                await asyncio.wait_for(rung.wait(), _LOOK_S)
            except TimeoutError:
                continue
            rung.clear()
    finally:
        bell.close()
