"""A path over an MQTT 5 broker: frames at QoS 0, a session that ends with its connection, back-off with jitter.

The broker is a pipe: nothing is retained, queued or resumed there, so a broker that dies takes nothing with it but what
was on its way, which the outbox sends again. paho connects in a thread that ends then; from there on the event loop
serves its socket, as the MQTT bridge does it.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from swarmd.bridges.mqtt.credentials import read_secret, tls_context
from swarmd.bridges.mqtt.wire import Client, Served
from swarmd.config.bridges import MqttConfig
from swarmd.errors import ConfigError, TransportError
from swarmd.federation.uplink import MakeUplink, OnFrame, Place, read_place
from swarmd_protocols.federation.wire import FRAME_MAX_BYTES

CONNECT_TIMEOUT_S = 5.0
"""Seconds for TCP, TLS and CONNACK together; the other path serves meanwhile."""
KEEPALIVE_S = 5
"""Seconds between two signs of life of an idle connection; frames find a dead one sooner (`flow.ANSWER_NS`)."""
PACKET_MAX_BYTES = FRAME_MAX_BYTES + 1_024
"""Bytes of a packet that the broker may send: a frame with its topic."""
UNSENT_MAX_BYTES = 1 << 20
"""Bytes that wait for the socket: beyond, the connection is no faster than the line, and frames stay in the outbox."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 2.0
"""Seconds between attempts to connect, half of it to all of it by chance: a broker that is started again is found
within two seconds, and not by everybody at once."""
_LOOK_S = 0.5
"""Seconds between two looks at whether a keepalive is due."""
_PORTS = {"mqtt": 1883, "mqtts": 8883}


def read_address(address: str, tls: MqttConfig) -> MqttConfig:
    """What `mqtt://[USER@]HOST[:PORT]` and `mqtts://…` mean.

    Args:
        address: One path of the configuration.
        tls: Files of certificates, and of the password.

    Raises:
        ConfigError: It is none.
    """
    try:
        found = urllib.parse.urlsplit(address)
        port = found.port or _PORTS.get(found.scheme, 0)
    except ValueError as error:
        raise ConfigError(f"{address!r} is no address of a broker: {error}") from error
    if found.scheme not in _PORTS or not found.hostname or found.password or found.path.strip("/") or found.query:
        raise ConfigError(
            f"{address!r} is no address of a broker; write mqtt://HOST:PORT or mqtts://USER@HOST:PORT (the password "
            "comes from a file)"
        )
    return MqttConfig(
        enabled=True,
        host=found.hostname,
        port=port,
        tls=found.scheme == "mqtts",
        ca_file=tls.ca_file,
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        username=found.username or "",
        password_file=tls.password_file,
    )


class MqttUplink:
    """One broker; see `uplink.Uplink`.

    Args:
        name: The path as it was configured.
        config: Host, port, TLS and user.
        patterns: Topic filters to listen to.
        on_frame: Called on the loop with what arrives there.
        prefix: Of all places.
        client_id: One connection a broker; "" lets the broker choose.
    """

    def __init__(
        self,
        name: str,
        config: MqttConfig,
        patterns: Sequence[str],
        on_frame: OnFrame,
        prefix: str,
        client_id: str = "",
    ) -> None:
        self.name = name
        self.problem = f"broker {name}: not connected yet"
        self.counts = {"sent": 0, "received": 0, "refused": 0, "connects": 0}
        self._config = config
        self._patterns = list(patterns)
        self._on_frame = on_frame
        self._prefix = prefix
        self._client_id = client_id
        self._client: paho.Client | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._reason = ""
        self._unsent_bytes = 0
        self._unsent: dict[int, int] = {}

    @property
    def connected(self) -> bool:
        """Between the broker's word that it listens for us, and the loss of the connection."""
        return self._connected.is_set()

    def send(self, place: Place, frame: bytes) -> bool:
        """See `Uplink.send`."""
        client = self._client
        if client is None or not self.connected or self._unsent_bytes > UNSENT_MAX_BYTES:
            self.counts["refused"] += 1
            return False
        info = client.publish(place.path(self._prefix), frame, 0)
        if info.rc != paho.MQTT_ERR_SUCCESS:
            self.counts["refused"] += 1
            return False
        if client.want_write():
            # What has not left with the call; `on_publish` tells when it has.
            self._unsent[info.mid] = len(frame)
            self._unsent_bytes += len(frame)
        self.counts["sent"] += 1
        return True

    async def run(self) -> None:
        """See `Uplink.run`."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            try:
                await self._serve_once()
            except (OSError, TransportError, ValueError, ssl.SSLError) as error:
                self.problem = f"broker {self.name}: {str(error) or type(error).__name__}"
            if time.monotonic() - began_s > CONNECT_TIMEOUT_S:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    async def _serve_once(self) -> None:
        loop = asyncio.get_running_loop()
        self._connected.clear()
        self._lost.clear()
        self._reason = ""
        client = self._make_client(loop)
        self._client = client
        served: Served | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S + 1):
                await loop.run_in_executor(None, self._connect_blocking, client)
            served = Served(client, loop)
            waiters = [asyncio.ensure_future(one.wait()) for one in (self._connected, self._lost)]
            try:
                await asyncio.wait(waiters, timeout=CONNECT_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiter in waiters:
                    waiter.cancel()
            if not self._connected.is_set():
                raise TransportError(self._reason or f"no answer within {CONNECT_TIMEOUT_S:.0f} s")
            self.problem = ""
            self.counts["connects"] += 1
            while not self._lost.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._lost.wait()
                client.loop_misc()
            self.problem = f"broker {self.name}: {self._reason or 'the connection was lost'}"
        finally:
            self._connected.clear()
            self._unsent.clear()
            self._unsent_bytes = 0
            self._client = None
            if served is not None:
                await asyncio.shield(served.end(with_will=False))

    def _make_client(self, loop: asyncio.AbstractEventLoop) -> paho.Client:
        client = Client(self._client_id, PACKET_MAX_BYTES)
        config = self._config
        if config.username:
            password = read_secret(config.password_file) if config.password_file else None
            client.username_pw_set(config.username, password)
        if config.tls:
            client.tls_set_context(tls_context(config))

        def on_socket_open(_client: Any, _userdata: Any, sock: Any) -> None:
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def on_connect(_client: Any, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
            loop.call_soon(self._after_connack, reason)

        def on_subscribe(_client: Any, _userdata: Any, _mid: int, reasons: Any, _properties: Any) -> None:
            loop.call_soon(self._after_suback, list(reasons))

        def on_disconnect(_client: Any, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
            loop.call_soon_threadsafe(self._after_loss, reason)

        def on_publish(_client: Any, _userdata: Any, mid: int, _reason: Any, _properties: Any) -> None:
            self._unsent_bytes -= self._unsent.pop(mid, 0)

        def on_message(_client: Any, _userdata: Any, message: Any) -> None:
            self._after_message(message.topic, bytes(message.payload))

        client.on_socket_open = on_socket_open
        client.on_connect = on_connect
        client.on_subscribe = on_subscribe
        client.on_disconnect = on_disconnect
        client.on_publish = on_publish
        client.on_message = on_message
        return client

    def _connect_blocking(self, client: paho.Client) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0
        properties.MaximumPacketSize = PACKET_MAX_BYTES
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.connect(
            self._config.host, self._config.port, keepalive=KEEPALIVE_S, clean_start=True, properties=properties
        )

    # --- told by paho, in a turn of the loop ------------------------------------------------------------------------

    def _after_connack(self, reason: Any) -> None:
        client = self._client
        if reason.is_failure or client is None:
            self._reason = f"it refused the connection: {reason}"
            self._lost.set()
            return
        client.subscribe([(pattern, SubscribeOptions(qos=0, noLocal=True)) for pattern in self._patterns])

    def _after_suback(self, reasons: Sequence[Any]) -> None:
        if any(reason.is_failure for reason in reasons):
            self._reason = f"it does not let us listen to {', '.join(self._patterns)}: {reasons[0]}"
            self._lost.set()
        else:
            self._connected.set()

    def _after_loss(self, reason: Any) -> None:
        self._reason = self._reason or str(reason)
        self._connected.clear()
        self._lost.set()

    def _after_message(self, topic: str, payload: bytes) -> None:
        place = read_place(topic, self._prefix)
        if place is None or len(payload) > FRAME_MAX_BYTES:
            self.counts["refused"] += 1
            return
        self.counts["received"] += 1
        self._on_frame(place, payload)


def mqtt_maker(tls: MqttConfig, prefix: str, client_id: str = "") -> MakeUplink:
    """Makes paths over brokers.

    Args:
        tls: Files of certificates, and of the password.
        prefix: Of all places.
        client_id: At each broker; "" lets it choose.
    """

    def make(address: str, patterns: Sequence[str], on_frame: OnFrame) -> MqttUplink:
        return MqttUplink(address, read_address(address, tls), patterns, on_frame, prefix, client_id)

    return make
