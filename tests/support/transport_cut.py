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


class RanFor:
    """Seconds that this process came to its turn: what stops it for longer is the machine, and no transport."""

    STEP_S, STOPPED_S = 0.01, 0.1

    def __init__(self) -> None:
        self.seconds = 0.0

    async def count(self) -> None:
        """Until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(self.STEP_S)
            now = time.monotonic()
            self.seconds += min(now - last, self.STOPPED_S)
            last = now


async def main() -> None:
    """Print how many seconds after the cut a frame got through, without those in which this process was stopped."""
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
    ran = RanFor()
    counting = asyncio.create_task(ran.count())
    await until_sent(
        lambda: a.transport.send_datagram(b.address, b"after"),
        lambda: any(data == b"after" for _, data in b.datagrams),
        seconds=30,
    )
    counting.cancel()
    sys.stdout.write(f"{ran.seconds:.3f}\n")
    await asyncio.gather(a.transport.close(), b.transport.close())


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    asyncio.run(main())
