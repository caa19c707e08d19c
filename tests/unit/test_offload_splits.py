"""Models in parts in the worker: what their file may hold, what a lying shard can do, and packed tensors."""

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import brotli
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.worker import splitting
from swarmd.worker.answers import LENDER_HEADER, PARTS_HEADER
from swarmd.worker.coding import CODED_MAX_BYTES, CODING, packed, unpacked
from swarmd.worker.elsewhere import Errand, Found, Own
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.oip import (
    JSON_LENGTH,
    OipError,
    Wanted,
    read_answer,
    read_question,
    write_answer,
    write_question,
)
from swarmd.worker.residency import NotResidentError
from swarmd.worker.splitting import SplitError, Splitting, read_splits
from swarmd_models.backends.base import Array
from swarmd_models.service import DETECT, GRAPH, Port, Run, Tensors
from swarmd_protocols.offload.shards import TRIES_MAX
from tests.support.mutants import assert_found

WHOLE, HEAD, TAIL = "aa" * 32, "bb" * 32, "cc" * 32
FILE = f"""
[[split]]
name = "adder"
model = "{WHOLE}"
[[split.at]]
bytes = 4000
tensors = [{{ name = "x", datatype = "FP32", shape = [1000] }}]
[[split.at]]
bytes = 1000
tensors = [{{ name = "cut", datatype = "FP32", shape = [1000] }}]
[[split.at]]
bytes = 4000
tensors = [{{ name = "y", datatype = "FP32", shape = [1000] }}]
[[split.part]]
model = "{HEAD}"
begin = 0
end = 1
[[split.part]]
model = "{TAIL}"
begin = 1
end = 2
"""
NAMES = {HEAD: ("x", "cut", 1.0), TAIL: ("cut", "y", 2.0)}
"""What each part takes, gives and does."""


def splits(tmp_path: Path, text: str) -> dict[str, splitting.Split]:
    path = tmp_path / "parts.toml"
    path.write_text(text)
    return read_splits(str(path))


def add(digest: str, given: Tensors) -> dict[str, Array]:
    takes, gives, plus = NAMES[digest]
    return {gives: np.asarray(given[takes] + plus, np.float32)}


class FakeService:
    """A part that is here."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.backend = SimpleNamespace(kind="fake")

    def inputs(self, lane: str) -> tuple[Port, ...]:
        return (Port(NAMES[self.digest][0], (-1, 1000), np.dtype(np.float32)),)

    def outputs(self, lane: str) -> tuple[Port, ...]:
        return (Port(NAMES[self.digest][1], (-1, 1000), np.dtype(np.float32)),)

    def steps(self, lane: str, given: Tensors) -> Run:
        def begin() -> Any:
            yield None
            yield add(self.digest, given)

        return Run(1, begin)


class World:
    """A device whose parts and lenders do what they are told to."""

    def __init__(self, tmp_path: Path, here: tuple[str, ...] = (), lie: str = "", unit_ms: int = 1) -> None:
        self.here, self.lie = list(here), lie
        self.lies_left = 1 << 30
        self.asked: list[Errand] = []
        self.judged_wrong = 0
        self.ran: list[str] = []
        self.batcher: Any = SimpleNamespace(unit_ns=lambda digest: unit_ms * 1_000_000, own_ns=0)
        self.residency: Any = self
        self.elsewhere: Any = self
        self.counters: Counter[str] = Counter()
        self.splitting = Splitting(splits(tmp_path, FILE), self, 1_000)

    def by_digest(self, digest: str, lane: str) -> Any:
        if digest not in self.here or lane != GRAPH:
            raise NotResidentError("not here")
        return SimpleNamespace(digest=digest, service=FakeService(digest))

    async def run_steps(
        self, resident: Any, lane: str, run: Run, size_bytes: int, priority: int, deadline_ns: int
    ) -> Tensors:
        self.ran.append(resident.digest)
        run.step()
        return run.result()

    async def ask(self, errand: Errand, own: Own | None, is_sound: Any) -> Found:
        """As `Elsewhere.ask`: what is not sound is asked of another, a few times."""
        self.asked.append(errand)
        for _ in range(6):
            found = await self._lend(errand)
            if is_sound(found):
                return found
            self.judged_wrong += 1
        raise OipError(503, "the lenders' answers were not what they said")

    async def _lend(self, errand: Errand) -> Found:
        name = NAMES[errand.digest][0]
        port = Port(name, (-1, 1000), np.dtype(np.float32))
        given = read_question(errand.body, errand.json_bytes, [port], [Port("y", (-1, 1000), np.dtype(np.float32))])
        outputs: Any = add(errand.digest, given.inputs)
        (gives,) = outputs
        lie = self.lie if self.lies_left > 0 else ""
        self.lies_left -= 1
        match lie:
            case "shape":
                outputs[gives] = outputs[gives][:, :10]
            case "items":
                outputs[gives] = np.concatenate([outputs[gives]] * 2)
            case "type":
                outputs[gives] = outputs[gives].astype(np.int8)
            case "nan":
                outputs[gives][0, 3] = np.nan
            case "name":
                outputs = {"z": outputs[gives]}
            case "more":
                outputs["z"] = outputs[gives]
            case "nobody":
                raise OipError(503, "nobody")
            case "old" if errand.keep_key:
                raise OipError(400, "a borrowed request of no known kind")
            case "complains":
                raise OipError(400, "your tensor is bad")
            case "stall":
                await asyncio.sleep(errand.left_ms / 1e3)
                raise OipError(503, "nobody has answered in time")
        head = {"model_version": errand.digest, "parameters": {"took_us": 900}}
        body, length = write_answer(head, outputs, [Wanted(one, True, True) for one in outputs])
        return Found(b"".join(body), length, "n1", errand.digest)

    def infer(self, timeout_ms: int = 30_000, name: str = "adder", version: str = "") -> Answer:
        body, length = write_question({"x": np.zeros((1, 1000), np.float32)}, timeout_ms * 1000)
        call = Call("POST", "", {JSON_LENGTH.lower(): str(length)}, bytearray(body))
        return asyncio.run(self.splitting.handle(call, name, version, ["infer"], {0: 2}))


def outputs_of(answer: Answer) -> dict[str, Array]:
    length = dict(answer.headers).get(JSON_LENGTH)
    return read_answer(b"".join(answer.pieces), None if length is None else int(length))


def test_a_camera_without_any_part_has_both_run_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = world.infer(version=WHOLE)
    assert (outputs_of(answer)["y"] == 3.0).all()
    headers = dict(answer.headers)
    assert (headers[PARTS_HEADER], headers[LENDER_HEADER]) == (f"{HEAD},{TAIL}", "n1")
    assert [errand.digest for errand in world.asked] == [HEAD, TAIL]
    assert all(errand.is_patient for errand in world.asked), "there is nothing else to do"
    assert len(world.asked[0].body) < 1_000, "zeros travel packed"
    assert world.splitting.counters["split_lent"] == 2


def test_a_head_here_and_a_tail_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path, (HEAD,))
    for _ in range(3):
        assert (outputs_of(world.infer())["y"] == 3.0).all()
    assert world.ran[:1] == [HEAD]
    assert world.asked[0].digest == TAIL


def test_all_here_and_every_lender_dead(tmp_path: Path) -> None:
    world = World(tmp_path, (HEAD, TAIL), lie="nobody", unit_ms=50)
    for _ in range(3):
        answer = world.infer()
        assert (outputs_of(answer)["y"] == 3.0).all()
    assert LENDER_HEADER not in dict(answer.headers)


LIES = ("shape", "items", "type", "nan", "name", "more")


def law_a_lying_shard_is_named_and_nothing_of_it_is_used(tmp_path: Path) -> None:
    for lie in LIES:
        world = World(tmp_path, lie=lie)
        world.lies_left = 3
        assert (outputs_of(world.infer())["y"] == 3.0).all(), lie
        assert world.judged_wrong == 3, lie


def test_a_lender_that_keeps_nothing_since_it_is_older_is_asked_as_ever(tmp_path: Path) -> None:
    world = World(tmp_path, lie="old")
    for _ in range(2):
        assert (outputs_of(world.infer())["y"] == 3.0).all()
    assert [bool(errand.keep_key) for errand in world.asked][:2] == [True, False]
    assert len(world.asked) <= 6


@pytest.mark.parametrize("lie", [*LIES, "nobody", "complains"])
def test_shards_that_only_lie_leave_the_own_parts_or_no_answer(tmp_path: Path, lie: str) -> None:
    own = World(tmp_path, (HEAD, TAIL), lie=lie, unit_ms=20)
    assert (outputs_of(own.infer())["y"] == 3.0).all()
    alone = World(tmp_path, lie=lie)
    with pytest.raises(OipError) as refused:
        alone.infer(300)
    assert refused.value.status in (503, 504)
    assert len(alone.asked) <= TRIES_MAX
    assert alone.splitting.counters["split_unanswered"] == 1


def test_a_shard_that_stalls_is_given_up_while_the_own_parts_can_answer(tmp_path: Path) -> None:
    # What is left for them is what the machine may stop this process for: they themselves take no time.
    unit_ms, timeout_ms = 600, 2_000
    world = World(tmp_path, (HEAD, TAIL), lie="stall", unit_ms=unit_ms)
    # What is here looks slow, so that the lender is asked.
    shards = world.splitting._shards[WHOLE]
    for part in shards.parts.parts:
        shards.note_lent(part, 100, 1_000, 500, time.monotonic_ns())
    assert (outputs_of(world.infer(timeout_ms))["y"] == 3.0).all()
    assert world.ran == [HEAD, TAIL]
    assert world.asked[0].left_ms <= timeout_ms - 3 * unit_ms, "both own parts, and half as much again, are left"


def test_metadata_and_who_is_not_in_the_file(tmp_path: Path) -> None:
    world = World(tmp_path)

    def get(name: str, version: str = "", method: str = "GET") -> Any:
        call = Call(method, "", {}, bytearray())
        answer = asyncio.run(world.splitting.handle(call, name, version, [], {0: 2}))
        return msgspec.json.decode(b"".join(answer.pieces))

    told = get("adder")
    assert (told["versions"], told["inputs"][0]["shape"], told["outputs"][0]["name"]) == ([WHOLE], [-1, 1000], "y")
    assert get("anything", WHOLE)["versions"] == [WHOLE], "a digest names it"
    for name, version, method, status in (
        ("other", "", "GET", 404),
        ("adder", "dd" * 32, "GET", 404),
        ("adder", "", "POST", 405),
        (f"adder.{DETECT}", "", "GET", 404),
    ):
        with pytest.raises(OipError) as refused:
            get(name, version, method)
        assert refused.value.status == status


def test_a_file_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    tensors = 'tensors = [{ name = "y", datatype = "FP32", shape = [1000] }]\n[[split.part]]'
    two = tensors.replace("]\n", ', { name = "z", datatype = "FP32", shape = [1] }]\n')
    for old, new, why in (
        ("end = 2", "end = 3", "later one"),
        ('"FP32"', '"BYTES"', "BYTES"),
        ("[1000]", "[0]", "FP32"),
        ("[1000]", "[]", "FP32"),
        ("bytes = 4000", "bytes = -1", "position"),
        ("begin = 0\nend = 1", "begin = 1\nend = 2", "no way"),
        (f'"{TAIL}"', f'"{HEAD}"', "another bundle"),
        (f'"{TAIL}"', '"none.onnx"', "no model"),
        ('name = "adder"', 'nome = "adder"', "nome"),
        ("[[split]]", "[[split", "Expected"),
        (tensors, two, ""),
    ):
        text = FILE.replace(old, new)
        assert text != FILE
        if why:
            with pytest.raises(SplitError, match=r"lending\.split .*parts\.toml"):
                splits(tmp_path, text)
            with pytest.raises(SplitError, match=why):
                splits(tmp_path, text)
        else:
            assert len(splits(tmp_path, text)[WHOLE].ports[2]) == 2, "the last position alone may have several"
    with pytest.raises(SplitError, match="one tensor"):
        splits(
            tmp_path,
            FILE.replace(
                'name = "cut", datatype = "FP32", shape = [1000] }',
                'name = "cut", datatype = "FP32", shape = [1000] }, { name = "b", datatype = "FP32", shape = [1] }',
            ),
        )
    with pytest.raises(SplitError, match="same name"):
        splits(tmp_path, FILE + FILE)
    with pytest.raises(SplitError, match="at most 16"):
        splits(tmp_path, FILE * 17)
    with pytest.raises(SplitError, match="No such file"):
        read_splits(str(tmp_path / "none.toml"))


# --- Packed tensors ---------------------------------------------------------------------------------------------------


@given(st.binary(max_size=4_000), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_what_is_packed_comes_out_as_it_was(data: bytes, times: int) -> None:
    small = packed(data * times)
    if small is not None:
        assert len(small) < len(data) * times
        assert unpacked(small, len(data) * times) == data * times


@given(st.binary(max_size=300), st.integers(0, 5_000))
@settings(max_examples=150, deadline=None)
def test_bytes_of_anybody_are_unpacked_to_what_was_said_or_refused(data: bytes, size: int) -> None:
    with contextlib.suppress(ValueError):
        assert len(unpacked(data, size)) == size


def law_a_bomb_is_not_unpacked() -> None:
    bomb = brotli.compress(bytes(64 << 20), quality=5)
    assert len(bomb) < 1_000
    for size in (0, 100, CODED_MAX_BYTES, 64 << 20):
        made = 0
        try:
            made = len(unpacked(bomb, size))
        except ValueError:
            continue
        assert made == 0, f"{made} bytes were made"


def test_a_bomb_is_not_unpacked() -> None:
    law_a_bomb_is_not_unpacked()


def believes_the_stream(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(law_a_bomb_is_not_unpacked.__globals__, "unpacked", lambda data, size: brotli.decompress(data))


def test_the_law_of_bombs_finds_one_who_believes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(believes_the_stream, law_a_bomb_is_not_unpacked, monkeypatch)


def test_a_lying_shard_is_named(tmp_path: Path) -> None:
    law_a_lying_shard_is_named_and_nothing_of_it_is_used(tmp_path)


def test_the_law_of_liars_finds_a_worker_that_believes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def believes(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(splitting, "_judged", lambda outputs, ports, units: outputs)

    def law() -> None:
        try:
            law_a_lying_shard_is_named_and_nothing_of_it_is_used(tmp_path)
        except (OipError, ValueError, KeyError) as error:
            raise AssertionError("what a liar said was used") from error

    assert_found(believes, law, monkeypatch)


PORT = Port("x", (-1, 4000), np.dtype(np.int8))


def test_a_packed_request_and_answer_round_trip() -> None:
    array = np.arange(4000, dtype=np.int32).astype(np.int8)[None] // 8
    body, length = write_question({"x": array}, 5_000)
    question = read_question(body, length, [PORT], [PORT])
    assert np.array_equal(question.inputs["x"], array)
    assert (question.timeout_us, question.wanted) == (5_000, (Wanted("x", True, True),))
    pieces, answer_length = write_answer({}, {"x": array}, question.wanted)
    assert sum(map(len, pieces)) < array.nbytes
    assert np.array_equal(read_answer(b"".join(pieces), answer_length)["x"], array)


@pytest.mark.parametrize(
    ("parameters", "tail"),
    [
        ({"coding": CODING, "binary_data_size": 5}, b"\x00" * 5),
        ({"coding": CODING, "binary_data_size": -1}, b""),
        ({"coding": CODING, "binary_data_size": 99}, b"short"),
        ({"coding": CODING, "binary_data_size": True}, b"x"),
        ({"coding": CODING}, b""),
        ({"coding": "zstd", "binary_data_size": 4}, b"abcd"),
        ({"coding": 7, "binary_data_size": 4}, b"abcd"),
        ({"coding": CODING, "binary_data_size": 9}, brotli.compress(bytes(5_000))[:9]),
        ({"coding": CODING, "binary_data_size": len(brotli.compress(bytes(4_001)))}, brotli.compress(bytes(4_001))),
        ({"coding": CODING, "binary_data_size": len(brotli.compress(bytes(3_999)))}, brotli.compress(bytes(3_999))),
    ],
)
def test_a_packed_input_that_does_not_hold_is_refused(parameters: dict[str, Any], tail: bytes) -> None:
    row = {"name": "x", "shape": [1, 4000], "datatype": "INT8", "parameters": parameters}
    head = msgspec.json.encode({"inputs": [row]})
    with pytest.raises(OipError) as refused:
        read_question(head + tail, len(head), [PORT], [PORT])
    assert refused.value.status == 400
