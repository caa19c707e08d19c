"""NVIDIA's client, written for Triton, talks to the inference API without a change.

Source:
    The client's own documentation: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/client/
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.integration.test_inference_api import LABELS, PICTURE, TENSOR, bundle
from tests.support.inference_worker import Worker, working

triton = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed (make setup-extras)")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("bundles") / "one", LABELS)


@pytest.fixture(scope="module")
def worker(path: Path) -> Iterator[Worker]:
    with working() as one:
        one.load(path)
        yield one


@pytest.fixture
def client(worker: Worker) -> Iterator[Any]:
    with triton.InferenceServerClient(worker.address, connection_timeout=60, network_timeout=60) as one:
        yield one


def image(binary: bool = True) -> Any:
    one = triton.InferInput("image", list(PICTURE.shape), "UINT8")
    one.set_data_from_numpy(PICTURE, binary_data=binary)
    return one


def test_health_and_metadata(client: Any, path: Path) -> None:
    digest = load_bundle(path).digest
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("m")
    assert client.is_model_ready("m", digest)
    assert not client.is_model_ready("n")
    assert client.get_server_metadata()["name"] == "swarmd"
    assert client.get_model_metadata("m", digest)["versions"] == [digest]
    assert {row["name"] for row in client.get_model_repository_index()} == {"m", "m.detect"}


@pytest.mark.parametrize("binary", [True, False])
def test_a_picture(client: Any, path: Path, binary: bool) -> None:
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("boxes", "scores", "labels")]
    result = client.infer("m.detect", [image(binary)], outputs=outputs, request_id="7", priority=1, timeout=30_000_000)
    found = Detector.open(load_bundle(path), DetectorOptions()).detect(PICTURE[..., 0])
    labels = [text.decode() if isinstance(text, bytes) else text for text in result.as_numpy("labels")]
    assert labels == [one.label for one in found]
    assert np.allclose(result.as_numpy("boxes"), [one.box for one in found], atol=1e-3)
    assert result.as_numpy("classes") is None
    assert result.get_response()["id"] == "7"


def test_tensors_in_a_batch(client: Any, path: Path) -> None:
    found = client.get_model_metadata("m")["inputs"][0]
    tensor = triton.InferInput(found["name"], list(TENSOR.shape), found["datatype"])
    tensor.set_data_from_numpy(TENSOR)
    result = client.infer("m", [tensor], model_version=load_bundle(path).digest)
    for row in result.get_response()["outputs"]:
        assert result.as_numpy(row["name"]).shape == tuple(row["shape"])
        assert row["shape"][0] == len(TENSOR)


def test_many_at_once(client: Any) -> None:
    waiting = [client.async_infer("m.detect", [image()]) for _ in range(5)]
    assert all(one.get_result().as_numpy("scores").shape == (100,) for one in waiting)


def test_errors_are_its_own_exception_with_our_sentence(client: Any) -> None:
    with pytest.raises(triton.InferenceServerException, match=r"there are m, m\.detect"):
        client.infer("n", [image()])
    bad = triton.InferInput("image", [8, 8, 1], "FP32")
    bad.set_data_from_numpy(np.zeros((8, 8, 1), np.float32))
    with pytest.raises(triton.InferenceServerException, match="UINT8 is wanted"):
        client.infer("m.detect", [bad])
