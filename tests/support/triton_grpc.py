"""NVIDIA's gRPC client, as its documentation uses it; in an environment without swarmd. Prints what it saw as JSON.

    python triton_grpc.py ADDRESS MODEL DIGEST

Source:
    https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/client/ and the client's examples
    simple_grpc_infer_client.py, simple_grpc_async_infer_client.py and simple_grpc_sequence_stream_infer_client.py.
"""

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def main(address: str, model: str, digest: str) -> None:
    """Everything, once."""
    seen: dict[str, object] = {}
    client = triton.InferenceServerClient(address)
    seen["live"] = client.is_server_live(), client.is_server_ready()
    seen["ready"] = client.is_model_ready(model), client.is_model_ready(model, digest), client.is_model_ready("none")
    seen["server"] = client.get_server_metadata(as_json=True)
    seen["model"] = client.get_model_metadata(model, digest, as_json=True)
    seen["index"] = sorted(row.name for row in client.get_model_repository_index().models)

    picture = (np.arange(256 * 320) % 251).astype(np.uint8).reshape(256, 320, 1)
    image = triton.InferInput("image", list(picture.shape), "UINT8")
    image.set_data_from_numpy(picture)
    outputs = [triton.InferRequestedOutput(name) for name in ("boxes", "scores", "labels")]
    found = client.infer(f"{model}.detect", [image], outputs=outputs, request_id="7", priority=1, timeout=60_000_000)
    seen["id"] = found.get_response().id
    seen["version"] = found.get_response().model_version
    seen["shapes"] = {name: found.as_numpy(name).shape for name in ("boxes", "scores", "labels")}
    seen["labels"] = [text.decode() for text in found.as_numpy("labels")]
    seen["scores"] = found.as_numpy("scores").tolist()

    results: queue.Queue[Any] = queue.Queue()
    client.async_infer(f"{model}.detect", [image], lambda result, error: results.put(error or result), outputs=outputs)
    seen["async"] = results.get(timeout=60).as_numpy("scores").tolist()

    client.start_stream(lambda result, error: results.put(error or result))
    for number in range(6):
        name = "none" if number == 3 else f"{model}.detect"
        client.async_stream_infer(name, [image], request_id=str(number))
    answers = [results.get(timeout=60) for _ in range(6)]
    client.stop_stream()
    seen["stream"] = [
        "error" if isinstance(one, InferenceServerException) else one.get_response().id for one in answers
    ]
    refused = {}
    wrong = triton.InferInput("image", [256, 320], "UINT8")
    wrong.set_data_from_numpy(picture[..., 0])
    for what, name, inputs, version in (
        ("unknown", "none", [image], ""),
        ("version", model, [image], "0" * 64),
        ("shape", f"{model}.detect", [wrong], ""),
    ):
        try:
            client.infer(name, inputs, model_version=version)
        except InferenceServerException as error:
            refused[what] = [error.status(), error.message()]
    seen["refused"] = refused
    client.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
