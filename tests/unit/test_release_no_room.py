"""Where memory or a disk has no room for a release: every order is answered, and what was interrupted gives way."""

import asyncio
import base64
import contextlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarmd.errors import DaemonError
from swarmd.release import service as services
from swarmd.release import verbs
from swarmd.release.at_rest import NodeKey
from swarmd.release.errors import SlotError
from swarmd.release.service import ReleaseService, ServiceConfig
from swarmd.release.verbs import ModelVerbs
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.slots import Record, fresh_slot
from swarmd_protocols.releases.statements import Blob, DeltaRef
from swarmd_protocols.releases.stores import describe
from tests.support.release_world import make_release


class Log:
    """Takes all that is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append(event)

    warning = error = info


def service_at(folder: Path, told: list[object], model: str = "", factory: str = "") -> ReleaseService:
    service = ReleaseService(folder, ServiceConfig(model, factory), NodeKey(b"k" * 32, "file"), cast("Any", Log()))
    service.protocol = cast("Any", SimpleNamespace(view=SimpleNamespace(models={})))
    service._command = lambda name, request: told.append(request)
    return service


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), MemoryError()])
def test_a_delta_for_which_there_is_no_room_is_answered_and_the_whole_file_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """A container has 64 MiB of /dev/shm, and a base and its delta may have more: nobody waits for that delta."""
    told: list[object] = []
    service = service_at(tmp_path, told)
    base, patch = b"base" * 100, b"patch" * 100
    delta = DeltaRef(service.store.put(base), bytes(32), "blocks", describe(patch, None)[0], 400, 1 << 20)
    service.store.put(patch)

    def full(*arguments: object) -> bytes:
        raise problem

    monkeypatch.setattr(services, "apply_in_child", full)
    asyncio.run(service._apply(requests.ApplyDelta(delta, describe(base, None)[0])))
    assert told == [requests.DeltaFailed(delta.blob.sha256)]


def test_a_disk_that_removes_nothing_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody needs is collected when a release is promoted; a disk that became read-only refuses that."""
    service = service_at(tmp_path, [])
    refused = OSError(30, "Read-only file system")

    async def scenario() -> None:
        work: Any = asyncio.ensure_future(service._carry_out_all())

        async def carry_out(detail: object) -> None:
            if detail == "collect":
                raise refused
            work.cancel()

        monkeypatch.setattr(service, "_carry_out", carry_out)
        service._work.put_nowait("collect")
        service._work.put_nowait("end")
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(scenario())


class Service:
    """Where blobs are put."""

    def __init__(self) -> None:
        self.put: list[bytes] = []

    async def put_blob(self, pieces: list[bytes], chunk: int | None) -> Blob:
        self.put.append(b"".join(pieces))
        return describe(self.put[-1], None)[0]


def put(one: ModelVerbs, name: str, data: bytes, offset: int = 0, size: int = 0) -> Mapping[str, Any]:
    piece = base64.b64encode(data).decode()
    return one.put({"name": name, "offset": offset, "size": size or len(data), "data": piece})


def test_publishers_that_were_interrupted_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leaves a part of a blob behind; they took the room of all others until the daemon began anew."""
    monkeypatch.setattr(verbs, "MAX_UPLOADS_BYTES", 1_000)

    async def scenario() -> None:
        service = Service()
        one = ModelVerbs(cast("Any", service), dict)
        for number in range(2 * verbs.MAX_UPLOADS):
            put(one, f"gone-{number}", b"part", size=100)
        assert len(one._uploads) <= verbs.MAX_UPLOADS
        put(one, "kept", b"a" * 600, size=800)
        put(one, "gone", b"b" * 300, size=400)
        put(one, "kept", b"a" * 200, offset=600, size=800)
        assert sum(upload.size for upload in one._uploads.values()) <= 1_000, "who sent nothing for longest gave way"
        put(one, "again", b"first")
        put(one, "begun", b"fir", size=5)
        put(one, "begun", b"fir", size=5)
        put(one, "begun", b"st", offset=3, size=5)
        with pytest.raises(DaemonError, match="start again"):
            put(one, "begun-2", b"st", offset=3, size=5)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert put(one, "begun", b"", offset=5, size=5)["done"]
        assert service.put == [b"a" * 800, b"first", b"first"]
        # Who was interrupted after the last piece never asked what became of it.
        assert put(one, "again", b"fir", size=5) == {"done": False}
        assert put(one, "again", b"st", offset=3, size=5)["storing"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert put(one, "again", b"", offset=5, size=5)["done"]

    asyncio.run(scenario())


def test_blobs_that_a_slow_disk_has_not_taken_are_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being written gives way to nobody, and is memory all the same; so is the same blob, begun anew."""
    monkeypatch.setattr(verbs, "MAX_UPLOADS_BYTES", 1_000)
    held: list[int] = []

    class Slow:
        async def put_blob(self, pieces: list[bytes], chunk: int | None) -> Blob:
            held.append(sum(map(len, pieces)))
            await asyncio.sleep(1_000)
            raise AssertionError("nobody waits for so long")

    async def scenario() -> None:
        one = ModelVerbs(cast("Any", Slow()), dict)
        for name in ["same"] * 5 + [f"blob-{number}" for number in range(5)]:
            with contextlib.suppress(DaemonError):
                put(one, name, b"a" * 400)
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert held == [400, 400]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (SlotError("there is no room for a model in memory: No space left on device"), "no room"),
        (MemoryError(), "no memory"),
    ],
)
def test_a_release_for_which_memory_has_no_room_is_not_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, reason: str
) -> None:
    """A full /dev/shm is this device's matter: a gate that failed is remembered, and that release never runs there."""
    told: list[object] = []

    async def scenario() -> None:
        service = service_at(tmp_path, told)
        data = b"weights" * 100
        service.store.put(data)
        release = make_release(data, 1)
        service._start()
        monkeypatch.setattr(service.agent, "_tell", told.append)
        monkeypatch.setattr(service.agent, "_note", told.append)
        monkeypatch.setattr(service.agent, "_materialise", full)
        service.agent.runner = cast("Any", SimpleNamespace(is_safe=lambda when: True))
        service.agent.feed(requests.StartTrial(b"1" * 32, release))
        for _ in range(200):
            if any(isinstance(one, requests.TrialEnded) for one in told):
                break
            await asyncio.sleep(0.01)

    def full(slot: object) -> str:
        raise problem

    asyncio.run(scenario())
    ended = [one for one in told if isinstance(one, requests.TrialEnded)]
    assert [(one.verdict, reason in one.reason) for one in ended] == [(Verdict.NONE, True)]


@pytest.mark.parametrize("problem", [SlotError("a model cannot be laid out in memory"), MemoryError()])
def test_a_device_whose_memory_has_no_room_for_its_release_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """With the configured model: it did not start at all, and was no member."""
    before = service_at(tmp_path, [], "m", "image")
    data = b"weights" * 100
    before.store.put(data)
    slot = fresh_slot(b"1" * 32, {"model.tflite": sha256(data).digest()}, "model.tflite")
    before._slots.save(Record(active=slot))

    def full(folder: Path, files: Mapping[str, bytes]) -> None:
        raise problem

    service = service_at(tmp_path, [], "m", "image")
    with monkeypatch.context() as patch:
        patch.setattr(service.memory, "fill", full)
        assert service._start() == "image"
    assert service.agent.agent.running is None
    later = service_at(tmp_path, [], "m", "image")
    assert later._start().endswith("model.tflite"), "nothing was written: with room it runs at the next start"
    assert later.agent.agent.running == slot
    later.close()
