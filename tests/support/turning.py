"""An event loop whose turns are counted, for laws of who leaves it to others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """Counts the turns that a loop gives to somebody else."""

    def __init__(self) -> None:
        self.turns = 0

    async def turn(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def turning(loop: Turns) -> AsyncIterator[Turns]:
    """It counts meanwhile."""
    task = asyncio.ensure_future(loop.turn())
    try:
        yield loop
    finally:
        task.cancel()
