"""Several pictures in one run of LiteRT, for nets so small that beginning a run is a part of it."""

from typing import Any

from swarmd_models.backends.base import Array, Artefact
from swarmd_models.backends.litert import quiet_stderr, runtime_module
from swarmd_models.errors import ArtefactError, BackendError
from swarmd_models.tflite_batch import of_any_batch
from swarmd_models.tflite_file import read_model


class LiteRtBatch:
    """One model, loaded for `size` pictures at a time; beside a `LiteRtBackend` that takes one."""

    def __init__(self, interpreter: Any, size: int) -> None:
        """Wrap an interpreter of one input and one output whose tensors are allocated; use `load`."""
        self.size = size
        self._interpreter: Any | None = interpreter
        self._input = interpreter.tensor(interpreter.get_input_details()[0]["index"])
        self._output = interpreter.tensor(interpreter.get_output_details()[0]["index"])

    @classmethod
    def load(cls, artefact: Artefact, threads: int, size: int) -> "LiteRtBatch | None":
        """Load the `.tflite` form; None where the graph cannot take `size` pictures, or has several outputs."""
        if artefact.tflite is None or artefact.device:
            return None
        try:
            data = of_any_batch(read_model(artefact.tflite))
            if data is None:
                return None
            with quiet_stderr():
                interpreter = runtime_module().Interpreter(model_content=data, num_threads=threads)
                (given,), (told,) = interpreter.get_input_details(), interpreter.get_output_details()
                interpreter.resize_tensor_input(given["index"], [size, *given["shape"][1:]])
                interpreter.allocate_tensors()
        except (ArtefactError, BackendError, ValueError, RuntimeError):
            return None
        shape = interpreter.get_output_details()[0]["shape"]
        if len(shape) < 2 or shape[0] != size or list(shape[1:]) != list(told["shape"][1:]):
            return None
        return cls(interpreter, size)

    def input_view(self) -> Array:
        """The input tensor itself, shape (size, …). Drop it before `infer`."""
        view: Array = self._input()
        return view

    def infer(self) -> None:
        """Run the interpreter once; raises `BackendError`."""
        if self._interpreter is None:
            raise BackendError("the model has been closed")
        try:
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise BackendError(f"LiteRT failed while running the model: {str(error)[:200]}") from error

    def output_view(self) -> Array:
        """The output tensor itself, shape (size, …). Drop it before the next `infer`."""
        view: Array = self._output()
        return view

    def close(self) -> None:
        """Free the interpreter."""
        self._interpreter = self._input = self._output = None
