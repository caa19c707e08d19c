"""What the transport tests share: two or more endpoints of one kind on loopback, and waiting with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from zmq import curve_keypair
from zmq.utils import z85

from swarmd.transports.base import Transport, TransportHandlers
from swarmd.transports.curve import CurveKeys
from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.ids import Address

STREAM_S = 60.0
"""Seconds until a frame of a test expires, where the test is not about that: a busy machine is slow to shake hands."""


def curve_pair() -> tuple[bytes, bytes]:
    """A random X25519 pair as raw bytes."""
    public, secret = curve_keypair()
    return z85.decode(public), z85.decode(secret)


class KeyRing:
    """CURVE keys of one swarm."""

    def __init__(self) -> None:
        self.group = curve_pair()

    def member(self, older: "KeyRing | None" = None) -> CurveKeys:
        return CurveKeys(*self.group, *curve_pair(), (older.group[0],) if older else ())


@dataclass
class Endpoint:
    """A started transport and all that it delivered."""

    transport: Transport
    datagrams: list[tuple[Address, bytes]] = field(default_factory=list)
    streams: list[tuple[Address, bytes]] = field(default_factory=list)
    failures: list[tuple[Address, str]] = field(default_factory=list)
    probes: list[tuple[Address, HostAnswer]] = field(default_factory=list)
    losses: list[Address] = field(default_factory=list)

    @property
    def address(self) -> Address:
        return self.transport.local_address

    async def start(self) -> "Endpoint":
        await self.transport.start(
            TransportHandlers(
                datagram=lambda source, data: self.datagrams.append((source, data)),
                stream=lambda source, data: self.streams.append((source, data)),
                send_failed=lambda destination, reason: self.failures.append((destination, reason)),
                host_probed=lambda destination, answer: self.probes.append((destination, answer)),
                lost=self.losses.append,
            )
        )
        return self

    def stream(self, to: Address, data: bytes, seconds: float = STREAM_S, bulk: bool = False) -> None:
        self.transport.send_stream(to, data, time.monotonic_ns() + int(seconds * 1e9), bulk)


async def until(condition: Callable[[], object], seconds: float = STREAM_S, what: str = "") -> None:
    """Wait for a condition; fails the test, naming it, when the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}")
        await asyncio.sleep(0.005)


async def until_sent(send: Callable[[], None], condition: Callable[[], object], seconds: float = STREAM_S) -> None:
    """Repeat a best-effort send every 50 ms until its effect is seen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s, however often sent: {condition}")
        send()
        for _ in range(10):
            await asyncio.sleep(0.005)
            if condition():
                return


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous test body, with the loop's debug complaints as errors."""
    asyncio.run(asyncio.wait_for(_as_coroutine(test), timeout=170))


async def _as_coroutine(test: Callable[[], Awaitable[None]]) -> None:
    await test()
