"""Pictures of what was seen, for the page and for reports: asked of the swarm when somebody looks, checked, handed on.

Rules this file keeps: nothing but what has the name and the form of a picture (`swarmd_protocols.thumbs.form`) is
handed on, whoever gave it; nobody who looks is in another's way; nobody waits without end; of a swarm nothing is kept
here.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from io import BytesIO
from typing import TypeAlias
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from swarmd.api.daemon import BusEvent, Operations
from swarmd.errors import DaemonError
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.thumbs.form import NAME_BYTES, name_of, problem_of
from swarmd_protocols.thumbs.requests import Fetch, ThumbLearned

WAIT_S = 2.0
"""Seconds that a page waits for a picture before it is told to ask again: a browser has six connections to a server,
and those that wait for pictures are missed elsewhere."""
REPORT_S = 15.0
"""Seconds that a report waits for its pictures: what an author gives in that time is 60 of them."""
PICTURES_MAX = 1_000
"""Pictures of one file: 6 MB at the largest."""
RECORDED_MAX = 2_000
"""Pictures of a recording that are held in memory, 12 MB at the largest: as many as one is made with."""
AT_A_TIME = 64
"""Pictures that a report asks for at once."""
_NAME = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}")

FindThumb: TypeAlias = Callable[[str, float], Awaitable[bytes]]
"""From the name of a picture, hexadecimal digits, and the seconds that somebody waits, to its bytes."""


async def no_thumbs(name: str, wait_s: float) -> bytes:
    """Where no swarm runs that could be asked."""
    raise DaemonError("a simulation names pictures and holds none; they are to be had where `swarmd ground` has joined")


class HeldThumbs:
    """Pictures of a recording: those of `RECORDED_MAX` names, the first ones."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def put(self, jpeg: bytes) -> str:
        """Take a picture in; its name, "" where it is none that may be shown or there is no room."""
        name = name_of(jpeg).hex()
        if name not in self._held:
            if len(self._held) >= RECORDED_MAX or problem_of(jpeg):
                return ""
            self._held[name] = jpeg
        return name

    async def get(self, name: str, wait_s: float) -> bytes:
        """A picture, as `FindThumb` has it."""
        if name not in self._held:
            raise DaemonError("the recording holds no picture of this name")
        return self._held[name]


class Thumbs:
    """Pictures of the swarm of one daemon.

    Args:
        daemon: Asks for them.
    """

    def __init__(self, daemon: Operations) -> None:
        self._daemon = daemon
        self._waiting: dict[bytes, dict[asyncio.Future[ThumbLearned], None]] = {}
        self.end = daemon.subscribe(self._on_event)
        """No more is heard of pictures."""

    async def get(self, name: str, wait_s: float = WAIT_S) -> bytes:
        """A picture.

        Args:
            name: As a sighting or an object names it.
            wait_s: Seconds that somebody waits for it.

        Raises:
            DaemonError: It is no name, or the picture is not to be had, or not yet.
        """
        if not _NAME.fullmatch(name):
            raise DaemonError(f"a picture's name has {2 * NAME_BYTES} hexadecimal digits")
        wanted = bytes.fromhex(name)
        future: asyncio.Future[ThumbLearned] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(wanted, {})[future] = None
        try:
            # What is on its way already is not asked for again by that; where it has come, the answer is here at once.
            self._daemon.ask("thumbs", Fetch(wanted))
            learned = await asyncio.wait_for(future, wait_s)
        except StateError as error:
            raise DaemonError(str(error)) from error
        except TimeoutError:
            raise DaemonError("the picture is on its way; ask again") from None
        finally:
            self._forget(wanted, future)
        problem = learned.problem or checked(wanted, learned.jpeg)
        if problem:
            raise DaemonError(problem)
        return learned.jpeg

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=ThumbLearned() as learned):
                for future in self._waiting.get(learned.name, ()):
                    if not future.done():
                        future.set_result(learned)
            case _:
                pass

    def _forget(self, wanted: bytes, future: "asyncio.Future[ThumbLearned]") -> None:
        waiting = self._waiting[wanted]
        del waiting[future]
        if not waiting:
            del self._waiting[wanted]


def checked(name: bytes, jpeg: bytes) -> str:
    """Why these bytes must not be shown under this name; "" where they may."""
    return problem_of(jpeg) or ("" if name_of(jpeg) == name else "a picture that is not what its name says")


async def gathered(find: FindThumb, names: Sequence[str], wait_s: float = REPORT_S) -> dict[str, bytes]:
    """As many of these pictures as come in time, by name."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    turns = asyncio.Semaphore(AT_A_TIME)
    found: dict[str, bytes] = {}

    async def one(name: str) -> None:
        async with turns:
            left_s = until_s - loop.time()
            if left_s > 0:
                with contextlib.suppress(DaemonError):
                    found[name] = await find(name, left_s)

    await asyncio.gather(*map(one, dict.fromkeys(filter(None, names))))
    return found


def kmz(document: Iterable[bytes], pictures: Iterable[tuple[str, bytes]]) -> bytes:
    """A KML document with the pictures it shows, in one file; the same bytes of the same.

    Source: OGC KML 2.3, section 1.5 (KMZ).
    """
    out = BytesIO()
    with ZipFile(out, "w", ZIP_STORED) as archive:
        archive.writestr(ZipInfo("doc.kml"), b"".join(document))
        for name, jpeg in pictures:
            archive.writestr(ZipInfo(place_in_kmz(name)), jpeg)
    return out.getvalue()


def place_in_kmz(name: str) -> str:
    """Where a picture lies in the file."""
    return f"thumbs/{name}.jpg"
