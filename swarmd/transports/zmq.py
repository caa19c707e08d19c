"""Everything over ZeroMQ CURVE: for networks that let no UDP through.

Probes, reliable frames and bulk dial connections of their own to one TCP port, so that none waits behind another. A
"datagram" here is a frame with a deadline of half a second.
"""

import time

from swarmd.transports.base import MAX_DATAGRAM_BYTES, TOO_LARGE
from swarmd.transports.curve_paths import CurvePaths
from swarmd.transports.udp_socket import usable_wildcard
from swarmd.transports.zmq_link import BULK_PATH, DATAGRAM_PATH, STREAM_PATH, Path
from swarmd_protocols.ids import Address

_DATAGRAM_DEADLINE_NS = 500_000_000
"""Nanoseconds after which a probe or a piece of gossip that still waits is worthless: a probe's window."""


class ZmqTransport(CurvePaths):
    """See the module; one object for one life."""

    DIALS = (DATAGRAM_PATH, STREAM_PATH, BULK_PATH)

    def send_datagram(self, destination: Address, data: bytes) -> None:
        """Send within half a second or never."""
        if len(data) > MAX_DATAGRAM_BYTES:
            self._refuse(destination, TOO_LARGE, "datagrams_refused")
            return
        self._diallers[DATAGRAM_PATH].send(destination, data, time.monotonic_ns() + _DATAGRAM_DEADLINE_NS)

    def _bind(self, host: str, port: int) -> tuple[str, int]:
        host = usable_wildcard(host)
        return host, self._listener.bind(host, port)

    def _on_frame(self, path: Path, source: Address, data: bytes) -> None:
        assert self._handlers is not None, "start has set them"
        if path is not DATAGRAM_PATH:
            self._handlers.stream(source, data)
        elif len(data) <= MAX_DATAGRAM_BYTES:
            self._handlers.datagram(source, data)
        else:
            self._counts["datagrams_dropped_size"] += 1
