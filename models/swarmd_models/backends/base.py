"""What a runtime has to offer to run a model for the eye.

A backend owns its tensors. The eye writes into `input_view()`, drops the array, calls `infer()`, and reads
`output_views()`, which it drops before the next call: LiteRT refuses to run while such an array is alive, and other
runtimes may reuse the memory. One backend is used by one thread at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
else:
    # The brain, which reads bundles but runs none, need not load numpy.
    Array = Any

Announce: TypeAlias = Callable[[str], None]
"""Takes one sentence for people, such as "building_engine: 40 %"."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a loaded model."""

    name: str
    shape: tuple[int, ...]
    """With the batch axis, which is 1."""
    dtype: "np.dtype[Any]"
    scale: float = 0.0
    """Real value = scale * (raw - zero_point); 0.0 where the tensor is not quantised."""
    zero_point: int = 0

    @property
    def is_quantised(self) -> bool:
        """Whether raw values are integers that stand for real ones."""
        return self.scale > 0.0 and self.dtype.kind in "iu"


@dataclass(frozen=True, slots=True)
class Artefact:
    """The files of one model, in the forms that backends read."""

    name: str
    tflite: Path | None
    onnx: Path | None
    device: str = ""
    """What the runtime shall compute on, in its own words (`cuda`, `GPU`, `edgetpu`); "": its usual way on the CPU."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a runtime can be used on this device, and the sentence that says why (not)."""

    available: bool
    detail: str


class Backend(Protocol):
    """A model loaded into a runtime."""

    kind: ClassVar[str]
    """The name used in configurations: litert, onnx, openvino, tensorrt."""
    runtime: str
    """For people: library, version, delegate, threads."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @classmethod
    def probe(cls) -> Capability:
        """Look whether this runtime can work here, without loading a model; never raises."""
        ...

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "Backend":
        """Load the model; raises `BackendError` with the reason."""
        ...

    def input_view(self) -> Array:
        """The only input, writable, without its batch axis. Drop it before `infer`."""
        ...

    def infer(self) -> None:
        """Run the model once; raises `BackendError`."""
        ...

    def output_views(self) -> list[Array]:
        """The outputs in the order of `outputs`, without their batch axis. Drop them before the next `infer`."""
        ...

    def close(self) -> None:
        """Free the model; may be called twice."""
        ...
