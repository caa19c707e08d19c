"""The simulator's network behind the interface of a transport, its virtual time tied to the real clock.

So the conformance suite holds the simulated links to what the real ones do. The radio is perfect and close; everything
else (queues, deadlines, refusals, order) is the simulator's own code.
"""

import asyncio
import time
from collections import Counter

from swarmd.errors import TransportError
from swarmd.transports.address import format_address, parse_address
from swarmd.transports.base import (
    EXPIRED,
    FULL,
    MAX_DATAGRAM_BYTES,
    MAX_STREAM_BYTES,
    TOO_LARGE,
    UNREACHABLE,
    TransportHandlers,
)
from swarmd.transports.curve import CurveKeys
from swarmd.transports.curve_paths import parse_listen
from swarmd_protocols.effects import HostAnswer, ProbeHost, SendCast, SendDatagram, SendStream
from swarmd_protocols.ids import Address
from swarmd_sim.faults.links import LinkFaults
from swarmd_sim.radio.network import Network
from swarmd_sim.radio.radio import Radio, RadioConfig
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine

_STEP_S = 0.002


class Ether:
    """One simulated network in real time, which goes on when the loop turns, as that of sockets does.

    What is sent in one turn is sent at one time, however long the turn takes on a busy machine.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        choices = Choices(7)
        config = RadioConfig(latency_ns=200_000, jitter_ns=0, rate_bit_s=1_000_000_000)
        self.radio = Radio(config, choices)
        self.network = Network(self.engine, self.radio, LinkFaults(choices), choices)
        self.began_ns = time.monotonic_ns()
        self.hosts: dict[Address, SimulatedTransport] = {}
        self.count = 0
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def sleep(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.began_ns

    async def _run(self) -> None:
        while True:
            self.engine.run_until(self.now_ns())
            await asyncio.sleep(_STEP_S)


class SimulatedTransport:
    """A host of the simulator with a transport's face."""

    def __init__(self, ether: Ether, listen: str) -> None:
        self._ether = ether
        self._listen = listen
        self._handlers: TransportHandlers | None = None
        self._counts: Counter[str] = Counter()
        self._bulk: Counter[bytes] = Counter()
        self.index = -1
        self.address = ""
        self.process_up = False
        self.machine_up = True
        self.forbidden = False

    # --- a transport -------------------------------------------------------------------------------------------------

    @property
    def local_address(self) -> Address:
        if self._handlers is None:
            raise TransportError("the transport has no address before it is started")
        return self.address

    async def start(self, handlers: TransportHandlers) -> None:
        host, port = parse_listen(self._listen)
        address = format_address(host, port or 20_000 + self._ether.count)
        former = self._ether.hosts.get(address)
        if former is not None and former.process_up:
            raise TransportError(f"cannot listen on {address}: it is in use; choose another")
        self.address, self._handlers, self.process_up = address, handlers, True
        self.index = self._ether.count
        self._ether.count += 1
        self._ether.hosts[address] = self
        self._ether.radio.place(self.index, (0, 0))
        self._ether.network.attach(self)
        self._ether.wake()

    def send_datagram(self, destination: Address, data: bytes) -> None:
        if self._may_send("datagram", destination, data, MAX_DATAGRAM_BYTES):
            self._ether.network.datagram(self, SendDatagram(destination, data))

    def send_stream(self, destination: Address, data: bytes, deadline_ns: int, bulk: bool) -> None:
        if self._may_send("stream", destination, data, MAX_STREAM_BYTES, "bulk" if bulk else "stream"):
            if bulk:
                self._bulk_of(destination)[data] += 1
            effect = SendStream(destination, data, deadline_ns, bulk)
            self._ether.network.stream(self, effect, deadline_ns - self._ether.began_ns)

    @property
    def casts(self) -> bool:
        return True

    def send_cast(self, data: bytes) -> None:
        self._ether.network.cast(self, SendCast(data))

    def cast_opened(self, source: Address, nonce: bytes) -> None:
        pass

    def probe_host(self, destination: Address, timeout_ns: int) -> None:
        if not _is_address(destination):
            self.host_probed(destination, HostAnswer.SILENT)
            return
        self._ether.network.probe(self, ProbeHost(destination, timeout_ns))

    async def rekey(self, keys: CurveKeys) -> None:
        pass

    def counters(self) -> dict[str, int]:
        return dict(self._counts)

    async def close(self) -> None:
        if self.process_up:
            await asyncio.sleep(0.05)
            self.process_up = False

    # --- a host of the simulator -------------------------------------------------------------------------------------

    def receive_datagram(self, source: str, data: bytes) -> None:
        self._count_in("datagram", data)
        self._later("datagram", source, data)

    def receive_stream(self, source: str, data: bytes) -> None:
        bulk = self._bulk[data] > 0
        self._bulk[data] -= bulk
        self._count_in("bulk" if bulk else "stream", data)
        self._later("stream", source, data)

    def send_failed(self, destination: str, reason: str) -> None:
        counter = {TOO_LARGE: "refused", EXPIRED: "dropped_expired", FULL: "dropped_full"}.get(reason)
        if counter:
            self._counts[f"streams_{counter}"] += 1
        self._later("send_failed", destination, reason)

    def host_probed(self, destination: str, answer: HostAnswer) -> None:
        self._later("host_probed", destination, answer)

    # --- between the two ---------------------------------------------------------------------------------------------

    def _later(self, handler: str, *arguments: object) -> None:
        assert self._handlers is not None, "started"
        asyncio.get_running_loop().call_soon(getattr(self._handlers, handler), *arguments)

    def _may_send(self, name: str, destination: Address, data: bytes, most: int, path: str = "") -> bool:
        path = path or name
        if not self.process_up:
            self._counts[f"{path}s_dropped_closed"] += 1
        elif len(data) > most:
            self._counts[f"{name}s_refused"] += 1
            self._later("send_failed", destination, TOO_LARGE)
        elif not _is_address(destination):
            self._later("send_failed", destination, UNREACHABLE)
        else:
            self._counts[f"{path}s_out"] += 1
            self._counts[f"{path}_bytes_out"] += len(data)
            return True
        return False

    def _count_in(self, path: str, data: bytes) -> None:
        self._counts[f"{path}s_in"] += 1
        self._counts[f"{path}_bytes_in"] += len(data)

    def _bulk_of(self, destination: Address) -> "Counter[bytes]":
        other = self._ether.hosts.get(destination)
        return other._bulk if other is not None else Counter()


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True
