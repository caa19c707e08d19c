"""NVIDIA's client, unchanged: python ask.py PROTOCOL ADDRESS MODEL CLIENTS SECONDS; prints what it saw as JSON.

Each client is a thread with a connection of its own and one request in flight. Half a second is not counted.
"""

import importlib
import json
import statistics
import sys
import threading
import time
from typing import Any

import numpy as np

PICTURE = np.random.default_rng(5).integers(-128, 128, (1, 256, 320, 1), np.int8)
WARM_S = 0.5


def input_of(client: Any, model: str) -> str:
    """The input's name, as the server says it; KServe says nothing."""
    about = client.get_model_metadata(model)
    inputs = [row["name"] for row in about["inputs"]] if isinstance(about, dict) else [row.name for row in about.inputs]
    return inputs[0] if inputs else "image"


def main(protocol: str, address: str, model: str, clients: int, seconds: float) -> dict[str, object]:
    """What they got, in how long."""
    triton = importlib.import_module(f"tritonclient.{protocol}")
    first = triton.InferenceServerClient(address)
    name = input_of(first, model)
    first.close()
    ends: list[tuple[float, float]] = []
    problems: list[str] = []
    begin = time.perf_counter() + WARM_S
    until = begin + seconds

    def one() -> None:
        try:
            client = triton.InferenceServerClient(address)
            while (began := time.perf_counter()) < until:
                wanted = triton.InferInput(name, list(PICTURE.shape), "INT8")
                wanted.set_data_from_numpy(PICTURE)
                answer = client.infer(model, [wanted])
                outputs = answer.get_response()
                rows = outputs["outputs"] if isinstance(outputs, dict) else outputs.outputs
                names = [row["name"] if isinstance(row, dict) else row.name for row in rows]
                assert sum(answer.as_numpy(each).size for each in names) == 1280 * 15
                ends.append((time.perf_counter(), (time.perf_counter() - began) * 1e3))
            client.close()
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}"[:300])

    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = sorted(ms for at, ms in ends if begin <= at < until)
    if problems or not took:
        return {"reason": problems[0] if problems else "no answer"}
    return {
        "answered": len(ends),
        "per_s": len(took) / seconds,
        "p50_ms": statistics.median(took),
        "p99_ms": took[int(len(took) * 0.99)],
    }


if __name__ == "__main__":
    protocol, address, model, clients, seconds = sys.argv[1:]
    try:
        print(json.dumps(main(protocol, address, model, int(clients), float(seconds))))
    except Exception as error:
        print(json.dumps({"reason": f"{type(error).__name__}: {error}"[:300]}))
