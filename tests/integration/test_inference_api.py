"""The inference API of a real worker process: right answers, versions that never mix, bounds that hold."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from swarmd.eye.gate import EyeGate
from swarmd.worker import words
from swarmd.worker.http_server import BODIES_MAX_BYTES, CONNECTIONS_MAX, STALL_S
from swarmd.worker.oip import JSON_LENGTH
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import write_bundle
from tests.support.daemons import PATIENCE_S
from tests.support.inference_worker import Worker, working
from tests.support.paths import ROOT

PICTURE = np.load(ZOO / "small-320.golden.npz")["image"][..., None]
TENSOR = np.random.default_rng(5).integers(-128, 128, (3, 256, 320, 1), np.int8)
LABELS = [f"class{index}" for index in range(11)]


def bundle(folder: Path, labels: list[str]) -> Path:
    """`m`, which sees a hundred things in `PICTURE`."""
    folder.mkdir()
    return write_bundle(
        folder,
        format='format = 1\nname = "m"',
        labels="labels = " + json.dumps(labels),
        decode="[decode]\nstrides = [8]\nscore_threshold = 0.01",
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("bundles") / "one", LABELS)


@pytest.fixture(scope="module")
def worker(path: Path) -> Iterator[Worker]:
    with working(max_requests=4, max_request_bytes=1 << 20) as one:
        one.load(path)
        yield one


def test_health_metadata_and_index(worker: Worker, path: Path) -> None:
    client, digest = worker.client(), load_bundle(path).digest
    assert client.call("GET", "/v2/health/live")[0] == 200
    assert client.call("HEAD", "/v2/health/ready")[0] == 200
    assert client.call("GET", "/v2")[1]["name"] == "swarmd"
    found = client.call("GET", "/v2/models/m")[1]
    assert found["versions"] == [digest]
    assert found["inputs"][0]["datatype"] == "INT8"
    assert found["inputs"][0]["shape"] == [-1, 256, 320, 1]
    assert found["inputs"][0]["parameters"]["zero_point"] == -128
    assert client.call("GET", f"/v2/models/m/versions/{digest}/ready")[0] == 200
    for name in ("n", "m/versions/1234", f"m/versions/{digest[:16]}"):
        status, answer, _ = client.call("GET", f"/v2/models/{name}/ready")
        assert (status, "served" in answer["error"]) == (404, True)
    rows = client.call("POST", "/v2/repository/index")[1]
    assert {(row["name"], row["version"]) for row in rows} == {("m", digest), ("m.detect", digest)}


def test_tensors_are_those_of_the_runtime_itself(worker: Worker, path: Path) -> None:
    detector = Detector.open(load_bundle(path), DetectorOptions())
    status, head, outputs = worker.client().infer("m", TENSOR)
    assert status == 200, head
    assert head["model_version"] == load_bundle(path).digest
    for item, tensor in enumerate(TENSOR):
        np.copyto(detector.backend.input_view(), tensor)
        detector.backend.infer()
        found = [np.array(view) for view in detector.backend.output_views()]
        for spec, array in zip(detector.backend.outputs, found, strict=True):
            assert np.array_equal(outputs[spec.name][item], array), "an answer that the runtime did not give"


def test_a_picture_is_seen_as_the_eye_sees_it(worker: Worker, path: Path) -> None:
    found = Detector.open(load_bundle(path), DetectorOptions()).detect(PICTURE[..., 0])
    status, head, outputs = worker.client().infer("m.detect", PICTURE)
    assert status == 200, head
    assert len(found) == 100
    assert outputs["labels"].tolist() == [one.label for one in found]
    assert np.allclose(outputs["boxes"], [one.box for one in found], atol=1e-3)
    assert np.allclose(outputs["scores"], [one.score for one in found], atol=1e-6)


def test_json_alone_will_do(worker: Worker) -> None:
    request = {"inputs": [{"name": "image", "shape": PICTURE.shape, "datatype": "UINT8", "data": PICTURE.tolist()}]}
    status, answer, tail = worker.client().call("POST", "/v2/models/m.detect/infer", json.dumps(request).encode())
    assert (status, tail) == (200, b"")
    assert answer["outputs"][3]["data"][0] in LABELS


@pytest.mark.parametrize(
    ("name", "array", "status", "sentence"),
    [
        ("m", TENSOR.view(np.uint8), 400, "INT8 is wanted"),
        ("m", TENSOR[:, :100], 400, "shape"),
        ("m", np.zeros((65, 1, 1, 1), np.int8), 400, "shape"),
        ("m.detect", np.zeros((2, 2, 1), np.uint8), 400, "rows and columns"),
        ("m.detect", np.zeros((9000, 10, 1), np.uint8), 400, "rows and columns"),
        ("m.detect", np.zeros((20, 20, 4), np.uint8), 400, "channels"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_next_is_answered(
    worker: Worker, name: str, array: np.ndarray, status: int, sentence: str
) -> None:
    client = worker.client()
    got, answer, _ = client.infer(name, array)
    assert (got, sentence in answer["error"]) == (status, True), answer
    assert client.infer("m.detect", PICTURE)[0] == 200, "on the same connection"


def test_a_request_too_large_is_refused_before_it_is_read(worker: Worker) -> None:
    with socket.create_connection(worker.address.rsplit(":", 1), timeout=PATIENCE_S) as wire:
        wire.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n")
        answer = wire.recv(4096)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"Connection: close" in answer


def test_who_sends_too_much_at_once_reads_why(worker: Worker) -> None:
    """A plain client sends all of it before it reads a word."""
    for _ in range(5):
        status, answer, _ = worker.client().call("POST", "/v2/models/m/infer", bytes(24 << 20))
        assert (status, "are taken" in answer["error"]) == (413, True)


def test_bodies_that_do_not_come_keep_nobody_out(path: Path) -> None:
    """All the room for bodies is announced and not sent; who sends has it."""
    with working() as worker:
        worker.load(path)
        where = worker.address.rsplit(":", 1)
        count = BODIES_MAX_BYTES // (16 << 20)
        stalled = [socket.create_connection(where, timeout=PATIENCE_S) for _ in range(count)]
        try:
            for wire in stalled:
                wire.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n")
                wire.sendall(b"Content-Length: %d\r\n\r\nx" % (16 << 20))
            time.sleep(2 * STALL_S)
            assert worker.client().infer("m.detect", PICTURE)[0] == 200
            assert stalled[0].recv(1) == b"", "the one that waited longest gave way"
            stalled[-1].settimeout(0.2)
            with pytest.raises(TimeoutError):
                stalled[-1].recv(1)
        finally:
            for wire in stalled:
                wire.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "swarm.example"}, 403),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost", "Content-Encoding": "gzip"}, 415),
        ({"Host": "localhost", "Transfer-Encoding": "chunked"}, 411),
        ({"Host": "localhost", JSON_LENGTH: "-5"}, 400),
        ({"Host": "localhost", JSON_LENGTH: "9" * 5000}, 400),
        ({"Host": "localhost", "Content-Length": "nonsense"}, 400),
        ({"Host": "localhost", "X": "y" * 400_000}, 431),
        ({"Host": "localhost"}, 400),
    ],
)
def test_heads_that_are_refused(worker: Worker, headers: dict[str, str], status: int) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(worker.address.rsplit(":", 1), timeout=PATIENCE_S) as wire:
        wire.sendall(f"POST /v2/models/m/infer HTTP/1.1\r\n{lines}\r\n".encode())
        assert int(wire.recv(4096).split()[1]) == status
    assert worker.client().call("GET", "/v2/health/live")[0] == 200


def test_a_body_that_is_announced_may_wait_for_its_hundred(worker: Worker) -> None:
    body = json.dumps(
        {"inputs": [{"name": "image", "shape": [8, 8, 1], "datatype": "UINT8", "data": [0] * 64}]}
    ).encode()
    head = f"POST /v2/models/m.detect/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(worker.address.rsplit(":", 1), timeout=PATIENCE_S) as wire:
        wire.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert wire.recv(4096).startswith(b"HTTP/1.1 100")
        wire.sendall(body)
        assert wire.recv(4096).startswith(b"HTTP/1.1 200")


def test_clients_that_hang_keep_nobody_out(worker: Worker) -> None:
    hanging = [
        socket.create_connection(worker.address.rsplit(":", 1), timeout=PATIENCE_S) for _ in range(CONNECTIONS_MAX)
    ]
    try:
        for wire in hanging:
            wire.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx")
        assert worker.client().infer("m.detect", PICTURE)[0] == 200
    finally:
        for wire in hanging:
            wire.close()


def test_a_deadline_that_cannot_be_met_is_told_not_missed(worker: Worker) -> None:
    client = worker.client()
    assert client.infer("m.detect", PICTURE)[0] == 200
    status, answer, _ = client.infer("m.detect", PICTURE, timeout_us=1)
    assert status in (503, 504), answer
    assert "deadline" in answer["error"]


def test_a_flood_is_bounded_and_every_request_has_one_answer(worker: Worker) -> None:
    """Sixteen clients ask at once for three inferences each, four times what may wait."""
    answers: list[int] = []

    def ask() -> None:
        client = worker.client()
        for _ in range(3):
            answers.append(client.infer("m", TENSOR)[0])
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 48
    assert set(answers) <= {200, 503}
    assert answers.count(200) >= 4, "what fits in the queue is answered"
    worker.said.clear()
    assert worker.client().infer("m.detect", PICTURE)[0] == 200


def test_versions_never_mix_while_releases_come(tmp_path: Path) -> None:
    """Clients ask on, a release comes every few answers: each answer's labels are those of the digest that it names."""
    paths = [bundle(tmp_path / f"v{number}", [f"v{number}-{label}" for label in LABELS]) for number in range(4)]
    of_digest = {load_bundle(path).digest: f"v{number}-" for number, path in enumerate(paths)}
    seen: list[tuple[str, str]] = []
    failed: list[object] = []
    stop = threading.Event()
    with working() as worker:
        worker.load(paths[0])

        def ask() -> None:
            client = worker.client()
            while not stop.is_set():
                status, head, outputs = client.infer("m.detect", PICTURE)
                if status != 200:
                    failed.append(head)
                    return
                prefixes = {label.split("class")[0] for label in outputs["labels"]}
                seen.extend((head["model_version"], prefix) for prefix in prefixes)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for path in paths[1:]:
            count = len(seen)
            while len(seen) < count + 6 and not failed:
                time.sleep(0.01)
            worker.load(path)
        count = len(seen)
        while len(seen) < count + 6 and not failed:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        client = worker.client()
        newest = [load_bundle(path).digest for path in paths]
        assert client.call("GET", "/v2/models/m")[1]["versions"] == newest[2:], "two versions stay"
        assert client.infer("m.detect", PICTURE, version=newest[2])[1]["model_version"] == newest[2]
        assert client.infer("m.detect", PICTURE, version=newest[0])[0] == 404
    assert not failed, "an answer was lost to a release"
    assert {(digest, of_digest[digest]) for digest, _ in seen} == set(seen), "labels of another bundle in an answer"
    assert {digest for digest, _ in seen} == set(newest), "each release answers"


def test_a_bundle_that_cannot_be_loaded_is_told_and_the_others_stay(tmp_path: Path, path: Path) -> None:
    with working() as worker:
        worker.load(path)
        worker.say(words.Load(str(tmp_path / "nothing.toml")))
        problem = worker.hear(words.Problem)
        assert (problem.model, "no model at" in problem.text) == (str(tmp_path / "nothing.toml"), True)
        assert worker.client().infer("m.detect", PICTURE)[0] == 200


def test_a_bundle_that_says_too_much_ends_no_worker(tmp_path: Path, path: Path) -> None:
    """What is wrong with a bundle quotes it; the brain ends a worker whose line is too long, again in each life."""
    folder = tmp_path / "loud"
    shutil.copytree(path.parent, folder)
    loud = folder / path.name
    loud.write_text("".join(f"key-{number:060} = 1\n" for number in range(2_000)) + loud.read_text())
    with working() as worker:
        worker.load(path)
        worker.say(words.Load(str(loud)))
        problem = worker.hear(words.Problem)
        assert "unknown key" in problem.text
        assert len(words.encode(problem)) < words.MAX_LINE_BYTES
        assert worker.client().infer("m.detect", PICTURE)[0] == 200


def test_a_worker_without_a_brain_ends() -> None:
    with working() as worker:
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.wait(PATIENCE_S) == 0


def test_an_address_that_is_taken_is_told() -> None:
    with working() as worker:
        second = subprocess.run(
            [sys.executable, "-m", "swarmd.worker"],
            input=words.encode(words.Serve(worker.address)),
            capture_output=True,
            cwd=ROOT,
            check=False,
        )
    assert second.returncode == words.CANNOT_BIND_STATUS
    assert "choose another port" in words.decode_from_worker(second.stdout).text  # type: ignore[union-attr]


def has_opencv(worker: Worker) -> bool:
    return "cv2" in Path(f"/proc/{worker.process.pid}/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no Linux here")
def test_who_asks_for_tensors_alone_pays_for_no_opencv(path: Path) -> None:
    with working() as worker:
        worker.load(path)
        client = worker.client()
        assert client.infer("m", TENSOR)[0] == 200
        assert not has_opencv(worker), "16 MB for pictures that nobody has sent"
        assert client.infer("m.detect", PICTURE)[0] == 200
        assert has_opencv(worker)
    for settings in ({"is_idle": True}, {"lends": True}):
        with working(**settings) as worker:
            assert has_opencv(worker), "it is loaded while somebody waits for a picture"


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="no Linux here")
def test_beside_an_eye_it_takes_only_what_is_left() -> None:
    descriptor = EyeGate.make()
    try:
        with working(is_idle=True, gate_fd=descriptor) as worker:
            assert os.sched_getscheduler(worker.process.pid) == os.SCHED_IDLE
            tasks = [int(name) for name in os.listdir(f"/proc/{worker.process.pid}/task")]
            assert {os.sched_getscheduler(task) for task in tasks} == {os.SCHED_IDLE}, "every thread of it"
    finally:
        os.close(descriptor)


def test_a_frame_at_work_is_let_pass(path: Path) -> None:
    """The eye's gate shut: each inference waits its hundred milliseconds, and says so; open: none waits."""
    descriptor = EyeGate.make()
    try:
        eye = EyeGate(descriptor)
        with working(gate_fd=descriptor) as worker:
            worker.load(path)
            client = worker.client()
            assert client.infer("m.detect", PICTURE)[0] == 200
            assert worker.pulse().gauges["eye_wait_s"] < 0.001
            # As of later: it is not taken for one that hangs, however long this machine takes for the request.
            eye.begin(time.monotonic_ns() + 3_600_000_000_000)
            assert client.infer("m", TENSOR)[0] == 200
            eye.end()
            assert worker.pulse().gauges["eye_wait_s"] >= 0.3, "three inferences went before the eye's frame"
    finally:
        os.close(descriptor)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (apt install curl)")
def test_the_page_s_own_example(worker: Worker) -> None:
    """docs/inference-api.md shows this call."""
    page = (ROOT / "docs" / "inference-api.md").read_text()
    assert "curl -s http://127.0.0.1:7983/v2/models/solar-small-320" in page
    done = subprocess.run(["curl", "-s", f"http://{worker.address}/v2/models/m"], capture_output=True, check=True)
    assert json.loads(done.stdout)["name"] == "m"
