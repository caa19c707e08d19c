"""What every process says of itself, under the names that Prometheus's own client libraries use."""

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path

from swarmd.api.metrics import Metrics

_PAGE_BYTES = resource.getpagesize()
_STARTED_S = time.time()
"""UNIX seconds; a clock set later does not move it."""


def register_process(metrics: Metrics) -> None:
    """Show processor time, memory, open files and the start.

    Source: Prometheus, "Writing client libraries", "Standard and runtime collectors".
    """
    metrics.counters("process_cpu_seconds", "Processor time, user and system.", "", lambda: {"": time.process_time()})
    metrics.gauges("process_resident_memory_bytes", "Resident memory.", "", _memory)
    metrics.gauges("process_open_fds", "Open file descriptors.", "", _open_files)
    metrics.gauges(
        "process_max_fds",
        "Most file descriptors that may be open.",
        "",
        lambda: {"": resource.getrlimit(resource.RLIMIT_NOFILE)[0]},
    )
    metrics.gauges("process_start_time_seconds", "Start, seconds since 1970.", "", lambda: {"": _STARTED_S})


def _memory() -> Mapping[str, int]:
    try:
        return {"": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES}
    except (OSError, IndexError, ValueError):  # No procfs here.
        return {}


def _open_files() -> Mapping[str, int]:
    try:
        return {"": len(os.listdir("/proc/self/fd")) - 1}  # But for the folder's own.
    except OSError:
        return {}
