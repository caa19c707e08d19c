"""Run by a test in a network namespace of its own: cut a ZeroMQ connection one way, time its return."""

import asyncio
import subprocess
import sys
import time

from swarmd.transports.factory import make_transport
from tests.support.transport_endpoints import Endpoint, KeyRing, until_sent

CUT_S = 4.5
"""Longer than the dialler's heartbeat takes to give up, shorter than the listener's."""


def _nft(text: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


async def main() -> None:
    """Print how many seconds after the cut a frame got through."""
    keys = KeyRing()
    a, b = [await Endpoint(make_transport("zmq", f"127.0.0.{last}:7946", keys.member())).start() for last in (11, 12)]
    await until_sent(lambda: a.transport.send_datagram(b.address, b"before"), lambda: b.datagrams)
    _nft("table ip cut { chain arriving { type filter hook input priority 0; ip daddr 127.0.0.12 drop; }; }")
    until = time.monotonic() + CUT_S
    while time.monotonic() < until:
        a.transport.send_datagram(b.address, b"lost")
        await asyncio.sleep(0.2)
    b.datagrams.clear()
    _nft("delete table ip cut")
    began = time.monotonic()
    await until_sent(
        lambda: a.transport.send_datagram(b.address, b"after"),
        lambda: any(data == b"after" for _, data in b.datagrams),
        seconds=30,
    )
    sys.stdout.write(f"{time.monotonic() - began:.3f}\n")
    await asyncio.gather(a.transport.close(), b.transport.close())


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    asyncio.run(main())
