"""Ray Serve over HTTP: python run_ray.py GRAPH HTTP_PORT GRPC_PORT.

It has no Open Inference Protocol of its own, so the few lines that one writes for it are here; its gRPC proxy serves
methods of one's own, and refused NVIDIA's messages when it was tried (PicklingError).
"""

import json
import signal
import sys
from typing import Any

import numpy as np
import ray
from graph import INPUT, NAME, OUTPUTS, Graph
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

LENGTH = "inference-header-content-length"


@serve.deployment(num_replicas=1, max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})
class Served:
    """The graph behind `/v2`."""

    def __init__(self, path: str) -> None:
        self._graph = Graph(path)

    async def __call__(self, request: Request) -> Response:
        """One request."""
        if request.method == "GET":
            inputs = [{"name": INPUT[0], "datatype": "INT8", "shape": list(INPUT[1])}]
            outputs = [{"name": name, "datatype": "INT8", "shape": list(shape)} for name, shape in OUTPUTS]
            return JSONResponse({"name": NAME, "inputs": inputs, "outputs": outputs})
        body = await request.body()
        picture = np.frombuffer(body[int(request.headers[LENGTH]) :], np.int8).reshape(INPUT[1])
        found: dict[str, Any] = self._graph(picture)
        rows = [
            {"name": name, "datatype": "INT8", "shape": list(array.shape),
             "parameters": {"binary_data_size": array.nbytes}}
            for name, array in found.items()
        ]  # fmt: skip
        head = json.dumps({"model_name": NAME, "outputs": rows}).encode()
        data = b"".join([head, *(array.tobytes() for array in found.values())])
        return Response(data, headers={LENGTH: str(len(head))}, media_type="application/octet-stream")


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(Served.bind(sys.argv[1]), route_prefix="/")
signal.sigwait([signal.SIGTERM, signal.SIGINT])
serve.shutdown()
ray.shutdown()
