"""A mutant is a fault put in on purpose; what it breaks is a law, and the law has to say so in its own words."""

from collections.abc import Callable

import pytest
from hypothesis.internal.conjecture import engine

Mutant = Callable[[pytest.MonkeyPatch], None]
"""Puts the fault in. `setattr` refuses a name that is not there, so that no mutant outlives what it breaks."""


def assert_found(mutant: Mutant, law: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """The law fails under the mutant, by an assertion of its own: no other exception is taken for one.

    Args:
        mutant: The fault.
        law: What must fail.
        patch: Puts things back at the end of the test.
    """
    # That it fails is enough. A smaller example of it would be searched for five minutes, as long as a test may take.
    patch.setattr(engine, "MAX_SHRINKING_SECONDS", 1)
    mutant(patch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):  # The latter: a refusal that did not come.
        law()
