"""Where an ONNX graph can be cut, and its parts as models of their own.

A cut is a tensor through which every way from the input to the outputs leads, so one tensor is all that the next part
needs. What hangs on no input (weights and their scales) is in each part that uses it. Nothing is computed or rounded
here: parts run one after the other do the whole's arithmetic, node by node.

```
 input ──[ part 0–1 ]── cut 1 ──[ part 1–2 ]── cut 2 ──[ part 2–3 ]── outputs
          └────────────── part 0–2 ─────────┘
```

In a model with quantise/dequantise pairs (QDQ) only what `QuantizeLinear` gives is a cut: one byte a number, and inside
what lies between two of them runtimes fuse nodes, so a cut there would not compute the same.

Source:
    onnx.proto3: `ModelProto.graph` is field 7; `GraphProto` has node 1, initializer 5, input 11, output 12, value_info
    13, sparse_initializer 15; `NodeProto` input 1, output 2, op_type 4; `TensorProto.name` 8; `ValueInfoProto` name 1,
    type 2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swarmd_models.backends.base import TensorSpec
from swarmd_models.errors import ArtefactError
from swarmd_models.onnx_file import field, fields_of, varint

_GRAPH = 7
_NODE, _NAME, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO, _SPARSE = 1, 2, 5, 11, 12, 13, 15
_TENSOR_NAME = 8
_OP_TYPE = 4
_NESTED = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators with graphs of their own, which may read any tensor around them."""
_QUANTISE = "QuantizeLinear"
_ELEMENTS = {"float32": 1, "uint8": 2, "int8": 3}
"""`TensorProto.DataType` of what a backend takes."""


@dataclass(frozen=True, slots=True)
class _Node:
    raw: bytes
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class OnnxGraph:
    """One model's graph, to be cut."""

    def __init__(self, data: bytes) -> None:
        """Read a model; raises `ArtefactError` for one that cannot be cut."""
        try:
            self._read(data)
        except (ValueError, UnicodeDecodeError) as error:
            raise ArtefactError(f"the ONNX graph cannot be read: {error}") from error
        if len(self.inputs) != 1:
            raise ArtefactError(f"the graph has {len(self.inputs)} inputs; one with a single input can be cut")

    def _read(self, data: bytes) -> None:
        self._model: list[tuple[int, int | bytes]] = []
        graph = b""
        for number, value in fields_of(data):
            if number == _GRAPH and not isinstance(value, int):
                graph = bytes(value)
            else:
                self._model.append((number, value if isinstance(value, int) else bytes(value)))
        self._nodes: list[_Node] = []
        self._weights: dict[str, bytes] = {}
        self._sparse: list[bytes] = []
        self._infos: dict[str, bytes] = {}
        self._name = b"parts"
        inputs: list[str] = []
        self.outputs: list[str] = []
        """Names, in the graph's order."""
        for number, value in fields_of(graph):
            if isinstance(value, int):
                continue
            raw = bytes(value)
            match number:
                case 1:
                    self._nodes.append(_node(raw))
                case 2:
                    self._name = raw
                case 5:
                    self._weights[_text(raw, _TENSOR_NAME)] = raw
                case 15:
                    self._sparse.append(raw)
                case 11 | 12 | 13:
                    name = _text(raw, 1)
                    self._infos[name] = raw
                    if number != _VALUE_INFO:
                        (inputs if number == _INPUT else self.outputs).append(name)
        # Older files list weights among the inputs.
        self.inputs = [name for name in inputs if name not in self._weights]
        """Names of what a caller gives."""

    def cuts(self) -> list[str]:
        """Tensors at which it can be cut, in the order in which they are computed."""
        live = set(self.inputs)
        left: dict[str, int] = {}
        for node in self._nodes:
            for name in node.inputs:
                left[name] = left.get(name, 0) + 1
        ends = set(self.outputs)
        is_quantised = any(node.kind == _QUANTISE for node in self._nodes)
        found: list[str] = []
        waiting = set(self.inputs)
        for node in self._nodes:
            depends = any(name in live for name in node.inputs)
            for name in node.inputs:
                left[name] -= 1
                if not left[name] and name not in ends:
                    waiting.discard(name)
            if not depends:
                continue
            live.update(node.outputs)
            waiting.update(name for name in node.outputs if left.get(name) or name in ends)
            is_end = node.outputs[0] in ends or (is_quantised and node.kind != _QUANTISE)
            if len(waiting) == 1 and node.outputs[0] in waiting and not is_end:
                found.append(node.outputs[0])
        return found

    def part(self, begin: TensorSpec | None, end: str | None) -> bytes:
        """The part from one cut to another, as a model.

        Args:
            begin: The tensor that it takes; None: the graph's own input.
            end: The tensor that it gives; None: the graph's own outputs.

        Raises:
            ArtefactError: Some way leads around a cut.
        """
        known = self.cuts()
        for name in [*([begin.name] if begin is not None else []), *([end] if end is not None else [])]:
            if name not in known:
                raise ArtefactError(
                    f"the graph cannot be cut at {name!r}: some way leads around it, or there is no such tensor "
                    "(`swarmd bundle cut MODEL` lists where it can)"
                )
        first = self.inputs[0] if begin is None else begin.name
        wanted = list(self.outputs if end is None else [end])
        nodes = self._back(wanted, first)
        given = _tensor_info(begin) if begin is not None else self._infos[first]
        results = [self._infos.get(name) or field(1, name.encode()) for name in wanted]
        used = {name for node in nodes for name in node.inputs}
        if begin is not None and self.inputs[0] in used:
            raise ArtefactError(f"the graph cannot be cut at {first!r} and give {wanted[0]!r} after it")
        graph = b"".join(field(_NODE, node.raw) for node in nodes) + field(_NAME, self._name)
        graph += b"".join(field(_INITIALIZER, raw) for name, raw in self._weights.items() if name in used)
        graph += b"".join(field(_SPARSE, raw) for raw in self._sparse)
        graph += field(_INPUT, given) + b"".join(field(_OUTPUT, raw) for raw in results)
        rest = b"".join(
            varint(number << 3) + varint(value) if isinstance(value, int) else field(number, value)
            for number, value in self._model
        )
        return rest + field(_GRAPH, graph)

    def _back(self, wanted: Iterable[str], first: str) -> list[_Node]:
        """The nodes behind these tensors, back to one, in the graph's order."""
        maker: Mapping[str, int] = {name: at for at, node in enumerate(self._nodes) for name in node.outputs if name}
        pending, found = list(wanted), set[int]()
        while pending:
            name = pending.pop()
            at = maker.get(name)
            if name == first or at is None or at in found:
                continue
            found.add(at)
            pending.extend(self._nodes[at].inputs)
        return [self._nodes[at] for at in sorted(found)]


def _node(raw: bytes) -> _Node:
    inputs, outputs, kind = [], [], ""
    for number, value in fields_of(raw):
        if isinstance(value, int):
            continue
        if number == 1:
            inputs.append(bytes(value).decode())
        elif number == 2:
            outputs.append(bytes(value).decode())
        elif number == _OP_TYPE:
            kind = bytes(value).decode()
    if kind in _NESTED:
        raise ArtefactError(f"the graph holds {kind}, which has a graph of its own: such a model cannot be cut")
    return _Node(raw, kind, tuple(name for name in inputs if name), tuple(outputs))


def _text(raw: bytes, field: int) -> str:
    return next((bytes(value).decode() for number, value in fields_of(raw)
                 if number == field and not isinstance(value, int)), "")  # fmt: skip


def _tensor_info(spec: TensorSpec) -> bytes:
    element = _ELEMENTS.get(spec.dtype.name)
    if element is None:
        raise ArtefactError(f"the tensor {spec.name} is {spec.dtype}; a part takes 8-bit numbers or float32")
    shape = b"".join(field(1, varint(1 << 3) + varint(size)) for size in spec.shape)
    tensor = varint(1 << 3) + varint(element) + field(2, shape)
    return field(1, spec.name.encode()) + field(2, field(1, tensor))
