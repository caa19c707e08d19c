"""What a start leaves on the C library's heap, handed back to the system.

Reading some 450 modules and opening the databases takes blocks that are free a moment later, in between others that
stay. glibc keeps them for the process; on a device they are a megabyte for each brain that does nothing.
"""

import ctypes


def give_back_heap() -> bool:
    """Return free blocks to the system; costs about a millisecond, so it is for once, after the start.

    Returns:
        Whether the C library can: glibc can, musl keeps little and has no such call.

    Source:
        malloc_trim(3).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
