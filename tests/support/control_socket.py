"""A control socket without a daemon behind it, for tests of what asks."""

import json
import socket
import threading
from pathlib import Path
from typing import Any


class AnsweringSocket:
    """A control socket that answers what a test says: a question a connection, or as many as it is told."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "d.sock"
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.questions = 1
        """On one connection; then it hangs up."""
        self.answers: dict[str, Any] = {"status": {}}
        self.notices: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                channel, _ = self._socket.accept()
            except OSError:
                return
            with channel, channel.makefile("rwb") as lines:
                for _ in range(self.questions):
                    if not (line := lines.readline()):
                        break
                    lines.write(self._answer(json.loads(line)))
                    lines.flush()

    def _answer(self, request: dict[str, Any]) -> bytes:
        verb = request["verb"]
        self.asked.append((verb, request["arguments"]))
        said: list[Any] = [{"ok": True, "result": self.answers.get(verb, {})}]
        if isinstance(self.answers.get(verb), str):
            said = [{"ok": False, "error": self.answers[verb]}]
        said += [{"notice": one} for one in self.notices] if verb == "watch" else []
        return b"".join(json.dumps(one).encode() + b"\n" for one in said)
