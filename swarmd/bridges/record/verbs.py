"""Control verbs that start and stop a recording in a running daemon; nothing heavy is imported before the first one."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.api.daemon import DaemonView
from swarmd.api.verbs import Verbs, number_argument, text_argument
from swarmd.config.bridges import RecordConfig
from swarmd.errors import DaemonError

if TYPE_CHECKING:
    import asyncio

    from swarmd.bridges.record.bridge import RecordBridge


Keep = Callable[[str, Callable[[], Awaitable[None]]], "asyncio.Task[None]"]


class RecordVerbs:
    """At most one recording at a time, beside the one that the configuration may run."""

    def __init__(self, daemon: DaemonView, settings: RecordConfig, keep: Keep) -> None:
        """Nothing is being recorded.

        Args:
            daemon: What is recorded.
            settings: The `[record]` section: what a request leaves open.
            keep: Runs a task by name and starts it again when it fails (`Supervisor.keep`).
        """
        self._daemon = daemon
        self._settings = settings
        self._keep = keep
        self._running: tuple[Path, RecordBridge, asyncio.Task[None]] | None = None

    def register(self, verbs: Verbs) -> None:
        """Add `record_start`, `record_stop` and `record_status`."""
        verbs.add("record_start", self._start, changes=True)
        verbs.add("record_stop", self._stop, changes=True)
        verbs.add("record_status", self._status)

    def _start(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from dataclasses import replace

        from swarmd.bridges.record.bridge import RecordBridge

        if self._running is not None and not self._running[2].done():
            raise DaemonError(f"already recording to {self._running[0]}; stop that one first")
        path = Path(text_argument(arguments, "path", most=4096))
        profile = text_argument(arguments, "profile", "ros2", most=16)
        settings = self._settings
        images_hz = number_argument(arguments, "images_hz", settings.images_hz)
        if not path.is_absolute() or profile not in ("ros2", "foxglove"):
            raise DaemonError("give an absolute path, and profile ros2 or foxglove")
        if not 0 <= images_hz <= 10:
            raise DaemonError(f"images_hz is {images_hz:g}; it must be 0 (none) to 10")
        bridge = RecordBridge(replace(settings, enabled=True, profile=profile, images_hz=images_hz), path)
        bridge.open(self._daemon)
        task = self._keep("record", lambda: bridge.run(self._daemon))
        self._running = (path, bridge, task)
        return {"path": str(path), "profile": profile}

    def _stop(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._running is None:
            raise DaemonError("nothing is being recorded")
        path, bridge, task = self._running
        task.cancel()
        self._running = None
        return {"path": str(path), **bridge.counters()}

    def _status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._running is None:
            return {"recording": False}
        path, bridge, task = self._running
        return {"recording": not task.done(), "path": str(path), "problem": bridge.problem, **bridge.counters()}
