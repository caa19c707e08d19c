"""What an object holds: everything that can be reached from it, in objects and bytes, by type."""

import gc
import sys
from collections import Counter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""What the whole process shares: code, not data."""


def held(*roots: object, without: tuple[object, ...] = ()) -> tuple[Counter[str], int]:
    """Objects by type, and their bytes, that can be reached from some.

    Args:
        roots: Where to begin; they count as well.
        without: Objects that are not walked into, such as what all nodes of a test share.
    """
    seen = {id(one) for one in without}
    counts: Counter[str] = Counter()
    bytes_held = 0
    todo: list[Any] = list(roots)
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        counts[type(one).__name__] += 1
        bytes_held += sys.getsizeof(one)
        todo += gc.get_referents(one)
    return counts, bytes_held
