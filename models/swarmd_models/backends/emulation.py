"""Emulated Arm devices: keep the host's processor description away from LiteRT.

Under `qemu-user` an Arm process sees the x86 host's `/proc/cpuinfo` and `/sys/devices/system/cpu`. The cpuinfo library
in LiteRT 2.3.0 takes them for an Arm board's and, on some hosts, crashes while it allocates tensors; without the second
it gives up politely and LiteRT runs. On a real board nothing here does anything.
"""

import ctypes
import os
import platform
from pathlib import Path

_CPU_FOLDER = b"/sys/devices/system/cpu"
_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x4000 | 0x40000


def is_foreign(cpuinfo: str, machine: str) -> bool:
    """Whether a processor description belongs to another architecture than the process.

    Args:
        cpuinfo: Text of `/proc/cpuinfo`.
        machine: `platform.machine()`.

    >>> is_foreign("processor : 0\\nvendor_id : AuthenticAMD\\n", "aarch64")
    True
    >>> is_foreign("processor : 0\\nCPU implementer : 0x41\\n", "aarch64")
    False
    """
    return machine == "aarch64" and "vendor_id" in cpuinfo


def hide_foreign_processor() -> bool:
    """On an emulated device, hide the host's processor folder from this thread, in a mount namespace of its own.

    Returns:
        True when it was hidden. False where nothing was foreign, or where we may not (only root may): LiteRT then runs
        or crashes as it would have.
    """
    if platform.machine() != "aarch64" or not os.path.exists(_CPU_FOLDER + b"/present"):
        return False
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return False
    if not is_foreign(text, platform.machine()):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(
        libc.unshare(_CLONE_NEWNS) == 0
        and libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None) == 0
        and libc.mount(b"none", _CPU_FOLDER, b"tmpfs", ctypes.c_ulong(0), None) == 0
    )
