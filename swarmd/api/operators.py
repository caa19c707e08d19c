"""The door for operators: the lines of the control socket over TLS 1.3, for who holds a certificate and is on the list.

    operator ── TLS: certificate of `operators.ca_file`, its name in `operators.allow` ──▶ door ──▶ control verbs

Rules this file keeps:

- Nothing listens unless `operators.listen` says where.
- No line is read before the other side has shown a certificate of the operators' authority and its one common name is
  on the list. `NAME:look` may ask and change nothing.
- What strangers cost is bounded: handshakes at once, their time, and how many begin in a second, of one network and of
  all. Whoever hangs makes room for the next.
- The files are looked at every few seconds. When one of them or the list changes, the door opens anew and whoever was
  inside has to show the certificate again, so that a renewal needs no restart and a name that goes is out at once.
- Every command that changes something is written down with the operator's name (`swarmd events --kind command`).
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import os
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from swarmd.api.control import REQUEST_MAX_BYTES, ControlServer, encode
from swarmd.api.tls_stream import TlsStream
from swarmd.config.sections import LOOK, OperatorsSection
from swarmd.errors import TransportError
from swarmd.logs import Logger
from swarmd.rates import TokenBucket, TokenBuckets

if TYPE_CHECKING:
    import ssl

LOOKING = frozenset({
    "status", "members", "detections", "objects", "cells", "counters", "topics", "latency", "trust_status", "events",
    "record_status", "model_status", "review_subject", "watch", "follow_events",
})  # fmt: skip
"""What an operator that may only look may ask."""
HANDSHAKES_MAX = 16
"""Handshakes at once; above it the one that began first is hung up on. A handshake takes some milliseconds."""
HANDSHAKE_S = 5.0
"""Seconds a handshake may take: ten round trips of a slow radio."""
PER_SOURCE_S, PER_SOURCE_BURST = 2.0, 20
"""Handshakes a second that one address (of IPv6, one /64) may begin, and at once: a script calls once for each verb."""
TOTAL_PER_S, TOTAL_BURST = 20.0, 60
"""The same of all: a handshake and a verb cost 3 ms of a core, so strangers cost some 5 %."""
SOURCES_MAX = 256
"""Addresses whose rate is remembered."""
OPERATOR_MAX = 4
"""Connections of one operator at once; above it the oldest makes room: a laptop that lost its radio never says so."""
INSIDE_MAX = 32
"""Connections of all operators at once, as many as the control socket has."""
LOOK_S = 5.0
"""Seconds between two looks at the files."""
SILENT_S = 30
"""Seconds after which a peer that acknowledges nothing is given up by the kernel."""
_REFUSALS_PER_S, _REFUSALS_BURST = 1 / 60, 3
"""How often one reason for a refusal is said in the log: anybody can cause one."""

OnAlert = Callable[[str], None]
"""Told why the door is shut; "" where it is not."""


class OperatorDoor:
    """Serves operators until cancelled."""

    def __init__(self, settings: OperatorsSection, control: ControlServer, log: Logger, on_alert: OnAlert) -> None:
        """Prepare; `run` opens it.

        Args:
            settings: The `[operators]` section.
            control: Answers the lines.
            log: Where openings and refusals are said.
            on_alert: Told when the door cannot open, and when it can again.
        """
        self.counts: Counter[str] = Counter()
        self.address = ""
        """Where it listens; "" while it does not."""
        self._settings = settings
        self._control = control
        self._log = log
        self._on_alert = on_alert
        self._changed = asyncio.Event()
        self._greeting: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        """Handshakes, the one that began first at the front."""
        self._inside: OrderedDict[asyncio.Task[None], str] = OrderedDict()
        """Connections and whose they are, the oldest at the front."""
        self._sources = TokenBuckets(PER_SOURCE_S, PER_SOURCE_BURST, SOURCES_MAX)
        self._total = TokenBucket(TOTAL_PER_S, TOTAL_BURST)
        self._refusals = TokenBuckets(_REFUSALS_PER_S, _REFUSALS_BURST, 16)

    def counters(self) -> Mapping[str, int]:
        """Monotonic counts: connected, and refused or limited by reason."""
        return dict(self.counts)

    def configure(self, settings: OperatorsSection) -> None:
        """Take other settings; the door opens anew where they differ."""
        if settings != self._settings:
            self._settings = settings
            self._changed.set()

    async def run(self) -> None:
        """Open, and open anew when files or settings change; with none, wait for settings."""
        while True:
            settings, stamps = self._settings, _stamps(self._settings)
            self._changed.clear()
            try:
                await self._open_until_changed(settings, stamps)
            except (OSError, TransportError) as error:
                # The swarm needs no operator: what keeps them out stands as an alert, and is tried again.
                self._on_alert(f"operators.listen {settings.listen}: {error}")
                await self._wait_for_change(settings, stamps)

    # --- the door ---------------------------------------------------------------------------------------------------

    async def _open_until_changed(self, settings: OperatorsSection, stamps: object) -> None:
        if not settings.listen:
            self._on_alert("")
            await self._changed.wait()
            return
        context = server_context(settings)
        listener = _listener(settings.listen)
        doing: list[asyncio.Task[None]] = []
        try:
            host, port = listener.getsockname()[:2]
            self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self._log.info("operators_door_open", address=self.address, allowed=len(settings.allow))
            self._on_alert("")
            accepting = asyncio.ensure_future(self._accept(listener, context, settings))
            changing = asyncio.ensure_future(self._wait_for_change(settings, stamps))
            doing += [accepting, changing]
            await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)
            if accepting.done():
                accepting.result()  # It ends by a bug alone, which whoever keeps this task running reports.
            self._log.info("operators_door_opens_anew", reason="its files or settings changed")
        finally:
            self.address = ""
            tasks = [*doing, *self._greeting, *self._inside]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            listener.close()

    async def _wait_for_change(self, settings: OperatorsSection, stamps: object) -> None:
        while not self._changed.is_set() and _stamps(settings) == stamps:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            if not self.address:
                return  # It is shut: a port may have become free.

    async def _accept(self, listener: socket.socket, context: "ssl.SSLContext", settings: OperatorsSection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # `sock_accept` answers at once while any wait: strangers must not keep the loop.
            try:
                sock, source = await loop.sock_accept(listener)
            except OSError as error:  # Out of descriptors, or a peer that was gone already.
                self._refuse("accept", "", str(error))
                await asyncio.sleep(0.1)
                continue
            now_ns = time.monotonic_ns()
            if not self._sources.take(network_of(source[0]), now_ns) or not self._total.take(now_ns):
                self.counts["limited"] += 1
                sock.close()
                continue
            if len(self._greeting) >= HANDSHAKES_MAX:
                oldest, _ = self._greeting.popitem(last=False)
                oldest.cancel()
                self.counts["crowded_out"] += 1
            task = asyncio.ensure_future(self._serve(sock, source[0], context, settings))
            self._greeting[task] = None
            task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._greeting.pop(task, None)
        self._inside.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("operator_connection_failed", error=task.exception())

    # --- one connection ---------------------------------------------------------------------------------------------

    async def _serve(
        self, sock: socket.socket, source: str, context: "ssl.SSLContext", settings: OperatorsSection
    ) -> None:
        stream = TlsStream(sock, context, REQUEST_MAX_BYTES)
        try:
            try:
                _notice_silence(sock)
                async with asyncio.timeout(HANDSHAKE_S):
                    await stream.handshake()
            except OSError as error:  # `TimeoutError` is one.
                self._refuse("certificate", source, _why(error))
                return
            finally:
                self._greeting.pop(self._task(), None)
            with contextlib.suppress(OSError):
                await self._welcome(stream, source, settings)
        finally:
            stream.close()

    async def _welcome(self, stream: TlsStream, source: str, settings: OperatorsSection) -> None:
        shown, certificate = stream.peer()
        name, digest = _name_of(shown), hashlib.sha256(certificate).hexdigest()[:16]
        rights = dict(_entry(text) for text in settings.allow)
        if name not in rights:
            self._refuse("name", source, f"certificate {digest} is {name[:64]!r}, which operators.allow does not list")
            stream.write(encode({"ok": False, "error": f"operators.allow on this device does not list {name[:64]!r}"}))
            await stream.drain()
            return
        if len(self._inside) >= INSIDE_MAX:
            stream.write(encode({"ok": False, "error": f"{INSIDE_MAX} operators are connected already"}))
            await stream.drain()
            return
        mine = [task for task, owner in self._inside.items() if owner == name]
        if len(mine) >= OPERATOR_MAX:
            mine[0].cancel()
        self._inside[self._task()] = name
        self.counts["connected"] += 1
        by = f"operator {name} from {source} (certificate {digest})"

        def refuse(verb: str) -> str:
            may = rights[name] != LOOK or verb in LOOKING
            return "" if may else f"{name} may only look: operators.allow on this device says {name}:{LOOK}"

        await self._control.talk(stream, stream, by, refuse)

    def _task(self) -> "asyncio.Task[None]":
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        return task

    def _refuse(self, what: str, source: str, why: str) -> None:
        self.counts[f"refused_{what}"] += 1
        if self._refusals.take((what, why), time.monotonic_ns()):
            self._log.warning("operator_refused", source=source, reason=why)


# --- parts ----------------------------------------------------------------------------------------------------------


def server_context(settings: OperatorsSection) -> "ssl.SSLContext":
    """What the door shows and asks for.

    Raises:
        TransportError: A file is missing or no PEM, or the key does not belong to the certificate.
    """
    import ssl  # Only a device that opens a door spends the memory.

    files = (settings.ca_file, settings.cert_file, settings.key_file)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # Every connection shows its certificate.
        context.load_verify_locations(settings.ca_file)
        # A sealed key would ask a terminal that is not there.
        context.load_cert_chain(settings.cert_file, settings.key_file or None, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(file or "(none)" for file in files)
        raise TransportError(f"cannot use ca_file, cert_file, key_file ({named}): {_why(error)}") from error
    return context


def network_of(source: str) -> str:
    """Who shares a rate: an IPv4 address, or the /64 of an IPv6 one, which one device has for itself.

    >>> network_of("fe80::1%eth0"), network_of("::ffff:10.0.0.5")
    ('fe80::', '10.0.0.5')
    """
    address = ipaddress.ip_address(source.partition("%")[0])
    if address.version == 4:
        return str(address)
    assert isinstance(address, ipaddress.IPv6Address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def _entry(text: str) -> tuple[str, str]:
    name, _, right = text.partition(":")
    return name, right


def _name_of(shown: Mapping[str, Any]) -> str:
    """The one common name of a certificate; "" where it has none or several."""
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""


def _why(error: OSError) -> str:
    """In words; of an `ssl.SSLError` its reason, of one about a certificate what is wrong with it."""
    verdict, reason = getattr(error, "verify_message", ""), getattr(error, "reason", "")
    if verdict:
        return f"its certificate is refused: {verdict}"
    if reason:
        return str(reason).lower().replace("_", " ")
    return "it said nothing" if isinstance(error, TimeoutError) else error.strerror or str(error)


def _stamps(settings: OperatorsSection) -> list[tuple[int, int, int] | None]:
    """What tells that a file is another one."""
    found: list[tuple[int, int, int] | None] = []
    for file in (settings.ca_file, settings.cert_file, settings.key_file):
        try:
            info = os.stat(file)
        except OSError:
            found.append(None)
        else:
            found.append((info.st_mtime_ns, info.st_size, info.st_ino))
    return found


def _listener(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server(
        (host, int(port)), family=family, backlog=HANDSHAKES_MAX, dualstack_ipv6=host == "::" and socket.has_ipv6
    )
    listener.setblocking(False)
    return listener


def _notice_silence(sock: socket.socket) -> None:
    """A laptop that lost its radio says nothing: the kernel asks, and gives it up."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S // 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_S // 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000)
