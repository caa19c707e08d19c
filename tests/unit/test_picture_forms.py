"""Forms of pictures on their way to a lender: the same pixels where they must be, and never more than was said."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from swarmd.brain.lending import LendingLink
from swarmd.worker import asking, forms, looking, words
from swarmd.worker.coding import CODED_MAX_BYTES
from swarmd.worker.forms import Forms, Link
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.hush import BAD_MAX, BORROWERS_MAX, HUSH_NS, Hush
from swarmd.worker.oip import JSON_LENGTH, FormError, OipError, read_answer, read_question
from swarmd.worker.pictures import DIFF, FORMS, JPEG, RAW, as_jpeg, differences, from_differences, from_jpeg
from swarmd_models.backends.base import Array
from swarmd_models.service import DETECT, Port, Run, Tensors
from tests.support.lending_pair import Pair
from tests.support.offload_swarm import DIGEST, MS, NODES, Swarm
from tests.unit.test_inference_api_laws import Held, law

S = 1_000 * MS
SMOOTH = np.add.outer(np.arange(120), np.arange(160)).astype(np.uint8)[..., None]
NOISE = np.random.default_rng(1).integers(0, 256, (96, 128, 1), np.uint8)
PORTS = (Port("image", (-1, -1, -1), np.dtype(np.uint8)),)
OUT = (Port("scores", (-1,), np.dtype(np.float32)),)


def body(image: Array, data: bytes | None = None, coding: str = "", **parameters: Any) -> tuple[bytes, int]:
    """A request, and the length of its JSON part."""
    tail = image.tobytes() if data is None else data
    said = {"binary_data_size": len(tail)} | ({"coding": coding} if coding else {})
    row = {"name": "image", "shape": list(image.shape), "datatype": "UINT8", "parameters": said}
    text = json.dumps({"inputs": [row], "parameters": {"binary_data_output": True, **parameters}}).encode()
    return text + tail, len(text)


# --- the same pixels --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40), st.sampled_from((1, 3)))),
    st.booleans(),
)
@example(np.arange(64 * 64, dtype=np.uint16).astype(np.uint8).reshape(64, 64, 1), True)
def test_what_is_lossless_has_the_same_pixels(image: Array, is_large: bool) -> None:
    image = np.tile(image, (8, 4, 1)) if is_large else image
    data = differences(image)
    assert data is None or np.array_equal(from_differences(data, image.shape), image)
    for wish in forms.WISHES:
        dressed = asyncio.run(Forms(0).dress(*body(image), 1_000, wish, False))
        back = read_question(dressed.body, dressed.json_bytes, PORTS, OUT).inputs["image"]
        assert dressed.is_exact
        assert np.array_equal(back, image)
        assert dressed.form != RAW or len(dressed.body) <= len(body(image)[0])


def test_a_jpeg_is_the_picture_about() -> None:
    for image in (SMOOTH // 2, np.repeat(SMOOTH // 2, 3, axis=2)):
        back = from_jpeg(as_jpeg(image, 95) or b"", image.shape)
        assert back.shape == image.shape
        assert np.abs(back.astype(int) - image).mean() < 4


# --- which one goes ---------------------------------------------------------------------------------------------------


def measured(ns_per_byte: float, quality: int = 0) -> Forms:
    """What a borrower knows after some answers over such a link."""
    one = Forms(quality)
    for _ in range(5):
        one.link.note(10_000, round(10_000 * ns_per_byte) + 3 * MS, 3 * MS)
    return one


FAST, SLOW = 1.0, 8_000.0
"""Nanoseconds a byte: 8 Gbit/s, 1 Mbit/s."""


def test_the_cheapest_form_goes_over_the_link_as_it_is() -> None:
    every, exact, left_ns = (RAW, DIFF, JPEG), (RAW, DIFF), 10 * S
    assert Forms(90).choose(80_000, left_ns, every) == DIFF, "nothing is known: the same pixels, in fewer bytes"
    assert measured(FAST).choose(80_000, left_ns, every) == RAW
    assert measured(SLOW).choose(80_000, left_ns, exact) == DIFF
    assert measured(SLOW).choose(80_000, left_ns, every) == JPEG, "0.13 s for 0.4 s"
    assert measured(100.0).choose(80_000, left_ns, every) == DIFF, "4 ms are not worth other pixels"
    late = measured(100.0)
    late._shares[JPEG] = 0.3
    assert late.choose(80_000, left_ns, every) == DIFF
    assert late.choose(80_000, MS, every) == JPEG, "what would be late may have other pixels"


def test_other_pixels_go_only_where_everybody_allows_them() -> None:
    for quality, wish, is_kept, may in (
        (90, "", False, True), (0, "", False, False), (90, "lossless", False, False), (90, "raw", False, False),
        (90, "", True, False),
    ):  # fmt: skip
        dressed = asyncio.run(measured(SLOW, quality).dress(*body(SMOOTH), 1_000, wish, is_kept))
        assert (dressed.form == JPEG) == may, (quality, wish, is_kept)
        assert dressed.is_exact != may
        assert (wish == RAW) <= (dressed.form == RAW)


def test_what_is_kept_has_one_form_whatever_the_link() -> None:
    bodies = [
        asyncio.run(one.dress(*body(SMOOTH), 1_000, "", True)).body
        for one in (Forms(90), measured(FAST, 90), measured(SLOW, 90))
    ]
    assert len(set(bodies)) == 1


def test_one_slow_answer_is_no_pace() -> None:
    link = Link()
    assert link.ns_per_byte is None
    for took_ns in (4 * MS, 5 * MS, 900 * MS, 4 * MS, 0):
        link.note(1_000, took_ns, 3 * MS)
    assert link.ns_per_byte == 1_500.0
    assert (lambda one: (one.note(0, 9, 5), one.ns_per_byte)[1])(Link()) == 4.0


def test_a_way_that_is_longer_than_answers_took_is_no_free_link() -> None:
    """It was measured while a connection was made, 274 ms, and answers of 82 kB over 10 Mbit/s took 95."""
    one = Forms(90)
    for way_ns in (274 * MS, 0):
        for _ in range(15):
            one.link.note(82_000, 95 * MS, way_ns)
    assert one.choose(82_000, 1_000 * MS, FORMS) == DIFF
    one.link.note(82_000, 95 * MS, 20 * MS)
    assert one.choose(82_000, 1_000 * MS, FORMS) == JPEG


@pytest.mark.parametrize(
    "content",
    [
        body(SMOOTH[:4, :4]), body(SMOOTH, b"123"), body(SMOOTH, coding="br"), body(SMOOTH, coding=JPEG),
        (b"[" * 1_000, 1_000), (b"{}", 2), (b"\xff" * 40, 20), (b'{"inputs": [7]}', 15),
        (b'{"inputs": [{"shape": [1, 2], "parameters": 3, "datatype": "UINT8"}]}', 69),
        (b'{"inputs": [{"shape": [9999999, 9999999, 3], "parameters": {}, "datatype": "UINT8"}]}', 86),
        (body(SMOOTH)[0], None),
    ],
)  # fmt: skip
def test_what_holds_no_picture_leaves_as_it_is(content: tuple[bytes, int | None]) -> None:
    dressed = asyncio.run(measured(SLOW, 90).dress(*content, 1_000, "", False))
    assert (dressed.body, dressed.json_bytes, dressed.form, dressed.is_exact) == (*content, "", True)


# --- what is refused --------------------------------------------------------------------------------------------------


def jpeg_that_says(rows: int, columns: int) -> bytes:
    """A JPEG of few bytes whose header says something else."""
    data = bytearray(GOOD)
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = rows.to_bytes(2, "big") + columns.to_bytes(2, "big")
    return bytes(data)


def brotli_bomb() -> bytes:
    import brotli

    return bytes(brotli.compress(bytes(200 << 20), quality=5))


def zstd_bomb() -> bytes:
    """A frame of RFC 8878 that says a gibibyte, as 8,192 blocks of one byte that is repeated."""
    block, blocks = 128 << 10, 8_192
    rows = [(block << 3 | 1 << 1 | (at == blocks - 1)).to_bytes(3, "little") + b"\0" for at in range(blocks)]
    return b"\x28\xb5\x2f\xfd\xa0" + (block * blocks).to_bytes(4, "little") + b"".join(rows)


def shape(*sides: int) -> Array:
    return np.empty(sides, np.uint8)


GOOD = as_jpeg(SMOOTH, 90) or b""
PROGRESSIVE = bytes(cv2.imencode(".jpg", SMOOTH, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1])
HUGE = np.broadcast_to(np.uint8(0), (60_000, 60_000, 3))
BAD: dict[str, tuple[Array, bytes, str]] = {
    "a giant JPEG under a small shape": (SMOOTH, jpeg_that_says(30_000, 30_000), JPEG),
    "a giant JPEG under its own shape": (HUGE, jpeg_that_says(60_000, 60_000), JPEG),
    "a JPEG of other sides": (shape(60, 320, 1), GOOD, JPEG),
    "a JPEG of other channels": (shape(120, 160, 3), GOOD, JPEG),
    "a JPEG cut short": (SMOOTH, GOOD[: len(GOOD) // 2], JPEG),
    "a JPEG cut in its header": (SMOOTH, GOOD[:30] + GOOD[-2:], JPEG),
    "a progressive JPEG": (SMOOTH, PROGRESSIVE, JPEG),
    "a JPEG with another behind it": (SMOOTH, GOOD + GOOD, JPEG),
    "a JPEG longer than its pixels": (SMOOTH, GOOD[:-2] + bytes(30_000) + GOOD[-2:], JPEG),
    "no JPEG": (SMOOTH, b"\x89PNG" + bytes(100), JPEG),
    "an empty JPEG": (SMOOTH, b"", JPEG),
    "a brotli bomb": (SMOOTH, brotli_bomb(), DIFF),
    "a brotli bomb under its own shape": (shape(20_000, 10_000, 1), brotli_bomb(), DIFF),
    "differences cut short": (SMOOTH, (differences(SMOOTH) or b"")[:-3], DIFF),
    "differences of another shape": (shape(120, 161, 1), differences(SMOOTH) or b"", DIFF),
    "no brotli": (SMOOTH, b"\xff" * 50, DIFF),
    "four channels": (shape(8, 8, 4), b"\x00", DIFF),
    "a form that nobody knows": (SMOOTH, b"", "webp"),
    "a zstd bomb": (SMOOTH, zstd_bomb(), "zstd"),
}  # fmt: skip
UNKNOWN = ("webp", "zstd")
"""Forms that nothing here decodes."""


@pytest.mark.parametrize("name", BAD)
def test_a_form_that_does_not_hold_is_refused_by_its_name(name: str) -> None:
    image, data, form = BAD[name]
    content, length = body(image[:0] if image is HUGE else image, data, form)
    if image is HUGE:
        content = content.replace(b"[0, 60000, 3]", b"[60000, 60000, 3]")
        length += 4
    with pytest.raises(FormError, match="known here" if form in UNKNOWN else form) as found:
        read_question(content, length, PORTS, OUT)
    assert found.value.status == 400


@pytest.mark.parametrize("name", [name for name, (*_, form) in BAD.items() if form == JPEG])
def test_nothing_is_decoded_before_its_header_says_what_the_shape_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, data, _ = BAD[name]
    monkeypatch.setattr(cv2, "imdecode", lambda *about: pytest.fail("it was decoded"))
    with pytest.raises(ValueError, match=r"JPEG|shape"):
        from_jpeg(data, image.shape)


def test_no_more_comes_out_of_a_bomb_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    bomb = brotli_bomb()
    tracemalloc.start()
    with pytest.raises(ValueError, match="unpack"):
        from_differences(bomb, (1_024, 2_048, 1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * CODED_MAX_BYTES


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from((GOOD, differences(SMOOTH) or b"")), st.integers(0, 1 << 16), st.integers(0, 255), st.integers(0, 9)
)
def test_no_bytes_raise_anything_else(data: bytes, at: int, value: int, cut: int) -> None:
    changed = bytearray(data[: len(data) - cut])
    changed[at % len(changed)] = value
    for read in (from_jpeg, from_differences):
        with contextlib.suppress(ValueError):
            assert read(bytes(changed), SMOOTH.shape).shape == SMOOTH.shape


# --- whoever sends what cannot be read --------------------------------------------------------------------------------


def test_who_sends_what_cannot_be_read_is_not_read_for_a_while_and_nobody_else() -> None:
    hush, now_ns = Hush(), S
    for _ in range(BAD_MAX):
        assert not hush.left_s("aa", now_ns)
        hush.note("aa", now_ns)
    assert hush.left_s("aa", now_ns) == HUSH_NS / 1e9
    assert not hush.left_s("bb", now_ns)
    assert not hush.left_s("aa", now_ns + HUSH_NS), "and then it may begin anew"
    hush.note("aa", now_ns + HUSH_NS + 1)
    assert not hush.left_s("aa", now_ns + HUSH_NS + 1)


def test_a_mistake_now_and_then_hushes_nobody() -> None:
    hush = Hush()
    for at in range(20):
        hush.note("aa", at * HUSH_NS)
        assert not hush.left_s("aa", at * HUSH_NS)


def test_the_table_has_a_bound() -> None:
    hush = Hush()
    for at in range(10 * BORROWERS_MAX):
        hush.note(f"{at}", S)
    assert len(hush._bad) == BORROWERS_MAX


# --- two devices ------------------------------------------------------------------------------------------------------


class Seer(Held):
    """A bundle that sees one object, as sure as its first pixel is bright."""

    lanes = (DETECT,)

    def __init__(self, lie: float = 0.0) -> None:
        super().__init__(DIGEST.hex())
        self.bundle.threshold_of = lambda label: 0.5
        self.bundle.labels = ("hot",)
        self.saw: list[Array] = []
        self.lie = lie

    def inputs(self, lane: str) -> tuple[Port, ...]:
        return PORTS

    def outputs(self, lane: str) -> tuple[Port, ...]:
        return (
            Port("boxes", (-1, 4), np.dtype(np.float32)), Port("scores", (-1,), np.dtype(np.float32)),
            Port("classes", (-1,), np.dtype(np.int32)), Port("labels", (-1,), np.dtype(object)),
        )  # fmt: skip

    def steps(self, lane: str, inputs: Tensors) -> Run:
        return Run(1, lambda: self._look(inputs["image"]))

    def _look(self, image: Array) -> Iterator[Tensors | None]:
        self.saw.append(np.array(image))
        yield None
        yield {
            "boxes": np.array([[0, 0, 20, 20]], np.float32), "classes": np.zeros(1, np.int32),
            "scores": np.array([abs(self.lie - image[0, 0, 0] / 255)], np.float32),
            "labels": np.array(["hot"], object),
        }  # fmt: skip


ANY = {"swarmd-borrow": "quickest"}


async def infer(pair: Pair, content: tuple[bytes, int], headers: dict[str, str] = ANY) -> Answer:
    path = f"/v2/models/m.detect/versions/{DIGEST.hex()}/infer"
    said = {**headers, JSON_LENGTH.lower(): str(content[1])}
    return await pair.borrower.api.handle(Call("POST", path, said, bytearray(content[0])))


def score_of(answer: Answer) -> float:
    said = dict(answer.headers)
    length = int(said[JSON_LENGTH]) if JSON_LENGTH in said else None
    return float(read_answer(b"".join(answer.pieces), length)["scores"][0])


def pair_of(own: Seer | None, lent: Seer, quality: int, pace: float = SLOW, **about: Any) -> Pair:
    pair = Pair(own, lent, **about)
    elsewhere = pair.borrower.api.elsewhere
    assert elsewhere is not None
    elsewhere._forms = measured(pace, quality)
    return pair


async def checked(pair: Pair) -> str:
    """What came of the check of the answer."""
    for _ in range(12_000):
        if said := [name for name in pair.borrower.api.counts() if name.startswith("checks_")]:
            return " ".join(said)
        await asyncio.sleep(0.005)
    pytest.fail("no check ends")


ODD = np.array(NOISE)
ODD[0, 0] = 200
"""A JPEG of it has another first pixel, and so another score."""


@law
async def a_lender_sees_what_the_form_says_and_the_answer_names_it() -> None:
    for has_lane in (False, True):
        for quality, headers, form in (
            (0, ANY, RAW), (10, ANY, JPEG), (10, {**ANY, "swarmd-form": "lossless"}, RAW),
        ):  # fmt: skip
            lent = Seer()
            pair = pair_of(None, lent, quality, has_lane=has_lane)
            try:
                answer = await infer(pair, body(ODD))
                answer = await infer(pair, body(ODD), headers)
            finally:
                pair.close()
            assert dict(answer.headers)["Swarmd-Form"] == form
            assert np.array_equal(lent.saw[-1], ODD) == (form != JPEG)


@law
async def a_lender_is_held_against_both() -> None:
    """The program's pixels first, and then what it was sent."""
    for lie, judged in ((0.0, "checks_right"), (1.0, "checks_wrong")):
        own, lent = Seer(), Seer(lie)
        pair = pair_of(own, lent, 10)
        try:
            answer = await infer(pair, body(ODD))
            assert dict(answer.headers)["Swarmd-Form"] == JPEG
            assert await checked(pair) == judged
        finally:
            pair.close()
        assert np.array_equal(own.saw[0], ODD), "first the program's own"
        assert not np.array_equal(own.saw[1], ODD)
        assert np.array_equal(own.saw[1], lent.saw[0]), "then what the lender was sent"
        assert pair.borrower.api.counts().get("forms_differ", 0) == (lie == 0.0)


@law
async def who_cannot_read_a_form_gets_the_picture_as_it_is() -> None:
    """An older version, say: it complains, and is asked once more; a program's own mistake stays one."""
    lent = Seer()
    pair = pair_of(None, lent, 0, pace=SLOW)
    smooth = np.repeat(SMOOTH, 1, axis=2)
    try:
        answer = await infer(pair, body(smooth))
        assert dict(answer.headers)["Swarmd-Form"] == DIFF
        read = pair.lender.api.read

        def older(content: Any, length: Any, resident: Any, lane: str, hushed: str) -> Any:
            return read(content, length, resident, lane, hushed or "it is coded in no way that is known here; 'br' is")

        pair.lender.api.read = older  # type: ignore[method-assign]
        answer = await infer(pair, body(smooth))
        assert dict(answer.headers)["Swarmd-Form"] == RAW
        assert pair.borrower.api.counts()["forms_refused"] == 1
        assert len(lent.saw) == 2
        with pytest.raises(OipError) as found:
            await infer(pair, body(smooth, b"no brotli", DIFF))
        assert found.value.status == 400
    finally:
        pair.close()


@law
async def one_borrowers_bad_forms_silence_no_worker() -> None:
    lent = Seer()
    pair = pair_of(None, lent, 0)
    told = pair.lender.api
    named: list[str] = []
    told.on_malformed = named.append
    try:
        for _ in range(BAD_MAX + 3):
            with pytest.raises(OipError, match=r"jpeg|could not be") as found:
                await infer(pair, body(SMOOTH, b"no jpeg", JPEG))
            assert found.value.status == 400
        assert named == [NODES[0].hex()] * BAD_MAX
        assert told.counts()["forms_bad"] == BAD_MAX
        assert told.counts()["forms_hushed"] >= 3
        answer = await infer(pair, body(SMOOTH))
        assert dict(answer.headers)["Swarmd-Form"] == RAW, "what it sends in its own bytes is read as ever"
        assert np.array_equal(lent.saw[-1], SMOOTH)
    finally:
        pair.close()


@law
async def a_form_that_nobody_knows_is_refused() -> None:
    pair = pair_of(None, Seer(), 0)
    try:
        with pytest.raises(OipError, match="Swarmd-Form") as found:
            await infer(pair, body(SMOOTH), {**ANY, "swarmd-form": "webp"})
        assert found.value.status == 400
    finally:
        pair.close()


LAWS: list[Callable[[], None]] = [
    a_lender_sees_what_the_form_says_and_the_answer_names_it, a_lender_is_held_against_both,
    who_cannot_read_a_form_gets_the_picture_as_it_is, one_borrowers_bad_forms_silence_no_worker,
    a_form_that_nobody_knows_is_refused,
]  # fmt: skip


@pytest.mark.parametrize("one", LAWS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_law(one: Callable[[], None]) -> None:
    one()


def test_who_sent_it_is_written_down() -> None:
    swarm = Swarm(2)
    told: list[Any] = []
    link = LendingLink(swarm.nodes[NODES[1]], lambda name, request: told.append(request), lambda: None, lambda one: "")
    link.take(words.Malformed(NODES[0].hex()))
    swarm.command(NODES[1], told[0])
    assert [(line.what, line.member) for line in swarm.nodes[NODES[1]].ledger.take()] == [("malformed", NODES[0])]


def test_a_look_states_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    wishes: list[asking.Wish] = []

    def infer_there(address: str, model: str, array: Array, wish: asking.Wish) -> Any:
        wishes.append(wish)
        return {"model_version": "", "lender": "", "parameters": {"took_us": 1}}, {"scores": np.zeros(1)}

    monkeypatch.setattr(asking, "infer", infer_there)
    grey = bytes(cv2.imencode(".jpg", SMOOTH)[1])
    assert looking.look(words.Look(1, "m", grey, 1_000), "").score == 0.0
    assert [wish.form for wish in wishes] == ["lossless"]
