"""Batches in the worker: each job answered once, whoever dies, lies or complains; and batches of the command line."""

import argparse
import asyncio
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd.cli import infer_batch
from swarmd.errors import ControlError, WorkerError
from swarmd.worker import fleet
from swarmd.worker.asking import Wish
from swarmd.worker.elsewhere import Errand, Found, Own
from swarmd.worker.fleet import Fleet
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.oip import JSON_LENGTH, OipError, Wanted, read_answer, write_answer, write_question
from swarmd.worker.residency import NotResidentError
from swarmd.worker.words import Lenders
from swarmd_models.backends.base import Array
from swarmd_models.service import Port, Run, Tensors
from swarmd_protocols.offload.stealing import JOBS_MAX, TRIES_MAX, Pool
from tests.support.mutants import assert_found

DIGEST = "aa" * 32
PORT = Port("x", (-1, 4), np.dtype(np.float32))


class World:
    """A device and its lenders; each does what it is told to."""

    def __init__(self, lenders: dict[str, str], own: str = "") -> None:
        self.manners, self.own = lenders, own
        self.residency: Any = self
        self.batcher: Any = SimpleNamespace(unit_ns=lambda digest: 1_000_000)
        self.elsewhere: Any = self
        self.asked: Counter[str] = Counter()
        self.hung: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.fleet = Fleet(self)
        self.tell()

    def tell(self, *gone: str) -> None:
        self.fleet.on_lenders(Lenders({DIGEST: {name: 1_000_000 for name in self.manners if name not in gone}}))

    def find(self, name: str, version: str = "") -> Any:
        if not self.own:
            raise NotResidentError("not here")
        service = SimpleNamespace(
            inputs=lambda lane: [PORT], outputs=lambda lane: [PORT], steps=lambda lane, given: Run(1, lambda: iter(()))
        )
        return SimpleNamespace(digest=DIGEST, service=service), "graph"

    async def run_own(self, own: Own, priority: int, deadline_ns: int) -> Tensors:
        self.asked["here"] += 1
        await asyncio.sleep(0.001)
        if self.own == "refuses":
            raise OipError(400, "the tensor is bad")
        if self.own == "busy":
            raise OipError(503, "busy")
        return {"x": own.question.inputs["x"] + 1}

    async def ask(self, errand: Errand, own: Own | None) -> Found:
        self.asked[errand.only] += 1
        manner = self.manners[errand.only]
        await asyncio.sleep(0.001)
        if manner == "hangs":
            self.hung[errand.only] += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.ended[errand.only] += 1
                raise
        if manner == "dies":
            raise OipError(503, "its connection broke")
        if manner == "complains":
            raise OipError(400, "your tensor is bad")
        (array,) = read_answer_of(errand).values()
        body, length = write_answer({"model_version": DIGEST}, {"x": array + 1}, [Wanted("x", True)])
        return Found(b"".join(body), length, errand.only, DIGEST)

    async def batch(self, count: int, timeout_ms: int = 30_000) -> list[Answer | BaseException]:
        """All answers, in the order of the jobs."""

        async def job(number: int) -> Answer:
            body, length = write_question({"x": np.full((1, 4), number, np.float32)}, timeout_ms * 1000)
            call = Call("POST", "", {JSON_LENGTH.lower(): str(length)}, bytearray(body))
            return await self.fleet.handle(call, "adder", DIGEST, 1_000)

        return list(await asyncio.gather(*(job(number) for number in range(count)), return_exceptions=True))


def read_answer_of(errand: Errand) -> dict[str, Array]:
    from swarmd.worker.oip import read_question

    return dict(read_question(errand.body, errand.json_bytes, [PORT], [PORT]).inputs)


def values(answers: list[Answer | BaseException]) -> list[float]:
    found = []
    for answer in answers:
        assert isinstance(answer, Answer), answer
        length = dict(answer.headers).get(JSON_LENGTH)
        outputs = read_answer(b"".join(answer.pieces), None if length is None else int(length))
        found.append(float(outputs["x"][0, 0]))
    return found


def law_each_job_has_its_own_answer() -> None:
    for lenders, own in (
        ({"a": "", "b": ""}, "yes"),
        ({"a": "", "b": "dies"}, ""),
        ({"a": "dies", "b": "complains"}, "yes"),
        ({"a": ""}, "busy"),
    ):

        async def run(lenders: dict[str, str] = lenders, own: str = own) -> None:
            world = World(lenders, own)
            assert values(await world.batch(60)) == [number + 1.0 for number in range(60)]
            assert not any(batch.jobs or batch.pool.size for batch in world.fleet._batches.values())

        asyncio.run(run())


def test_each_job_has_its_own_answer() -> None:
    law_each_job_has_its_own_answer()


def test_all_who_are_idle_take_their_share() -> None:
    async def run() -> None:
        world = World({"a": "", "b": ""}, "yes")
        values(await world.batch(90))
        assert min(world.asked[name] for name in ("a", "b", "here")) >= 10
        counters = world.fleet.counters
        assert (counters["fleet_answered"], counters["fleet_failed"]) == (90, 0)

    asyncio.run(run())


def test_what_hangs_at_one_is_done_by_another_and_its_request_is_ended() -> None:
    async def run() -> None:
        world = World({"a": "hangs", "b": ""}, "")
        jobs = asyncio.create_task(world.batch(40))
        while not world.asked["b"]:
            await asyncio.sleep(0.001)
        assert values(await jobs) == [number + 1.0 for number in range(40)]
        assert world.ended == world.hung, "nothing is left at it"

    asyncio.run(run())


def test_who_has_gone_gives_its_jobs_back_at_once() -> None:
    async def run() -> None:
        world = World({"a": "hangs"}, "")
        jobs = asyncio.create_task(world.batch(2))
        while world.hung["a"] < 2:
            await asyncio.sleep(0.001)
        world.manners["b"] = ""
        world.tell("a")
        assert values(await jobs) == [1.0, 2.0]
        assert world.ended["a"] == 2

    asyncio.run(run())


def test_a_job_that_nobody_does_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.offload.stealing._BAR_NS", 1)
    monkeypatch.setattr("swarmd_protocols.offload.stealing._BAR_MAX_NS", 1)

    async def run(lenders: dict[str, str], own: str, timeout_ms: int) -> Any:
        return (await World(lenders, own).batch(1, timeout_ms))[0]

    given_up = asyncio.run(run({"a": "dies"}, "", 30_000))
    assert (given_up.status, "its connection broke" in str(given_up)) == (503, True)
    late = asyncio.run(run({"a": "hangs"}, "", 50))
    assert late.status == 504
    refused = asyncio.run(run({}, "refuses", 30_000))
    assert refused.status == 400, "the own model's word is the program's"
    nobody = asyncio.run(run({}, "", 50))
    assert nobody.status == 504


def test_bounds() -> None:
    async def run() -> None:
        world = World({"a": "hangs"}, "")
        answers = await world.batch(JOBS_MAX + 3, 300)
        statuses = Counter(answer.status for answer in answers if isinstance(answer, OipError))
        assert statuses == {503: 3, 504: JOBS_MAX}
        assert world.asked["a"] <= TRIES_MAX
        assert not any(batch.jobs or batch.pool.size for batch in world.fleet._batches.values())
        call = Call("POST", "", {}, bytearray())
        with pytest.raises(OipError, match="digest"):
            await world.fleet.handle(call, "adder", "", 1_000)

    asyncio.run(run())


def answers_in_anothers_place(patch: pytest.MonkeyPatch) -> None:
    done = Pool.done

    def first_of_all(self: Pool, number: int, ran_ns: int, now_ns: int) -> Any:
        found = done(self, number, ran_ns, now_ns)
        return found

    patch.setattr(Pool, "done", first_of_all)
    original = Fleet._ask

    async def swapped(self: Fleet, job: Any, lease: Any) -> Answer:
        other = next(iter(next(iter(self._batches.values())).jobs.values()))
        return await original(self, other, lease)

    patch.setattr(fleet.Fleet, "_ask", swapped)


def test_the_law_finds_a_fleet_that_mixes_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(answers_in_anothers_place, law_each_job_has_its_own_answer, monkeypatch)


# --- The command line -------------------------------------------------------------------------------------------------


def batch(monkeypatch: pytest.MonkeyPatch, folder: Path, say: Any) -> tuple[int, list[dict[str, Any]]]:
    monkeypatch.setattr(infer_batch, "infer", say)
    monkeypatch.setattr(infer_batch, "_PAUSE_S", 0.0)
    out = folder.parent / "rows.jsonl"
    args = argparse.Namespace(input=str(folder), out=str(out))
    status = infer_batch.run_batch("127.0.0.1:1", "m", Wish(borrow="fleet"), args)
    return status, [json.loads(line) for line in out.read_text().splitlines()]


def pictures(tmp_path: Path, count: int) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(count):
        cv2.imwrite(str(folder / f"{number:03}.png"), np.full((8, 8), number, np.uint8))
    (folder / "notes.txt").write_text("no picture")
    return folder


def seen(number: int) -> tuple[dict[str, Any], dict[str, Array]]:
    head = {"model_version": DIGEST, "lender": "a" if number % 2 else ""}
    return head, {
        "labels": np.array([str(number)], object), "scores": np.array([0.5]), "boxes": np.zeros((1, 4), np.float32)
    }  # fmt: skip


def test_every_picture_of_a_folder_has_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tries: Counter[int] = Counter()

    def say(address: str, name: str, image: Array, wish: Wish, port: Any) -> Any:
        number = int(image[0, 0, 0])
        tries[number] += 1
        if number % 5 == 0 and tries[number] < 3:
            raise WorkerError("nobody of the fleet has done the job (503)")
        if number == 7:
            raise WorkerError("the picture is bad (400)")
        return seen(number)

    folder = pictures(tmp_path, 50)
    (folder / "broken.jpg").write_bytes(b"no picture")
    status, rows = batch(monkeypatch, folder, say)
    assert status == 1, "one was refused, one cannot be read"
    by_frame = {row["frame"]: row for row in rows}
    assert len(rows) == len(by_frame) == 51
    assert "error" in by_frame["007.png"]
    assert "error" in by_frame["broken.jpg"]
    for number in range(50):
        if number != 7:
            assert by_frame[f"{number:03}.png"]["detections"][0]["label"] == str(number)
    assert tries[7] == 1
    assert tries[10] == 3


def test_a_folder_without_pictures_and_an_api_that_has_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gone(*arguments: Any) -> Any:
        raise ControlError("no inference API answers")

    with pytest.raises(WorkerError, match="holds no picture"):
        batch(monkeypatch, pictures(tmp_path, 0), gone)
    cv2.imwrite(str(tmp_path / "frames" / "1.png"), np.zeros((8, 8), np.uint8))
    with pytest.raises(ControlError):
        batch(monkeypatch, tmp_path / "frames", gone)


def test_the_frames_of_a_video(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (32, 32))
    for number in range(6):
        writer.write(np.full((32, 32, 3), 40 * number, np.uint8))
    writer.release()
    assert infer_batch.is_batch(path)
    status, rows = batch(monkeypatch, path, lambda address, name, image, wish, port: seen(int(image[0, 0, 0])))
    assert status == 0
    assert sorted(row["frame"] for row in rows) == [f"film.avi#{number}" for number in range(6)]
