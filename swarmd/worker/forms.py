"""In which form a picture leaves: whichever is cheapest over the link as it was measured.

What a form costs is the time to make and to read it, and its bytes at the link's pace. The pace is what borrowed
answers took beyond their lender's inference and the way there and back, which asking for tickets measures; the forms'
sizes and times are what they were of late.

- `raw` and `diff-br` have the same pixels. Until something was measured `diff-br` goes, which is never larger.
- `jpeg` has others. It goes only where the owner allows it (`lending.jpeg_quality`), the program does not want the same
  pixels (`Swarmd-Form`) and no answer is to be kept, and where it takes half of what the others do and spares 5 ms,
  or they would miss the deadline.
- An answer of the own model, and what a lender is held against, are of the pixels that the program asked with.
"""

import asyncio
import math
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec
import numpy as np

from swarmd.worker.coding import CODED_MAX_BYTES, CODING, unpacked
from swarmd.worker.http_server import Call
from swarmd.worker.oip import OipError
from swarmd.worker.pictures import DIFF, FORMS, JPEG, RAW, as_jpeg, differences, from_jpeg, judge_sides
from swarmd_models.backends.base import Array

FORM_HEADER = "swarmd-form"
"""In lower case; of a request: `raw` or `lossless`; of an answer: the form in which its lender got the picture."""
LOSSLESS = "lossless"
WISHES = ("", RAW, LOSSLESS)
UNREAD_NS = 300_000_000_000
"""For which a lender is sent no forms that has complained about one: while a release rolls."""
LENDERS_MAX = 64
"""Of them that are remembered; the one that complained longest ago goes."""
_LEAST_BYTES = 4 << 10
"""A smaller picture goes as it is: it is one or two datagrams in any form."""
_HEAD_MAX_BYTES = 64 << 10
"""Of the JSON before a picture: a request for one has some hundreds."""
_LOOP_MAX_BYTES = 256 << 10
"""Of pixels that are coded in the loop: 1 to 2 ms; larger ones in a thread."""
_WORTH_IT = 0.5
"""Of the time that the same pixels would take that other ones may take at most."""
_WORTH_NS = 5_000_000
"""That they must save besides: less is no slow link."""
_SAMPLES = 15
"""Answers of which the median pace is taken: a hedge, a lost frame and a busy lender are no pace."""
_MEMORY = 0.25
"""Of a new size or time in what a form is expected to have."""
_SHARES = {RAW: 1.0, DIFF: 0.6, JPEG: 0.2}
"""Of a picture's bytes, before a form was made: of frames of drones here 0.3 to 0.65, and 0.12 to 0.16."""
_NS_PER_BYTE = {RAW: 0.0, DIFF: 6.0, JPEG: 3.0}
"""To make a form of a picture's byte, likewise; to read it takes about as long."""


def wish_of(call: Call) -> str:
    """Which forms a program wants; raises `OipError` (400)."""
    wish = call.headers.get(FORM_HEADER, "").strip().lower()
    if wish not in WISHES:
        raise OipError(400, f"Swarmd-Form is {wish[:20]!r}; write `raw` or `lossless`, or leave it out")
    return wish


class Link:
    """What a byte takes to lenders, by those that have answered of late."""

    def __init__(self) -> None:
        """Nothing measured."""
        self._samples = deque[float](maxlen=_SAMPLES)

    def note(self, size_bytes: int, took_ns: int, way_ns: int) -> None:
        """An answer: what it took beyond its lender's work, and the way there and back of no bytes; 0: not known.

        One that has come back sooner than a word without bytes shows that this was measured wrong, and no pace.
        """
        if not 0 < way_ns < took_ns:
            return
        self._samples.append((took_ns - way_ns) / max(1, size_bytes))

    @property
    def ns_per_byte(self) -> float | None:
        """None: nobody knows."""
        return median(self._samples) if self._samples else None


class Unread:
    """Lenders that read no forms, by their own word: older versions, or whom this device has sent what was none."""

    def __init__(self) -> None:
        """Nobody."""
        self._until_ns: dict[str, int] = {}

    def note(self, node: str, now_ns: int) -> None:
        """A lender has complained about a form."""
        self._until_ns.pop(node, None)
        self._until_ns[node] = now_ns + UNREAD_NS
        while len(self._until_ns) > LENDERS_MAX:
            del self._until_ns[next(iter(self._until_ns))]

    def nodes(self, now_ns: int) -> frozenset[str]:
        """Who has of late."""
        return frozenset(node for node, until_ns in self._until_ns.items() if now_ns < until_ns)


class UnreadError(OipError):
    """A lender has complained about the form of a picture, and nothing else."""

    def __init__(self, text: str) -> None:
        """Status 400."""
        super().__init__(400, text)


def is_about_form(complaint: OipError | None, form: str) -> bool:
    """Whether what a lender says of a picture that was sent in this form names the form, or that it is coded at all.

    >>> is_about_form(OipError(400, "input image as jpeg: cut short"), "jpeg"), is_about_form(None, "jpeg")
    (True, False)
    >>> is_about_form(OipError(400, "input image is coded in no way that is known here; br is"), "diff-br")
    True
    >>> is_about_form(OipError(400, "3 bytes are left over"), "jpeg"), is_about_form(OipError(400, "raw"), "raw")
    (False, False)
    """
    if complaint is None or complaint.status != 400 or form in ("", RAW):
        return False
    return form in str(complaint) or "coded" in str(complaint)


@dataclass(frozen=True, slots=True)
class Dressed:
    """A request's body as it leaves."""

    body: bytes | bytearray
    json_bytes: int | None
    form: str = ""
    """One of `FORMS`; "": it holds no picture that has any."""
    jpeg: bytes = b""
    shape: tuple[int, ...] = ()
    asked: tuple[bytes | bytearray, int | None] | None = None
    """With other pixels: the program's own body, and the length of its JSON part."""

    @property
    def is_exact(self) -> bool:
        """Whether its pixels are the program's."""
        return self.asked is None

    def pixels(self) -> Array:
        """What a lender sees of one that is not exact."""
        return from_jpeg(self.jpeg, self.shape)


@dataclass(slots=True)
class _Picture:
    image: Array
    head: dict[str, Any]


@dataclass(slots=True)
class Forms:
    """What a borrower knows of forms."""

    quality: int = 0
    """Of JPEGs, 1 to 100; 0: pictures leave with their own pixels alone."""
    link: Link = field(default_factory=Link)
    unread: Unread = field(default_factory=Unread)
    counters: Counter[str] = field(default_factory=Counter)
    """forms_raw, forms_diff_br, forms_jpeg: pictures by how they left; forms_spared_bytes: what was not sent for it;
    forms_refused: sent again as they were, since a lender would not read them."""
    _shares: dict[str, float] = field(default_factory=lambda: dict(_SHARES))
    _ns_per_byte: dict[str, float] = field(default_factory=lambda: dict(_NS_PER_BYTE))

    def allowed(self, wish: str, is_kept: bool) -> tuple[str, ...]:
        """Forms that a picture may have."""
        if wish == RAW:
            return (RAW,)
        return (RAW, DIFF) if wish == LOSSLESS or is_kept or not self.quality else FORMS

    def choose(self, size_bytes: int, left_ns: int, allowed: tuple[str, ...]) -> str:
        """The cheapest that is allowed, as far as anybody knows."""
        pace = self.link.ns_per_byte
        if pace is None:
            return DIFF if DIFF in allowed else RAW
        cost = {
            form: size_bytes * (self._shares[form] * pace + 2.0 * self._ns_per_byte[form]) for form in allowed
        }  # fmt: skip
        exact = min((form for form in allowed if form != JPEG), key=lambda form: cost[form])
        is_too_late = cost[exact] > left_ns and JPEG in cost and cost[JPEG] < cost[exact]
        least = min(_WORTH_IT * cost[exact], cost[exact] - _WORTH_NS)
        return JPEG if is_too_late or cost.get(JPEG, math.inf) <= least else exact

    async def dress(
        self, body: bytes | bytearray, json_bytes: int | None, left_ms: int, wish: str, is_kept: bool
    ) -> Dressed:
        """A picture's request as it leaves; anything else as it is. It never raises.

        Args:
            body: As the program sent it.
            json_bytes: Of its JSON part.
            left_ms: Until its deadline.
            wish: One of `WISHES`.
            is_kept: An equal request may be answered by what comes: so it always leaves with its own pixels, in the one
                form that equal ones have.
        """
        found = None if json_bytes is None or json_bytes > _HEAD_MAX_BYTES else _picture(body, json_bytes)
        if found is None:
            return Dressed(body, json_bytes)
        image, allowed = found.image, self.allowed(wish, is_kept)
        form = DIFF if is_kept and DIFF in allowed else self.choose(image.nbytes, left_ms * 1_000_000, allowed)
        if image.nbytes > _LOOP_MAX_BYTES and form != RAW:
            data = await asyncio.to_thread(self._made, image, form)
        else:
            data = self._made(image, form)
        if data is None or len(data) >= image.nbytes:
            form, data = RAW, image.tobytes()
        self.counters[f"forms_{form.replace('-', '_')}"] += 1
        self.counters["forms_spared_bytes"] += image.nbytes - len(data)
        row = found.head["inputs"][0]
        row["parameters"] = {"binary_data_size": len(data)} | ({} if form == RAW else {"coding": form})
        text = msgspec.json.encode(found.head)
        if form != JPEG:
            return Dressed(text + data, len(text), form)
        return Dressed(text + data, len(text), form, data, image.shape, (body, json_bytes))

    def _made(self, image: Array, form: str) -> bytes | None:
        if form == RAW:
            return None
        began_ns = time.thread_time_ns()
        data = differences(image) if form == DIFF else as_jpeg(image, self.quality)
        if data is None and form == JPEG:
            return None  # It says nothing about others.
        took = (time.thread_time_ns() - began_ns) / image.nbytes
        share = 1.0 if data is None else len(data) / image.nbytes
        self._shares[form] += _MEMORY * (share - self._shares[form])
        self._ns_per_byte[form] += _MEMORY * (took - self._ns_per_byte[form])
        return data


def _picture(body: bytes | bytearray, json_bytes: int) -> _Picture | None:
    """The one picture of a request; None: it is something else, or already in a form of the program's."""
    try:
        head = msgspec.json.decode(memoryview(body)[:json_bytes])
        (row,) = head["inputs"]
        shape, said = tuple(row["shape"]), row["parameters"]
        if row["datatype"] != "UINT8" or not all(type(side) is int for side in shape) or said.keys() - _SAID:
            return None
        size_bytes, data = judge_sides(shape), bytes(memoryview(body)[json_bytes:])
        if not _LEAST_BYTES <= size_bytes <= CODED_MAX_BYTES or said["binary_data_size"] != len(data):
            return None
        if said.get("coding") is not None:
            if said["coding"] != CODING:
                return None
            data = unpacked(data, size_bytes)
        return _Picture(np.frombuffer(data, np.uint8).reshape(shape), head) if len(data) == size_bytes else None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None  # Whoever runs it says what is wrong with it.


_SAID = {"binary_data_size", "coding"}
"""What may stand beside a picture: anything else is not ours to drop."""


class _Took(msgspec.Struct):
    took_us: int = 0


class _Timed(msgspec.Struct):
    parameters: _Took = msgspec.field(default_factory=_Took)


_TIMED = msgspec.json.Decoder(_Timed)


def took_ns(body: bytes, json_bytes: int | None) -> int:
    """What an answer took at its lender, by its own word; 0 where it says nothing."""
    try:
        return max(0, _TIMED.decode(body[:json_bytes]).parameters.took_us) * 1000
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return 0
