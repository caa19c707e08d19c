"""What the whole device has and does: processors, memory, heat, graphics, the disk that the state lies on.

Read from the kernel at each scrape, never in between. What a device does not tell is absent, not zero. NVIDIA's cards
tell the kernel nothing: their own exporter does (docs/observability.md).
"""

import os
from collections.abc import Mapping
from pathlib import Path

from swarmd.api.metrics import Metrics
from swarmd_models.device import temperature_c

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The first columns of `/proc/stat` (proc_stat(5)); guests are counted in user and nice already."""
_CARDS_MAX = 8
"""Graphics cards that are looked at, so that a scrape stays small."""


def register_host(metrics: Metrics, state: Path, proc: Path = Path("/proc"), system: Path = Path("/sys")) -> None:
    """Show the device under names like those of Prometheus' node exporter.

    Args:
        metrics: Where a scrape reads.
        state: A folder on the disk that matters.
        proc: Where the kernel tells of processors and memory.
        system: Where it tells of heat and graphics.
    """
    metrics.counters("swarmd_host_cpu_seconds", "Of all processors, by mode.", "mode", lambda: _processors(proc))
    metrics.gauges("swarmd_host_cpus", "Processors that are on.", "", lambda: {"": os.cpu_count() or 1})
    metrics.gauges("swarmd_host_load", "Mean of those that run or wait to, one minute.", "", _load)
    metrics.gauges("swarmd_host_memory_bytes", "Memory of the device.", "what", lambda: _memory(proc))
    metrics.gauges("swarmd_host_disk_bytes", "The disk of the state.", "what", lambda: _disk(state))
    metrics.gauges(
        "swarmd_host_temperature_celsius", "The hottest zone.", "", lambda: _hottest(system / "class" / "thermal")
    )
    metrics.gauges("swarmd_host_gpu_busy_ratio", "Share of time that it works.", "gpu", lambda: _graphics(system))
    metrics.gauges(
        "swarmd_host_gpu_memory_bytes", "Its own memory that is in use.", "gpu", lambda: _graphics_memory(system)
    )


def _processors(proc: Path) -> Mapping[str, float]:
    try:
        first = (proc / "stat").read_text().splitlines()[0].split()
        return {mode: int(ticks) / _TICKS_A_SECOND for mode, ticks in zip(_MODES, first[1:], strict=False)}
    except (OSError, IndexError, ValueError):
        return {}


def _load() -> Mapping[str, float]:
    try:
        return {"": os.getloadavg()[0]}
    except OSError:
        return {}


def _memory(proc: Path) -> Mapping[str, int]:
    wanted = {"MemTotal": "total", "MemAvailable": "available", "SwapTotal": "swap_total", "SwapFree": "swap_free"}
    found = {}
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in wanted:
                found[wanted[name]] = int(rest.split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return {}
    return found


def _disk(state: Path) -> Mapping[str, int]:
    try:
        told = os.statvfs(state)
    except OSError:
        return {}
    return {"total": told.f_blocks * told.f_frsize, "available": told.f_bavail * told.f_frsize}


def _hottest(zones: Path) -> Mapping[str, float]:
    found = temperature_c(zones)
    return {} if found is None else {"": found}


def _graphics(system: Path) -> Mapping[str, float]:
    """AMD's cards tell per cent, Jetson's integrated ones thousandths."""
    found = {card.name: _number(card / "device" / "gpu_busy_percent", 100) for card in _cards(system)}
    for path in (system / "devices/gpu.0/load", system / "devices/platform/gpu.0/load"):
        found.setdefault("gpu.0", None)
        found["gpu.0"] = _number(path, 1000) if found["gpu.0"] is None else found["gpu.0"]
    return {name: value for name, value in found.items() if value is not None}


def _graphics_memory(system: Path) -> Mapping[str, float]:
    found = {card.name: _number(card / "device" / "mem_info_vram_used", 1) for card in _cards(system)}
    return {name: value for name, value in found.items() if value is not None}


def _cards(system: Path) -> list[Path]:
    return sorted(card for card in (system / "class/drm").glob("card*") if "-" not in card.name)[:_CARDS_MAX]


def _number(path: Path, whole: int) -> float | None:
    try:
        return int(path.read_text()) / whole
    except (OSError, ValueError):
        return None
