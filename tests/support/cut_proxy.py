"""A TCP proxy on loopback that can cut what runs through it, and let it through again, on a port that stays bound."""

import contextlib
import socket
import threading
from types import TracebackType


class CutProxy:
    """Passes connections on to `port` of loopback; while cut, new ones are closed at once."""

    def __init__(self, port: int) -> None:
        """Bind a free port."""
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self.port = self._listener.getsockname()[1]
        self.refused = 0
        """Connections that were closed at once."""

    def __enter__(self) -> "CutProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            self._is_cut = True
            for one in self._pairs:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._pairs.clear()

    def mend(self) -> None:
        """Let new connections through."""
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    self.refused += 1
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                self._pairs += [client, server]
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=_pass, args=(a, b), daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
