"""The thread that owns the files of releases: it carries the protocol's orders about them out, and answers on the loop.

Orders are begun in the order in which they were given. A long one (hashing a whole file) is done in steps, and between
them others have their turn: a chunk that a peer waits for does not wait for a file to be hashed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from swarmd.logs import Logger
from swarmd_protocols.releases.requests import StorageAnswer, StorageOrder
from swarmd_protocols.releases.stores import ChunkStore, carry_out, failed

_T = TypeVar("_T")


class StorageThread:
    """One thread, one store.

    Args:
        store: Whose only user the thread is from now on.
        answer: Given what the protocol is to hear, on the loop.
        log: Where failures are said.
    """

    def __init__(self, store: ChunkStore, answer: Callable[[StorageAnswer], None], log: Logger) -> None:
        self._store = store
        self._answer = answer
        self._log = log
        self._thread = ThreadPoolExecutor(1, "releases-storage")
        self._closed = False

    def give(self, order: StorageOrder) -> None:
        """Take an order; returns at once."""
        if not self._closed:
            loop = asyncio.get_running_loop()
            self._thread.submit(self._step, order, carry_out(self._store, order), loop)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do something else with the store, in its turn."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Finish the step under way and stop."""
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _step(
        self, order: StorageOrder, steps: Iterator[StorageAnswer | None], loop: asyncio.AbstractEventLoop
    ) -> None:
        try:
            answer = next(steps)
        except StopIteration:
            return
        except OSError as error:
            self._log.error("storage_failed", order=type(order).__name__, error=str(error))
            answer = failed(order)
            if answer is None:
                return
        if self._closed:
            return
        if answer is None:
            with contextlib.suppress(RuntimeError):  # Closed since.
                self._thread.submit(self._step, order, steps, loop)
        else:
            loop.call_soon_threadsafe(self._answer, answer)
