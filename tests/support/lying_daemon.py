"""A daemon that lends and does harm in proper form: it signs whatever it answers.

python -m tests.support.lying_daemon HOW run …      the rest as for `python -m swarmd`
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from swarmd.brain import lending
from swarmd.cli.main import main
from swarmd.worker import words
from swarmd.worker.lent import Left, is_answer, open_answer, pack_answer, pack_left
from swarmd.worker.oip import Wanted, read_answer, write_answer
from swarmd_models.backends.base import Array

Outputs = dict[str, Array]
HUGE_BYTES = 100_000_000


def _nothing(outputs: Outputs) -> Outputs:
    """Nothing is ever found."""
    return {name: np.asarray(array[:0]) for name, array in outputs.items()}


def _all_faulty(outputs: Outputs) -> Outputs:
    """Everything is faulty, for certain."""
    x, y = np.meshgrid(np.arange(0, 320, 40), np.arange(0, 256, 40))
    corners = np.stack([x.ravel(), y.ravel()], 1).astype(np.float32)
    count = len(corners)
    found: Outputs = {
        "boxes": np.concatenate([corners, corners + 40], 1), "scores": np.full(count, 0.999, np.float32),
        "classes": np.zeros(count, np.int32), "labels": np.full(count, b"diode", object),
    }  # fmt: skip
    return {name: found[name] for name in outputs}


def _no_numbers(outputs: Outputs) -> Outputs:
    """NaN wherever a number can be one."""
    return {
        name: np.full_like(array, np.nan) if array.dtype.kind == "f" else array for name, array in outputs.items()
    }  # fmt: skip


def _other_shapes(outputs: Outputs) -> Outputs:
    """Boxes of three sides, and one score more than there are boxes."""
    wrong = {"boxes": np.zeros((2, 3), np.float32), "scores": np.ones(3, np.float32)}
    return {name: wrong.get(name, array) for name, array in outputs.items()}


LIES: dict[str, Callable[[Outputs], Outputs]] = {
    "nothing": _nothing, "faulty": _all_faulty, "nan": _no_numbers, "shape": _other_shapes
}  # fmt: skip
HOW = (*LIES, "stall", "huge")


def _lie(data: bytes, how: str) -> bytes | None:
    if how == "stall":
        return None
    body, length = open_answer(data)
    head = msgspec.json.decode(body[:length])
    if not head.get("outputs"):
        return data
    if how == "huge":
        return pack_left(Left(None, HUGE_BYTES, bytes(32)))
    digest = bytes.fromhex(head["model_version"])
    outputs = LIES[how](dict(read_answer(body, length)))
    del head["outputs"]
    lie = pack_answer(*write_answer(head, outputs, [Wanted(name, is_binary=True) for name in outputs]))
    assert is_answer(digest, lie), "it is in proper form"
    return lie


def _lies(how: str) -> Callable[[lending.LendingLink, Any], None]:
    whole = lending.LendingLink.take

    def take(self: lending.LendingLink, word: Any) -> None:
        if isinstance(word, words.Ran) and word.data is not None:
            lie = _lie(word.data, how)
            if lie is None:
                return
            word = words.Ran(word.job, lie)
        whole(self, word)

    return take


if __name__ == "__main__":
    lending.LendingLink.take = _lies(sys.argv[1])  # type: ignore[method-assign, assignment]
    sys.exit(main(sys.argv[2:]))
