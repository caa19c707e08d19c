"""Two daemons: a program of one has a model answer that only the other has."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd.worker.oip import JSON_LENGTH
from swarmd.worker.oip_grpc import INFER_REQUEST, INFER_RESPONSE
from swarmd.worker.protobuf import decode, encode
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.inference_worker import Client
from tests.support.paths import ROOT

try:
    import grpc
except ImportError:
    grpc = None

PATIENCE_S = 90
API = ("--no-eye", "--inference", "127.0.0.1:0")


def infer(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swarmd", "infer", *arguments, "--control", str(daemon.control)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def question(picture: np.ndarray) -> tuple[bytes, dict[str, str]]:
    parameters = {"binary_data_size": picture.nbytes}
    tensor = {"name": "image", "shape": picture.shape, "datatype": "UINT8", "parameters": parameters}
    head = json.dumps({"inputs": [tensor], "parameters": {"timeout": 60_000_000}}).encode()
    return head + picture.tobytes(), {JSON_LENGTH: str(len(head)), "Swarmd-Borrow": "yes"}


def lenders(daemon: Daemon) -> dict[str, Any]:
    return (daemon.status().get("lending") or {}).get("lenders", {})


def patient_about(picture: Path) -> tuple[str, ...]:
    return "--input", str(picture), "--json", "--deadline-ms", "60000"


def borrowed_at_the_command_line(b: Daemon, model: str, grey: np.ndarray, picture: Path, labels: list[str]) -> None:
    digest, patient = load_bundle(model).digest, patient_about(picture)
    refused = infer(b, model, *patient)
    assert (refused.returncode, "is served" in refused.stderr) == (1, True), "nothing leaves without a word"
    done = infer(b, model, *patient, "--borrow")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["version"], told["lender"]) == (digest, "a")
    assert [row["label"] for row in told["detections"]] == labels

    np.save(picture.with_name("tensor.npy"), np.zeros((256, 320, 1), np.int8))
    out = picture.with_name("out.npz")
    tensor = ("--input", str(picture.with_name("tensor.npy")), "--out", str(out), "--deadline-ms", "60000")
    done = infer(b, "solar-small-320", "--version", digest, *tensor, "--borrow")
    assert done.returncode == 0, done.stderr
    assert {array.shape for array in np.load(out).values()} == {(1, 1280, 11), (1, 1280, 4)}


def large_tensors_go_from_worker_to_worker(b: Daemon, digest: str, grey: np.ndarray) -> None:
    large = cv2.cvtColor(cv2.resize(grey, (2560, 2048)), cv2.COLOR_GRAY2BGR)
    client = Client(b.status()["inference"]["address"])
    for _ in range(7):  # 110 MB from worker to worker
        body, headers = question(large)
        path = f"/v2/models/solar-small-320.detect/versions/{digest}/infer"
        status, answer, _ = client.call("POST", path, body, headers)
        assert (status, answer["model_version"]) == (200, digest), answer
    client.close()


def borrowed_over_grpc(b: Daemon, digest: str, grey: np.ndarray) -> None:
    with grpc.insecure_channel(b.status()["inference"]["grpc"]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        row = {"name": "image", "datatype": "UINT8", "shape": [*grey.shape, 1]}
        message = {
            "model_name": "solar-small-320.detect",
            "model_version": digest,
            "parameters": {"timeout": {"int64_param": 60_000_000}},
            "inputs": [row],
            "raw_input_contents": [grey.tobytes()],
        }
        found = decode(INFER_RESPONSE, call(encode(INFER_REQUEST, message), metadata=[("swarmd-borrow", "yes")]))
    assert found["parameters"]["lender"]["string_param"] == "a"
    assert found["model_version"] == digest


def what_does_not_fit_is_refused_and_what_is_here_is_answered_here(b: Daemon, digest: str, picture: Path) -> None:
    wrong = picture.with_name("wrong.npy")
    np.save(wrong, np.zeros((1, 9, 320, 1), np.int8))
    wanted = ("--version", digest, "--input", str(wrong), "--deadline-ms", "60000")
    refused = infer(b, "solar-small-320", *wanted, "--borrow")
    assert (refused.returncode, "has shape [1, 9, 320, 1]; [-1, 256, 320, 1] is wanted (400)" in refused.stderr) == (
        1,
        True,
    ), refused.stderr

    own = infer(b, "zoo:tiny-224", *patient_about(picture), "--borrow")
    assert own.returncode == 0, own.stderr
    assert "lender" not in json.loads(own.stdout), "what is here is answered here"
    unnamed = infer(b, "solar-small-320", *patient_about(picture), "--borrow")
    assert (unnamed.returncode, "name its digest" in unnamed.stderr) == (1, True)


def test_a_model_that_only_a_peer_has_answers_and_only_where_it_may(start: Start, tmp_path: Path) -> None:
    model = unhurried(tmp_path / "model")
    digest = load_bundle(model).digest
    served = tmp_path / "a.toml"
    served.write_text(f'[inference]\nmodels = ["{model}"]\n')
    config = tmp_path / "b.toml"
    config.write_text('[inference]\nmodels = ["zoo:tiny-224"]\n')
    a = start("a", *API, "--set", "lending.lend=true", "--config", str(served)).up()
    borrows = ["--set", "lending.borrow=true", "--set", "lending.tensors=127.0.0.1:0"]
    if grpc is not None:
        borrows += ["--set", "inference.grpc=127.0.0.1:0"]
    b = start("b", *API, *borrows, "--config", str(config), join=a.status()["address"]).up()
    wait_for(lambda: digest in lenders(b).get("a", []), "an offer of a's at b", PATIENCE_S, b.log)
    wait_for(lambda: (b.status()["inference"] or {}).get("models"), "b's own model", PATIENCE_S, b.log)
    assert lenders(a) == {}, "b lends nothing"
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    picture = tmp_path / "picture.png"
    assert cv2.imwrite(str(picture), grey)
    mine = Detector.open(load_bundle(model), DetectorOptions()).detect(grey)
    borrowed_at_the_command_line(b, model, grey, picture, [one.label for one in mine])
    large_tensors_go_from_worker_to_worker(b, digest, grey)
    for one in (a, b):
        assert {row["event"] for row in one.events()} <= {"up", "join"}, "a transfer is no reason to be given up"

    if grpc is not None:
        borrowed_over_grpc(b, digest, grey)
    what_does_not_fit_is_refused_and_what_is_here_is_answered_here(b, digest, picture)

    lent, wanted = a.status()["lending"]["counts"], 13 + (grpc is not None)
    again = b.status()["lending"]["counts"].get("borrow_asked_again", 0)  # What broke with its connection.
    assert wanted <= lent["lent_answered"] <= wanted + again, (lent, again, "metadata and answers")
    assert a.status()["lending"]["jobs"] == b.status()["lending"]["open"] == 0

    a.kill()
    gone = infer(b, model, "--input", str(picture), "--deadline-ms", "2000", "--borrow")
    assert (gone.returncode, "no device has answered" in gone.stderr) == (1, True), gone.stderr
    assert b.alive
