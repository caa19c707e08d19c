"""The lender's side of a worker: requests of other devices, read with the bounds of the own loopback and run behind it.

What is large is fetched from the borrower (`lane.py`) and its answer left there. Of a model in parts the input may lie
with another lender, and what comes out may be kept here for the next one (`outbox.py`); where either cannot be, the
borrower is told so, or gets the tensor itself.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from swarmd.worker.answers import late, metadata
from swarmd.worker.hush import Hush
from swarmd.worker.lent import (
    INLINE_MAX_BYTES,
    KEEP_LEAST_BYTES,
    LANE_MAX_BYTES,
    METADATA,
    PAYLOAD_MAX_BYTES,
    Left,
    Lent,
    Place,
    open_request,
    pack_answer,
    pack_kept,
    pack_left,
)
from swarmd.worker.oip import FormError, OipError, Question, write_answer, write_question
from swarmd.worker.residency import SUFFIXES, NotResidentError, Residency, Resident
from swarmd.worker.words import Lend
from swarmd_models.service import GRAPH, Tensors

if TYPE_CHECKING:
    from swarmd.worker.lane import Fetcher, Shelf


class Device(Protocol):
    """What lending needs of the worker (`InferenceApi`)."""

    residency: Residency
    counters: Counter[str]
    on_malformed: Callable[[str], None]

    def read(
        self, body: bytes | bytearray, json_bytes: int | None, resident: Resident, lane: str, not_decoded: str = ""
    ) -> Question:
        """Read a request; raises `OipError`."""
        ...

    def exact_of(self, asked: int) -> tuple[bytes | bytearray, int | None] | None:
        """What a program here asked with, where other pixels travel."""
        ...

    async def run_lent(self, word: Lend, question: Question, resident: Resident, lane: str, size_bytes: int) -> Tensors:
        """Have a model run; raises `OipError`."""
        ...


class ForOthers:
    """Answers what other devices ask."""

    def __init__(self, device: Device, shelf: "Shelf | None", fetcher: "Fetcher | None") -> None:
        """Put the parts together.

        Args:
            device: What runs here.
            shelf: Where other devices fetch; None: nothing is kept for them.
            fetcher: Fetches what is large from them; None: nothing large is taken.
        """
        self._device = device
        self._shelf = shelf
        self._fetcher = fetcher
        self._hush = Hush()

    @property
    def counters(self) -> Counter[str]:
        """Of what lies here for other devices, and of who came for it."""
        return Counter() if self._shelf is None else self._shelf.counters + self._shelf.outbox.counters

    async def lend(self, word: Lend) -> bytes:
        """Answer one request; raises `OipError`."""
        lent = open_request(word.data)
        try:
            resident = self._device.residency.by_digest(word.digest, lent.lane)
        except NotResidentError as error:
            self._device.counters["not_resident"] += 1
            raise OipError(503, str(error)) from error  # Another lender may have it.
        name = resident.service.bundle.name + SUFFIXES.get(lent.lane, "")
        if lent.what == METADATA:
            row = {**metadata(self._device.residency, name, resident, lent.lane), "model_version": resident.digest}
            return pack_answer([msgspec.json.encode(row)], None)
        place = lent.place
        if place is None:
            exact = self._device.exact_of(word.asked) if word.is_own else None
            body, json_bytes = exact or (lent.body, lent.json_bytes)
            found = await self._run(word, replace(lent, json_bytes=json_bytes), body, resident, name)
            return found if isinstance(found, bytes) else pack_answer(*found)
        if place.size_bytes != word.lane_bytes:
            raise OipError(400, f"a body of {place.size_bytes} bytes, under a ticket's {word.lane_bytes}")
        if word.is_own and not lent.is_handed:
            assert self._shelf is not None
            exact = self._device.exact_of(word.asked)
            body, json_bytes = exact or (self._shelf.own(place), lent.json_bytes)
            found = await self._run(word, replace(lent, json_bytes=json_bytes), body, resident, name)
            assert not isinstance(found, bytes)
            answer = b"".join(found[0])
            return pack_left(Left(found[1], len(answer), await self._shelf.keep(place, answer)))
        if lent.is_handed and word.is_here:
            found = await self._run(word, lent, self._own(place), resident, name)
            return found if isinstance(found, bytes) else pack_answer(*found)
        if self._fetcher is None or not word.host:
            raise OipError(503, "this device fetches no tensors, or knows not from where")
        from swarmd.worker.lane import HANDED_STALL_S

        stall_s = HANDED_STALL_S if lent.is_handed else None
        try:
            async with asyncio.timeout(word.left_ms / 1e3), self._fetcher.visit(word.host, place, stall_s) as visit:
                found = await self._run(word, lent, await visit.fetch(), resident, name)
                if isinstance(found, bytes):
                    return found
                pieces, json_bytes = found
                # Nobody leaves anything with who keeps the input: what is not small enough goes through the brains.
                if lent.is_handed or sum(map(len, pieces)) <= INLINE_MAX_BYTES:
                    return pack_answer(pieces, json_bytes)
                answer = b"".join(pieces)
                return pack_left(Left(json_bytes, len(answer), await visit.leave(answer)))
        except TimeoutError as error:
            raise late() from error

    def _own(self, place: Place) -> bytes:
        """What this device itself keeps; raises `OipError` (503, 400 where a ticket was paid for another size)."""
        body = b"" if self._shelf is None else self._shelf.outbox.read_whole(place.token, time.monotonic_ns())
        if not body:
            raise OipError(503, "what was kept here is gone")
        if len(body) != place.size_bytes:
            raise OipError(400, f"what was kept here has {len(body)} bytes, not {place.size_bytes}")
        return body

    def _read(self, word: Lend, lent: Lent, body: bytes | bytearray, resident: Resident) -> Question:
        """A request that came; raises `OipError`. Nobody answers for what another lender keeps."""
        is_theirs = bool(word.borrower) and not word.is_own and not lent.is_handed
        left_s = self._hush.left_s(word.borrower, time.monotonic_ns()) if is_theirs else 0.0
        hushed = f"for {left_s:.0f} s nothing coded of this borrower is read: the last could not be" if left_s else ""
        try:
            return self._device.read(body, lent.json_bytes, resident, lent.lane, hushed)
        except FormError:
            self._device.counters["forms_hushed" if hushed else "forms_bad"] += 1
            if is_theirs and not hushed:
                self._hush.note(word.borrower, time.monotonic_ns())
                self._device.on_malformed(word.borrower)
            raise

    async def _run(
        self, word: Lend, lent: Lent, body: bytes | bytearray, resident: Resident, name: str
    ) -> bytes | tuple[list[bytes], int | None]:
        """The answer in pieces, and the length of its JSON part; or where it is kept, as that travels."""
        began_ns, lane = time.monotonic_ns(), lent.lane
        question = self._read(word, lent, body, resident)
        if lent.is_handed and not _is_finite(question.inputs):
            # A borrower would have seen it, and not sent it on; who has computed it is found out there.
            raise OipError(503, "what another lender keeps holds what is no number")
        outputs = await self._device.run_lent(word, question, resident, lane, len(body))
        took_us = (time.monotonic_ns() - began_ns) // 1000
        if lent.keep_key and not word.is_own and lane == GRAPH and self._shelf is not None:
            kept_body, kept_json = write_question(outputs, 0)
            if len(kept_body) >= KEEP_LEAST_BYTES:
                until_ns = began_ns + word.left_ms * 1_000_000
                kept = await self._shelf.keep_for(word.borrower, lent.keep_key, kept_body, kept_json, until_ns, took_us)
                if kept is not None:
                    return pack_kept(kept)
        head = {
            "model_name": name, "model_version": resident.digest, "id": question.id,
            "parameters": {"took_us": took_us},
        }  # fmt: skip
        most_bytes = LANE_MAX_BYTES if word.lane_bytes and not lent.is_handed else PAYLOAD_MAX_BYTES
        return write_answer(head, outputs, question.wanted, most_bytes)


def _is_finite(inputs: Tensors) -> bool:
    return all(bool(np.isfinite(array).all()) for array in inputs.values() if array.dtype.kind == "f")
