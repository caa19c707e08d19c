"""Addresses that a node was told to join: which of them are nobody's that it knows, and greeting them."""

from collections.abc import Iterable

from swarmd_protocols.ids import Address
from swarmd_protocols.swim.core import Core


def strange(core: Core, addresses: Iterable[Address]) -> list[Address]:
    """Those where nobody is known that the view holds, and that are not this node's own."""
    known = core.table.by_address
    return [
        address
        for address in addresses
        if address != core.own.address and (address not in known or not known[address].overlay.active)
    ]


def greet(core: Core, seeds: dict[Address, int], addresses: Iterable[Address]) -> None:
    """Greet who is there; of seeds it is kept when."""
    for address in addresses:
        if address in seeds:
            seeds[address] = core.now_ns
        core.port.hello(address, True)
