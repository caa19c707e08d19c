"""Triton with its Python backend: python run_pytriton.py GRAPH HTTP_PORT GRPC_PORT."""

import sys
from typing import Any

import numpy as np
from graph import INPUT, NAME, OUTPUTS, Graph
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

GRAPH = Graph(sys.argv[1])


def infer(requests: list[Any]) -> list[dict[str, Any]]:
    """One request after the other: the graph takes one picture."""
    return [GRAPH(request[INPUT[0]]) for request in requests]


http, grpc = int(sys.argv[2]), int(sys.argv[3])
config = TritonConfig(
    http_address="127.0.0.1", http_port=http, grpc_address="127.0.0.1", grpc_port=grpc, allow_metrics=False
)
with Triton(config=config) as triton:
    triton.bind(
        model_name=NAME,
        infer_func=infer,
        inputs=[Tensor(name=INPUT[0], dtype=np.int8, shape=INPUT[1])],
        outputs=[Tensor(name=name, dtype=np.int8, shape=shape) for name, shape in OUTPUTS],
        config=ModelConfig(batching=False),
    )
    triton.serve()
