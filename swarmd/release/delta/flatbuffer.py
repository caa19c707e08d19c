"""Where the numbers lie in a `.tflite` file: a bounds-checked walk over its FlatBuffer.

Only what a delta needs: the byte ranges of constant tensors and of quantisation parameters, with their element types.
Nothing is copied or interpreted beyond that, so any file that walks can be rebuilt to the byte.

Source: the TensorFlow Lite schema (schema.fbs, version 3) and the FlatBuffers internals page.
"""

from dataclasses import dataclass
from struct import Struct

from swarmd.release.errors import DeltaError

_I32, _U32, _U16 = Struct("<i"), Struct("<I"), Struct("<H")
MAX_ITEMS = 100_000

# Fields by position in the schema's tables.
_MODEL_OPERATOR_CODES, _MODEL_SUBGRAPHS, _MODEL_BUFFERS = 1, 2, 4
_SUBGRAPH_TENSORS = 0
_TENSOR_TYPE, _TENSOR_BUFFER, _TENSOR_NAME, _TENSOR_QUANTIZATION = 1, 2, 3, 4
_QUANTIZATION_VECTORS = ((0, 4), (1, 4), (2, 4))
"""min, max, scale: float32 each."""
_BUFFER_DATA, _BUFFER_OFFSET, _BUFFER_SIZE = 0, 1, 2
_CODE_OLD_BUILTIN, _CODE_CUSTOM, _CODE_BUILTIN = 0, 1, 3

_KINDS = {0: "f4", 1: "f2", 2: "i4", 3: "i1", 7: "i2", 9: "i1", 15: "i4"}
"""TensorType -> how residuals are taken: FLOAT32, FLOAT16, INT32, UINT8, INT16, INT8, UINT32; others bytewise."""


@dataclass(frozen=True, slots=True)
class Region:
    """A run of equal numbers in the file."""

    start: int
    size: int
    """Bytes; a multiple of the element's width."""
    kind: str
    """"i1", "i2", "i4": integers; "f2", "f4": floats."""
    name: str
    """Names the region across versions: the tensor's name and what of it."""

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return int(self.kind[1])


class _Walk:
    """Checked reads of a FlatBuffer; every offset from the file is checked before it is followed."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def _at(self, position: int, size: int) -> int:
        if not 0 <= position <= len(self.data) - size:
            raise DeltaError(f"not a sound .tflite file: it points to byte {position} of {len(self.data)}")
        return position

    def u32(self, position: int) -> int:
        """An offset or a length."""
        return int(_U32.unpack_from(self.data, self._at(position, 4))[0])

    def field(self, table: int, index: int) -> int | None:
        """Position of a table's field, or None where the file leaves it out."""
        vtable = table - int(_I32.unpack_from(self.data, self._at(table, 4))[0])
        size = int(_U16.unpack_from(self.data, self._at(vtable, 2))[0])
        entry = 4 + 2 * index
        if entry + 2 > size:
            return None
        offset = int(_U16.unpack_from(self.data, self._at(vtable + entry, 2))[0])
        return table + offset if offset else None

    def follow(self, position: int) -> int:
        """The table, vector or string that an offset field points to."""
        return position + self.u32(position)

    def vector(self, table: int, index: int, width: int) -> tuple[int, int]:
        """(first element, bytes) of a vector field; (0, 0) where there is none."""
        field = self.field(table, index)
        if field is None:
            return 0, 0
        start = self.follow(field)
        size = self.u32(start) * width
        self._at(start + 4, size)
        return start + 4, size

    def tables(self, table: int, index: int) -> list[int]:
        """The tables of a vector of tables."""
        start, size = self.vector(table, index, 4)
        if size // 4 > MAX_ITEMS:
            raise DeltaError(f"not a sound .tflite file: a vector of {size // 4} tables")
        return [self.follow(start + at) for at in range(0, size, 4)]

    def scalar(self, table: int, index: int, size: int) -> int:
        """A scalar field, 0 where it is left out."""
        field = self.field(table, index)
        if field is None:
            return 0
        return int.from_bytes(self.data[self._at(field, size) : field + size], "little")

    def string(self, table: int, index: int) -> str:
        """A string field."""
        start, size = self.vector(table, index, 1)
        return self.data[start : start + min(size, 256)].decode("utf-8", "replace")

    def buffer(self, table: int) -> tuple[int, int]:
        """(first byte, bytes) of a buffer: inside the FlatBuffer, or after it where `offset` says so."""
        offset, size = self.scalar(table, _BUFFER_OFFSET, 8), self.scalar(table, _BUFFER_SIZE, 8)
        if offset <= 1:
            return self.vector(table, _BUFFER_DATA, 1)
        return self._at(offset, size), size

    def root(self) -> int:
        """The model's table."""
        if self.data[4:8] != b"TFL3":
            raise DeltaError("not a .tflite file: it does not carry the mark TFL3")
        return self.follow(0)


def regions(data: bytes) -> list[Region]:
    """The runs of numbers in a `.tflite` file, ascending, without overlap.

    Args:
        data: The whole file.

    Raises:
        DeltaError: It is no `.tflite`, or it points outside itself.
    """
    walk = _Walk(data)
    model = walk.root()
    buffers = [walk.buffer(one) for one in walk.tables(model, _MODEL_BUFFERS)]
    found: dict[int, Region] = {}
    for number, subgraph in enumerate(walk.tables(model, _MODEL_SUBGRAPHS)):
        for tensor in walk.tables(subgraph, _SUBGRAPH_TENSORS):
            name = f"{number}/{walk.string(tensor, _TENSOR_NAME)}"
            _add_tensor(walk, tensor, name, buffers, found)
    kept: list[Region] = []
    for region in sorted(found.values(), key=lambda one: one.start):
        if not kept or region.start >= kept[-1].start + kept[-1].size:
            kept.append(region)
    return kept


def _add_tensor(walk: _Walk, tensor: int, name: str, buffers: list[tuple[int, int]], found: dict[int, Region]) -> None:
    kind = _KINDS.get(walk.scalar(tensor, _TENSOR_TYPE, 1), "i1")
    index = walk.scalar(tensor, _TENSOR_BUFFER, 4)
    if index < len(buffers):
        start, size = buffers[index]
        usable = size - size % int(kind[1])
        if usable and start not in found:
            found[start] = Region(start, usable, kind, name)
    field = walk.field(tensor, _TENSOR_QUANTIZATION)
    if field is None:
        return
    quantization = walk.follow(field)
    for vector, width in _QUANTIZATION_VECTORS:
        start, size = walk.vector(quantization, vector, width)
        if size and start not in found:
            found[start] = Region(start, size, "f4", f"{name}/{vector}")


def operators(data: bytes) -> list[str]:
    """Every operator that a `.tflite` file uses: "builtin:<code>" or "custom:<name>", sorted; for the allow-list.

    Raises:
        DeltaError: It is no `.tflite`, or it points outside itself.
    """
    walk = _Walk(data)
    names = set()
    for code in walk.tables(walk.root(), _MODEL_OPERATOR_CODES):
        custom = walk.string(code, _CODE_CUSTOM)
        builtin = max(walk.scalar(code, _CODE_OLD_BUILTIN, 1), walk.scalar(code, _CODE_BUILTIN, 4))
        names.add(f"custom:{custom[:40]}" if custom else f"builtin:{builtin}")
    return sorted(names)
