"""Both paths over DDS (CycloneDDS): for robots whose network already carries it.

An address is an id in the usual notation, "ip:number": the ip picks the interface (a wildcard: all of one family, and
each carries every sample), the number tells the nodes of one device apart; no socket is bound to it. Samples for a node
lie in the partition of its address, so nobody else is sent them. DDS finds readers by itself, which takes from
milliseconds to a second, so a first frame waits for it here, under its deadline. The wheel has no DDS Security, and
needs none: frames arrive sealed.
"""

import asyncio
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swarmd.errors import TransportError
from swarmd.transports.address import format_address, is_ipv6, parse_address
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
from swarmd.transports.dds_options import DdsOptions
from swarmd.transports.reach import Reach
from swarmd_protocols.ids import WAYS, Address

if TYPE_CHECKING:
    from swarmd.transports.dds_raw import DdsPath, Participant, Writer

_DATAGRAM_DEADLINE_NS = 500_000_000
"""Nanoseconds after which a probe or a piece of gossip that still waits is worthless: a probe's window."""
_QUEUE_FRAMES = {"datagram": 32, "stream": 256, "bulk": 64}
_QUEUE_BYTES = 32 * 1024 * 1024
"""Bytes that wait for one peer over all paths: eight of the largest frames."""
_IDLE_S = 60.0
"""Seconds without a frame after which a peer's writers are closed."""
_TICK_S, _IDLE_TICK_S = 0.02, 2.0
_FLUSH_S = 1.0
"""Seconds that a stop waits for what is on its way."""
_WAIT_MS = 200
"""Milliseconds that the reading thread waits at a time, so that a stop takes no longer."""
_TAKE_MAX = 128
"""Samples read a wake-up before timers get their turn."""
_FIRST_NUMBER = 20_000
"""First port-like number of an address without one: far above ports that people write."""


@dataclass(slots=True)
class _Lane:
    """What goes to one destination over one path."""

    writer: "Writer"
    used_s: float = 0.0
    queue: deque[tuple[bytes, int]] = field(default_factory=deque)
    queued_bytes: int = 0


class DdsTransport:
    """See the module; one object for one life."""

    def __init__(self, listen: str, options: DdsOptions, interfaces: Sequence[str] = ()) -> None:
        """Remember the address; nothing is opened before `start`.

        Args:
            listen: "ip:number"; number 0 for a random one.
            options: Domain and discovery.
            interfaces: Patterns of the interfaces of which one is taken, where the ip is a wildcard; none: all.
        """
        self._listen = listen
        self._options = options
        self._interfaces = interfaces
        self._reach: Reach | None = None
        self._counts: Counter[str] = Counter()
        self._handlers: TransportHandlers | None = None
        self._participant: Participant | None = None
        self._lanes: dict[tuple[str, Address], _Lane] = {}
        self._caster: Writer | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._taken = threading.Event()
        self._stop = threading.Event()

    @property
    def local_address(self) -> Address:
        """The address that peers should use."""
        if self._participant is None:
            raise TransportError("the transport has no address before it is started")
        return self._participant.address

    @property
    def reach(self) -> Reach:
        """Where this node is reached."""
        if self._reach is None:
            raise TransportError("the transport has no address before it is started")
        return self._reach

    def look_around(self) -> bool:
        """Look at the device's addresses again; the participant stays where it is."""
        return False

    async def start(self, handlers: TransportHandlers) -> None:
        """Join the domain and begin to deliver.

        Raises:
            TransportError: Names the address, the cause and the remedy.
        """
        try:
            from swarmd.transports import dds_raw
        except ImportError as error:
            raise TransportError(
                f"transport dds needs CycloneDDS: {error}; `pip install swarmd[dds]`, on Arm see docs/transports.md"
            ) from error
        host, number = parse_listen(self._listen)
        number = number or secrets.randbelow(65_536 - _FIRST_NUMBER) + _FIRST_NUMBER
        # DDS is bound to its interfaces for good: those of the ways that there are now, the best one's name is the id.
        ways = Reach(host, number, interfaces=self._interfaces).address.split(WAYS)
        hosts = [parse_address(way)[0] for way in ways]
        host = hosts[0]
        hosts = [one for one in hosts if is_ipv6(one) == is_ipv6(host)]  # DDS speaks one family.
        address = format_address(host, number)
        self._reach = Reach(host, number)
        self._raw = dds_raw
        self._paths = {path.name: path for path in dds_raw.PATHS}
        self._handlers = handlers
        self._loop = asyncio.get_running_loop()
        claimed = address in _addresses
        if claimed:
            raise TransportError(f"cannot listen on dds {address}: it is in use in this process; choose another number")
        self._participant = dds_raw.Participant(hosts, address, self._options)
        _addresses.add(address)
        self._thread = threading.Thread(target=self._wait, name="dds-waitset", daemon=True)
        self._thread.start()

    def send_datagram(self, destination: Address, data: bytes) -> None:
        """Send within half a second or never."""
        if len(data) > MAX_DATAGRAM_BYTES:
            self._refuse(destination, TOO_LARGE, "datagrams_refused")
            return
        self._send("datagram", destination, data, time.monotonic_ns() + _DATAGRAM_DEADLINE_NS)

    def send_stream(self, destination: Address, data: bytes, deadline_ns: int, bulk: bool) -> None:
        """Queue for the reliable path."""
        if len(data) > MAX_STREAM_BYTES:
            self._refuse(destination, TOO_LARGE, "streams_refused")
            return
        self._send("bulk" if bulk else "stream", destination, data, deadline_ns)

    @property
    def casts(self) -> bool:
        """One multicast sample reaches all readers of a topic, unless the options forbid multicast."""
        return self._options.multicast

    def send_cast(self, data: bytes) -> None:
        """Write one best-effort sample for every node."""
        if len(data) > MAX_DATAGRAM_BYTES or not self.casts or self._participant is None or self._stop.is_set():
            self._counts["casts_refused"] += 1
            return
        try:
            if self._caster is None:
                self._caster = self._participant.cast_writer()
            written = self._caster.write(data)
        except self._raw.DDSException:
            written = False
        self._counts["casts_out" if written else "casts_refused"] += 1
        self._counts["cast_bytes_out"] += len(data) if written else 0

    def cast_opened(self, source: Address, nonce: bytes) -> None:
        """Nothing: sources have no rates here."""

    @property
    def cast_problem(self) -> str:
        """Nothing: CycloneDDS chooses how a sample travels, and refuses its start where it cannot."""
        return ""

    def probe_host(self, destination: Address, timeout_ns: int) -> None:
        """Nothing: DDS binds no port under the node's address, so a peer's kernel cannot be asked."""

    async def rekey(self, keys: CurveKeys) -> None:
        """Nothing: DDS itself encrypts nothing, frames arrive sealed."""

    def counters(self) -> dict[str, int]:
        """Monotonic counts: bytes and frames in and out per path, drops by reason."""
        return dict(self._counts)

    async def close(self) -> None:
        """Flush for at most a second and release everything; may be called twice."""
        participant, self_stop = self._participant, self._stop
        if participant is None or self_stop.is_set():
            return
        until_s = self._loop.time() + _FLUSH_S
        while any(lane.queue for lane in self._lanes.values()) and self._loop.time() < until_s:
            await asyncio.sleep(_TICK_S)
        self_stop.set()
        self._taken.set()
        if self._tick is not None:
            self._tick.cancel()
        assert self._thread is not None, "start has made it"
        await asyncio.to_thread(self._thread.join)
        for (name, _), lane in self._lanes.items():
            self._counts[f"{name}s_dropped_closed"] += len(lane.queue)
            lane.writer.close()
        self._lanes.clear()
        if self._caster is not None:
            self._caster.close()
            self._caster = None
        await asyncio.to_thread(participant.close)
        _addresses.discard(participant.address)

    # --- out -------------------------------------------------------------------------------------------------------

    def _send(self, name: str, destination: Address, data: bytes, deadline_ns: int) -> None:
        assert self._handlers is not None, "start comes first"
        if self._stop.is_set():
            self._counts[f"{name}s_dropped_closed"] += 1
            return
        try:
            lane = self._lane(name, destination)
        except (ValueError, self._raw.DDSException):
            self._refuse(destination, UNREACHABLE, f"{name}s_refused")
            return
        if len(lane.queue) >= _QUEUE_FRAMES[name] or lane.queued_bytes + len(data) > _QUEUE_BYTES:
            self._counts[f"{name}s_dropped_full"] += 1
            self._loop.call_soon(self._handlers.send_failed, destination, FULL)
            return
        lane.queue.append((data, deadline_ns))
        lane.queued_bytes += len(data)
        lane.used_s = self._loop.time()
        self._flush(name, destination, lane)
        self._arm(_TICK_S if lane.queue else _IDLE_TICK_S)

    def _lane(self, name: str, destination: Address) -> _Lane:
        lane = self._lanes.get((name, destination))
        if lane is None:
            parse_address(destination)
            assert self._participant is not None, "start has made it"
            lane = _Lane(self._participant.writer(self._paths[name], destination))
            self._lanes[name, destination] = lane
        return lane

    def _flush(self, name: str, destination: Address, lane: _Lane) -> None:
        now_ns = time.monotonic_ns()
        self._drop_expired(name, destination, lane, now_ns)
        if not lane.queue or not lane.writer.is_matched():
            return
        while lane.queue:
            data, _ = lane.queue[0]
            try:
                if not lane.writer.write(data):
                    return  # The history is full; the tick tries again.
            except self._raw.DDSException:
                self._counts[f"{name}s_refused"] += 1
            else:
                self._counts[f"{name}s_out"] += 1
                self._counts[f"{name}_bytes_out"] += len(data)
            lane.queue.popleft()
            lane.queued_bytes -= len(data)

    def _drop_expired(self, name: str, destination: Address, lane: _Lane, now_ns: int) -> None:
        assert self._handlers is not None, "start has set them"
        if all(deadline_ns > now_ns for _, deadline_ns in lane.queue):
            return
        kept = deque((data, deadline_ns) for data, deadline_ns in lane.queue if deadline_ns > now_ns)
        self._counts[f"{name}s_dropped_expired"] += len(lane.queue) - len(kept)
        lane.queue = kept
        lane.queued_bytes = sum(len(data) for data, _ in kept)
        self._loop.call_soon(self._handlers.send_failed, destination, EXPIRED)

    def _arm(self, delay_s: float) -> None:
        if self._tick is not None:
            if self._tick.when() <= self._loop.time() + delay_s:
                return
            self._tick.cancel()
        self._tick = self._loop.call_later(delay_s, self._on_tick)

    def _on_tick(self) -> None:
        """Deadlines, late matches, full histories and idle writers."""
        self._tick = None
        now_s = self._loop.time()
        for (name, destination), lane in list(self._lanes.items()):
            self._flush(name, destination, lane)
            if not lane.queue and now_s - lane.used_s > _IDLE_S:
                del self._lanes[name, destination]
                lane.writer.close()
        if self._lanes and not self._stop.is_set():
            self._arm(_TICK_S if any(lane.queue for lane in self._lanes.values()) else _IDLE_TICK_S)

    def _refuse(self, destination: Address, reason: str, counter: str) -> None:
        assert self._handlers is not None, "start comes first"
        self._counts[counter] += 1
        self._loop.call_soon(self._handlers.send_failed, destination, reason)

    # --- in --------------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """The waiting thread: wakes the loop, and waits until the loop has taken what was there."""
        assert self._participant is not None, "start has made it"
        while not self._stop.is_set():
            if not self._participant.wait(_WAIT_MS):
                continue
            self._taken.clear()
            try:
                self._loop.call_soon_threadsafe(self._take_all)
            except RuntimeError:  # The loop has gone without closing us.
                return
            while not self._taken.wait(_WAIT_MS / 1_000) and not self._stop.is_set():
                pass

    def _take_all(self) -> None:
        try:
            for path in self._raw.PATHS:
                self._take(path)
        finally:
            self._taken.set()

    def _take(self, path: "DdsPath") -> None:
        if self._participant is None or self._stop.is_set():
            return
        samples = self._participant.take(path, _TAKE_MAX)
        for at, sample in enumerate(samples):
            if sample is None:
                continue
            try:
                self._deliver(path, sample)
            except Exception:
                # The rest has been taken already and would be lost: deliver it on the next turn.
                self._loop.call_soon(self._deliver_rest, path, samples[at + 1 :])
                raise

    def _deliver_rest(self, path: "DdsPath", samples: list[bytes | None]) -> None:
        for at, sample in enumerate(samples):
            if sample is not None:
                self._loop.call_soon(self._deliver_rest, path, samples[at + 1 :])
                self._deliver(path, sample)
                return

    def _deliver(self, path: "DdsPath", sample: bytes) -> None:
        assert self._handlers is not None, "start has set them"
        frame = self._raw.decode_frame(sample)
        if frame is None or not _is_address(frame[0]) or not frame[1]:
            self._counts["frames_dropped_malformed"] += 1
            return
        source, data = frame
        if path.is_shared and source == self.local_address:
            return
        if not path.reliable and len(data) > MAX_DATAGRAM_BYTES:
            self._counts["datagrams_dropped_size"] += 1
            return
        self._counts[f"{path.name}s_in"] += 1
        self._counts[f"{path.name}_bytes_in"] += len(data)
        (self._handlers.stream if path.reliable else self._handlers.datagram)(source, data)


_addresses: set[Address] = set()
"""Addresses of this process; two nodes under one id would hear each other's frames."""


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True
