"""Requests that another device may answer: how they travel, which way back, and how far the answer is believed.

Small ones go through the brains whole; what is larger lies on the worker's shelf, and the brains carry where
(`lane.py`).
An answer that is not what its lender's brain has signed counts against the lender, and the next is asked.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swarmd.worker.batcher import NORMAL, Batcher
from swarmd.worker.borrowing import (
    KEEP_HEADER,
    KEEP_MAX_S,
    Body,
    Borrowing,
    NobodyError,
    cause_of,
    judge_copies,
    number_of,
)
from swarmd.worker.checks import SpotChecks, agrees
from swarmd.worker.forms import Dressed, Forms, UnreadError, is_about_form, took_ns, wish_of
from swarmd.worker.http_server import Call
from swarmd.worker.keeps import Far as Far
from swarmd.worker.keeps import Keeps
from swarmd.worker.leaving import FRAMES
from swarmd.worker.leaving import judge as judge_leaving
from swarmd.worker.lent import (
    BORROWER,
    INFER,
    INLINE_MAX_BYTES,
    LANE_MAX_BYTES,
    METADATA,
    PAYLOAD_MAX_BYTES,
    REQUEST_HEAD_BYTES,
    TOKEN_AT,
    Place,
    Source,
    complaint_of,
    handed_token_at,
    is_body,
    kept_answer,
    left_answer,
    open_answer,
    pack_handed,
    pack_place,
    pack_request,
    token_of,
)
from swarmd.worker.oip import JSON_LENGTH, MAX_JSON_BYTES, OipError, Question, peek, read_answer, write_answer
from swarmd.worker.outbox import KEEP_MAX_NS
from swarmd.worker.pictures import RAW
from swarmd.worker.residency import Residency, Resident
from swarmd.worker.words import Borrowed
from swarmd_models.service import DETECT, SERIES, Tensors

if TYPE_CHECKING:
    from swarmd.worker.lane import Fetcher, Shelf

UNITS_MAX = 64
"""Items in one request: what one batch may have."""
TIMEOUT_MAX_MS = 60_000
"""A request may name no later deadline: what waits longer is a batch job."""
_TRIES = 6
"""Times that one request is sent out whose answers are not what was signed: four of these end a lender's trust."""
_UNMEASURED_NS = 100_000_000
"""What a model is taken to need that has not run yet."""
_HEAD_BYTES = 4096
"""What stands beside the outputs in an answer, at most."""


@dataclass(frozen=True, slots=True)
class Own:
    """What this device could answer itself."""

    resident: Resident
    lane: str
    question: Question
    units: int
    is_busy: bool
    """Its queue has just refused the request."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A request as it leaves."""

    digest: str
    what: int
    lane: str
    json_bytes: int | None
    body: bytes | bytearray
    units: int
    left_ms: int
    able: tuple[str, int] = ("", 0)
    """Ability and least grade: any bundle that has them may answer; "": the one with this digest alone."""
    keep_ms: int = 0
    """For how long the answer may be kept."""
    by_lane: bool = False
    """It goes from worker to worker where that can be and it has more than `INLINE_MAX_BYTES`, however small it is."""
    only: str = ""
    """The node that is to answer, hexadecimal; "": whichever is found."""
    is_patient: bool = True
    """It goes out again after a pause where all lenders are busy; else there is something better to do."""
    keep_key: bytes = b""
    """The lender may keep what comes out for who has a token made with it; empty: it comes here."""
    keep_bytes: int = 0
    """What comes out has no more."""
    far: Far | None = None
    """The input lies there instead of in `body`."""
    lets_out: str = FRAMES
    """What of this device's own is in it: one of `leaving.LEVELS`."""
    priority: int = NORMAL
    """Among what its lender does for others."""
    cause: str = ""
    """`traceparent` of what the program was doing."""
    copies: int = 1
    """Lenders that work on it from the start."""
    form: str = ""
    """Which forms its picture may have: one of `forms.WISHES`."""
    but: tuple[str, ...] = ()
    """Nodes that are not to answer."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came back."""

    body: bytes
    json_bytes: int | None
    lender: str
    """"": the own model has answered."""
    digest: str = ""
    """Of the bundle that has."""
    is_kept: bool = False
    far: Far | None = None
    """Where the answer lies that is not in `body`."""
    number: int = 0
    """Of the request that it answers, for `Elsewhere.judge`."""
    form: str = ""
    """In which the picture left."""


def errand_of(
    call: Call, what: int, lane: str, digest: str, default_ms: int, able: tuple[str, int] = ("", 0)
) -> Errand:
    """A program's request for a model that is not here, as it leaves; raises `OipError`.

    Args:
        call: The request.
        what: `INFER` or `METADATA`.
        lane: Of the model.
        digest: Of the bundle; "" where any able one may answer.
        default_ms: Until its deadline where it names none.
        able: See `Errand`.
    """
    if what == METADATA:
        return Errand(digest, METADATA, lane, None, call.body, 1, default_ms, able)
    json_bytes = json_length(call)
    units, timeout_us, priority, copies = peek(call.body, json_bytes)
    judge_copies(call, copies)
    units = 1 if lane in (DETECT, SERIES) else units
    if units > UNITS_MAX:
        raise OipError(400, f"the request has {units} items; at most {UNITS_MAX} in one")
    left_ms = min(TIMEOUT_MAX_MS, timeout_us // 1000) or default_ms
    keep_ms = keep_ms_of(call)
    return Errand(
        digest,
        INFER,
        lane,
        json_bytes,
        call.body,
        units,
        left_ms,
        able,
        keep_ms,
        priority=priority or NORMAL,
        cause=cause_of(call),
        copies=copies,
        form=wish_of(call),
    )


def keep_ms_of(call: Call) -> int:
    """For how long a program lets an answer be kept; raises `OipError` (400)."""
    return round(number_of(call, KEEP_HEADER, KEEP_MAX_S) * 1e3)


def json_length(call: Call) -> int | None:
    """Of the JSON part of a body; None: all of it. Raises `OipError` (400)."""
    stated = call.headers.get(JSON_LENGTH.lower())
    if stated is not None and not (stated.isascii() and stated.isdigit() and len(stated) < 12):
        raise OipError(400, f"{JSON_LENGTH} is {stated[:20]!r}, which is no length")
    return None if stated is None else int(stated)


class Elsewhere:
    """The borrower's side of a worker."""

    def __init__(
        self,
        borrowing: Borrowing,
        shelf: "Shelf | None",
        batcher: Batcher,
        residency: Residency,
        run: Callable[[Own, int], Awaitable[Tensors]],
        fetcher: "Fetcher | None" = None,
        leave: str = FRAMES,
        forms: Forms | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            borrowing: Asks the brain.
            shelf: Where large bodies lie; None: nothing large leaves.
            batcher: Knows the own model's times.
            residency: Keeps a bundle while an answer is held against it.
            run: Has the own model answer, behind all other work, by a moment of the monotonic clock.
            fetcher: Fetches what lenders keep; None: nothing.
            leave: What may leave at most: one of `leaving.LEVELS`.
            forms: Chooses the forms of pictures; None: none has other pixels than the program's.
        """
        self._forms = forms or Forms()
        self.lenders: dict[str, dict[str, int]] = {}
        """`Lenders.bundles`, as the brain has said them last."""
        self.leave = leave
        """What may leave at most."""
        self._fetcher = fetcher
        self._borrowing = borrowing
        self._shelf = shelf
        self._batcher = batcher
        self._residency = residency
        self._run = run
        self._keeps = Keeps()
        self._checks = SpotChecks(borrowing.judge)

    @property
    def counters(self) -> Counter[str]:
        """Of spot checks, and of requests that went out again."""
        return self._checks.counters + self._borrowing.counters + self._forms.counters

    def exact_of(self, asked: int) -> Body | None:
        """What a program asked with, where other pixels travel in this request (`Lend.asked`)."""
        return self._borrowing.exact_of(asked)

    def may_travel(self, body: bytes | bytearray) -> bool:
        """Whether a body is small enough, or there is a way for large ones."""
        return (self._shelf is not None and self._shelf.is_open) or len(body) <= PAYLOAD_MAX_BYTES - REQUEST_HEAD_BYTES

    async def ask(
        self, question: Errand, own: Own | None = None, is_sound: Callable[[Found], bool | None] = lambda found: True
    ) -> Found:
        """Have another device answer, or at the last moment, with `own`, this one; raises `OipError`.

        Args:
            question: What travels.
            own: What this device could answer itself.
            is_sound: Whether an answer can be used; one of a lender's that cannot counts against it. None: it cannot,
                and whether that is its lender's fault is known once another has answered the same.
        """
        if question.what != METADATA:
            judge_leaving(question.lets_out, self.leave)
        if question.far is not None:
            return await self._ask_handed(question, question.far, own, is_sound)
        if question.what == METADATA:
            # What a program has sent along stays: it would pass by `lending.leave`, and a large one as an inference.
            return await self._ask_dressed(question, Dressed(b"", None), own, is_sound)
        if question.lane != DETECT:
            return await self._ask_dressed(question, Dressed(question.body, question.json_bytes), own, is_sound)
        began_ns = time.monotonic_ns()
        unread = self._forms.unread.nodes(began_ns)
        readers = {question.only} if question.only else self._lenders_of(question.digest)
        form = RAW if readers and readers <= unread else question.form
        dressed = await self._forms.dress(
            question.body, question.json_bytes, question.left_ms, form, question.keep_ms > 0
        )
        sent = question
        if dressed.form not in ("", RAW) and unread:  # Who reads forms is asked, and where nobody answers, all are.
            sent = replace(question, but=tuple(sorted(unread)), is_patient=False)
        try:
            return await self._ask_dressed(sent, dressed, own, is_sound)
        except (UnreadError, NobodyError) as error:
            left_ms = question.left_ms - (time.monotonic_ns() - began_ns) // 1_000_000
            if left_ms < 1 or (isinstance(error, NobodyError) and not sent.but):
                raise
            # An older version, or one that reads no more of this device's forms: as it is, once.
            self._forms.counters["forms_refused"] += isinstance(error, UnreadError)
        plain = Dressed(question.body, question.json_bytes, RAW)
        return await self._ask_dressed(replace(question, left_ms=left_ms), plain, own, is_sound)

    def _lenders_of(self, digest: str) -> set[str]:
        """Who lends a bundle, and for "" any; none where that is not known."""
        bundles = self.lenders.values() if not digest else [self.lenders.get(digest, {})]
        return {node for units in bundles for node in units}

    async def _ask_dressed(
        self, question: Errand, dressed: Dressed, own: Own | None, is_sound: Callable[[Found], bool | None]
    ) -> Found:
        body, shelf = dressed.body, self._shelf
        question = replace(question, json_bytes=dressed.json_bytes)
        is_by_lane = question.by_lane and shelf is not None and shelf.is_open
        most_bytes = INLINE_MAX_BYTES if is_by_lane else PAYLOAD_MAX_BYTES - REQUEST_HEAD_BYTES
        if shelf is None or len(body) <= most_bytes:
            data = pack_request(question.what, question.lane, question.json_bytes, body, question.keep_key)
            return await self._ask(question, data, None, own, is_sound, dressed)
        if not shelf.is_open:
            raise OipError(503, "lending.tensors does not listen just now: another program has its port")
        from swarmd.worker.lane import hashed

        digest = await hashed(body)
        with shelf.lay_out(body, digest) as place:
            data = pack_place(question.lane, question.json_bytes, place, question.keep_key)
            told = replace(place, token_at=TOKEN_AT + len(question.keep_key))
            return await self._ask(question, data, told, own, is_sound, dressed)

    async def _ask_handed(
        self, question: Errand, far: Far, own: Own | None, is_sound: Callable[[Found], bool | None]
    ) -> Found:
        kept, key = far.kept, question.keep_key
        data = pack_handed(question.lane, kept, far.source, key)
        # The brain puts the token of whom it asks where sixteen noughts are.
        place = Place(
            kept.port, kept.curve_key, bytes(16), kept.size_bytes, kept.sha256, far.key, handed_token_at(key)
        )  # fmt: skip
        return await self._ask(question, data, place, own, is_sound, Dressed(b"", kept.json_bytes))

    async def bring(self, far: Far) -> bytes:
        """What a lender keeps, fetched here, once; raises `OipError`.

        One that gives something else has answered wrong, and so has one that was reached and gives nothing of what it
        owes. One that is silent then is written down by its name, and not judged: a frozen process looks the same. Of
        one that nobody reaches, nothing is said.
        """
        if self._fetcher is None or not far.host:
            raise OipError(503, "this device fetches no tensors, or knows not from where")
        from swarmd.worker.lane import HANDED_STALL_S, GoneError, OtherBytesError, SilentError

        kept = far.kept
        token = token_of(far.key, BORROWER)
        place = Place(kept.port, kept.curve_key, token, kept.size_bytes, kept.sha256)
        try:
            async with self._fetcher.visit(far.host, place, HANDED_STALL_S) as visit:
                return bytes(await visit.fetch())
        except OtherBytesError:
            self.judge(far.number, False)
            raise
        except GoneError:
            if self._keeps.is_owed(far, time.monotonic_ns()):
                self.judge(far.number, False)
            raise
        except SilentError:
            self._borrowing.judge(far.number, False, is_silent=True)
            raise

    def judge(self, number: int, is_right: bool) -> None:
        """Whether what came for a request was right."""
        self._borrowing.judge(number, is_right)

    async def _ask(
        self,
        question: Errand,
        data: bytes,
        place: Place | None,
        own: Own | None,
        is_sound: Callable[[Found], bool | None],
        dressed: Dressed,
    ) -> Found:
        asked_ns, left_ms = time.monotonic_ns(), question.left_ms
        until_ns = asked_ns + left_ms * 1_000_000
        but = list(question.but)
        doubtful: list[int] = []
        for _ in range(_TRIES):
            if left_ms < 1:
                break
            local_ns = wait_ns = 0
            now_ns = time.monotonic_ns()
            standing = self._keeps.begin(question.keep_bytes, until_ns, now_ns) if question.keep_key else None
            if own is not None and not question.only:
                local_ns = (self._batcher.unit_ns(own.resident.digest) or _UNMEASURED_NS) * question.units
                # Who has just refused would do so again: whoever can answer by the deadline is sooner.
                wait_ns = left_ms * 1_000_000 if own.is_busy else self._batcher.own_ns
            borrowed = await self._borrowing.ask(
                question.digest, data, question.units, left_ms, local_ns, wait_ns, place,
                question.able, question.keep_ms, question.is_patient, question.only,
                bool(question.only) and own is not None, but, question.priority, question.cause, question.copies,
                dressed.asked,
            )  # fmt: skip
            if standing is not None:
                self._keeps.end(standing, time.monotonic_ns())
            back_ns = time.monotonic_ns()
            found = await self._open(question, borrowed, place, asked_ns, until_ns)
            complaint = complaint_of(found.body, found.json_bytes) if found is not None else None
            is_complaint = complaint is not None
            verdict = is_complaint or is_sound(found) if found is not None and found.lender else True
            if verdict is None:
                # Another lender shows, from the same input, whether it was this one's fault or lies in what it got.
                doubtful.append(borrowed.number)
                but.append(borrowed.node)
                left_ms = (until_ns - time.monotonic_ns()) // 1_000_000
                continue
            if not verdict:
                found = None
            if found is None:
                self._borrowing.judge(borrowed.number, False)
                left_ms = (until_ns - time.monotonic_ns()) // 1_000_000
                continue
            if doubtful and not is_complaint and (found.lender or is_sound(found)):
                for number in doubtful:
                    self.judge(number, False)
            if found.lender and is_about_form(complaint, dressed.form):
                # It may be no fault: what it says of the picture as it is is judged, if it complains of that too.
                self._forms.unread.note(borrowed.node, back_ns)
                raise UnreadError(str(complaint))
            # What another able bundle has seen says nothing about who ran it.
            if borrowed.is_check_wanted and own is not None and found.digest == own.resident.digest:
                self._begin_check(borrowed.number, own, found, dressed)
            if found.lender and dressed.form and not borrowed.is_kept:
                found = replace(found, form=dressed.form)
                net_ns = back_ns - now_ns - took_ns(found.body, found.json_bytes)
                self._forms.link.note(len(dressed.body), net_ns, borrowed.way_ns)
            if complaint is not None:
                raise complaint
            return found
        raise OipError(503, "the lenders' answers were not what they said")

    async def _open(
        self, question: Errand, borrowed: Borrowed, place: Place | None, asked_ns: int, until_ns: int
    ) -> Found | None:
        """What an answer holds; None: not what its lender signed."""
        assert borrowed.data is not None
        digest = borrowed.digest or question.digest
        kept = kept_answer(borrowed.data)
        if kept is not None:
            if not (question.keep_key and borrowed.lender and borrowed.proof):
                return None
            source = Source(bytes.fromhex(borrowed.node), bytes.fromhex(digest), borrowed.proof, borrowed.data)
            far = Far(
                kept, source, question.keep_key, borrowed.host, borrowed.lender, borrowed.number, asked_ns,
                min(until_ns, asked_ns + KEEP_MAX_NS),
            )  # fmt: skip
            return Found(b"", None, borrowed.lender, digest, far=far, number=borrowed.number)
        left = left_answer(borrowed.data)
        if left is None:
            data, json_bytes = open_answer(borrowed.data)
            return Found(data, json_bytes, borrowed.lender, digest, borrowed.is_kept, number=borrowed.number)
        if place is None or self._shelf is None or question.far is not None:
            return None
        body = await self._shelf.take(place, left.size_bytes, left.sha256)
        if body is None or not is_body(bytes.fromhex(digest), body, left.json_bytes):
            return None
        if complaint_of(body, left.json_bytes) is not None:
            return None  # A complaint travels through the brains, which pay nothing for it.
        return Found(body, left.json_bytes, borrowed.lender, digest, number=borrowed.number)

    def _begin_check(self, number: int, own: Own, found: Found, dressed: Dressed) -> None:
        """Hold a lender's answer against the own model.

        First with the pixels that the program asked with. Where the lender was sent others and says something else, it
        is held against what it was sent: that is the form's doing, which is counted, and no fault of the lender's.
        """

        async def run(left_s: float) -> Tensors:
            until_ns = time.monotonic_ns() + round(left_s * 1e9)
            outputs = await self._run(own, until_ns)
            if dressed.is_exact or is_right(outputs):
                return outputs
            sent = replace(own, question=replace(own.question, inputs={"image": dressed.pixels()}))
            outputs = await self._run(sent, until_ns)
            self._forms.counters["forms_differ"] += is_right(outputs)
            return outputs

        def written(outputs: Tensors) -> list[int]:
            """Bytes of the own answer's pieces; very many of one that is not written for its many numbers."""
            try:
                return list(map(len, write_answer({}, outputs, own.question.wanted)[0]))
            except OipError:
                return [LANE_MAX_BYTES]

        def is_right(outputs: Tensors) -> bool:
            if (complaint := complaint_of(found.body, found.json_bytes)) is not None:
                return complaint.status == 413 and sum(written(outputs)) > PAYLOAD_MAX_BYTES - _HEAD_BYTES
            if (len(found.body) if found.json_bytes is None else found.json_bytes) > MAX_JSON_BYTES:
                # Nobody reads so much; it is wrong where the own answer has no half as many numbers to write.
                return written(outputs)[0] > MAX_JSON_BYTES // 2
            try:
                theirs = read_answer(found.body, found.json_bytes)
            except OipError:
                return False
            wanted = {one.name for one in own.question.wanted}
            threshold_of = own.resident.service.bundle.threshold_of
            return theirs.keys() == wanted and agrees(own.lane, outputs, theirs, threshold_of)

        self._residency.acquire(own.resident)
        self._checks.begin(number, run, is_right, lambda: self._residency.release(own.resident))
