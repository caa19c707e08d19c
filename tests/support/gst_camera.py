"""Cameras of the tests, which are GStreamer's: processes of Debian's own Python, for which its bindings are built."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

PYTHON = "/usr/bin/python3"
STEP = 8
"""Grey levels from frame to frame (`rtsp_server.py`, `gst_server.py`)."""


@cache
def missing(elements: tuple[str, ...], namespaces: tuple[str, ...] = ("Gst",)) -> str:
    """What this machine lacks of GStreamer, in a sentence; "" where nothing."""
    needs = "; ".join(f"gi.require_version('{name}', '1.0')" for name in namespaces)
    look = (
        f"import gi; {needs}\nfrom gi.repository import {', '.join(namespaces)}; Gst.init(None)\n"
        f"import sys; sys.exit(' '.join(name for name in {elements!r} if not Gst.ElementFactory.find(name)))"
    )
    try:
        done = subprocess.run([PYTHON, "-c", look], capture_output=True, check=False, timeout=120, text=True)
    except OSError:
        return "no Python of the system's here"
    if done.returncode == 0 or not done.stderr.strip():
        return ""
    lacks = done.stderr.strip().splitlines()[-1]
    return f"no GStreamer with {lacks if set(lacks.split()) <= set(elements) else ', '.join(namespaces)} here"


@dataclass(frozen=True)
class Camera:
    """A server that runs."""

    port: int
    told: IO[str]

    def say(self, line: str) -> None:
        """What the server reads."""
        self.told.write(line + "\n")
        self.told.flush()


@contextmanager
def camera(script: str, *words: str) -> Iterator[Camera]:
    """One of `tests/support`, running."""
    command = [PYTHON, str(Path(__file__).with_name(script)), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Camera(int(process.stdout.readline()), process.stdin)
        finally:
            process.stdin.close()
            process.wait(60)


def number_of(image: Any) -> int:
    """A frame's number, modulo 32, out of its grey."""
    return round(float(image.mean()) / STEP) % (256 // STEP)
