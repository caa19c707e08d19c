"""What lies at a cut goes from lender to lender; whoever fails, the borrower has its answer the other way."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swarmd.worker import lane, lent
from swarmd.worker.lent import Kept, Source, kept_answer, source_of
from swarmd.worker.outbox import SAFE_MAX
from swarmd_protocols.offload import messages
from tests.support.lending_trio import NUMBERS, OipError, Trio
from tests.support.offload_swarm import S
from tests.unit.test_inference_api_laws import law

CUT_BYTES = 4 * NUMBERS


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how soon a busy machine sends a chunk."""
    monkeypatch.setattr(lane, "STALL_S", 60.0)
    monkeypatch.setattr(lane, "HANDED_STALL_S", 60.0)


@contextlib.asynccontextmanager
async def trio(tails: int = 1) -> AsyncIterator[Trio]:
    with tempfile.TemporaryDirectory() as folder:
        one = Trio(Path(folder), tails)
        try:
            yield one
        finally:
            one.close()


@law
async def test_a_tensor_goes_from_lender_to_lender_and_its_bytes_not_by_the_borrower() -> None:
    async with trio() as one:
        assert await one.infer() == (True, f"{one.head.node.hex()},{one.tails[0].node.hex()}")
        assert one.counts["split_handed"] == 1
        assert one.counts["split_bytes"] < 1.2 * CUT_BYTES, "the input goes out, what lies at the cut does not come"
        assert one.head.shelf is not None
        assert one.head.shelf.outbox.counters == {"outbox_kept": 1, "outbox_read": 1}
        for _ in range(5):
            assert (await one.infer())[0]
        assert one.counts["split_handed"] == 6
        assert max(len(messages.encode_message(word)) for *_, word in one.swarm.said) < 2_000


def wrongs(one: Trio) -> list[str]:
    """Whose answers the borrower's worker has called wrong."""
    return [request.lender.hex() for request in one.judged if not request.is_right]


@law
async def test_a_head_that_gives_nobody_what_it_keeps_is_named_and_asked_again() -> None:
    """It was reached under the key that it signed for, and borrower and tail came in time."""
    async with trio() as one:
        assert one.head.shelf is not None
        outbox, part = one.head.shelf.outbox, one.parts[one.head.node]
        read = outbox.read
        outbox.read = lambda *asked: None if part.ran < 2 else read(*asked)  # type: ignore[method-assign]
        assert (await one.infer())[0]
        assert (one.counts["split_unhanded"], one.counts["split_brought"], one.counts["split_handed"]) == (1, 0, 0)
        assert part.ran == 2
        assert wrongs(one) == [one.head.node.hex()]
        one.bar(30)
        assert (await one.infer())[0]
        assert one.counts["split_unhanded"] == 1, "for a while all tensors come to the borrower first"


@law
async def test_a_head_that_had_to_make_room_is_not_named() -> None:
    """For newer tensors of this borrower: what had been read went first."""
    async with trio() as one:
        elsewhere = one.borrower.api.elsewhere
        assert elsewhere is not None
        assert one.head.shelf is not None
        now_ns = time.monotonic_ns()
        for _ in range(SAFE_MAX):
            elsewhere._keeps.begin(1, now_ns + 60 * S, now_ns)
        one.head.shelf.outbox.read = lambda *_: None  # type: ignore[method-assign]
        assert (await one.infer())[0]
        assert one.counts["split_unhanded"] == 1
        assert wrongs(one) == []


@law
async def test_a_head_that_is_silent_about_what_it_keeps_is_written_down_and_not_judged() -> None:
    """A frozen process looks the same."""
    lane.HANDED_STALL_S = 2.0
    async with trio() as one:
        shelf = one.head.shelf
        assert shelf is not None
        shelf._reply = lambda sender, word: None  # type: ignore[method-assign]
        assert (await one.infer())[0]
        assert one.counts["split_unhanded"] >= 1
        assert wrongs(one) == []
        lines = [(line.what, line.member) for line in one.swarm.nodes[one.borrower.node].ledger.take()]
        assert ("withheld", one.head.node) in lines
        assert "found_wrong" not in dict(lines)


@law
async def test_a_head_that_nobody_reaches_is_not_written_down() -> None:
    lane.HANDED_STALL_S = 1.0
    async with trio() as one:
        shelf = one.head.shelf
        assert shelf is not None
        keep_for = shelf.keep_for

        async def falls_silent(*asked: Any) -> Any:
            kept = await keep_for(*asked)
            one.head.shelf = None
            shelf.close()  # Like a process that dies with its port.
            return kept

        shelf.keep_for = falls_silent  # type: ignore[method-assign]
        with contextlib.suppress(OipError):
            await one.infer(6_000)
        assert wrongs(one) == []
        assert "withheld" not in {line.what for line in one.swarm.nodes[one.borrower.node].ledger.take()}


@law
async def test_numbers_that_break_the_next_part_are_not_that_parts_fault() -> None:
    """Else a head could have every honest tail ejected."""
    async with trio(2) as one:
        one.parts[one.head.node].is_huge = True
        asked = asyncio.create_task(one.infer(60_000))
        async with asyncio.timeout(60):
            while not all(one.parts[tail.node].ran for tail in one.tails):
                await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert wrongs(one) == []


@law
async def test_a_tail_whose_answer_is_none_where_anothers_is_some_is_named() -> None:
    async with trio(2) as one:
        tails = {tail.node: one.parts[tail.node] for tail in one.tails}
        for node, part in tails.items():
            part.steps = lambda lane, inputs, part=part, node=node: lies(lane, inputs, part, node)  # type: ignore[method-assign]
        liars: list[Any] = []

        def lies(lane: str, inputs: Any, part: Any, node: Any) -> Any:
            liars[:] = liars or [node]  # Whoever is asked first.
            part.spoils = node == liars[0]
            return type(part).steps(part, lane, inputs)

        assert (await one.infer())[0]
        assert set(wrongs(one)) == {liars[0].hex()}


@law
async def test_where_the_tail_reaches_nobody_the_borrower_brings_it() -> None:
    async with trio() as one:
        one.hide(one.head.node, of=one.tails[0])
        assert (await one.infer())[0]
        assert (one.counts["split_unhanded"], one.counts["split_brought"]) == (1, 1)
        assert one.parts[one.head.node].ran == 1, "nothing is computed twice"
        assert wrongs(one) == []


@law
async def test_a_lender_that_keeps_other_bytes_than_it_signed_for_is_named() -> None:
    async with trio() as one:
        assert one.head.shelf is not None
        outbox = one.head.shelf.outbox
        read = outbox.read
        outbox.read = lambda *asked: bytes(len(read(*asked) or b""))  # type: ignore[method-assign]
        assert (await one.infer())[0]
        assert wrongs(one) == [one.head.node.hex()]
        assert one.parts[one.tails[0].node].ran == 1, "the tail ran nothing of it"


@law
async def test_a_lender_that_says_to_keep_more_than_there_is_is_named_and_costs_no_ticket() -> None:
    """The next lender's ticket would pay for it."""
    async with trio() as one:
        assert one.head.shelf is not None
        keep_for = one.head.shelf.keep_for

        async def boasts(*asked: Any) -> Any:
            kept = await keep_for(*asked)
            assert kept is not None
            return replace(kept, size_bytes=12 << 20)

        one.head.shelf.keep_for = boasts  # type: ignore[method-assign]
        with pytest.raises(OipError):
            await one.infer(3_000)
        assert set(wrongs(one)) == {one.head.node.hex()}
        assert [word for word in one.lent if source_of(word.data) is not None] == []


@law
async def test_what_is_no_number_is_the_heads_fault_and_not_the_tails() -> None:
    async with trio() as one:
        one.parts[one.head.node].spoils = True
        with pytest.raises(OipError):
            await one.infer(3_000)
        assert one.parts[one.tails[0].node].ran == 0
        assert wrongs(one)
        assert set(wrongs(one)) == {one.head.node.hex()}


@law
async def test_a_borrower_sends_no_lender_where_another_has_not_said_that_it_listens() -> None:
    """Neither to a port of its choice, nor with a word that was given to another borrower."""
    async with trio() as one:
        forged: list[Any] = []
        real = one.borrower.api.elsewhere
        assert real is not None
        ask = real._ask_handed

        async def forge(errand: Any, far: Any, *rest: Any) -> Any:
            kept = kept_answer(far.source.answer)
            assert kept is not None
            answer = lent.pack_kept(Kept(kept.json_bytes, 0, 1, kept.curve_key, kept.size_bytes, kept.sha256))
            source = Source(far.source.node, far.source.digest, far.source.proof, answer)
            forged.append(far.source)
            return await ask(errand, type(far)(kept, source, far.key, far.host, far.lender, far.number), *rest)

        real._ask_handed = forge  # type: ignore[method-assign]
        assert (await one.infer())[0]
        assert one.counts["split_unhanded"] == 1
        (told,) = [word for word in one.lent if source_of(word.data) is not None]
        assert (told.host, told.is_here) == ("", False)
        (source,) = forged
        tail = one.swarm.nodes[one.tails[0].node]
        for borrower, is_vouched in ((one.borrower.node, True), (one.tails[0].node, False)):
            bound, signature = messages.bound_by(source.proof, borrower, one.head.node, source.digest)
            assert tail.has_said(bound, source.answer, signature) == is_vouched


@law
async def test_a_lender_that_does_not_listen_answers_with_the_tensor() -> None:
    async with trio() as one:
        one.head.api._for_others._shelf = None
        assert (await one.infer())[0]
        assert (one.counts["split_handed"], one.counts["split_unhanded"]) == (0, 0)
        assert one.counts["split_bytes"] > 2 * CUT_BYTES


@law
async def test_a_device_that_has_a_part_sees_what_lies_at_its_ends() -> None:
    """It could hold it against its own."""
    async with trio() as one:
        one.give(one.tails[0].node)
        assert (await one.infer())[0]
        assert one.counts["split_handed"] == 0
        assert one.head.shelf is not None
        assert one.head.shelf.outbox.counters["outbox_kept"] == 0


@law
async def test_a_part_that_nobody_offers_does_not_keep_the_tensor_from_going_on() -> None:
    async with trio() as one:
        one.stray()
        assert (await one.infer())[0]
        assert (one.counts["split_handed"], one.counts["split_unhanded"]) == (1, 0)
        assert one.counts["split_failed"] == 1


@law
async def test_a_tail_that_fails_has_cost_no_more_than_half_the_time() -> None:
    async with trio() as one:
        one.hide(one.head.node, of=one.tails[0])
        assert (await one.infer(16_000))[0]
        left_ms = [word.left_ms for word in one.lent if source_of(word.data) is not None]
        assert left_ms
        assert max(left_ms) <= 8_000
