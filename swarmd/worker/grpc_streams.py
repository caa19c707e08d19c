"""Who may hold a stream of gRPC open: so many, and whoever comes when all are taken has the place of the idlest.

A stream may stay open as long as its client likes, since Triton's clients keep one; so a client that opens many and
asks nothing, or asks and does not read what it is told, must not keep others out. Only a stream that waits for its
client is ended for another: for its next question, or for `UNREAD_S` and more until it takes an answer.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Self

from swarmd.worker.oip import OipError

STREAMS_MAX = 16
"""At once; other calls have as many places again."""
UNREAD_S = 5.0
"""A client that has not taken an answer for so long, seconds, may lose its place: what it reads has gone by then."""


class Stream:
    """One stream's place, as a context; idle while its client's next question is awaited."""

    def __init__(self, places: "StreamPlaces") -> None:
        self._places = places
        self._ended = asyncio.Event()
        self._task = asyncio.current_task()

    def __enter__(self) -> Self:
        self._places.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._places.leave(self)

    def end(self) -> None:
        """Somebody else has the place."""
        self._ended.set()

    def cut(self) -> None:
        """Likewise, where its client takes no answer: nothing else wakes what waits for that."""
        if self._task is not None:
            self._task.cancel()

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """While its client is told something."""
        self._places.tells(self, time.monotonic())
        try:
            yield
        finally:
            self._places.told(self)

    async def next(self, questions: AsyncIterator[bytes]) -> bytes | None:
        """The next question; None at the end. Raises `OipError` once another stream has this place."""
        self._places.idles(self)
        asked = asyncio.ensure_future(anext(questions, None))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise OipError(503, f"{STREAMS_MAX} streams are open and this one waited longest; open another")
            return asked.result()
        finally:
            asked.cancel()
            ended.cancel()
            self._places.works(self)


class StreamPlaces:
    """All streams that are open."""

    def __init__(self) -> None:
        self._working: set[Stream] = set()
        self._idle: dict[Stream, None] = {}
        """The one that has waited longest first."""
        self._telling: dict[Stream, float] = {}
        """Of those that work, whose client takes an answer, and since when, the first one first."""

    def __len__(self) -> int:
        return len(self._working) + len(self._idle)

    def enter(self, stream: Stream) -> None:
        """Take a place, of one that is idle where all are taken; raises `OipError` where all work."""
        if len(self) >= STREAMS_MAX:
            idlest = next(iter(self._idle), None)
            unread, since_s = next(iter(self._telling.items()), (None, 0.0))
            if idlest is not None:
                self.leave(idlest)
                idlest.end()
            elif unread is not None and time.monotonic() - since_s >= UNREAD_S:
                self.leave(unread)
                unread.cut()
            else:
                raise OipError(503, f"{STREAMS_MAX} streams are open and each is answered; ask again in a moment")
        self._working.add(stream)

    def leave(self, stream: Stream) -> None:
        """The stream is over."""
        self._working.discard(stream)
        self._idle.pop(stream, None)
        self._telling.pop(stream, None)

    def tells(self, stream: Stream, now_s: float) -> None:
        """Its client is to take an answer from here on."""
        if stream in self._working:
            self._telling[stream] = now_s

    def told(self, stream: Stream) -> None:
        """Its client has taken it."""
        self._telling.pop(stream, None)

    def idles(self, stream: Stream) -> None:
        """It waits for its client from here on."""
        self._working.discard(stream)
        self._idle[stream] = None

    def works(self, stream: Stream) -> None:
        """It has a question to answer, unless its place is gone."""
        if stream in self._idle:
            del self._idle[stream]
            self._working.add(stream)
