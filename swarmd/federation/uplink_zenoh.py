"""A path over Zenoh: a client of somebody's router, or a router of our own that others connect to.

    zenoh://HOST:PORT                       a client of the router there (`zenohd`, or anybody's of the next two forms);
                                            of several, joined by commas, `pipes.apart` makes a path each
    zenoh://?listen=HOST:PORT               a router in this process, nothing else to install; others connect to it
    zenoh://A:PORT,B:PORT?listen=HOST:PORT  the same, linked with the routers A and B
    zenohs://…                              over TLS: ca_file, cert_file, key_file

Frames are put best effort: where a router's queue is full they are dropped, and the outbox sends them again. A router
of ours lets through what lies below the prefix and nothing else, so who reaches its port finds no pipe for other words.
Zenoh's own threads call back; frames wait in a bounded list for the event loop. Needs the extra `zenoh`.
"""

import asyncio
import contextlib
import json
import random
import re
import threading
import urllib.parse
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from swarmd.config.bridges import MqttConfig
from swarmd.errors import ConfigError, DaemonError, TransportError
from swarmd.federation.uplink import MakeUplink, OnFrame, OnQuestion, Place, read_place
from swarmd_protocols.federation.wire import ASK_MAX_BYTES, FRAME_MAX_BYTES

PORT = 7447
"""Zenoh's own."""
CONNECT_TIMEOUT_MS = 5_000
"""Milliseconds for a first connection; the other path serves meanwhile."""
LEASE_MS = 4_000
"""A neighbour that is silent for so long is gone; frames find a dead one sooner (`flow.ANSWER_NS`)."""
QUEUE_BATCHES = 16
"""Batches of 64 KB that wait for a line: Zenoh's 2 (and each frame in a batch of its own, `express`) lost a region's
answers to many gateways within one turn, and rows then waited for seconds."""
SESSIONS_MAX = 4_096
"""Who may be connected to a router of ours; Zenoh's default of 1,000 is less than the gateways of 1,000 swarms."""
INBOX_MAX_BYTES = 4 << 20
"""Frames that wait for the event loop: beyond, they are dropped, and come again."""
FRAME_LEAST_BYTES = 512
"""What a waiting frame counts for beside its bytes: its place, and what Python and the loop keep of it. Empty ones
would be without bound."""
QUESTIONS_MAX = 4
"""Questions of one path that are being answered; more get no answer. Who may ask at all is judged by its seal."""
WAITING_MAX = 64
"""Questions of one path that wait for the loop, 32 KiB: anybody whom the router lets in can say them without end."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 2.0
"""Seconds between attempts to open: a router that is started again is found within two seconds. Zenoh's own attempts
of a session that was open take as long."""
_LOOK_S = 0.1
"""Seconds between two looks at whether somebody is connected."""


class ZenohAddress(NamedTuple):
    """What an address means."""

    connect: tuple[str, ...]
    listen: tuple[str, ...]
    """Zenoh's endpoints: `tcp/HOST:PORT` or `tls/HOST:PORT`."""
    tls: bool

    @property
    def is_router(self) -> bool:
        """Whether this process routes for others."""
        return bool(self.listen)


def read_address(address: str) -> ZenohAddress:
    """What `zenoh://…` means; see the top of this file.

    Raises:
        ConfigError: It is none.

    >>> read_address("zenoh://router-1")
    ZenohAddress(connect=('tcp/router-1:7447',), listen=(), tls=False)
    >>> read_address("zenohs://?listen=0.0.0.0:7000").listen
    ('tls/0.0.0.0:7000',)
    """
    scheme, _, rest = address.partition("://")
    hosts, _, query = rest.partition("?")
    if scheme not in ("zenoh", "zenohs"):
        raise _no_address(address)
    try:
        options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
        listen = options.pop("listen", "")
        proto = "tls" if scheme == "zenohs" else "tcp"
        found = ZenohAddress(_endpoints(proto, hosts.strip("/")), _endpoints(proto, listen), scheme == "zenohs")
    except ValueError as error:
        raise _no_address(address) from error
    if options or not (found.connect or found.listen):
        raise _no_address(address)
    return found


def _endpoints(proto: str, hosts: str) -> tuple[str, ...]:
    found = []
    for text in hosts.split(",") if hosts else ():
        part = urllib.parse.urlsplit(f"//{text}")
        if not part.hostname or part.username or part.path:
            raise ValueError(text)
        host = f"[{part.hostname}]" if ":" in part.hostname else part.hostname
        found.append(f"{proto}/{host}:{part.port or PORT}")
    return tuple(found)


def _no_address(address: str) -> ConfigError:
    return ConfigError(
        f"{address!r} is no address of a Zenoh router; write zenoh://HOST:{PORT}, zenoh://?listen=HOST:{PORT} for a "
        "router of our own, or zenohs://… for TLS"
    )


def import_zenoh() -> Any:
    """The library.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import zenoh
    except ImportError as error:
        raise ConfigError("Zenoh paths need eclipse-zenoh: pip install 'swarmd[zenoh]'") from error
    return zenoh


def settings_of(address: ZenohAddress, prefix: str, files: MqttConfig) -> dict[str, object]:
    """Zenoh's configuration of one path, by its keys.

    Raises:
        TransportError: A file of TLS is missing, or others may read the key.
    """
    settings: dict[str, object] = {
        "mode": "router" if address.is_router else "client",
        "connect/endpoints": address.connect,
        "listen/endpoints": address.listen,
        # A router opens at once and connects when it can, for as long as it takes (0 would be one attempt); a client
        # that finds nobody says so, and tries again here.
        "connect/timeout_ms": -1 if address.is_router else CONNECT_TIMEOUT_MS,
        "connect/exit_on_failure": False,
        "connect/retry": {
            "period_init_ms": 200,
            "period_max_ms": round(_LAST_PAUSE_S * 1_000),
            "period_increase_factor": 2,
        },
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/link/tx/lease": LEASE_MS,
        "transport/link/tx/keep_alive": 4,
        "transport/link/tx/queue/size/data": QUEUE_BATCHES,
        "transport/unicast/max_sessions": SESSIONS_MAX,
        # Its pool is 16 MB from the first large frame on, for peers on the same machine, of which a site has none.
        "transport/shared_memory/enabled": False,
        # What somebody sends in pieces is held until it is whole: no more than a frame of ours takes.
        "transport/link/rx/max_message_size": 2 * FRAME_MAX_BYTES,
    }
    if address.is_router:
        settings["access_control"] = {
            "enabled": True,
            "default_permission": "deny",
            "rules": [
                {
                    "id": "ours",
                    "messages": ["put", "declare_subscriber"],
                    "flows": ["ingress", "egress"],
                    "permission": "allow",
                    "key_exprs": [f"{prefix}/**"],
                },
                {
                    "id": "questions",
                    "messages": ["query", "declare_queryable", "reply"],
                    "flows": ["ingress", "egress"],
                    "permission": "allow",
                    "key_exprs": [f"{prefix}/*/ask/*"],
                },
            ],
            "subjects": [{"id": "all"}],
            "policies": [{"rules": ["ours", "questions"], "subjects": ["all"]}],
        }
    if address.tls:
        settings |= _tls(address, files)
    return settings


def _tls(address: ZenohAddress, files: MqttConfig) -> dict[str, object]:
    for name in filter(None, (files.ca_file, files.cert_file, files.key_file)):
        if not Path(name).is_file():
            raise TransportError(f"{name} is missing: ca_file, cert_file and key_file of a zenohs:// path")
    if (
        files.key_file
        and Path(files.key_file).stat().st_mode & 0o044
        and "credentials" not in Path(files.key_file).parts
    ):
        raise TransportError(f"{files.key_file} can be read by others; run: chmod 600 {files.key_file}")
    if address.listen and not (files.cert_file and files.key_file):
        raise TransportError("a router that listens over TLS needs cert_file and key_file")
    found: dict[str, object] = {}
    if files.ca_file:
        found["transport/link/tls/root_ca_certificate"] = files.ca_file
    if files.cert_file:
        for side in ("listen", "connect"):
            found[f"transport/link/tls/{side}_certificate"] = files.cert_file
            found[f"transport/link/tls/{side}_private_key"] = files.key_file
        # Who has an authority of their own lets in what it vouches for, and nobody else.
        found["transport/link/tls/enable_mtls"] = bool(files.ca_file)
    return found


class ZenohUplink:
    """One path; see `uplink.Uplink`.

    Args:
        name: The path as it was configured.
        address: What it means.
        patterns: Places to listen to, `+` for one part.
        on_frame: Called on the loop with what arrives there.
        prefix: Of all places.
        files: Of TLS.

    Raises:
        ConfigError: The library is not installed.
    """

    def __init__(
        self,
        name: str,
        address: ZenohAddress,
        patterns: Sequence[str],
        on_frame: OnFrame,
        prefix: str,
        files: MqttConfig,
    ) -> None:
        self._zenoh = import_zenoh()
        self.name = name
        self.problem = f"router {name}: not connected yet"
        self.connected = False
        self.counts = {"sent": 0, "received": 0, "refused": 0, "connects": 0}
        self._address = address
        self._patterns = [pattern.replace("+", "*") for pattern in patterns]
        self._on_frame = on_frame
        self._prefix = prefix
        self._files = files
        self._session: Any = None
        self._inbox: deque[tuple[str, bytes]] = deque()
        self._inbox_bytes = 0
        self._lock = threading.Lock()
        self._asked_at = ""
        self._on_question: OnQuestion | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._waiting = 0

    @property
    def is_open(self) -> bool:
        """Whether it has its own port, where it listens."""
        return self._session is not None

    def answer_at(self, place: Place, on_question: OnQuestion) -> None:
        """See `Askable.answer_at`."""
        self._asked_at, self._on_question = place.path(self._prefix), on_question

    def send(self, place: Place, frame: bytes) -> bool:
        """See `Uplink.send`."""
        session = self._session
        if session is None or not self.connected:
            self.counts["refused"] += 1
            return False
        try:
            drop = self._zenoh.CongestionControl.DROP
            session.put(place.path(self._prefix), frame, congestion_control=drop)
        except self._zenoh.ZError:
            self.counts["refused"] += 1
            return False
        self.counts["sent"] += 1
        return True

    async def run(self) -> None:
        """See `Uplink.run`."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._serve()
            except (self._zenoh.ZError, TransportError) as error:
                self.problem = f"router {self.name}: {_in_words(error)}"
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, loop))
        try:
            self._session = session = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread cannot be ended: what it opens is closed when it comes.
            opening.add_done_callback(_close_late)
            raise
        try:
            while True:
                # A client has its router; a router of ours has whoever connected, or was connected to.
                is_connected = bool(session.info.transports())
                if is_connected and not self.connected:
                    self.counts["connects"] += 1
                self.connected = is_connected
                self.problem = "" if is_connected else self._alone()
                await asyncio.sleep(_LOOK_S)
        finally:
            self._session, self.connected = None, False
            await asyncio.shield(asyncio.to_thread(session.close))

    def _alone(self) -> str:
        if self._address.connect:
            # A router of ours looks for each as long as it takes: maybe none was ever there.
            return f"router {self.name}: " + (
                "the connection was lost" if self.counts["connects"] else "nobody is reached there yet"
            )
        return f"router {self.name}: nobody is connected to it"

    def _open(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Open a session; in a thread."""
        config = self._zenoh.Config()
        for key, value in settings_of(self._address, self._prefix, self._files).items():
            config.insert_json5(key, json.dumps(value))
        session = self._zenoh.open(config)

        def hear(sample: Any) -> None:
            if self._take(str(sample.key_expr), sample.payload):
                # The loop may be at its end.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._drain)

        try:
            for pattern in self._patterns:
                session.declare_subscriber(pattern, hear)
            if self._on_question is not None:
                session.declare_queryable(self._asked_at, partial(self._take_question, loop))
        except BaseException:
            session.close()
            raise
        return session

    def _take_question(self, loop: asyncio.AbstractEventLoop, query: Any) -> None:
        """A question that has come, in a thread of Zenoh's."""
        payload = query.payload
        with self._lock:
            is_taken = payload is not None and len(payload) <= ASK_MAX_BYTES and self._waiting < WAITING_MAX
            self._waiting += is_taken
            self.counts["refused"] += not is_taken
        if not is_taken:
            query.drop()
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._begin_answer, query, bytes(payload))

    def _begin_answer(self, query: Any, frame: bytes) -> None:
        """On the loop."""
        with self._lock:
            self._waiting -= 1
        if len(self._answers) >= QUESTIONS_MAX:
            self.counts["refused"] += 1
            query.drop()
            return
        task = asyncio.create_task(self._answer(query, frame))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, query: Any, frame: bytes) -> None:
        assert self._on_question is not None

        def reply(frames: Sequence[bytes]) -> None:
            for one in frames:
                query.reply(self._asked_at, one)

        try:
            frames = await self._on_question(frame)
            if frames:  # A line that is full keeps the thread and not the loop.
                await asyncio.to_thread(reply, frames)
        except (self._zenoh.ZError, DaemonError) as error:
            self.problem = f"router {self.name}: a question was not answered: {_in_words(error)}"
        finally:
            query.drop()

    def _take(self, key: str, payload: Any) -> bool:
        """A frame that has come, in a thread of Zenoh's; whether it waits now."""
        size = len(payload)
        with self._lock:
            if size > FRAME_MAX_BYTES or self._inbox_bytes + size + FRAME_LEAST_BYTES > INBOX_MAX_BYTES:
                self.counts["refused"] += 1
                return False
            self._inbox_bytes += size + FRAME_LEAST_BYTES
            self._inbox.append((key, bytes(payload)))
        return True

    def _drain(self) -> None:
        """One frame, on the loop: as many calls are scheduled as frames wait."""
        with self._lock:
            key, payload = self._inbox.popleft()
            self._inbox_bytes -= len(payload) + FRAME_LEAST_BYTES
        place = read_place(key, self._prefix)
        if place is None:
            self.counts["refused"] += 1
            return
        self.counts["received"] += 1
        self._on_frame(place, payload)


def _in_words(error: Exception) -> str:
    """What an error says, without the line of the library's own source that it ends with."""
    return re.sub(r" at /\S+\.rs:\d+\.?", "", str(error).splitlines()[0])[:200]


def _close_late(opening: "asyncio.Future[Any]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def zenoh_maker(files: MqttConfig, prefix: str) -> MakeUplink:
    """Makes paths over Zenoh.

    Args:
        files: Of TLS.
        prefix: Of all places.
    """

    def make(address: str, patterns: Sequence[str], on_frame: OnFrame) -> ZenohUplink:
        return ZenohUplink(address, read_address(address), patterns, on_frame, prefix, files)

    return make
