"""The graph that every server serves: the same file, runtime and thread as in the bare loop, with nothing around it.

Runs in each server's own environment, which has `ai-edge-litert` and numpy and nothing of ours.
"""

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

NAME = "small-320"
INPUT = ("image", (1, 256, 320, 1))
OUTPUTS = (("scores", (1, 1280, 11)), ("boxes", (1, 1280, 4)))
"""int8, all three."""


class Graph:
    """One interpreter of one thread."""

    def __init__(self, path: str) -> None:
        self._interpreter: Any = Interpreter(model_path=path, num_threads=1)
        self._interpreter.allocate_tensors()
        self._input = self._interpreter.tensor(self._interpreter.get_input_details()[0]["index"])
        self._outputs = [self._interpreter.tensor(row["index"]) for row in self._interpreter.get_output_details()]

    def __call__(self, picture: Any) -> dict[str, Any]:
        """The outputs by name, copied out of the interpreter."""
        np.copyto(self._input(), picture)
        self._interpreter.invoke()
        return {name: output().copy() for (name, _), output in zip(OUTPUTS, self._outputs, strict=True)}
