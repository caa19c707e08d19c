"""The control socket: one JSON object a line, over a Unix socket that only the daemon's user may open.

    client -> {"verb": "members", "arguments": {}}          at most 64 KiB
    daemon -> {"ok": true, "result": {…}}                   at most 64 MiB
           or {"ok": false, "error": "a sentence for people"}

`{"verb": "watch"}` is answered by `{"ok": true, "result": {}}` and then by one `{"notice": …}` a line until the client
hangs up. Where the socket lies: `--control`, else `NAME.sock` in the first usable of `$RUNTIME_DIRECTORY`,
`$XDG_RUNTIME_DIR/swarmd` and `/tmp/swarmd-UID`; clients look in the same places and in `/run/swarmd`. Operators
elsewhere speak the same lines over TLS (`operators.py`, `remote.py`).
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from swarmd.api.parts import encoded
from swarmd.api.remote import Remote, connect, refusal
from swarmd.errors import ControlError, DaemonError
from swarmd.logs import Logger

REQUEST_MAX_BYTES = 1 << 16
"""Bytes of one request line: the longest is a statement in hexadecimal digits."""
ANSWER_MAX_BYTES = 64 << 20
"""Bytes of one answer that a client reads: 20,000 objects take 10 MB."""
CLIENTS_MAX = 32
"""Clients at once: people, watchers and scripts of one device."""
IDLE_S = 30.0
"""Seconds without a request after which a client is hung up on."""
PATH_MAX_BYTES = 107
"""Bytes of a socket's path: Linux keeps 108 with the closing zero. Source: unix(7)."""
TIMEOUT_S = 10.0
"""Seconds that a client waits for an answer; the loop turns far more often than that, or the watchdog kills it."""

Answer = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
Watch = Callable[[], AsyncIterator[Mapping[str, Any]]]
Slow = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
OnCommand = Callable[[str, Mapping[str, Any], str, str], None]
"""Told of each request: verb, arguments, who asked, why it was refused ("" where it was not)."""
Refuse = Callable[[str], str]
"""Why who asks may not use a verb; "": it may."""


class Lines(Protocol):
    """What a client says."""

    async def readline(self) -> bytes:
        """One line with its end, or less at the end; raises `ValueError` for one above `REQUEST_MAX_BYTES`."""

    async def read(self) -> bytes:
        """Whatever comes until the client hangs up."""


LAST_FOLDER = Path(f"/tmp/swarmd-{os.getuid()}")
"""Where control sockets lie when the environment names no folder."""


class Answers(Protocol):
    """Where answers go."""

    def write(self, data: bytes) -> None:
        """Take bytes."""

    async def drain(self) -> None:
        """Wait until they are sent, or nearly."""


def socket_folders(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Where control sockets lie by default, best first."""
    variables = os.environ if environment is None else environment
    folders = []
    if variables.get("RUNTIME_DIRECTORY"):
        folders.append(Path(variables["RUNTIME_DIRECTORY"].split(":")[0]))
    if variables.get("XDG_RUNTIME_DIR"):
        folders.append(Path(variables["XDG_RUNTIME_DIR"]) / "swarmd")
    folders.append(LAST_FOLDER)
    return folders


def default_path(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """The socket of a daemon of this name; makes its folder, for this user only.

    Raises:
        ControlError: No folder can be made.
    """
    for folder in socket_folders(environment):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = folder.lstat()
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder / f"{_safe(name)}.sock"
    raise ControlError("no folder for the control socket can be made; give --control PATH")


def _safe(name: str) -> str:
    """A node's name as the name of a file."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def running_sockets(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Sockets in the usual places on which a daemon answers."""
    found: list[Path] = []
    for folder in [Path("/run/swarmd"), *socket_folders(environment)]:
        with contextlib.suppress(OSError):
            # Instances of swarmd@.service have a folder each.
            for path in sorted([*folder.glob("*.sock"), *folder.glob("*/*.sock")]):
                if path not in found and _answers(path):
                    found.append(path)
    return found


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(1.0)
            channel.connect(str(path))
        return True
    except PermissionError:
        return True  # It is somebody else's; to say so is better than to call it absent.
    except OSError:
        return False


# --- Client ------------------------------------------------------------------------------------------------------


class ControlClient:
    """A blocking connection for commands of a few lines."""

    def __init__(self, path: Path | Remote | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Connect to `path`, or to the only daemon that runs here.

        Args:
            path: A socket, the name of a node that runs here, or a door elsewhere.
            timeout_s: Seconds that an answer may take.

        Raises:
            ControlError: Nobody answers, or several could be meant; the message lists them.
        """
        self.path: Path | Remote = _only_one() if path is None else _found(path)
        self._buffer = b""
        self._socket: socket.socket
        if isinstance(self.path, Remote):
            self._socket = connect(self.path, timeout_s)
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(self.path))
        except OSError as error:
            self._socket.close()
            reason = error.strerror or str(error)
            raise ControlError(
                f"no daemon answers on {self.path} ({reason}); start one with `swarmd run` or give --control SOCKET"
            ) from error

    def call(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Ask one thing.

        Raises:
            DaemonError: What the daemon refused, in its words.
            ControlError: The connection broke.
        """
        line = json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n"
        try:
            self._socket.sendall(line)
        except OSError as error:
            answer = self._last_word(error)
        else:
            answer = json.loads(self._line())
        if not answer.get("ok"):
            raise DaemonError(str(answer.get("error", "the daemon gave no reason")))
        result: dict[str, Any] = answer["result"]
        return result

    def _last_word(self, error: OSError) -> dict[str, Any]:
        """What the daemon said before it hung up on a request, such as that it is too long."""
        try:
            return dict(json.loads(self._line()))
        except (ControlError, ValueError):
            raise ControlError(f"{self.path}: {refusal(error)}") from error

    def watch(self, verb: str = "watch") -> Iterator[dict[str, Any]]:
        """What happens from now on, one notice at a time, until the daemon hangs up.

        Args:
            verb: Which stream: `watch`, or `follow_events`.
        """
        self.call(verb)
        self._socket.settimeout(None)
        return self._notices()

    def _notices(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                yield json.loads(self._line())["notice"]
            except ControlError:
                return

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            try:
                part = self._socket.recv(1 << 16)
            except TimeoutError as error:
                raise ControlError(f"{self.path}: the daemon does not answer; look at its log") from error
            except OSError as error:
                raise ControlError(f"{self.path}: {refusal(error)}") from error
            if not part:
                raise ControlError(f"{self.path}: the daemon hung up")
            self._buffer += part
            if len(self._buffer) > ANSWER_MAX_BYTES:
                raise ControlError(f"{self.path}: the answer is larger than {ANSWER_MAX_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> "ControlClient":
        """Use as a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.close()


def _found(path: Path | Remote) -> Path | Remote:
    """The socket that a bare word names: a socket of this folder, else that of the node of this name.

    A folder or file of that name is no socket: `swarmd keys enrol fleet drone-1 --out drone-1` leaves such a folder.
    """
    if isinstance(path, Remote) or path.parent != Path() or path.is_socket():
        return path
    usual = (sock for sock in running_sockets() if sock.stem == _safe(path.name))
    return next(usual, path)


def _only_one() -> Path:
    found = running_sockets()
    if not found:
        raise ControlError("no daemon runs here; start one with `swarmd run` or give --control SOCKET")
    if len(found) > 1:
        listed = "\n".join(f"  --control {path}" for path in found)
        raise ControlError(f"{len(found)} daemons run here; say which:\n{listed}")
    return found[0]


# --- Server ------------------------------------------------------------------------------------------------------


class ControlServer:
    """Serves the registry of verbs on the loop."""

    def __init__(
        self,
        path: Path,
        answer: Answer,
        watch: Watch,
        log: Logger,
        *,
        on_command: OnCommand = lambda verb, arguments, by, problem: None,
        slow: Mapping[str, Slow] | None = None,
        streams: Mapping[str, Watch] | None = None,
    ) -> None:
        """Serve.

        Args:
            path: Where the socket lies.
            answer: Answers a verb at once; long lists may be `Parts`.
            watch: What the verb `watch` streams.
            log: Where failures of verbs are said.
            on_command: Told of each request.
            slow: Verbs that wait for something, such as a file; others are answered meanwhile.
            streams: More verbs like `watch`, by name.
        """
        self.path = path
        self._answer = answer
        self._log = log
        self._on_command = on_command
        self._slow = dict(slow or {})
        self._streams = {"watch": watch, **(streams or {})}
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Bind; a socket that a dead daemon left is replaced.

        Raises:
            ControlError: The path cannot be used, or a living daemon answers there.
        """
        if len(os.fsencode(self.path)) > PATH_MAX_BYTES:
            raise ControlError(f"{self.path}: longer than {PATH_MAX_BYTES} bytes; choose a shorter --control path")
        if _answers(self.path):
            raise ControlError(f"{self.path}: another daemon answers there; choose another --name or --control")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(self.path.lstat().st_mode):
                    self.path.unlink()
            # The mask, not a later chmod: nobody else may connect even for an instant.
            before = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(self._serve, self.path, limit=REQUEST_MAX_BYTES)
            finally:
                os.umask(before)
        except OSError as error:
            raise ControlError(
                f"{self.path}: cannot be bound: {error.strerror or error}; give --control PATH"
            ) from error

    async def close(self) -> None:
        """Stop listening, hang up on everybody, remove the socket."""
        if self._server is None:
            return
        for _ in range(4):
            # A connection accepted a moment ago has no task yet; these are the turns of the loop it takes to get one.
            await asyncio.sleep(0)
        self._server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._server = None
        with contextlib.suppress(OSError):
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= CLIENTS_MAX:
            writer.write(encode({"ok": False, "error": f"{CLIENTS_MAX} clients are connected already"}))
            writer.close()
            return
        self._clients.add(task)
        try:
            await self.talk(reader, writer, _asker(writer))
        except (OSError, asyncio.CancelledError, TimeoutError):
            return
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._clients.discard(task)

    async def talk(self, reader: Lines, writer: Answers, by: str, refuse: Refuse = lambda verb: "") -> None:
        """Answer one client until it hangs up.

        Args:
            reader: Of `REQUEST_MAX_BYTES`.
            writer: Where answers go.
            by: Who it is, for the history.
            refuse: Which verbs it may not use.
        """
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readline()
            except ValueError:  # asyncio: the line passed the limit.
                await self._tell("", {"ok": False, "error": f"a request has at most {REQUEST_MAX_BYTES} bytes"}, writer)
                return
            if not line.endswith(b"\n"):
                return
            verb, answer = await self._one(line, by, refuse)
            if not await self._tell(verb, answer, writer):
                return
            if verb in self._streams and answer["ok"]:
                await self._stream(self._streams[verb], reader, writer)
                return

    async def _one(self, line: bytes, by: str, refuse: Refuse) -> tuple[str, dict[str, Any]]:
        try:
            request = json.loads(line)
            verb, arguments = request["verb"], request.get("arguments", {})
            if not isinstance(verb, str) or not isinstance(arguments, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return "", {"ok": False, "error": 'a request is {"verb": "…", "arguments": {…}} in one line'}
        if problem := refuse(verb):
            self._on_command(verb, arguments, by, problem)
            return verb, {"ok": False, "error": problem}
        if verb in self._streams:
            return verb, {"ok": True, "result": {}}
        try:
            slow = self._slow.get(verb)
            result = self._answer(verb, arguments) if slow is None else await slow(arguments)
            self._on_command(verb, arguments, by, "")
            return verb, {"ok": True, "result": result}
        except DaemonError as error:
            self._on_command(verb, arguments, by, str(error))
            return verb, {"ok": False, "error": str(error)}
        except Exception as error:  # A bug in one verb must not end the daemon; it is logged in full.
            self._log.error("control_verb_failed", verb=verb, error=error)
            return verb, {"ok": False, "error": f"{verb} failed inside the daemon: {type(error).__name__}: {error}"}

    async def _tell(self, verb: str, answer: Mapping[str, Any], writer: Answers) -> bool:
        """Write one answer, and let the loop turn between the parts of a long one; False where it broke off."""
        try:
            for piece in encoded(answer):
                writer.write(piece.encode())
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            raise
        except Exception as error:  # As above; half a line has been said, so the client is hung up on.
            self._log.error("control_verb_failed", verb=verb, error=error)
            return False
        writer.write(b"\n")
        await writer.drain()
        return True

    async def _stream(self, watch: Watch, reader: Lines, writer: Answers) -> None:
        """Pass notices on until the client hangs up (whatever it still says is not read) or there are no more."""
        gone = asyncio.ensure_future(reader.read())
        pump = asyncio.ensure_future(self._pump(watch, writer))
        try:
            await asyncio.wait({gone, pump}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, pump):
                task.cancel()
            await asyncio.gather(gone, pump, return_exceptions=True)

    async def _pump(self, watch: Watch, writer: Answers) -> None:
        async for notice in watch():
            writer.write(encode({"notice": notice}))
            await writer.drain()


def _asker(writer: asyncio.StreamWriter) -> str:
    """Who is at the other end of the socket, as the kernel says it."""
    channel = writer.get_extra_info("socket")
    try:
        data = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (AttributeError, OSError):
        return "somebody at the control socket"
    pid, uid, _ = struct.unpack("3i", data)
    return f"{'root' if uid == 0 else f'user {uid}'} (process {pid}) at the control socket"


def encode(answer: Mapping[str, Any]) -> bytes:
    """One line of the protocol."""
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
