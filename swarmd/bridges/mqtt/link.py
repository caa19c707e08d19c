"""One MQTT 5 connection that never blocks the loop: bounded buffer, bounded in-flight, back-off with jitter.

paho connects in a thread that ends then; from there on the event loop serves its socket (`wire.Served`), since to wake
a thread costs more than a message. Messages leave in the order they were published. A retained message replaces an
older one of the same topic that still waits, since only the last counts. What was in flight when a connection broke
goes out again first (QoS 1: at least once).
"""

import asyncio
import contextlib
import random
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from swarmd.api.histogram import Histogram
from swarmd.bridges.mqtt.credentials import read_secret, tls_context
from swarmd.bridges.mqtt.outbox import Outbox, Outgoing
from swarmd.bridges.mqtt.wire import Client, Packed, Served, field, usual_content, usual_properties
from swarmd.config.bridges import MqttConfig
from swarmd.errors import TransportError

CONNECT_TIMEOUT_S = 10.0
"""Seconds for TCP, TLS and CONNACK together: a handshake over a bad mobile link takes three."""
COMMAND_MAX_BYTES = 16 * 1024
"""Bytes of a command's payload: a user event carries at most 512, the rest is slack for spaces and longer names."""
PACKET_MAX_BYTES = 64 * 1024
"""Bytes of a packet that the broker may send: a command with its longest topics. It keeps larger ones to itself."""
CORRELATION_MAX_BYTES = 256
"""Bytes of correlation data that are echoed; what clients send is a number or a UUID."""
RECEIVED_MAX = 256
"""Commands that wait for the loop: six times what `commands.VERB_BURST` would admit of one verb."""
RETAINED_MAX = 4_096
"""Retained messages that wait for the loop: the states of all devices come at once after a subscription."""
PACE_S = 0.02
"""Seconds between two looks at a buffer that is half full: the broker takes some dozens of messages in it."""
_FIRST_PAUSE_S = 0.5
"""Seconds until the second attempt to connect; it doubles up to `reconnect_max_s`."""
_LOOK_S = 1.0
"""Seconds between two looks at whether a keepalive is due, which is after two seconds at the earliest."""
_FIXED_BYTES = 16
"""More than header, lengths and packet id of a PUBLISH ever take."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message from the broker."""

    topic: str
    payload: bytes
    response_topic: str
    correlation: bytes | None
    retained: bool = False
    """The broker kept it from before: it says how things are, and asks for nothing."""


class MqttLink:
    """A connection that comes and goes; `publish` always returns at once."""

    def __init__(
        self,
        config: MqttConfig,
        client_id: str,
        will_topic: str,
        will_payload: bytes,
        on_connected: Callable[[], None],
        on_message: Callable[[Incoming], None],
        subscriptions: tuple[str, ...] = (),
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare; nothing is opened before `run`.

        Args:
            config: The `[mqtt]` section.
            client_id: The node id; the broker keeps one connection for each.
            will_topic: Where the broker speaks for us after a lost connection.
            will_payload: What it says then, retained.
            on_connected: Called on the loop after each CONNACK, before buffered messages go out.
            on_message: Called on the loop for each command message.
            subscriptions: Topic filters, subscribed at QoS 1 on each connection.
            on_problem: Called on the loop with a sentence for people when an attempt to connect fails.
        """
        self._config = config
        self._client_id = client_id
        self._will = (will_topic, will_payload)
        self._on_connected = on_connected
        self._on_message = on_message
        self._subscriptions = subscriptions
        self._on_problem = on_problem
        self._outbox = Outbox()
        self._packet_max = 0
        self._acknowledged: deque[tuple[int, Any]] = deque()
        self._received: deque[Any] = deque()
        self._is_woken = False
        self._inflight: dict[int, Outgoing] = {}
        self._sent_ns: dict[int, int] = {}
        """When each of them was given to the connection."""
        self.round_trips = Histogram()
        """From there to the broker's word that it has it."""
        self._aliases: dict[str, int] = {}
        self._alias_max = 0
        self._inflight_max = config.inflight_messages
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._refused = ""
        self._overheard = self._reason = ""
        self._counts: Counter[str] = Counter()

    @property
    def connected(self) -> bool:
        """True between CONNACK and the loss of the connection."""
        return self._connected.is_set()

    def counters(self) -> dict[str, int]:
        """Monotonic counts since the start."""
        now = self._client.unreadable if self._client else 0
        return dict(self._counts + Counter({"dropped_unreadable": now}))

    def gauges(self) -> dict[str, int]:
        """Messages in the buffer, and sent but not yet acknowledged."""
        return {"buffered": len(self._outbox), "inflight": len(self._inflight)}

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        expiry_s: int | None = None,
        traceparent: str = "",
        correlation: bytes | None = None,
    ) -> None:
        """Send now, or keep for later within the buffer; a QoS 0 message is not kept.

        Args:
            topic: Full topic.
            payload: The body.
            qos: 0 or 1.
            retain: The broker keeps it for late subscribers.
            expiry_s: Message expiry, seconds; the time in our buffer counts.
            traceparent: W3C trace context, sent as user property when not empty.
            correlation: Correlation data of a reply.
        """
        if qos == 0 and not self.connected:
            self._count("dropped_offline")
            return
        deadline_s = None if expiry_s is None else time.monotonic() + expiry_s
        item = Outgoing(topic, payload, qos, retain, expiry_s, traceparent, deadline_s, correlation)
        self._count("coalesced", int(self._outbox.put(item)))
        while len(self._outbox) > self._config.buffer_messages:
            self._outbox.take()
            self._count("dropped_buffer_full")
        self._drain()

    async def paced(self, parts: Iterable[Sequence[_T]]) -> AsyncIterator[_T]:
        """What is to be published, no faster than the broker takes it; ends where the connection is lost."""
        for part in parts:
            await asyncio.sleep(0)  # Who made the part has held the loop for long enough.
            for one in part:
                while self.connected and len(self._outbox) > self._config.buffer_messages // 2:
                    await asyncio.sleep(PACE_S)
                if not self.connected:
                    return
                yield one

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything was acknowledged; False when the time is over or the connection is lost before."""
        deadline_s = time.monotonic() + timeout_s
        while self.connected and (self._outbox or self._inflight):
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(0.01)
        return self.connected

    async def run(self) -> None:
        """Connect, serve, reconnect; ends only by cancellation, with a disconnect."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            try:
                await self._serve_once()
            except (OSError, TransportError, ValueError, ssl.SSLError) as error:
                self._refused = _in_words(error, self._config)
                self._count("connect_failed")
                self._on_problem(self._refused)
            self._count("reconnects")
            if time.monotonic() - began_s > CONNECT_TIMEOUT_S:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, self._config.reconnect_max_s)

    @property
    def last_problem(self) -> str:
        """Why the last attempt failed and what to do about it; "" while all is well."""
        return self._refused

    async def _serve_once(self) -> None:
        loop = asyncio.get_running_loop()
        self._connected.clear()
        self._lost.clear()
        self._overheard = self._reason = ""
        client = self._make_client(loop)
        self._client = client
        served: Served | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S + 1):
                await loop.run_in_executor(None, self._connect_blocking, client)
            served = Served(client, loop)
            waiters = [asyncio.ensure_future(self._connected.wait()), asyncio.ensure_future(self._lost.wait())]
            try:
                await asyncio.wait(waiters, timeout=CONNECT_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiter in waiters:
                    waiter.cancel()
            if not self._connected.is_set():
                raise TransportError(self._reason or f"no CONNACK within {CONNECT_TIMEOUT_S:.0f} s")
            self._refused = ""
            while not self._lost.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._lost.wait()
                client.loop_misc()  # Says that it is alive, and notices when the broker does not.
            self._refused = self._reason
        finally:
            self._connected.clear()
            self._requeue_inflight()
            if served is not None:  # Else its thread may still be connecting, and paho closes what nobody holds.
                await asyncio.shield(served.end(with_will=bool(len(self._outbox))))
            self._count("dropped_unreadable", client.unreadable)
            self._client = None

    def _make_client(self, loop: asyncio.AbstractEventLoop) -> Client:
        client = Client(self._client_id, PACKET_MAX_BYTES)
        config = self._config
        client.max_inflight_messages_set(config.inflight_messages)
        if config.username:
            password = read_secret(config.password_file) if config.password_file else None
            client.username_pw_set(config.username, password)
        if config.tls:
            client.tls_set_context(tls_context(config))
        will = Properties(PacketTypes.WILLMESSAGE)
        will.WillDelayInterval = config.will_delay_s
        client.will_set(self._will[0], self._will[1], qos=1, retain=True, properties=will)

        def on_socket_open(_client: Any, _userdata: Any, sock: Any) -> None:
            # Nagle against delayed acknowledgements costs 48 ms a QoS 1 round trip.
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def on_connect(_client: Any, _userdata: Any, _flags: Any, reason: Any, properties: Any) -> None:
            loop.call_soon(self._after_connack, reason, properties)

        def on_disconnect(_client: Any, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
            loop.call_soon_threadsafe(self._after_loss, reason)

        def on_publish(_client: Any, _userdata: Any, mid: int, reason: Any, _properties: Any) -> None:
            # One wake-up for all that were acknowledged until the loop gets to it.
            self._acknowledged.append((mid, reason))
            if not self._is_woken:
                self._is_woken = True
                loop.call_soon(self._after_publish)

        def on_log(_client: Any, _userdata: Any, level: int, text: str) -> None:
            # In TLS 1.3 the broker judges our certificate after the handshake; only paho's log tells the alert.
            if level == paho.MQTT_LOG_ERR:
                self._overheard = str(text)

        def on_message(_client: Any, _userdata: Any, message: Any) -> None:
            # Commands that come faster than the loop takes them are dropped here, the newest first.
            if len(self._received) >= (RETAINED_MAX if message.retain else RECEIVED_MAX):
                self._count("dropped_flood")
                return
            self._received.append(message)
            loop.call_soon(self._after_message)

        client.on_socket_open = on_socket_open
        client.on_connect = on_connect
        client.on_disconnect = on_disconnect
        client.on_publish = on_publish
        client.on_message = on_message
        client.on_log = on_log
        return client

    def _connect_blocking(self, client: Client) -> None:
        properties = Properties(PacketTypes.CONNECT)
        # A broker ends the session, and says the will, at once where the session does not outlive the will's delay.
        properties.SessionExpiryInterval = self._config.will_delay_s
        properties.MaximumPacketSize = PACKET_MAX_BYTES
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.connect(
            self._config.host,
            self._config.port,
            keepalive=self._config.keepalive_s,
            clean_start=self._config.will_delay_s == 0,
            properties=properties,
        )

    # --- told by paho, in a turn of the loop of their own ---------------------------------------------------------

    def _after_connack(self, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._reason = f"it refused the connection: {reason}"
            self._lost.set()
            return
        self._aliases.clear()
        self._alias_max = int(getattr(properties, "TopicAliasMaximum", 0) or 0)
        receive_max = int(getattr(properties, "ReceiveMaximum", 65535) or 65535)
        self._inflight_max = max(1, min(self._config.inflight_messages, receive_max))
        self._packet_max = int(getattr(properties, "MaximumPacketSize", 0) or 0)
        self._connected.set()
        self._count("connects")
        client = self._client
        if client is not None:
            client.on_log = None  # It formats a line for each packet.
        if client is not None and self._subscriptions:
            client.subscribe([(name, SubscribeOptions(qos=1, noLocal=True)) for name in self._subscriptions])
        self._on_connected()
        self._drain()

    def _after_loss(self, reason: Any) -> None:
        said = self._overheard or (self._client.problem if self._client else "")
        if not self._reason:
            self._reason = f"{reason} ({said})" if said else str(reason)
        self._connected.clear()
        self._lost.set()

    def _after_publish(self) -> None:
        self._is_woken = False
        while self._acknowledged:
            mid, reason = self._acknowledged.popleft()
            item = self._inflight.pop(mid, None)
            if item is not None:
                self.round_trips.add(time.monotonic_ns() - self._sent_ns.pop(mid))
            if item is not None and reason.is_failure:
                self._refuse("refused", f"it refused a message on {item.topic}: {reason}")
            elif item is not None:
                self._count("published")
        self._drain()

    def _after_message(self) -> None:
        message = self._received.popleft()
        self._count("received")
        properties = message.properties
        correlation = getattr(properties, "CorrelationData", None) or b""
        if len(message.payload) > COMMAND_MAX_BYTES or len(correlation) > CORRELATION_MAX_BYTES:
            self._count("dropped_oversized")
            return
        self._on_message(
            Incoming(
                message.topic,
                bytes(message.payload),
                getattr(properties, "ResponseTopic", "") or "",
                correlation or None,
                bool(message.retain),
            )
        )

    def _drain(self) -> None:
        client = self._client
        while client is not None and self.connected and self._outbox and len(self._inflight) < self._inflight_max:
            item = self._outbox.take()
            if item.deadline_s is not None and item.deadline_s <= time.monotonic():
                self._count("dropped_expired")
                continue
            topic, properties = self._wire_topic(item), self._properties(item)
            if self._packet_max and not self._fits(item, properties):
                continue
            info = client.publish(topic, item.payload, item.qos, item.retain, properties=properties)
            if info.rc != paho.MQTT_ERR_SUCCESS:
                self._outbox.put_back([item])
                return
            if item.qos:
                self._inflight[info.mid] = item
                self._sent_ns[info.mid] = time.monotonic_ns()
            else:
                self._count("published")

    def _fits(self, item: Outgoing, properties: Properties) -> bool:
        """Whether the broker takes it; sent all the same, it would end the connection, and again on the next one."""
        size = _FIXED_BYTES + len(item.topic.encode()) + len(item.payload) + len(properties.pack())
        if size > self._packet_max:
            self._refuse(
                "dropped_too_large", f"it takes {self._packet_max} bytes; {item.topic} has a message of {size}"
            )
        return size <= self._packet_max

    def _refuse(self, count: str, why: str) -> None:
        """Count a message that the broker does not take; the first of a kind is said."""
        if not self._counts.get(count):
            self._on_problem(f"mqtt broker {self._config.host}:{self._config.port}: {why}")
        self._count(count)

    def _wire_topic(self, item: Outgoing) -> str:
        """The topic, or "" once the broker knows its alias."""
        return "" if item.qos == 0 and item.topic in self._aliases else item.topic

    def _properties(self, item: Outgoing) -> Properties:
        expiry_s = None
        if item.expiry_s is not None and item.deadline_s is not None:
            expiry_s = max(1, round(item.deadline_s - time.monotonic()))
        if item.qos and not item.traceparent and item.response_to is None:
            return usual_properties(expiry_s)
        # Source: MQTT 5.0, section 2.2.2.2: user property, correlation data, topic alias.
        content = usual_content(expiry_s)
        if item.traceparent:
            content += b"\x26" + field(b"traceparent") + field(item.traceparent.encode())
        if item.response_to is not None:
            content += b"\x09" + field(item.response_to)
        # Aliases only where a topic repeats for ever and a lost message is no harm: QoS 0 telemetry. A QoS 1 message
        # that is sent again on a new connection must carry its full topic.
        if item.qos == 0:
            known = self._aliases.get(item.topic)
            if known is None and len(self._aliases) < self._alias_max:
                known = self._aliases[item.topic] = len(self._aliases) + 1
                self._count("aliases")
            if known is not None:
                content += b"\x23" + known.to_bytes(2, "big")
        return Packed(content)

    def _requeue_inflight(self) -> None:
        again = list(self._inflight.values())  # In the order of sending; packet ids wrap.
        self._inflight.clear()
        self._sent_ns.clear()
        self._count("coalesced", self._outbox.put_back(again))

    def _count(self, name: str, count: int = 1) -> None:
        if count:
            self._counts[name] += count


def _in_words(error: Exception, config: MqttConfig) -> str:
    """What is wrong with the connection, and what to do about it."""
    text = str(error) or type(error).__name__
    broker = f"mqtt broker {config.host}:{config.port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{broker}: its certificate is not accepted: {error.verify_message or text}; set mqtt.ca_file to the "
            "authority that signed it, and mqtt.host to a name that it carries"
        )
    if config.tls and ("alert" in text.lower() or "eof occurred" in text.lower()):
        # TLS 1.3: the handshake is over for us before the broker has judged our certificate.
        return (
            f"{broker}: it ended the connection after the TLS handshake, so most likely it refuses our certificate: "
            f"{text}; mqtt.cert_file and mqtt.key_file must be signed by an authority that the broker trusts"
        )
    if isinstance(error, ssl.SSLError):
        return f"{broker}: no TLS connection: {text}; is this its TLS port?"
    return f"{broker}: {text}"
