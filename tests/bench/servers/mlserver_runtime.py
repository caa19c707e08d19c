"""The graph as MLServer wants it; `run_mlserver.py` names this class in the model's settings."""

import os

import mlserver
from graph import NAME, Graph
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Runtime(mlserver.MLModel):  # type: ignore[misc]
    """One graph."""

    async def load(self) -> bool:
        """Open it."""
        self._graph = Graph(os.environ["BENCH_GRAPH"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """One request."""
        found = self._graph(NumpyCodec.decode_input(payload.inputs[0]))
        outputs = [NumpyCodec.encode_output(name=name, payload=array) for name, array in found.items()]
        return InferenceResponse(model_name=NAME, outputs=outputs)
