"""One DDS participant as ROS 2 expects it: QoS, USER_DATA, graph announcement, one waitset thread into asyncio.

The only module that touches CycloneDDS. Works with cyclonedds 11 and with 0.10.5 built against Debian's C library; what
differs between them (`DataRepresentation`, the raw calls of `_clayer`) is asked for once, here.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.cdr import ENCODERS
from swarmd.bridges.ros2.names import TYPE_HASHES, ros_type
from swarmd.bridges.ros2.network import network_xml
from swarmd.errors import TransportError

try:
    from cyclonedds._clayer import ddspy_write
except ImportError:  # pragma: no cover - no released version so far
    ddspy_write = None

try:
    from cyclonedds._clayer import ddspy_take
except ImportError:  # pragma: no cover - no released version so far
    ddspy_take = None

_ANY = SampleState.Any | ViewState.Any | InstanceState.Any
_WAIT_MS = 200
"""Milliseconds that the reading thread waits at a time, so that a stop takes no longer."""
TAKE_MAX = 100
"""Samples taken at once; a burst of more is taken in the next turn."""
SAMPLE_MAX_BYTES = 256 * 1024
"""Larger samples are dropped undecoded: decoding is the slow part, and anybody on this host may write."""
READ_BYTES_PER_S = 1 << 20
"""What is decoded in a second, over all readers; twenty detections a frame at thirty frames need a third of it."""


def qos(*, reliable: bool, transient_local: bool, depth: int, type_name: str = "") -> Qos:
    """A QoS that every ROS 2 reader or writer of the usual profiles matches.

    Args:
        reliable: Reliable, else best effort.
        transient_local: Late joiners get the last samples.
        depth: Samples kept, for each writer of a keyless topic together.
        type_name: ROS 2 type, for its hash in USER_DATA; "" sends none.

    Returns:
        The QoS.
    """
    keep = Policy.History.KeepLast(depth)
    policies: list[Any] = [
        Policy.Reliability.Reliable(duration(milliseconds=50)) if reliable else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal if transient_local else Policy.Durability.Volatile,
        keep,
        Policy.WriterDataLifecycle(autodispose=False),
    ]
    if transient_local:
        policies.append(Policy.DurabilityService(0, keep, -1, -1, -1))
    if hasattr(Policy, "DataRepresentation"):
        policies.append(Policy.DataRepresentation(use_cdrv0_representation=True))
    if type_name:
        # Jazzy logs an error for endpoints without it.
        policies.append(Policy.Userdata(f"typehash={TYPE_HASHES[type_name]};".encode()))
    return Qos(*policies)


class Ros2Participant:
    """Writers and readers of one domain, announced as one ROS 2 node."""

    def __init__(self, domain: int, node_name: str, interface: str) -> None:
        """Open the participant.

        Args:
            domain: DDS domain; -1 takes ROS_DOMAIN_ID, else 0.
            node_name: Name in `ros2 node list`, a valid token.
            interface: "auto", "lo" or a name; used when CYCLONEDDS_URI is not set.

        Raises:
            TransportError: CycloneDDS refuses; names the domain, the interface and what to check.
        """
        text = os.environ.get("ROS_DOMAIN_ID", "0")
        if domain < 0 and not (text.isdigit() and int(text) <= 232):
            raise TransportError(f"ROS_DOMAIN_ID is {text!r}; it must be a number from 0 to 232")
        number = domain if domain >= 0 else int(text)
        try:
            # A Domain made in code would override the user's CYCLONEDDS_URI: only without one.
            self._domain = None if os.environ.get("CYCLONEDDS_URI") else Domain(number, network_xml(interface, number))
            self._participant = DomainParticipant(number, qos=Qos(Policy.Userdata(b"enclave=/;")))
        except Exception as error:  # cyclonedds raises several unrelated classes here
            raise TransportError(
                f"dds: no participant in domain {number} on interface {interface!r}: {error}; check CYCLONEDDS_URI, "
                f"that the interface exists, and that no DDS Security is configured (CycloneDDS's wheel has none)"
            ) from error
        self._node_name = node_name
        self._writers: list[Any] = []
        self._readers: list[tuple[Any, type[Any], Callable[[Any], None]]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        graph = qos(reliable=True, transient_local=True, depth=1)
        self._graph = DataWriter(
            self._participant,
            Topic(self._participant, "ros_discovery_info", m.ParticipantEntitiesInfo, qos=graph),
            qos=graph,
        )

    def writer(self, topic: str, message: type[Any], *, reliable: bool, transient_local: bool, depth: int) -> Any:
        """A DDS writer; `topic` is the DDS name.

        Raises:
            TransportError: CycloneDDS refuses.
        """
        name = ros_type(message.__idl_typename__)
        plain = qos(reliable=reliable, transient_local=transient_local, depth=depth)
        full = qos(reliable=reliable, transient_local=transient_local, depth=depth, type_name=name)
        try:
            writer = DataWriter(self._participant, Topic(self._participant, topic, message, qos=plain), qos=full)
        except Exception as error:  # cyclonedds raises several unrelated classes here
            raise TransportError(f"dds: no writer on {topic}: {error}") from error
        self._writers.append(writer)
        return writer

    def drop_writer(self, writer: Any) -> None:
        """Take a writer out of the domain; call `announce` afterwards."""
        self._writers.remove(writer)

    def reader(self, topic: str, message: type[Any], callback: Callable[[Any], None], *, depth: int) -> Any:
        """A best-effort reader, which matches every writer; `callback` runs on the loop, one sample a call.

        Raises:
            TransportError: CycloneDDS refuses.
        """
        name = ros_type(message.__idl_typename__)
        plain = qos(reliable=False, transient_local=False, depth=depth)
        full = qos(reliable=False, transient_local=False, depth=depth, type_name=name)
        try:
            reader = DataReader(self._participant, Topic(self._participant, topic, message, qos=plain), qos=full)
        except Exception as error:  # cyclonedds raises several unrelated classes here
            raise TransportError(f"dds: no reader on {topic}: {error}") from error
        self._readers.append((reader, message, callback))
        return reader

    def announce(self) -> None:
        """Tell the ROS 2 graph which endpoints belong to our node; call after the last writer and reader."""

        def gid(entity: Any) -> m.Gid:
            return m.Gid(list(entity.guid.bytes))

        self._graph.write(
            m.ParticipantEntitiesInfo(
                gid(self._participant),
                [
                    m.NodeEntitiesInfo(
                        "/",
                        self._node_name,
                        [gid(reader) for reader, _, _ in self._readers],
                        [gid(writer) for writer in self._writers],
                    )
                ],
            )
        )

    def start(self, loop: asyncio.AbstractEventLoop, on_bad_sample: Callable[[str], None]) -> None:
        """Begin to deliver: one thread waits for all readers, takes and decodes; the loop gets what was decoded.

        Args:
            loop: Where callbacks run.
            on_bad_sample: Told why a sample was dropped: "oversized", "over_rate" or "undecodable".
        """
        if not self._readers:
            return
        waitset = WaitSet(self._participant)
        for reader, _, _ in self._readers:
            waitset.attach(ReadCondition(reader, _ANY))
        budget = _Budget()
        handed = threading.Semaphore(0)
        readers = list(self._readers)

        def hand_over(found: list[tuple[Callable[[Any], None], Any]]) -> None:
            try:
                for callback, sample in found:
                    callback(sample)
            finally:
                handed.release()

        def wait() -> None:
            while not self._stop.is_set():
                if not waitset.wait(duration(milliseconds=_WAIT_MS)):
                    continue
                found: list[tuple[Callable[[Any], None], Any]] = []
                for reader, message, callback in readers:
                    samples, problems = _take(reader, message, budget)
                    found += [(callback, sample) for sample in samples]
                    found += [(on_bad_sample, problem) for problem in problems]
                if found and not loop.is_closed():
                    loop.call_soon_threadsafe(hand_over, found)
                    handed.acquire(timeout=1)

        self._thread = threading.Thread(target=wait, name="dds-waitset", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and leave the domain."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1)
        self._readers.clear()
        self._writers.clear()
        del self._graph, self._participant, self._domain


def is_read(writer: Any) -> bool:
    """Whether anybody reads what this writer says; True where CycloneDDS cannot tell (0.10.5).

    Asked before a sample of a volatile topic is made: what nobody reads need not cost anything.
    """
    ask = getattr(writer, "get_publication_matched_status", None)
    return ask is None or ask().current_count > 0


def write(writer: Any, sample: Any) -> None:
    """Write one sample, around the library's codec where we have one of our own.

    Raises:
        TransportError: DDS refused it, for instance because a reliable reader has stopped reading.
    """
    encode = ENCODERS.get(type(sample))
    if encode is None or ddspy_write is None:
        writer.write(sample)
        return
    write_raw(writer, encode(sample))


def write_raw(writer: Any, data: bytes) -> None:
    """Write one sample that is CDR already, with its encapsulation header.

    Raises:
        TransportError: DDS refused it, or this cyclonedds cannot write bytes.
    """
    if ddspy_write is None:
        raise TransportError("this cyclonedds cannot write ready bytes; use 11 or 0.10.5")
    status = ddspy_write(writer._ref, data.ljust((len(data) + 3) & ~3, b"\0"))
    if status < 0:
        raise TransportError(f"dds refused a sample: {status}")


class _Budget:
    """How many bytes may still be decoded: a bucket that fills with time."""

    def __init__(self) -> None:
        self._left = float(READ_BYTES_PER_S)
        self._at_s = time.monotonic()

    def spend(self, size: int) -> bool:
        """Whether there is room for so many bytes, which are then spent."""
        now_s = time.monotonic()
        self._left = min(READ_BYTES_PER_S, self._left + (now_s - self._at_s) * READ_BYTES_PER_S)
        self._at_s = now_s
        if size > self._left:
            return False
        self._left -= size
        return True


def _take(reader: Any, message: type[Any], budget: _Budget) -> tuple[list[Any], list[str]]:
    """Decoded samples, and why others were dropped; a hostile writer's bytes make the codec raise anything."""
    if ddspy_take is None:
        try:
            # A writer that leaves gives an InvalidSample, which has no fields.
            return [sample for sample in reader.take(TAKE_MAX) if hasattr(sample, "serialize")], []
        except Exception:
            return [], ["undecodable"]
    try:
        taken = ddspy_take(reader._ref, _ANY, TAKE_MAX)
    except TypeError:  # cyclonedds 0.10.5 takes no mask
        taken = ddspy_take(reader._ref, TAKE_MAX)
    found: list[Any] = []
    problems: list[str] = []
    for data, info in taken if isinstance(taken, list) else []:
        if not info.valid_data:
            continue
        if len(data) > SAMPLE_MAX_BYTES:
            problems.append("oversized")
        elif not budget.spend(len(data)):
            problems.append("over_rate")
        else:
            try:
                found.append(message.deserialize(data))
            except Exception:
                problems.append("undecodable")
    return found, problems
