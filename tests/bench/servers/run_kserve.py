"""KServe's Python server: python run_kserve.py GRAPH HTTP_PORT GRPC_PORT."""

import sys
from typing import Any

from graph import NAME, Graph
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Served(Model):  # type: ignore[misc]
    """The graph as KServe wants it."""

    def __init__(self, path: str) -> None:
        super().__init__(NAME)
        self._graph = Graph(path)
        self.ready = True

    def predict(self, payload: InferRequest, headers: Any = None, response_headers: Any = None) -> InferResponse:
        """One request."""
        outputs = []
        for name, array in self._graph(payload.inputs[0].as_numpy()).items():
            output = InferOutput(name, list(array.shape), "INT8")
            output.set_data_from_numpy(array, binary_data=True)
            outputs.append(output)
        return InferResponse(response_id=payload.id or "0", model_name=NAME, infer_outputs=outputs)


ModelServer(http_port=int(sys.argv[2]), grpc_port=int(sys.argv[3]), workers=1).start([Served(sys.argv[1])])
