"""The worker's side of borrowing: what its programs may have another device answer, and what it answers for others.

A program says that it may be so with each request (`BORROW_HEADER`): otherwise nothing leaves this device. What is
borrowed goes to the brain, which finds a lender; what was lent comes from there and goes through the same queue as
everything else, behind it all.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from swarmd.worker import words
from swarmd.worker.batcher import NORMAL
from swarmd.worker.http_server import Call
from swarmd.worker.lent import Place
from swarmd.worker.oip import OipError

BORROW_HEADER = "swarmd-borrow"
"""In lower case; `yes`, `1` or `true`: another device may answer where this one cannot; `quickest`: whoever is soonest,
by the measured times; `unsure`: another, by `lending.plan`, where the own model is in doubt; `split`: others for parts
of the model, by `lending.split`; `fleet`: a job of a batch, for whoever of the fleet is idle."""
CAUSE_HEADER, _CAUSE_CHARS = "traceparent", 55
"""W3C Trace Context: what the program that asks was doing; its only version has so many characters."""
KEEP_HEADER, GRADE_HEADER = "swarmd-keep", "swarmd-grade-min"
"""Seconds for which the answer may be kept; the least grade of a bundle that is asked for by what it is able to."""
KEEP_MAX_S = 600.0
"""What is kept for longer is no cache of live pictures."""
_QUICKEST, _UNSURE, _SPLIT, _FLEET = "quickest", "unsure", "split", "fleet"
Body = tuple[bytes | bytearray, int | None]
"""A request as a program has sent it, and the length of its JSON part."""
OPEN_MAX = 64
"""Requests at other devices at once."""
PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Seconds before a request is sent out again that all lenders have refused or failed at, where one still offers what is
wanted: while a release rolls, or for a moment of many requests."""
_PATIENCE_S = 5.0
"""Seconds after its deadline until a request is given up that the brain has not ended."""


def may_leave(call: Call) -> bool:
    """Whether a program allows that another device answers."""
    words = ("1", "yes", "true", _QUICKEST, _UNSURE, _SPLIT, _FLEET)
    return call.headers.get(BORROW_HEADER, "").lower() in words


def wants_quickest(call: Call) -> bool:
    """Whether a program wants whoever is soonest, this device or another."""
    return call.headers.get(BORROW_HEADER, "").lower() == _QUICKEST


def wants_plan(call: Call) -> bool:
    """Whether a program wants better models asked where the own one is in doubt."""
    return call.headers.get(BORROW_HEADER, "").lower() == _UNSURE


def wants_split(call: Call) -> bool:
    """Whether a program lets parts of the model run on other devices."""
    return call.headers.get(BORROW_HEADER, "").lower() == _SPLIT


def wants_fleet(call: Call) -> bool:
    """Whether a request is a job of a batch."""
    return call.headers.get(BORROW_HEADER, "").lower() == _FLEET


def cause_of(call: Call) -> str:
    """A program's trace context, unread; "" where it gave none of the right length."""
    text = call.headers.get(CAUSE_HEADER, "")
    return text if len(text) == _CAUSE_CHARS else ""


def number_of(call: Call, header: str, most: float) -> float:
    """A header's number within 0 and `most`; 0.0 where it is absent. Raises `OipError` (400)."""
    text = call.headers.get(header, "0")
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= most:
        raise OipError(400, f"{header} is {text[:20]!r}; a number within 0 and {most:g} is wanted")
    return number


def judge_copies(call: Call, copies: int) -> None:
    """Whether so many devices may work on a request at once; raises `OipError` (400)."""
    if copies > 1 and (not may_leave(call) or wants_split(call) or wants_fleet(call)):
        raise OipError(400, "copies = 2 takes two other devices: Swarmd-Borrow: yes, quickest or unsure")


class NobodyError(OipError):
    """No device has answered."""

    def __init__(self, text: str, *, may_retry: bool) -> None:
        """`may_retry`: a member still offers what was asked for."""
        super().__init__(503, text)
        self.may_retry = may_retry


class Borrowing:
    """Requests of this device's programs that others answer."""

    def __init__(self, say: Callable[[words.Borrow | words.Abandon | words.Judged], None]) -> None:
        """`say` tells the brain."""
        self._say = say
        self._open: dict[int, asyncio.Future[words.Borrowed]] = {}
        self._exact: dict[int, Body] = {}
        """What the own model answers in place of what travels, by the number of the request."""
        self._numbers = 0
        self.counters: Counter[str] = Counter()
        """borrowed_again: requests that were sent out once more, since all lenders had failed or were busy."""

    async def ask(
        self,
        digest: str,
        data: bytes,
        units: int,
        left_ms: int,
        local_ns: int = 0,
        local_wait_ns: int = 0,
        place: Place | None = None,
        able: tuple[str, int] = ("", 0),
        keep_ms: int = 0,
        is_patient: bool = True,
        only: str = "",
        may_check: bool = False,
        but: Sequence[str] = (),
        priority: int = NORMAL,
        cause: str = "",
        copies: int = 1,
        exact: Body | None = None,
    ) -> words.Borrowed:
        """Have another device answer, or the own model at the last moment; where all have failed, again after a pause.

        Args:
            digest: Of the bundle, hexadecimal.
            data: What travels.
            units: Items in it.
            left_ms: Until its deadline.
            local_ns: What the own model takes for it; 0: it is not here.
            local_wait_ns: What the own model has to do first.
            place: Where the input is laid out that `data` tells of.
            able: Any bundle with this ability, and this grade in thousandths or better, may answer; "": that one alone.
            keep_ms: For how long the answer may be kept.
            is_patient: Whether it is worth a pause.
            only: The node that is to answer, this one or none; "": whichever the brain finds.
            may_check: Whether the answer may be held against the own model, where that does not answer.
            but: Nodes that are not to answer.
            priority: Among what its lender does for others: 1 high, 2 normal, 3 low.
            cause: `traceparent` of what the program was doing.
            copies: Lenders that have it from the start.
            exact: What the own model answers in its place; None: what travels.

        Raises:
            OipError: Nobody answers in time (503).
        """
        about = (
            local_ns, local_wait_ns, place, able, keep_ms, only, may_check, but, priority, cause, copies, exact,
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        until_s = loop.time() + left_ms / 1e3
        for pause_s in PAUSES_S if is_patient else ():
            try:
                return await self._ask(digest, data, units, left_ms, *about)
            except NobodyError as error:
                left_ms = int((until_s - loop.time() - pause_s) * 1e3)
                if not error.may_retry or left_ms < 1:
                    raise
            self.counters["borrowed_again"] += 1
            await asyncio.sleep(pause_s)
        return await self._ask(digest, data, units, left_ms, *about)

    async def _ask(
        self,
        digest: str,
        data: bytes,
        units: int,
        left_ms: int,
        local_ns: int,
        local_wait_ns: int,
        place: Place | None,
        able: tuple[str, int],
        keep_ms: int,
        only: str,
        may_check: bool,
        but: Sequence[str],
        priority: int,
        cause: str,
        copies: int,
        exact: Body | None,
    ) -> words.Borrowed:
        if len(self._open) >= OPEN_MAX:
            raise OipError(503, f"{OPEN_MAX} requests are at other devices; ask again in a moment")
        self._numbers += 1
        number = self._numbers
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        if exact is not None:
            self._exact[number] = exact
        laid = (0, b"", 0) if place is None else (place.size_bytes, place.lane_key, place.token_at)
        word = words.Borrow(
            number, digest, data, units, left_ms, local_ns, local_wait_ns, laid[0], *able, keep_ms, *laid[1:], only,
            may_check, list(but), priority, cause, copies,
        )  # fmt: skip
        self._say(word)
        try:
            async with asyncio.timeout(left_ms / 1e3 + _PATIENCE_S):
                borrowed: words.Borrowed = await answer
        except TimeoutError as error:
            raise OipError(503, "no device has answered in time") from error
        except asyncio.CancelledError:  # The program has gone.
            self._say(words.Abandon(number))
            raise
        finally:
            del self._open[number]
            self._exact.pop(number, None)
        if borrowed.data is None:
            raise NobodyError(borrowed.reason, may_retry=borrowed.is_offered)
        return borrowed

    def exact_of(self, number: int) -> Body | None:
        """What the own model answers in place of what travels in a request; None: that."""
        return self._exact.get(number)

    def judge(self, number: int, is_right: bool, *, is_silent: bool = False) -> None:
        """What came of a spot check; or its lender is silent about what it keeps."""
        self._say(words.Judged(number, is_right, is_silent))

    def on_answer(self, borrowed: words.Borrowed) -> None:
        """The brain says what came of one."""
        answer = self._open.get(borrowed.number)
        if answer is not None and not answer.done():
            answer.set_result(borrowed)
