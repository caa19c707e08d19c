"""What a lender may say of a text that goes on."""

import numpy as np
import pytest

from swarmd.worker.elsewhere import Found
from swarmd.worker.oip import Wanted, write_answer
from swarmd.worker.texting import _tokens_of

END = 0


def said(tokens: object, dtype: str = "<i4", name: str = "tokens") -> Found:
    pieces, json_bytes = write_answer(
        {"model_version": "d" * 64}, {name: np.array(tokens, dtype)}, [Wanted(name, True)]
    )
    return Found(b"".join(pieces), json_bytes, "a", "d" * 64)


@pytest.mark.parametrize(
    ("found", "made"),
    [
        (said([5, 6, 7]), [5, 6, 7]),
        (said([5, END]), [5, END]),
        (said([5, 6]), []),
        (said([5, 6, 7, 8]), []),
        (said([]), []),
        (said([5, END, 7]), []),
        (said([5, 10, 7]), []),
        (said([5, -1, 7]), []),
        (said([5, 6, 7], "<i8"), []),
        (said([5.0, 6.0, 7.0], "<f4"), []),
        (said([[5, 6, 7]]), []),
        (said([5, 6, 7], name="margins"), []),
        (Found(b"{}", None, "a", "d" * 64), []),
        (Found(b"\xff", 1, "a", "d" * 64), []),
    ],
)
def test_only_what_was_asked_for_counts(found: Found, made: list[int]) -> None:
    """As many tokens of the vocabulary as were asked for, or fewer and the end: anything else counts against it."""
    assert _tokens_of(found, 3, 10, END) == made
