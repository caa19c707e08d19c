"""What paho is spared: properties as bytes, a socket on the event loop instead of in a thread of its own, and what it
would end the connection for.
"""

import asyncio
import contextlib
import functools
import struct
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt import MQTTException
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

_PUBLISH = PacketTypes.PUBLISH << 4
_GOODBYE_TURNS, _GOODBYE_TURN_S = 50, 0.01
"""Half a second for the goodbye to leave: it is two bytes, and the socket seldom full."""


PROPERTIES_MAX_BYTES = 4_096
"""Of a message's properties, and of any other packet: paho copies all that is left for each of them, so that 64 kB
that anybody may publish took a second."""
_UNREADABLE = (MQTTException, ValueError, IndexError, KeyError, struct.error)
"""What paho raises where it cannot read a message; MQTT lets clients send what it refuses, such as U+FEFF."""


class Client(paho.Client):
    """paho, for whom a message that it cannot read is one message less, not the end of the connection.

    Anybody who may publish can send one. A broker that finds nothing wrong with it would send it again on every new
    connection, until it is acknowledged.

    Args:
        client_id: "" lets the broker choose.
        packet_max: Bytes of the largest packet that is taken in; to be asked for as `MaximumPacketSize` too.
    """

    def __init__(self, client_id: str, packet_max: int) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
        )
        self._packet_max = packet_max
        self.unreadable = 0
        """Messages that were acknowledged and forgotten."""
        self.problem = ""
        """Why we ended the connection; "" where we did not."""

    def _sock_recv(self, bufsize: int) -> bytes:
        """Bytes of a packet; paho asks for all that its header announces at once."""
        if bufsize > self._packet_max:
            self.problem = f"it sends a packet of {bufsize} bytes, above the {self._packet_max} that were asked for"
            raise ConnectionAbortedError(self.problem)
        return super()._sock_recv(bufsize)

    def _packet_handle(self) -> MQTTErrorCode:
        size = len(self._in_packet["packet"])
        if self._in_packet["command"] & 0xF0 != _PUBLISH and size > PROPERTIES_MAX_BYTES:
            self.problem = f"it answers with a packet of {size} bytes; {PROPERTIES_MAX_BYTES} are read"
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        return super()._packet_handle()

    def _handle_publish(self) -> MQTTErrorCode:
        packet, qos = bytes(self._in_packet["packet"]), self._in_packet["command"] >> 1 & 3
        end = 2 + int.from_bytes(packet[:2], "big")
        if qos > 1 or len(packet) < end + 2 * qos:
            self.problem = "it sends a message that nobody subscribed to, or half of one"
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        try:
            packet[2:end].decode()
            if (length := _length_at(packet, end + 2 * qos)) > PROPERTIES_MAX_BYTES:
                raise MQTTException(f"{length} bytes of properties")
            return super()._handle_publish()
        except _UNREADABLE:
            self.unreadable += 1
            mid = int.from_bytes(packet[end : end + 2], "big")
            return self._send_puback(mid) if qos else MQTTErrorCode.MQTT_ERR_SUCCESS


class Packed(Properties):
    """Properties as they stand on the wire: paho would make and check some twenty fields for each message."""

    def __init__(self, content: bytes) -> None:
        object.__setattr__(self, "packed", _length(len(content)) + content)

    def pack(self) -> bytes:
        """The bytes on the wire."""
        packed: bytes = self.__dict__["packed"]
        return packed

    def __str__(self) -> str:
        """For paho's log: the fields were never made."""
        return self.pack().hex()


@functools.lru_cache(maxsize=256)
def usual_properties(expiry_s: int | None) -> Packed:
    """What nearly every message has; not to be changed."""
    return Packed(usual_content(expiry_s))


def usual_content(expiry_s: int | None) -> bytes:
    """The same without its length, for more to follow."""
    # Source: MQTT 5.0, section 2.2.2.2: payload format indicator, message expiry interval, content type.
    expiry = b"" if expiry_s is None else b"\x02" + expiry_s.to_bytes(4, "big")
    return b"\x01\x01" + expiry + b"\x03" + field(b"application/json")


def _length(count: int) -> bytes:
    """A variable byte integer below 16,384: correlation data, the longest, has `link.CORRELATION_MAX_BYTES`."""
    return bytes((count,)) if count < 128 else bytes((count & 127 | 128, count >> 7))


def _length_at(packet: bytes, at: int) -> int:
    """A variable byte integer (MQTT 5.0, section 1.5.5); raises `IndexError` where the packet ends within it."""
    value = 0
    for place in range(4):
        byte = packet[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return value


def field(data: bytes) -> bytes:
    """A string or binary field, with its length."""
    return len(data).to_bytes(2, "big") + data


class Served:
    """A connected client whose socket the event loop serves.

    Args:
        client: Connected; nobody else reads or writes its socket.
        loop: The running one.
    """

    def __init__(self, client: paho.Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        sock: Any = client.socket()
        self._fd = -1 if sock is None else sock.fileno()
        client.on_socket_close = lambda _client, _userdata, _sock: self._leave()
        client.on_socket_register_write = lambda _client, _userdata, _sock: self._await_room()
        client.on_socket_unregister_write = lambda _client, _userdata, _sock: self._await_nothing()
        if self._fd >= 0:
            loop.add_reader(self._fd, self._read)
            if client.want_write():
                self._await_room()

    def _read(self) -> None:
        client = self._client
        client.loop_read()
        # What TLS has opened already makes no socket readable.
        while (sock := client.socket()) is not None and getattr(sock, "pending", int)():
            client.loop_read()

    def _await_room(self) -> None:
        if self._fd >= 0:
            self._loop.add_writer(self._fd, self._client.loop_write)

    def _await_nothing(self) -> None:
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)

    def _leave(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._fd = -1

    async def end(self, *, with_will: bool) -> None:
        """Disconnect; `with_will` makes the broker say the will, since our word did not get out."""
        reason = ReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message") if with_will else None
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect(reason)
        for _ in range(_GOODBYE_TURNS):
            if self._fd < 0:
                return
            await asyncio.sleep(_GOODBYE_TURN_S)
        sock: Any = self._client.socket()
        self._leave()
        if sock is not None:
            sock.close()  # It takes nothing more.
