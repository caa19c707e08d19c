"""A daemon that lends and lies in proper form: it signs answers in which nothing is ever found.

python -m tests.support.lying_daemon run …      the rest as for `python -m swarmd`
"""

import sys
from typing import Any

import msgspec
import numpy as np

from swarmd.brain import lending
from swarmd.cli.main import main
from swarmd.worker import words
from swarmd.worker.lent import is_answer, open_answer, pack_answer
from swarmd.worker.oip import Wanted, read_answer, write_answer


def _lie(data: bytes) -> bytes:
    body, length = open_answer(data)
    head = msgspec.json.decode(body[:length])
    if not head.get("outputs"):
        return data
    digest = bytes.fromhex(head["model_version"])
    outputs = {name: np.asarray(array[:0]) for name, array in read_answer(body, length).items()}
    del head["outputs"]
    lie = pack_answer(*write_answer(head, outputs, [Wanted(name, is_binary=True) for name in outputs]))
    assert is_answer(digest, lie), "it is in proper form"
    return lie


def _take(self: lending.LendingLink, word: Any) -> None:
    if isinstance(word, words.Ran) and word.data is not None:
        word = words.Ran(word.job, _lie(word.data))
    _TAKE(self, word)


_TAKE = lending.LendingLink.take

if __name__ == "__main__":
    lending.LendingLink.take = _take  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
