"""What is over, shown: a recording, or a simulation that has run."""

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.errors import DaemonError
from swarmd.ground.past import FILE_NAME
from swarmd.ground.recording import RecordingFile, open_recording
from swarmd.ground.server import GroundServer, bound_socket

if TYPE_CHECKING:
    from swarmd_sim.run.simulation import Simulation


def show_recording(path: Path, page: str, *, is_opened: bool) -> None:
    """Serve a recording until Ctrl-C or SIGTERM.

    Args:
        path: The recording.
        page: Loopback address of the page.
        is_opened: Whether this machine's browser is told to show it.

    Raises:
        DaemonError: The recording cannot be read, or the address not be served.
    """
    _serve(path, bound_socket(page), is_opened)


def _serve(path: Path, listening: socket.socket, is_opened: bool) -> None:
    with contextlib.closing(listening), tempfile.TemporaryDirectory(prefix="swarmd-ground-") as folder:
        ground = open_recording(path, Path(folder) / FILE_NAME)
        try:
            server = GroundServer(ground, listening)
            sys.stdout.write(f"swarmd ground: {server.address} (Ctrl-C ends)\n")
            sys.stdout.flush()
            if is_opened:
                webbrowser.open(server.address)
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(_until_told(server))
        finally:
            ground.past.close()


async def _until_told(server: GroundServer) -> None:
    task = asyncio.create_task(server.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


class SimulationShow:
    """Records a simulation while it runs, and shows it when it has run.

    Args:
        path: The recording; None: one that goes when it has been shown.
        seen_by: Number of the host whose knowledge is shown.
        page: Loopback address of the page; "": it is not shown.

    Raises:
        DaemonError: The address cannot be served.
    """

    def __init__(self, path: Path | None, seen_by: int, page: str) -> None:
        self._folder = None if path is not None else tempfile.TemporaryDirectory(prefix="swarmd-sim-")
        self._path = path if path is not None else Path(self._folder.name) / "run.mcap"  # type: ignore[union-attr]
        self._seen_by = seen_by
        self._file: RecordingFile | None = None
        # Here, so that an address that is taken is said before anything is computed.
        self._socket = bound_socket(page) if page else None

    def attach(self, simulation: "Simulation") -> Callable[[int], None]:
        """Begin to record a run.

        Raises:
            DaemonError: There is no such host, or the file cannot be made.
        """
        from swarmd.ground.simulated import SimulationFeed

        if not 0 <= self._seen_by < len(simulation.hosts):
            raise DaemonError(f"--seen-by {self._seen_by}: the hosts are 0 to {len(simulation.hosts) - 1}")
        feed = SimulationFeed(simulation, self._seen_by)
        self._file = RecordingFile(self._path, feed.site())
        feed.begin(self._file.change, self._file.mark)
        return feed.look

    def end(self, *, is_opened: bool) -> None:
        """Finish the recording, and show it until Ctrl-C where that was asked for."""
        if self._file is not None:
            self._file.close()
        try:
            if self._socket is not None:
                _serve(self._path, self._socket, is_opened)
        finally:
            if self._folder is not None:
                self._folder.cleanup()
