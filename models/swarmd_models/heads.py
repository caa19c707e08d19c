"""The output layers of the project's own detectors: where they lie in a file, what they read, and how they learn.

The three heads are 1x1 convolutions over one layer. The rest of the net stays as it is, so its own INT8 run gives the
features that they read. They are trained with the recipe's loss (`net.detector_loss`, whose gradient is written out
here), from the weights that the file holds, and quantised as the recipe's exporter does: symmetric, one scale for each
output channel. The new numbers go to their places in the same file; activation ranges stay. It takes NumPy and the
LiteRT runtime, so that a device can do it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.targets import Targets

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
_CONV_2D = 3
_KIND_WEIGHT, _BOX_WEIGHT = 0.5, 1.0
"""As the recipe's `train.TrainOptions` has them."""
_BATCH = 6


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How long and how fast."""

    frames: int = 96
    """Far fewer are learnt by heart: 40 took the loss on them down by a sixth and that on others not at all."""
    held_out: int = 24
    """Frames that only the scores see."""
    steps: int = 200
    rate: float = 1e-3
    seed: int = 77


# --- Where the heads lie in the file ---


@dataclass(frozen=True, slots=True)
class _Tensor:
    index: int
    shape: tuple[int, ...]
    data: int
    """First byte of its buffer in the file."""
    scales: int
    """First byte of its scales."""


@dataclass(frozen=True, slots=True)
class Head:
    """One 1x1 convolution: kernel (outputs, inputs) in INT8 with a scale a row, bias in INT32."""

    weights: _Tensor
    bias: _Tensor

    @property
    def outputs(self) -> int:
        """Channels that come out."""
        return self.weights.shape[0]


class _File:
    """The few fields of a `.tflite` file that lead to its convolutions; the runtime has loaded the file before."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def u32(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4], "little")

    def field(self, table: int, index: int) -> int:
        """Position of a field, 0 where it is left out."""
        vtable = table - int.from_bytes(self.data[table : table + 4], "little", signed=True)
        if 4 + 2 * index >= int.from_bytes(self.data[vtable : vtable + 2], "little"):
            return 0
        offset = int.from_bytes(self.data[vtable + 4 + 2 * index : vtable + 6 + 2 * index], "little")
        return table + offset if offset else 0

    def vector(self, table: int, index: int) -> tuple[int, int]:
        """(first element, count)."""
        field = self.field(table, index)
        if not field:
            return 0, 0
        start = field + self.u32(field)
        return start + 4, self.u32(start)

    def tables(self, table: int, index: int) -> list[int]:
        start, count = self.vector(table, index)
        return [at + self.u32(at) for at in range(start, start + 4 * count, 4)]

    def integers(self, table: int, index: int) -> tuple[int, ...]:
        start, count = self.vector(table, index)
        return tuple(np.frombuffer(self.data, "<i4", count, start).tolist()) if count else ()

    def tensor(self, index: int, table: int, buffers: Sequence[int]) -> _Tensor:
        field = self.field(table, 2)
        data, _ = self.vector(buffers[self.u32(field) if field else 0], 0)
        quantisation = self.field(table, 4)
        scales = self.vector(quantisation + self.u32(quantisation), 2)[0] if quantisation else 0
        return _Tensor(index, self.integers(table, 0), data, scales)


def find_heads(data: bytes, classes: int) -> tuple[int, dict[str, Head]]:
    """The heads of one of the project's own detectors.

    Args:
        data: The `.tflite` file.
        classes: How many fault classes it tells apart.

    Returns:
        The tensor that all of them read, and the heads "fault", "kind" and "dist".

    Raises:
        ArtefactError: It has no such heads.
    """
    file = _File(data)
    model = file.u32(0)
    (graph, *_), buffers = file.tables(model, 2), file.tables(model, 4)
    codes = [max(_byte(file, code, 0), _word(file, code, 3)) for code in file.tables(model, 1)]
    tensors = file.tables(graph, 0)
    reading: dict[int, list[Head]] = {}
    for operator in file.tables(graph, 3):
        if codes[_word(file, operator, 0)] != _CONV_2D:
            continue
        source, weights, bias = file.integers(operator, 1)[:3]
        head = Head(file.tensor(weights, tensors[weights], buffers), file.tensor(bias, tensors[bias], buffers))
        if head.weights.shape[1:3] == (1, 1):
            reading.setdefault(source, []).append(head)
    names = {1: "fault", classes: "kind", 4: "dist"}
    for source, heads in reading.items():
        found = {names[head.outputs]: head for head in heads if head.outputs in names}
        if len(heads) == len(found) == 3 and all(one.data and one.scales for h in heads for one in (h.weights, h.bias)):
            return source, found
    raise ArtefactError("this model has no three heads over one layer; only the project's own detectors do")


def _word(file: _File, table: int, index: int) -> int:
    field = file.field(table, index)
    return file.u32(field) if field else 0


def _byte(file: _File, table: int, index: int) -> int:
    field = file.field(table, index)
    return file.data[field] if field else 0


def read_head(data: bytes, head: Head) -> tuple[F64, F64]:
    """Weights (outputs, inputs) and bias (outputs,) as real numbers."""
    rows, *_, inputs = head.weights.shape
    scales = np.frombuffer(data, "<f4", rows, head.weights.scales).astype(np.float64)
    kernel = np.frombuffer(data, np.int8, rows * inputs, head.weights.data).reshape(rows, inputs)
    bias = np.frombuffer(data, "<i4", rows, head.bias.data)
    return kernel * scales[:, None], bias * np.frombuffer(data, "<f4", rows, head.bias.scales).astype(np.float64)


def write_head(data: bytearray, head: Head, kernel: F64, bias: F64) -> int:
    """Quantise into the file; returns how many weights have another INT8 value now."""
    rows, *_, inputs = head.weights.shape
    old_scales = np.frombuffer(data, "<f4", rows, head.weights.scales).astype(np.float64)
    source_scale = np.frombuffer(data, "<f4", rows, head.bias.scales).astype(np.float64) / old_scales
    scales = (np.maximum(np.abs(kernel).max(axis=1), 1e-9) / 127.0).astype("<f4")
    wide = scales.astype(np.float64)
    steps = np.clip(np.rint(kernel / wide[:, None]), -127, 127).astype(np.int8)
    bias_scales = (wide * source_scale).astype("<f4")
    before = np.frombuffer(bytes(data[head.weights.data : head.weights.data + rows * inputs]), np.int8)
    for start, new in (
        (head.weights.data, steps.tobytes()),
        (head.weights.scales, scales.tobytes()),
        (head.bias.data, np.rint(bias / bias_scales).astype("<i4").tobytes()),
        (head.bias.scales, bias_scales.tobytes()),
    ):
        data[start : start + len(new)] = new
    return int((before != steps.reshape(-1)).sum())


# --- What the heads read, and what they should say ---


class Features:
    """Runs the INT8 net up to its heads.

    Args:
        path: The `.tflite` file.
        tensor: The tensor that the heads read.
    """

    def __init__(self, path: Path, tensor: int) -> None:
        import warnings

        from ai_edge_litert.interpreter import Interpreter

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # That keeping all tensors takes memory: it is meant.
            self._net = Interpreter(str(path), num_threads=1, experimental_preserve_all_tensors=True)
        self._net.allocate_tensors()
        self._tensor = tensor
        self._input = self._net.get_input_details()[0]["index"]
        details = next(one for one in self._net.get_tensor_details() if one["index"] == tensor)
        self._scale, self._zero = details["quantization"]

    def of(self, image: npt.NDArray[np.uint8]) -> F32:
        """Shape (cells, channels)."""
        self._net.set_tensor(self._input, (image[None, :, :, None] ^ 0x80).view(np.int8))
        self._net.invoke()
        raw = self._net.get_tensor(self._tensor)
        cells: F32 = (raw.astype(np.float32) - np.float32(self._zero)) * np.float32(self._scale)
        return cells.reshape(-1, raw.shape[-1])


Weights = dict[str, tuple[F64, F64]]


def loss_and_gradient(weights: Weights, features: F64, wanted: Targets) -> tuple[float, Weights]:
    """The recipe's loss over some cells, and its gradient.

    Args:
        weights: Kernel (outputs, inputs) and bias (outputs,) of "fault", "kind" and "dist".
        features: Shape (cells, inputs).
        wanted: Of the same cells.

    Returns:
        The loss, and for each head the gradient of its kernel and bias.

    Source:
        `net.detector_loss`, weighted as `train` weights it; the focal factor counts as a constant there too.
    """
    logit, kinds, raw = (_forward(features, *weights[name]) for name in ("fault", "kind", "dist"))
    logit = logit[:, 0]
    sure = 1.0 / (1.0 + np.exp(-logit))
    strength = (wanted.fault * wanted.weight).astype(np.float64)
    count = max(float(strength.sum()), 1.0)
    focus = np.abs(sure - wanted.fault) * wanted.weight
    entropy = np.logaddexp(0.0, logit) - logit * wanted.fault
    loss = float((entropy * focus).sum() / count)
    to_logit = (sure - wanted.fault) * focus / count
    there = strength > 0.02
    shifted = kinds - kinds.max(axis=1, keepdims=True)
    log_share = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss += _KIND_WEIGHT * float((-(wanted.kind * log_share).sum(axis=1) * strength)[there].sum() / count)
    to_kinds = (np.exp(log_share) * wanted.kind.sum(axis=1, keepdims=True) - wanted.kind) * strength[:, None]
    to_kinds *= there[:, None] * (_KIND_WEIGHT / count)
    box_loss, to_raw = _boxes(raw, wanted.distance.astype(np.float64))
    gradients = {
        name: (np.einsum("co,ci->oi", back, features), back.sum(axis=0))
        for name, back in (("fault", to_logit[:, None]), ("kind", to_kinds), ("dist", to_raw))
    }
    return loss + _BOX_WEIGHT * box_loss, gradients


def _forward(features: F64, kernel: F64, bias: F64) -> F64:
    """One head. Not `@`: for so little the threads of a BLAS cost more than they bring, much more on a busy machine."""
    out: F64 = np.einsum("ci,oi->co", features, kernel) + bias
    return out


def _boxes(raw: F64, wanted: F64) -> tuple[float, F64]:
    """1 - GIoU over the cells that have a box, and its gradient."""
    has = wanted.min(axis=1) >= 0
    back = np.zeros_like(raw)
    if not has.any():
        return 0.0, back
    true, given = wanted[has], np.maximum(raw[has], 0.0)
    inner, outer = np.minimum(true, given), np.maximum(true, given)
    overlap, hull = _area(inner), _area(outer)
    union = np.maximum(_area(true) + _area(given) - overlap, 1e-6)
    safe_hull = np.maximum(hull, 1e-6)
    share = overlap / union - 1.0 + union / safe_hull
    to_overlap = _sides(inner) * (given < true)
    to_union = _sides(given) - to_overlap
    to_hull = _sides(outer) * (given >= true)
    slope = (
        to_overlap / union[:, None]
        + to_union * (1.0 / safe_hull - overlap / union**2)[:, None]
        - to_hull * (union / safe_hull**2)[:, None]
    )
    back[has] = -slope * (raw[has] > 0) * (_BOX_WEIGHT / len(true))
    return float((1.0 - share).mean()), back


def _area(sides: F64) -> F64:
    return (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3])


def _sides(sides: F64) -> F64:
    """The gradient of `_area`."""
    wide, high = sides[:, 0] + sides[:, 2], sides[:, 1] + sides[:, 3]
    return np.stack([high, wide, high, wide], axis=1)


# --- How they learn ---


def train_heads(
    weights: Weights, frames: Sequence[tuple[F32, Targets]], options: TuneOptions
) -> Iterator[tuple[int, float, Weights]]:
    """Adam over the frames' cells; yields step, loss of the batch, and the weights after it."""
    rng = np.random.default_rng(options.seed)
    now = {name: (kernel.copy(), bias.copy()) for name, (kernel, bias) in weights.items()}
    first = {name: [np.zeros_like(one) for one in pair] for name, pair in now.items()}
    second = {name: [np.zeros_like(one) for one in pair] for name, pair in now.items()}
    for step in range(1, options.steps + 1):
        chosen = rng.choice(len(frames), min(_BATCH, len(frames)), replace=False)
        features = np.concatenate([frames[at][0] for at in chosen]).astype(np.float64)
        loss, gradient = loss_and_gradient(now, features, joined([frames[at][1] for at in chosen]))
        rate = options.rate * 0.5 * (1.0 + np.cos(np.pi * step / options.steps))
        for name, pair in now.items():
            for at, value in enumerate(pair):
                first[name][at] += 0.1 * (gradient[name][at] - first[name][at])
                second[name][at] += 0.001 * (gradient[name][at] ** 2 - second[name][at])
                mean, spread = first[name][at] / (1 - 0.9**step), second[name][at] / (1 - 0.999**step)
                value -= rate * mean / (np.sqrt(spread) + 1e-8)
        yield step, loss, now


def joined(parts: Sequence[Targets]) -> Targets:
    """The targets of several frames as those of one."""
    return Targets(
        np.concatenate([one.fault for one in parts]),
        np.concatenate([one.kind for one in parts]),
        np.concatenate([one.weight for one in parts]),
        np.concatenate([one.distance for one in parts]),
    )


def read_all(data: bytes, heads: dict[str, Head]) -> Weights:
    """Every head's kernel and bias as real numbers."""
    return {name: read_head(data, head) for name, head in heads.items()}
