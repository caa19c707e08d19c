"""Frames between hosts: datagrams that may get lost, and streams that arrive in order or pass their deadline.

The air (`radio.py`) and the scripted faults (`linkfaults.py`) decide; this file moves. A stream frame travels in
bursts; a lost burst is sent again after a retransmission timeout that doubles, as TCP does it, and stands in front of
what follows on the same connection. A host whose process is dead but whose machine lives answers "refused", as a
kernel does; a machine without power answers nothing.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from swarmd_protocols.effects import REFUSED, HostAnswer, ProbeHost, SendCast, SendDatagram, SendStream
from swarmd_sim.faults.links import LinkFaults
from swarmd_sim.radio.radio import Radio
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine

DATAGRAM_MAX_BYTES = 1_200
STREAM_MAX_BYTES = 4 * 1024 * 1024 + 64 * 1024

BURST_BYTES = 16_384
_RTO_NS = 200_000_000
_RTO_MAX_NS = 3_000_000_000
_REDIAL_NS = 100_000_000
_REDIAL_MAX_NS = 1_000_000_000
_REFUSED_GAP_NS = 50_000_000
_SYN_RETRY_NS = 1_000_000_000
_CONNECTION_FRAMES_MAX = 256


class Endpoint(Protocol):
    """What the network needs of a host."""

    index: int
    address: str
    process_up: bool
    machine_up: bool
    forbidden: bool

    def receive_datagram(self, source: str, data: bytes) -> None:
        """A datagram arrived."""

    def receive_stream(self, source: str, data: bytes) -> None:
        """A stream frame arrived."""

    def send_failed(self, destination: str, reason: str) -> None:
        """The transport refused to send."""

    def host_probed(self, destination: str, answer: HostAnswer) -> None:
        """The answer to a `ProbeHost`."""


@dataclass(slots=True)
class _Transfer:
    data: bytes
    deadline_ns: int
    sent: int = 0
    tries: int = 0


@dataclass(slots=True)
class _HostProbe:
    source: int
    target: int
    deadline_ns: int
    answered: bool = False


@dataclass(slots=True)
class _Connection:
    source: int
    destination: int
    queue: deque[_Transfer] = field(default_factory=deque)
    busy: bool = False


@dataclass(slots=True)
class NetworkCounters:
    """What went over the network."""

    datagrams: int = 0
    datagram_bytes: int = 0
    casts: int = 0
    cast_bytes: int = 0
    streams: int = 0
    stream_bytes: int = 0
    delivered: int = 0
    expired: int = 0
    oversized: int = 0
    injected: int = 0
    """Datagrams under a source address that was not the sender's."""
    lost_by_reason: dict[str, int] = field(default_factory=dict)
    """Datagrams, casts (once for each host that should have heard them) and bursts of streams that did not arrive: by
    the radio's reason, or "cut", "lossy-link", "clogged" (scripted faults), "no-host", "no-power"."""

    @property
    def lost(self) -> int:
        """All that did not arrive: the sum of `lost_by_reason`."""
        return sum(self.lost_by_reason.values())

    def lose(self, reason: str) -> None:
        """Count one."""
        self.lost_by_reason[reason] = self.lost_by_reason.get(reason, 0) + 1


class Network:
    """All frames of one run.

    Args:
        engine: Virtual time.
        radio: The air.
        faults: Scripted faults on links.
        choices: All randomness.
    """

    def __init__(self, engine: Engine, radio: Radio, faults: LinkFaults, choices: Choices) -> None:
        self._engine = engine
        self._radio = radio
        self.faults = faults
        self._choices = choices
        self._hosts: list[Endpoint] = []
        self._index: dict[str, int] = {}
        self._connections: dict[tuple[int, int, bool], _Connection] = {}
        self._clogged: list[tuple[int, int, bytes]] = []
        self._refused_ns: dict[tuple[int, int], int] = {}
        self.counters = NetworkCounters()
        self.sent_bytes: list[int] = []
        self.sent_packets: list[int] = []
        self.away_ns: dict[int, int] = {}
        """By host: how much longer each of its frames takes, beside the air's time; a server far away."""
        self.captured: deque[tuple[int, int, bytes]] | None = None
        """(source, destination, frame) of late, when a hostile node listens."""

    def attach(self, host: Endpoint) -> None:
        """Add a host; hosts are added in order of their index."""
        self._hosts.append(host)
        self._index[host.address] = host.index
        self.sent_bytes.append(0)
        self.sent_packets.append(0)

    def rename(self, old_address: str, host: Endpoint) -> None:
        """A host came back under another address."""
        self._index.pop(old_address, None)
        self._index[host.address] = host.index

    def datagram(self, host: Endpoint, effect: SendDatagram) -> None:
        """Perform one `SendDatagram`."""
        data = effect.data
        if len(data) > DATAGRAM_MAX_BYTES:
            self.counters.oversized += 1
            host.send_failed(effect.destination, "too large")
            return
        self.raw_datagram(host, effect.destination, data)

    def raw_datagram(self, host: Endpoint, destination: str, data: bytes) -> None:
        """Send bytes as they are; hostile nodes come in here."""
        if host.forbidden:
            host.send_failed(destination, "forbidden")
            return
        target = self._index.get(destination)
        counters = self.counters
        counters.datagrams += 1
        counters.datagram_bytes += len(data)
        source = host.index
        self.sent_bytes[source] += len(data)
        self.sent_packets[source] += 1
        if target is None:
            counters.lose("no-host")
            return
        if self.captured is not None:
            self.captured.append((source, target, data))
        engine = self._engine
        verdict = self._radio.send(source, target, len(data), engine.now_ns)
        if verdict.lost:
            counters.lose(verdict.reason)
            return
        arrives_ns = verdict.arrives_ns + self._beyond_ns(source, target)
        if self.faults.quiet:
            engine.at(arrives_ns, self._arrive, (source, target, data))
        else:
            self._faulty_datagram(source, target, data, arrives_ns)

    def _beyond_ns(self, source: int, target: int) -> int:
        """Between the air and hosts that are elsewhere."""
        return self.away_ns.get(source, 0) + self.away_ns.get(target, 0) if self.away_ns else 0

    def inject(self, host: Endpoint, source: str, target: Endpoint, data: bytes) -> None:
        """Put bytes into a member's socket from an address that is not the sender's own; only hostile hosts come here.

        Args:
            host: Whose radio is used.
            source: The address that the datagram claims.
            target: Who hears it.
            data: Its bytes.
        """
        self.counters.injected += 1
        verdict = self._radio.send(host.index, target.index, len(data), self._engine.now_ns)
        if not verdict.lost and (self.faults.quiet or not self.faults.cut(host.index, target.index)):
            self._engine.at(verdict.arrives_ns, self._injected, (source, target, data))

    def _injected(self, frame: tuple[str, Endpoint, bytes]) -> None:
        source, target, data = frame
        if target.process_up:
            target.receive_datagram(source, data)

    def _faulty_datagram(self, source: int, target: int, data: bytes, arrives_ns: int) -> None:
        fate = self.faults.judge(source, target)
        if fate.blocked or fate.lost:
            self.counters.lose("cut" if fate.blocked else "lossy-link")
            return
        if fate.corrupt and data:
            damaged = bytearray(data)
            bit = self._choices.choose("link.bit", len(damaged) * 8)
            damaged[bit // 8] ^= 1 << (bit % 8)
            data = bytes(damaged)
        if fate.clogged:
            self._clogged.append((source, target, data))
            return
        for copy in range(fate.copies):
            gap_ns = self._choices.choose("link.copy", 20_000_000) if copy else 0
            self._engine.at(arrives_ns + fate.delay_ns + gap_ns, self._arrive, (source, target, data))

    def cast(self, host: Endpoint, effect: SendCast) -> None:
        """Perform one `SendCast`: one frame on the air, heard by whoever can; nobody answers that nothing listens."""
        data, counters, source = effect.data, self.counters, host.index
        if host.forbidden or len(data) > DATAGRAM_MAX_BYTES:
            counters.oversized += len(data) > DATAGRAM_MAX_BYTES
            return
        counters.casts += 1
        counters.cast_bytes += len(data)
        self.sent_bytes[source] += len(data)
        self.sent_packets[source] += 1
        others = [other.index for other in self._hosts if other.index != source and other.process_up]
        for target, verdict in zip(
            others, self._radio.cast(source, others, len(data), self._engine.now_ns), strict=True
        ):
            if verdict.lost:
                counters.lose(verdict.reason)
            elif self.faults.quiet:
                self._engine.at(verdict.arrives_ns, self._arrive, (source, target, data))
            else:
                self._faulty_datagram(source, target, data, verdict.arrives_ns)

    def unclog(self) -> None:
        """A clog has ended: everything that waited arrives now, in order, unless another clog still holds it."""
        waiting, self._clogged = self._clogged, []
        for source, target, data in waiting:
            if any(fault.clogged and fault.touches(source, target) for fault in self.faults.active.values()):
                self._clogged.append((source, target, data))
            else:
                self._engine.at(self._engine.now_ns, self._arrive, (source, target, data))

    def _arrive(self, frame: tuple[int, int, bytes]) -> None:
        source, target, data = frame
        host = self._hosts[target]
        if host.process_up:
            self.counters.delivered += 1
            host.receive_datagram(self._hosts[source].address, data)
        elif host.machine_up:
            self._refuse(source, target)

    def _refuse(self, source: int, target: int) -> None:
        now_ns = self._engine.now_ns
        if now_ns - self._refused_ns.get((source, target), -_REFUSED_GAP_NS) < _REFUSED_GAP_NS:
            return
        self._refused_ns[(source, target)] = now_ns
        verdict = self._radio.send(target, source, 64, now_ns)
        if not verdict.lost and not self.faults.cut(target, source):
            self._engine.at(verdict.arrives_ns, self._deliver_refusal, (source, target))

    def _deliver_refusal(self, pair: tuple[int, int]) -> None:
        source, target = pair
        if self._hosts[source].process_up:
            self._hosts[source].send_failed(self._hosts[target].address, REFUSED)

    # --- Probes of a host's kernel --------------------------------------------------------------------------------

    def probe(self, host: Endpoint, effect: ProbeHost) -> None:
        """Perform one `ProbeHost`: a TCP connect, whose first packet is repeated after a second."""
        now_ns = self._engine.now_ns
        target = self._index.get(effect.destination, -1)
        probe = _HostProbe(host.index, target, now_ns + effect.timeout_ns)
        if target >= 0 and not host.forbidden:
            self._syn(probe)
            if effect.timeout_ns > _SYN_RETRY_NS:
                self._engine.at(now_ns + _SYN_RETRY_NS, self._syn, probe)
        self._engine.at(probe.deadline_ns, self._probe_late, (probe, effect.destination))

    def _syn(self, probe: _HostProbe) -> None:
        if probe.answered:
            return
        arrives_ns = self._passes(probe.source, probe.target)
        if arrives_ns >= 0:
            self._engine.at(arrives_ns, self._syn_arrives, probe)

    def _passes(self, source: int, target: int) -> int:
        """When a small packet sent now arrives; -1 when it does not."""
        verdict = self._radio.send(source, target, 64, self._engine.now_ns)
        arrives_ns = verdict.arrives_ns + self._beyond_ns(source, target)
        if verdict.lost or self.faults.quiet:
            return -1 if verdict.lost else arrives_ns
        fate = self.faults.judge(source, target)
        return -1 if fate.blocked or fate.lost or fate.clogged else arrives_ns + fate.delay_ns

    def _syn_arrives(self, probe: _HostProbe) -> None:
        target = self._hosts[probe.target]
        if not target.machine_up or probe.answered:
            return
        answer = HostAnswer.OPEN if target.process_up else HostAnswer.REFUSED
        arrives_ns = self._passes(probe.target, probe.source)
        if 0 <= arrives_ns <= probe.deadline_ns:
            self._engine.at(arrives_ns, self._probe_answered, (probe, answer))

    def _probe_answered(self, what: tuple[_HostProbe, HostAnswer]) -> None:
        probe, answer = what
        if not probe.answered:
            probe.answered = True
            self._hosts[probe.source].host_probed(self._hosts[probe.target].address, answer)

    def _probe_late(self, what: tuple[_HostProbe, str]) -> None:
        probe, destination = what
        if not probe.answered:
            probe.answered = True
            self._hosts[probe.source].host_probed(destination, HostAnswer.SILENT)

    # --- Streams --------------------------------------------------------------------------------------------------

    def stream(self, host: Endpoint, effect: SendStream, deadline_ns: int) -> None:
        """Perform one `SendStream`.

        Args:
            host: The sender.
            effect: What to send.
            deadline_ns: The effect's deadline in virtual time.
        """
        if len(effect.data) > STREAM_MAX_BYTES:
            self.counters.oversized += 1
            host.send_failed(effect.destination, "too large")
            return
        if host.forbidden:
            host.send_failed(effect.destination, "forbidden")
            return
        target = self._index.get(effect.destination)
        if target is None:
            return
        self.counters.streams += 1
        key = (host.index, target, effect.bulk)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = _Connection(host.index, target)
        if len(connection.queue) >= _CONNECTION_FRAMES_MAX:
            host.send_failed(effect.destination, "full")
            return
        connection.queue.append(_Transfer(effect.data, deadline_ns))
        if not connection.busy:
            connection.busy = True
            self._step(connection)

    def _step(self, connection: _Connection) -> None:
        """Send the next burst of the frame at the head of the connection."""
        queue, now_ns = connection.queue, self._engine.now_ns
        sender = self._hosts[connection.source]
        if not sender.process_up:
            queue.clear()
        while queue and now_ns >= queue[0].deadline_ns:
            queue.popleft()
            self.counters.expired += 1
            sender.send_failed(self._hosts[connection.destination].address, "expired")
        if not queue:
            connection.busy = False
            return
        transfer = queue[0]
        size = min(BURST_BYTES, len(transfer.data) - transfer.sent)
        self.counters.stream_bytes += size
        self.sent_bytes[connection.source] += size
        self.sent_packets[connection.source] += size // 1_400 + 1
        arrives_ns, reason = self._burst(connection, size, now_ns)
        if reason:
            self._send_later(connection, transfer, reason)
            return
        self._engine.at(arrives_ns, self._burst_arrived, (connection, transfer, size))

    def _send_later(self, connection: _Connection, transfer: _Transfer, reason: str) -> None:
        """No acknowledgement comes: the kernel sends again, ever less often."""
        self.counters.lose(reason)
        wait_ns = min(_RTO_MAX_NS, _RTO_NS << min(transfer.tries, 5))
        transfer.tries += 1
        self._engine.at(self._engine.now_ns + wait_ns, self._step, connection)

    def _burst(self, connection: _Connection, size: int, now_ns: int) -> tuple[int, str]:
        """When the burst arrives, and "", or why it is lost."""
        verdict = self._radio.send(connection.source, connection.destination, size, now_ns)
        arrives_ns = verdict.arrives_ns + self._beyond_ns(connection.source, connection.destination)
        if verdict.lost or self.faults.quiet:
            return arrives_ns, verdict.reason
        fate = self.faults.judge(connection.source, connection.destination)
        reason = "cut" if fate.blocked else "lossy-link" if fate.lost else "clogged" if fate.clogged else ""
        return arrives_ns + fate.delay_ns, reason

    def _burst_arrived(self, what: tuple[_Connection, _Transfer, int]) -> None:
        connection, transfer, size = what
        target = self._hosts[connection.destination]
        if connection.queue and connection.queue[0] is transfer:
            if target.process_up:
                transfer.sent += size
                transfer.tries = 0
                if transfer.sent >= len(transfer.data):
                    connection.queue.popleft()
                    target.receive_stream(self._hosts[connection.source].address, transfer.data)
            elif target.machine_up:
                # Nobody listens: what is queued waits for its deadline while the connection is dialled again.
                self._refuse(connection.source, connection.destination)
                wait_ns = min(_REDIAL_MAX_NS, _REDIAL_NS << min(transfer.tries, 5))
                transfer.tries += 1
                transfer.sent = 0
                self._engine.at(self._engine.now_ns + wait_ns, self._step, connection)
                return
            else:  # A machine without power.
                self._send_later(connection, transfer, "no-power")
                return
        self._step(connection)
