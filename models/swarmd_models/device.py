"""What this device is and how it fares: processor, memory, runtimes, temperature, battery; from `/sys` and `/proc`."""

import importlib.util
import os
import platform
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/sys")
PROCESSES = Path("/proc")
_MAX_ENTRIES = 64
"""Thermal zones or power supplies that are read; a board has some ten."""
_MAX_TEXT_BYTES = 65_536
"""Read of one file of /proc or /sys."""
_MODULES = {
    "litert": ("ai_edge_litert", "tflite_runtime"),
    "onnx": ("onnxruntime",),
    "openvino": ("openvino",),
    "tensorrt": ("tensorrt", "tensorrt_bindings", "tensorrt_lean", "tensorrt_lean_bindings"),
}
_NVIDIA_NODES = ("/dev/nvidia0", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu")
_CHARGED = ("Charging", "Full", "Not charging")


@dataclass(frozen=True, slots=True)
class Device:
    """The capability descriptor: what decides which model this device can fly."""

    machine: str
    """Architecture, such as "aarch64"."""
    cores: int
    """That this process may use."""
    memory_mb: int
    """0: not known."""
    free_memory_mb: int
    """0: not known."""
    backends: tuple[str, ...]
    """Kinds of runtimes that are installed; `tensorrt` also needs a device."""

    def __str__(self) -> str:
        """For people."""
        memory = f", {self.free_memory_mb} of {self.memory_mb} MB free" if self.memory_mb else ""
        return f"{self.machine}, {self.cores} cores{memory}, {' '.join(self.backends) or 'no runtime'}"


def describe(processes: Path = PROCESSES) -> Device:
    """What this device has now; runtimes are looked for without loading them."""
    memory = _memory_kib(processes / "meminfo")
    return Device(
        platform.machine(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory.get("MemTotal", 0) >> 10,
        memory.get("MemAvailable", 0) >> 10,
        tuple(kind for kind, modules in _MODULES.items() if _is_installed(kind, modules)),
    )


def _is_installed(kind: str, modules: tuple[str, ...]) -> bool:
    if kind == "tensorrt" and not any(Path(node).exists() for node in _NVIDIA_NODES):
        return False
    return any(importlib.util.find_spec(module) is not None for module in modules)


def temperature_c(folder: Path = SYSTEM / "class/thermal") -> float | None:
    """The hottest thermal zone of this device; None where there is none to read."""
    found = []
    for zone in sorted(folder.glob("thermal_zone*/temp"))[:_MAX_ENTRIES]:
        try:
            found.append(int(zone.read_text()) / 1000.0)
        except (OSError, ValueError):
            continue
    return max((t for t in found if -40.0 < t < 150.0), default=None)


def battery_milli(folder: Path = SYSTEM / "class/power_supply") -> int | None:
    """The emptiest battery that feeds this device, thousandths of full; None where there is none, or it is charged."""
    found = []
    for supply in sorted(folder.glob("*"))[:_MAX_ENTRIES]:
        if _word(supply / "type") != "Battery" or _word(supply / "scope") == "Device":
            continue  # Mains, or the battery of a mouse.
        if _word(supply / "status") in _CHARGED:
            continue
        try:
            capacity = int(_word(supply / "capacity"))
        except ValueError:
            continue
        if 0 <= capacity <= 100:
            found.append(capacity * 10)
    return min(found, default=None)


def _word(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TEXT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _memory_kib(path: Path) -> dict[str, int]:
    numbers = {}
    for line in _word(path).splitlines():
        name, _, rest = line.partition(":")
        value = rest.split()
        if value and value[0].isdigit():
            numbers[name] = int(value[0])
    return numbers
