"""What lies free on the C library's heap, handed back to the system.

Reading some 450 modules and a model, and opening the databases, takes blocks that are free a moment later, in between
others that stay. glibc keeps them for the process: 0.7 MB of a brain whose eye has just started. Answers, repairs and
files of a release leave such blocks later on.
"""

import asyncio

import _cffi_backend  # type: ignore[import-untyped]

from swarmd.brain import garbage

# By cffi, which libsodium's binding has loaded: ctypes takes a megabyte, more than there is to win. This is what
# cffi writes in its out-of-line ABI mode for `int malloc_trim(size_t);` (`FFI.set_source(name, None)`).
_FFI = _cffi_backend.FFI(
    "swarmd.brain.heap",
    _version=0x2601,
    _types=b"\x00\x00\x03\x0d\x00\x00\x1c\x01\x00\x00\x00\x0f\x00\x00\x07\x01",
    _globals=(b"\x00\x00\x00\x23malloc_trim", 0),
)

GIVE_BACK_S = 600.0
"""Seconds between two looks: a few milliseconds of the loop in ten minutes."""


async def keep_heap_small() -> None:
    """Free what died in cycles and return free blocks now and then, for ever."""
    while True:
        await asyncio.sleep(GIVE_BACK_S)
        garbage.look_at_new()
        await asyncio.sleep(0)  # Each in a turn of its own.
        give_back_heap()


def give_back_heap() -> bool:
    """Return free blocks to the system; costs about a millisecond, so it is for after a start, and for now and then.

    Returns:
        Whether the C library can: glibc can, musl keeps little and has no such call.

    Source:
        malloc_trim(3).
    """
    trim = getattr(_FFI.dlopen(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
