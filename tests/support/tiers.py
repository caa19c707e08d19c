"""Which of a test's cases `make test-fast` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def few_fast(cases: Iterable[Any], count: int) -> list[Any]:
    """The first `count` cases at each save; the others, which try the same law again, in `make test`."""
    listed = list(cases)
    rest = [case if isinstance(case, tuple) else (case,) for case in listed[count:]]
    return listed[:count] + [pytest.param(*case, marks=pytest.mark.slow) for case in rest]
