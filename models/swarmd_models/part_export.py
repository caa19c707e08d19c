"""A model written in parts: where it can be cut, what lies there and what comes before it, by measure.

The parts are bare ONNX models, each for every range between two positions (the input, the cuts, the outputs), the whole
among them, so that a device may hold what it has memory for; beside them a file that says what lies at each position
(`lending.split` reads it).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from swarmd_models.backends.base import Array, Artefact, TensorSpec
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import Bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.onnx_file import read_onnx
from swarmd_models.onnx_parts import OnnxGraph
from swarmd_models.types import Image

CUTS_MAX = 2
"""A chain of three parts."""
_RUNS = 5
"""Of each part to time it: the quickest counts."""
_DATATYPES = {"float32": "FP32", "uint8": "UINT8", "int8": "INT8"}
Pack = Callable[[bytes], int]
"""Bytes of a tensor as it would travel."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What was measured at one place where the graph can be cut."""

    tensor: str
    shape: tuple[int, ...]
    dtype: str
    raw_bytes: int
    packed_bytes: int
    """The mean over the pictures."""
    head_ms: float
    """What the part before it takes here."""


class Cutter:
    """One model, to be cut."""

    def __init__(self, bundle: Bundle, pictures: Sequence[Image], work: Path, pack: Pack) -> None:
        """Load the whole.

        Args:
            bundle: From `load_bundle`, with an ONNX form.
            pictures: What its input is taken from; none: the golden picture of the bundle.
            work: Folder for the parts.
            pack: See `Pack`.

        Raises:
            ArtefactError: There is no ONNX form, or it cannot be cut.
            BackendError: ONNX Runtime is not here or refuses it.
        """
        artefact = bundle.artefact()
        if artefact.onnx is None:
            raise ArtefactError(f"{bundle.name} has no .onnx form; only such can be cut")
        self._bundle = bundle
        self._data = read_onnx(artefact.onnx)
        self._graph = OnnxGraph(self._data)
        self._work = work
        self._pack = pack
        self._whole = _load(artefact.onnx)
        self._inputs = self._fitted(list(pictures) or _golden(bundle))
        self._specs: dict[str, TensorSpec] = {}

    def cuts(self) -> list[Cut]:
        """Where it can be cut, in the order of computation."""
        found = []
        for tensor in self._graph.cuts():
            spec, head = self._head(tensor)
            outs = [self._run(head, one)[0] for one in self._inputs]
            packed = sum(self._pack(out.tobytes()) for out in outs) / len(outs)
            found.append(
                Cut(tensor, spec.shape[1:], spec.dtype.name, outs[0].nbytes, round(packed), self._took_ms(head))
            )
            head.close()
        return found

    @property
    def whole_ms(self) -> float:
        """What all of it takes here."""
        return self._took_ms(self._whole)

    def write(self, tensors: Sequence[str]) -> Path:
        """Write the parts, and the file that describes them, which is returned.

        Args:
            tensors: Where to cut, one or two, in the order of computation.

        Raises:
            ArtefactError: It cannot be cut there.
        """
        known = self._graph.cuts()
        places = [known.index(one) if one in known else -1 for one in tensors]
        if not 1 <= len(tensors) <= CUTS_MAX or -1 in places or places != sorted(set(places)):
            raise ArtefactError(
                f"{self._bundle.name} cannot be cut at {', '.join(tensors)}: name one or two of its cuts, in their "
                "order (`swarmd bundle cut MODEL` lists them)"
            )
        specs: list[TensorSpec | None] = [None, *(self._head(one)[0] for one in tensors), None]
        last = len(specs) - 1
        rows = []
        for begin in range(last):
            for end in range(begin + 1, last + 1):
                whole = begin == 0 and end == last
                stop = specs[end]
                data = self._data if whole else self._graph.part(specs[begin], None if stop is None else stop.name)
                path = self._work / f"{self._bundle.name}-{begin}-{end}.onnx"
                path.write_bytes(data)
                rows += [
                    "", "[[split.part]]", f"# {path.name}", f'model = "{sha256(data).hexdigest()}"',
                    f"begin = {begin}", f"end = {end}",
                ]  # fmt: skip
        at = [line for position in range(last + 1) for line in self._position(position, specs)]
        out = self._work / f"{self._bundle.name}.split.toml"
        head = ["# Written by `swarmd bundle cut`; docs/inference-api.md says how it is used.", "[[split]]",
                f'name = "{self._bundle.name}"', f'model = "{self._bundle.digest}"']  # fmt: skip
        out.write_text("\n".join([*head, *at, *rows]) + "\n", "utf-8")
        return out

    def _position(self, position: int, specs: Sequence[TensorSpec | None]) -> list[str]:
        if position == 0:
            tensors, outs = self._whole.inputs[:1], [[one] for one in self._inputs]
        elif position == len(specs) - 1:
            tensors, outs = self._whole.outputs, [self._run(self._whole, one) for one in self._inputs]
        else:
            spec, head = self._head((specs[position] or self._whole.inputs[0]).name)
            tensors, outs = (spec,), [self._run(head, one) for one in self._inputs]
        packed = sum(self._pack(array.tobytes()) for out in outs for array in out) / len(outs)
        rows = [
            f'{{ name = "{one.name}", datatype = "{_datatype(one)}", shape = {list(one.shape[1:])} }}'
            for one in tensors
        ]
        return ["", "[[split.at]]", f"bytes = {round(packed)}", f"tensors = [{', '.join(rows)}]"]

    def _head(self, tensor: str) -> tuple[TensorSpec, OnnxBackend]:
        """What lies at a cut, and the part before it."""
        path = self._work / f"{self._bundle.name}.head.onnx"
        path.write_bytes(self._graph.part(None, tensor))
        head = _load(path)
        path.unlink()
        return head.outputs[0], head

    def _fitted(self, pictures: list[Image]) -> list[Array]:
        detector = Detector.open(self._bundle, DetectorOptions(backends=("onnx",)))
        try:
            return [detector.fitted(picture) for picture in pictures]
        finally:
            detector.close()

    def _run(self, backend: OnnxBackend, item: Array) -> list[Array]:
        np.copyto(backend.input_view(), item, casting="no")
        backend.infer()
        return [np.array(view) for view in backend.output_views()]

    def _took_ms(self, backend: OnnxBackend) -> float:
        times = []
        for _ in range(_RUNS):
            began_ns = time.perf_counter_ns()
            backend.infer()
            times.append(time.perf_counter_ns() - began_ns)
        return min(times) / 1e6


def _load(path: Path) -> OnnxBackend:
    return OnnxBackend.load(Artefact(path.stem, None, path), 1, lambda text: None)


def _datatype(spec: TensorSpec) -> str:
    found = _DATATYPES.get(spec.dtype.name)
    if found is None or len(spec.shape) < 2:
        raise ArtefactError(f"the tensor {spec.name} is {spec.dtype} {spec.shape}; a batch of 8-bit or float is wanted")
    return found


def _golden(bundle: Bundle) -> list[Image]:
    if bundle.golden is None:
        raise ArtefactError(f"{bundle.name} has no picture of its own to measure with; give one (--picture)")
    with np.load(bundle.golden.path) as golden:
        return [golden["image"]]
