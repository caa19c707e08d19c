"""Frames as DDS samples: the one module of the transport that touches CycloneDDS.

    struct swarmd::Frame { string source; sequence<octet> payload; };      XCDR1, little endian, no key
    partition = the address of the node a sample is for; one reader a path, one writer a path and destination;
    casts are for all and have one partition, so that DDS sends each sample once, to the domain's multicast group

CycloneDDS's Python codec turns a sequence of octets into a list, at 1.6 ms for 64 kB; so the CDR bytes are made and
read here, and written and taken with the library's raw calls. A version without those calls goes through the codec.
Runs on cyclonedds 11 and on 0.10.5 built against Debian's C library.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cyclonedds.core import DDSException as DDSException
from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import sequence, uint8
from cyclonedds.internal import DDS
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from swarmd.errors import TransportError
from swarmd.transports.address import MAX_ADDRESS_CHARS
from swarmd.transports.base import MAX_STREAM_BYTES
from swarmd.transports.dds_options import DdsOptions
from swarmd_protocols.ids import Address

try:
    from cyclonedds._clayer import ddspy_take, ddspy_write
except ImportError:  # pragma: no cover - no released version so far
    ddspy_take = ddspy_write = None

HAS_RAW_CALLS = ddspy_write is not None
"""Whether frames go around the library's slow codec."""
_ANY = SampleState.Any | ViewState.Any | InstanceState.Any
_ENCAPSULATION = b"\x00\x01\x00\x00"  # CDR, little endian, no padding declared.
_LENGTH = struct.Struct("<I")
_DATAGRAM_DEPTH = 512
"""Datagrams that a reader keeps: a tenth of a second of a flood."""
_STREAM_SAMPLES_MAX = 1_024
"""Reliable frames that a writer keeps until they are acknowledged."""
_DDS_RETCODE_TIMEOUT = -10
"""What CycloneDDS returns for a full history. Source: dds/ddsc/dds_public_error.h."""
_domains: dict[int, tuple[str, Any]] = {}
"""A DDS domain is one a process; its configuration is that of whoever opened it first."""


@dataclass
class Frame(IdlStruct, typename="swarmd.Frame"):  # type: ignore[call-arg]
    """The sample's type, for discovery and for versions without raw calls."""

    source: str
    payload: sequence[uint8]


def encode_frame(source: Address, payload: bytes) -> bytes:
    """The CDR bytes of one sample, with encapsulation header, padded to four bytes.

    >>> encode_frame("a:1", b"xy").hex(" ", 4)
    '00010000 04000000 613a3100 02000000 78790000'
    """
    name = source.encode("ascii") + b"\0"
    head = _LENGTH.pack(len(name)) + name + bytes(-len(name) % 4)
    return b"".join((_ENCAPSULATION, head, _LENGTH.pack(len(payload)), payload, bytes(-len(payload) % 4)))


def decode_frame(data: bytes) -> tuple[Address, bytes] | None:
    """Source and payload of a sample's CDR bytes, or None when they are no frame: any writer of the domain may lie."""
    if len(data) < 16 or data[0:2] != _ENCAPSULATION[:2]:
        return None
    (name_bytes,) = _LENGTH.unpack_from(data, 4)
    payload_at = 8 + name_bytes + (-name_bytes % 4) + 4
    if not 1 < name_bytes <= MAX_ADDRESS_CHARS + 1 or payload_at > len(data) or data[7 + name_bytes] != 0:
        return None
    (payload_bytes,) = _LENGTH.unpack_from(data, payload_at - 4)
    if payload_bytes > MAX_STREAM_BYTES or payload_at + payload_bytes > len(data):
        return None
    try:
        source = data[8 : 7 + name_bytes].decode("ascii")
    except UnicodeDecodeError:
        return None
    return source, bytes(data[payload_at : payload_at + payload_bytes])


def configuration_xml(hosts: Sequence[str], options: DdsOptions) -> str:
    """CycloneDDS's configuration for some interfaces; peers are listed in it, since DDS learns none later.

    Of several interfaces each carries every sample: DDS would stay with the one that it chose, also where that one is
    dead. Readers drop what comes twice.

    >>> "Redundant" in configuration_xml(["10.0.0.2"], DdsOptions())
    False
    """
    interfaces = "".join(f'<NetworkInterface address="{host}"/>' for host in hosts)
    redundant = "<RedundantNetworking>true</RedundantNetworking>" if len(hosts) > 1 else ""
    peers = "".join(f'<Peer address="{peer}"/>' for peer in dict.fromkeys((*hosts, *options.peers)))
    multicast = "spdp,asm" if options.multicast else "false"
    return (
        f'<CycloneDDS><Domain id="any"><General><Interfaces>{interfaces}</Interfaces>'
        f"{redundant}<AllowMulticast>{multicast}</AllowMulticast><MaxMessageSize>1400B</MaxMessageSize>"
        "<FragmentSize>1300B</FragmentSize></General><Discovery><SPDPInterval>1s</SPDPInterval>"
        "<LeaseDuration>5s</LeaseDuration><ParticipantIndex>auto</ParticipantIndex>"
        f"<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers>{peers}</Peers></Discovery>"
        "</Domain></CycloneDDS>"
    )


@dataclass(frozen=True, slots=True)
class DdsPath:
    """One kind of traffic: its topic and whether samples are sent again."""

    name: str
    topic: str
    reliable: bool
    is_shared: bool = False
    """One partition for all nodes."""


DATAGRAM_PATH = DdsPath("datagram", "swarmd_datagram", reliable=False)
STREAM_PATH = DdsPath("stream", "swarmd_stream", reliable=True)
BULK_PATH = DdsPath("bulk", "swarmd_bulk", reliable=True)
CAST_PATH = DdsPath("cast", "swarmd_cast", reliable=False, is_shared=True)
PATHS = (DATAGRAM_PATH, STREAM_PATH, BULK_PATH, CAST_PATH)
_CAST_PARTITION = "swarmd-cast"


def partition_of(address: Address) -> str:
    """The partition that holds what is for `address`; brackets would be wildcards.

    >>> partition_of("[::1]:7946")
    '(::1):7946'
    """
    return address.replace("[", "(").replace("]", ")")


class Participant:
    """The node's presence in a DDS domain: a reader a path, and writers on demand."""

    def __init__(self, hosts: Sequence[str], address: Address, options: DdsOptions) -> None:
        """Join the domain.

        Args:
            hosts: Numeric address of each interface, of one family.
            address: What samples for this node are addressed to.
            options: Domain and discovery.

        Raises:
            TransportError: CycloneDDS refuses; names what to check.
        """
        self.address = address
        try:
            self._domain = _open_domain(options.domain, configuration_xml(hosts, options))
            self._participant: Any = DomainParticipant(options.domain)
            self._topics = {
                path: Topic(self._participant, path.topic, Frame, qos=_qos(path.reliable)) for path in PATHS
            }
            own = Qos(Policy.Partition((partition_of(address),)))
            self._subscribers: list[Any] = [
                Subscriber(self._participant, qos=qos) for qos in (own, Qos(Policy.Partition((_CAST_PARTITION,))))
            ]
            self._readers: dict[DdsPath, Any] = {
                path: DataReader(self._subscribers[path.is_shared], self._topics[path], qos=_qos(path.reliable))
                for path in PATHS
            }
        except Exception as error:  # The library raises several unrelated classes here.
            raise TransportError(
                f"cannot listen on dds {address}: {error}; check that interfaces have {', '.join(hosts)}, "
                "CYCLONEDDS_URI, and that no DDS Security is configured (the wheel has none)"
            ) from error
        self._waitset: Any = WaitSet(self._participant)
        for reader in self._readers.values():
            self._waitset.attach(ReadCondition(reader, _ANY))

    def wait(self, milliseconds: int) -> bool:
        """Block until a sample is there, or the time is up; for a thread of its own."""
        return bool(self._waitset.wait(duration(milliseconds=milliseconds)))

    def take(self, path: DdsPath, count: int) -> list[bytes | None]:
        """Up to `count` samples' CDR bytes; None for a sample without data (a writer left)."""
        reader = self._readers[path]
        if ddspy_take is None:
            return _take_through_codec(reader, count)
        try:
            taken = ddspy_take(reader._ref, _ANY, count)
        except TypeError:  # 0.10.5 takes no mask.
            taken = ddspy_take(reader._ref, count)
        if isinstance(taken, int):
            raise DDSException(taken, f"while taking from {path.topic}")
        return [data if info.valid_data else None for data, info in taken]

    def writer(self, path: DdsPath, destination: Address) -> "Writer":
        """A writer whose samples reach one destination alone."""
        return Writer(self._participant, self._topics[path], path, self.address, partition_of(destination))

    def cast_writer(self) -> "Writer":
        """A writer whose samples reach every node of the domain."""
        return Writer(self._participant, self._topics[CAST_PATH], CAST_PATH, self.address, _CAST_PARTITION)

    def close(self) -> None:
        """Leave the domain; every writer must have been closed before. The domain itself stays for the process."""
        self._waitset = None
        self._readers.clear()
        self._subscribers.clear()
        self._topics.clear()
        self._participant = None


class Writer:
    """Samples to one partition over one path."""

    def __init__(self, participant: Any, topic: Any, path: DdsPath, source: Address, partition: str) -> None:
        """Create the DDS entities; discovery of the reader takes its time."""
        self._source = source
        there = Qos(Policy.Partition((partition,)))
        self._publisher: Any = Publisher(participant, qos=there)
        self._writer: Any = DataWriter(self._publisher, topic, qos=_qos(path.reliable))

    def is_matched(self) -> bool:
        """Whether the destination's reader is known: a sample written before is lost."""
        if hasattr(self._writer, "get_publication_matched_status"):
            return bool(self._writer.get_publication_matched_status().current_count > 0)
        # 0.10.5 wraps no such call; the C library counts when it is given no room for an answer.
        count = DDS._dll_handle.dds_get_matched_subscriptions(
            ctypes.c_int32(self._writer._ref), None, ctypes.c_size_t(0)
        )
        return int(count) > 0

    def write(self, payload: bytes) -> bool:
        """Write one sample without blocking; False where the history is full."""
        try:
            if ddspy_write is None:
                self._writer.write(Frame(self._source, list(payload)))
                return True
            status = ddspy_write(self._writer._ref, encode_frame(self._source, payload))
        except DDSException as error:
            status = error.code
        if status == _DDS_RETCODE_TIMEOUT:
            return False
        if status < 0:
            raise DDSException(status, "while writing a frame")
        return True

    def close(self) -> None:
        """Delete the DDS entities."""
        self._writer = None
        self._publisher = None


def _qos(reliable: bool) -> Qos:
    policies: list[Any] = [Policy.Durability.Volatile, Policy.WriterDataLifecycle(autodispose=False)]
    if reliable:
        policies += [
            Policy.Reliability.Reliable(duration(nanoseconds=0)),
            Policy.History.KeepAll,
            Policy.ResourceLimits(_STREAM_SAMPLES_MAX, -1, _STREAM_SAMPLES_MAX),
        ]
    else:
        policies += [Policy.Reliability.BestEffort, Policy.History.KeepLast(_DATAGRAM_DEPTH)]
    if hasattr(Policy, "DataRepresentation"):
        policies.append(Policy.DataRepresentation(use_cdrv0_representation=True))
    return Qos(*policies)


def _open_domain(number: int, xml: str) -> Any:
    if os.environ.get("CYCLONEDDS_URI"):
        return None  # A domain made in code would override what the operator configured.
    if number not in _domains:
        _domains[number] = (xml, Domain(number, xml))
    return _domains[number][1]


def _take_through_codec(reader: Any, count: int) -> list[bytes | None]:
    return [
        encode_frame(sample.source, bytes(sample.payload)) if isinstance(sample, Frame) else None
        for sample in reader.take(count)
    ]
