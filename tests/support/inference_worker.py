"""A real worker process, and a client that speaks the Open Inference Protocol with the standard library alone."""

import contextlib
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from swarmd.worker import words
from swarmd.worker.oip import JSON_LENGTH, datatype_of, read_outputs
from tests.support.paths import ROOT

ANSWER_S = 60.0


class Worker:
    """A worker's process and what it said."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.said: list[words.FromWorker] = []
        self.address = ""
        self.clients: list[Client] = []
        # Read as it comes: a pipe that is full would stop the worker, as no brain does.
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self._lines.put(line)
        self._lines.put(b"")

    def end(self) -> None:
        """Kill it."""
        self.process.send_signal(signal.SIGKILL)
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()

    def say(self, word: words.ToWorker) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words.encode(word))
        self.process.stdin.flush()

    def hear(self, kind: type[words.FromWorker]) -> Any:
        """The next word of a kind; what comes before it is kept in `said`."""
        while line := self._lines.get(timeout=ANSWER_S):
            self.said.append(words.decode_from_worker(line))
            if isinstance(self.said[-1], kind):
                return self.said[-1]
        raise AssertionError(f"the worker ended with {self.process.wait()}; it said {self.said}")

    def load(self, model: str | Path) -> words.Loaded:
        self.say(words.Load(str(model)))
        return self.hear(words.Loaded)  # type: ignore[no-any-return]

    def counters(self) -> dict[str, int]:
        """As of a pulse that has not been sent yet."""
        return self.pulse().counters

    def pulse(self) -> words.Pulse:
        """One that has not been sent yet: what waits to be read tells of earlier."""
        while not self._lines.empty():
            self.said.append(words.decode_from_worker(self._lines.get()))
        self.hear(words.Pulse)  # It may have been on its way.
        return self.hear(words.Pulse)  # type: ignore[no-any-return]

    def client(self) -> "Client":
        self.clients.append(Client(self.address))
        return self.clients[-1]


@contextlib.contextmanager
def working(**settings: Any) -> Iterator[Worker]:
    """A worker that listens; it is ended at the end."""
    fd = settings.get("gate_fd", -1)
    process = subprocess.Popen(
        [sys.executable, "-m", "swarmd.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        pass_fds=(fd,) if fd >= 0 else (),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    worker = Worker(process)
    try:
        worker.say(words.Serve("127.0.0.1:0", **{"deadline_ms": 30_000, **settings}))
        worker.address = worker.hear(words.Serving).address
        yield worker
    finally:
        for client in worker.clients:
            client.close()
        worker.end()


class Client:
    """One connection."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
        self.ports: dict[str, str] = {}
        """Path of a model to the name of its input."""

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, bytes]:
        """(status, JSON of the answer or None, raw bytes behind it)"""
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        data = response.read()
        length = int(response.headers.get(JSON_LENGTH, len(data)))
        return response.status, json.loads(data[:length]) if length else None, data[length:]

    def infer(
        self, name: str, array: np.ndarray, version: str = "", priority: int = 0, timeout_us: int = 0
    ) -> tuple[int, Any, dict[str, np.ndarray]]:
        """(status, head or error, outputs)"""
        path = f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
        data = array.tobytes()
        if path not in self.ports:
            status, found, _ = self.call("GET", path)
            self.ports[path] = found["inputs"][0]["name"] if status == 200 else "image"
        head = json.dumps(
            {
                "inputs": [
                    {
                        "name": self.ports[path],
                        "shape": array.shape,
                        "datatype": datatype_of(array.dtype),
                        "parameters": {"binary_data_size": len(data)},
                    }
                ],
                "parameters": {"binary_data_output": True, "priority": priority, "timeout": timeout_us},
            }
        ).encode()
        status, answer, tail = self.call("POST", path + "/infer", head + data, {JSON_LENGTH: str(len(head))})
        return status, answer, dict(read_outputs(answer["outputs"], tail)) if status == 200 else {}

    def close(self) -> None:
        self.connection.close()
