"""Texts of a language model from a real worker: bit by bit over HTTP and gRPC, and texts that go on later."""

import asyncio
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarmd.errors import WorkerError
from swarmd.worker.asking import Wish
from swarmd.worker.asking_text import stream
from swarmd.worker.oip import OipError
from swarmd.worker.oip_grpc import INFER_REQUEST, STREAM_RESPONSE
from swarmd.worker.protobuf import decode, encode
from swarmd.worker.texting import Sealer, _State
from swarmd_models.bundle import load_bundle
from tests.support.daemons import wait_for
from tests.support.inference_worker import Worker, working
from tests.support.paths import ROOT
from tests.unit.test_texts import PROMPT, REPORT

CLIENT = ROOT / ".venv-extras" / "tritonclient" / "bin" / "python"
MODEL = "events-text"
LONG = "drone-9 failed drone-4\nrover-3 failed rover-8\ndrone-2 autopilot link near row 7\n5 soiling review"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with working(grpc="127.0.0.1:0", session_key=b"k" * 32) as one:
        one.load(f"zoo:{MODEL}")
        yield one


def rows(worker: Worker, text: str, **settings: Any) -> list[dict[str, Any]]:
    return list(stream(worker.address, MODEL, text, Wish(), **settings))


def generate(worker: Worker, text: str, model: str = MODEL, **parameters: Any) -> tuple[int, Any]:
    body = json.dumps({"text_input": text, "id": "7", "parameters": parameters}).encode()
    return worker.client().call("POST", f"/v2/models/{model}/generate", body)[:2]


def test_a_text_comes_bit_by_bit_and_is_the_whole_one(worker: Worker) -> None:
    found = rows(worker, PROMPT)
    assert "".join(row["text_output"] for row in found).strip() == REPORT
    assert len(found) >= 5, "it does not come at once"
    assert {row["model_version"] for row in found} == {load_bundle(f"zoo:{MODEL}").digest}
    last = found[-1]["parameters"]
    assert (last["finish_reason"], last["triton_final_response"]) == ("stop", True)
    status, whole = generate(worker, PROMPT)
    assert (status, whole["id"], whole["text_output"].strip()) == (200, "7", REPORT)
    assert generate(worker, PROMPT, f"{MODEL}.text")[1]["text_output"] == whole["text_output"]


def test_only_the_last_answer_has_no_text(worker: Worker) -> None:
    found = rows(worker, "drone-2 failed drone-9")
    assert [bool(row["text_output"]) for row in found] == [True] * (len(found) - 1) + [False]


def test_the_first_piece_is_there_before_the_last(worker: Worker) -> None:
    pieces = stream(worker.address, MODEL, LONG, Wish())
    next(pieces)
    before = worker.counters()["text_tokens"]
    rest = len(list(pieces))
    assert rest > 3
    assert worker.counters()["text_tokens"] >= before


def test_metadata_say_what_goes_in_and_the_vocabulary(worker: Worker) -> None:
    status, row, _ = worker.client().call("GET", f"/v2/models/{MODEL}.text")
    assert (status, row["inputs"], row["outputs"]) == (
        200,
        [{"name": "text_input", "datatype": "BYTES", "shape": [1]}],
        [{"name": "text_output", "datatype": "BYTES", "shape": [1]}],
    )
    assert row["parameters"]["window"] == 128
    assert row["parameters"]["labels"][0] == row["parameters"]["end"] == "<end>"


def test_a_text_goes_on_with_its_session_and_says_what_it_would_have_said_at_once(worker: Worker) -> None:
    whole = generate(worker, LONG)[1]["text_output"]
    status, first = generate(worker, LONG, max_tokens=6, session_ttl_s=60)
    assert (status, first["parameters"]["finish_reason"]) == (200, "length")
    status, second = generate(worker, "", session=first["parameters"]["session"])
    assert (status, first["text_output"] + second["text_output"]) == (200, whole)


def test_the_command_shows_a_text_and_keeps_how_it_goes_on(worker: Worker, tmp_path: Path) -> None:
    whole, kept = generate(worker, LONG)[1]["text_output"], tmp_path / "session"

    def infer(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "swarmd", "infer", MODEL, "--stream", "--url", worker.address, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False)

    first = infer("--input", "-", "--max-tokens", "6", "--session", str(kept), text=LONG + "\n")
    assert (first.returncode, "it goes on" in first.stderr) == (0, True), first.stderr
    assert kept.stat().st_mode & 0o777 == 0o600
    assert whole.startswith(first.stdout.rstrip("\n"))
    for wrong in ((), ("--prompt", "a", "--input", "-")):
        assert "--prompt TEXT or --input FILE" in infer(*wrong).stderr
    kept.write_text("nonsense")
    assert "not sealed by this device" in infer("--prompt", "a", "--session", str(kept)).stderr


def test_a_session_is_of_this_device_this_model_and_its_time() -> None:
    sealer, now_ns = Sealer(b"k" * 32), time.monotonic_ns()
    state = _State("d" * 64, MODEL, [1, 2, 3], now_ns + 60_000_000_000)
    text = sealer.seal(state)
    assert Sealer(b"k" * 32).open(text) == state, "also after the worker was replaced"
    for other in (Sealer(b"j" * 32), Sealer(b"")):
        with pytest.raises(OipError, match="not sealed by this device"):
            other.open(text)
    for bent in (text[:-8], text[:40] + ("A" if text[40] != "A" else "B") + text[41:], "", "ü"):
        with pytest.raises(OipError, match="not sealed by this device"):
            sealer.open(bent)
    with pytest.raises(OipError, match="is over") as error:
        sealer.open(sealer.seal(_State("d" * 64, MODEL, [1], now_ns)))
    assert error.value.status == 404


def test_sessions_of_others_are_refused_by_the_api(worker: Worker) -> None:
    until_ns = time.monotonic_ns() + 60_000_000_000
    foreign = Sealer(b"z" * 32).seal(_State("d" * 64, MODEL, [1], until_ns))
    assert generate(worker, "", session=foreign)[0] == 400
    of_another = Sealer(b"k" * 32).seal(_State("d" * 64, "other", [1], until_ns))
    assert generate(worker, "", session=of_another) == (400, {"error": f"the session is of other, version {'d' * 64}"})
    gone = Sealer(b"k" * 32).seal(_State("d" * 64, MODEL, [1], until_ns))
    assert generate(worker, "", session=gone)[0] == 404, "never a text of two bundles"


@pytest.mark.parametrize(
    ("text", "parameters", "status", "says"),
    [
        ("", {}, 400, "text_input is empty"),
        ("heiß", {}, 400, "no word for 'ß'"),
        ("x" * 400, {}, 400, "the model sees 128"),
        ("x" * 20_000, {}, 400, "no request for a text"),
        ("a", {"max_tokens": 0}, 400, "no request for a text"),
        ("a", {"max_tokens": 2_000}, 400, "no request for a text"),
        ("a", {"temperature": -1}, 400, "no request for a text"),
        ("a", {"seed": -1}, 400, "no request for a text"),
        ("a", {"session_ttl_s": 1 << 20}, 400, "no request for a text"),
        ("a", {"timeout": 1}, 504, "deadline"),
    ],
)
def test_what_cannot_begin_has_a_status_and_a_sentence(
    worker: Worker, text: str, parameters: dict[str, Any], status: int, says: str
) -> None:
    found, row = generate(worker, text, **parameters)
    assert (found, says in row["error"]) == (status, True), row


def test_only_a_text_model_makes_texts_and_makes_nothing_else(worker: Worker) -> None:
    assert generate(worker, "a", "nothing")[0] == 404
    head = json.dumps({"inputs": []}).encode()
    status, row, _ = worker.client().call("POST", f"/v2/models/{MODEL}.text/infer", head)
    assert (status, "generate_stream" in row["error"]) == (400, True)
    assert worker.client().call("GET", f"/v2/models/{MODEL}/generate")[0] == 405
    with pytest.raises(WorkerError, match="404"):
        list(stream(worker.address, "nothing", "a", Wish()))


def test_a_client_that_hangs_up_leaves_nothing_behind(worker: Worker) -> None:
    before = worker.counters()
    host, _, port = worker.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    parameters = {"max_tokens": 1024, "temperature": 9.0}
    body = json.dumps({"text_input": LONG, "parameters": parameters}).encode()
    for _ in range(3):
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request("POST", f"/v2/models/{MODEL}/generate_stream", body)
        connection.getresponse().readline()
        connection.close()
    assert worker.counters()["texts"] == before["texts"] + 3

    def made() -> int:
        return worker.counters()["text_tokens"]

    def is_quiet() -> bool:
        return made() == made()

    wait_for(is_quiet, "no token for nobody")
    assert made() < before["text_tokens"] + 3 * 1024
    assert generate(worker, PROMPT)[0] == 200


# --- gRPC -----------------------------------------------------------------------------------------------------------


def asked(name: str, text: str, **parameters: Any) -> bytes:
    raw = text.encode()
    message = {
        "model_name": name, "id": "9", "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1]}],
        "raw_input_contents": [len(raw).to_bytes(4, "little") + raw],
        "parameters": {key: {"int64_param": value} for key, value in parameters.items()},
    }  # fmt: skip
    return encode(INFER_REQUEST, message)


def test_a_stream_over_grpc_has_many_answers_to_one_request_and_goes_on_after_an_error(worker: Worker) -> None:
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed (swarmd[grpc])")
    address = next(word for word in worker.said if getattr(word, "grpc", "")).grpc

    async def ask() -> list[dict[str, Any]]:
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            questions = iter([asked(f"{MODEL}.text", "ß"), asked(f"{MODEL}.text", PROMPT), asked("no.text", "a")])
            return [decode(STREAM_RESPONSE, data) async for data in call(questions)]

    answers = asyncio.run(ask())
    assert "no word" in answers[0]["error_message"]
    assert "is served" in answers[-1]["error_message"]
    told = [one["infer_response"] for one in answers[1:-1]]
    assert len(told) >= 5
    assert b"".join(bytes(one["raw_output_contents"][0])[4:] for one in told).decode().strip() == REPORT
    assert [one.get("parameters", {}).get("triton_final_response") for one in told] == [None] * (len(told) - 1) + [
        {"bool_param": True}
    ]
    assert {one["id"] for one in told} == {"9"}


SCRIPT = """
import queue, sys
import numpy as np
import tritonclient.grpc as triton
got = queue.Queue()
with triton.InferenceServerClient(sys.argv[1]) as client:
    client.start_stream(lambda result, error: got.put((result, error)))
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([sys.argv[3].encode()], object))
    client.async_stream_infer(sys.argv[2], [text], parameters={"max_tokens": 64})
    while True:
        result, error = got.get(timeout=60)
        assert error is None, error
        sys.stdout.write(result.as_numpy("text_output")[0].decode())
        final = result.get_response().parameters.get("triton_final_response")
        if final is not None and final.bool_param:
            break
    client.stop_stream()
"""


@pytest.mark.skipif(not CLIENT.exists(), reason="tritonclient over gRPC is not installed (make setup-extras)")
def test_nvidias_client_hears_a_text_as_of_any_decoupled_model(worker: Worker) -> None:
    address = next(word for word in worker.said if getattr(word, "grpc", "")).grpc
    done = subprocess.run(
        [str(CLIENT), "-c", SCRIPT, address, f"{MODEL}.text", PROMPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == REPORT
