"""The end of a child process in which runtimes have threads of their own."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

CRASHED_STATUS = 1
"""Exit status of an error that nothing foresaw, as the interpreter's own."""


def run_and_end(work: Callable[[], int]) -> NoReturn:
    """Run, say what nothing foresaw, and end at once.

    The interpreter's own end waits for native threads, which may hang; everything that matters has been sent. That also
    holds where nobody reads the standard error any more, or where there is no memory left to write to it.

    Args:
        work: Its result is the exit status.
    """
    status = CRASHED_STATUS
    try:
        try:
            status = work()
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
