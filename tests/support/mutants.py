"""A mutant is a fault put in on purpose; what it breaks is a law, and the law has to say so in its own words."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import core
from hypothesis.internal.conjecture import engine

Mutant = Callable[[pytest.MonkeyPatch], None]
"""Puts the fault in. `setattr` refuses a name that is not there, so that no mutant outlives what it breaks."""

Law = Callable[[], None]


def each_law(pairs: Sequence[tuple[Law, Mutant]]) -> pytest.MarkDecorator:
    """A test of `law` for each law of these."""
    return pytest.mark.parametrize("law", dict.fromkeys(law for law, _ in pairs), ids=lambda law: law.__name__)


def each_mutant(pairs: Sequence[tuple[Law, Mutant]]) -> pytest.MarkDecorator:
    """A test of `law` and `mutant` for each pair."""
    names = [f"{law.__name__}-{mutant.__name__}" for law, mutant in pairs]
    return pytest.mark.parametrize(("law", "mutant"), pairs, ids=names)


def assert_found(mutant: Mutant, law: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """The law fails under the mutant, by an assertion of its own: no other exception is taken for one.

    Args:
        mutant: The fault.
        law: What must fail.
        patch: Puts things back at the end of the test.
    """
    # That it fails is enough. A smaller example of it would be searched for five minutes, as long as a test may take.
    patch.setattr(engine, "MAX_SHRINKING_SECONDS", 1)
    # Laws draw anew in each run; whether a mutant is found must not be a draw.
    patch.setattr(core, "global_force_seed", 0)
    mutant(patch)
    own_words = (AssertionError, pytest.fail.Exception)  # The latter: a refusal that did not come.
    with pytest.raises((*own_words, BaseExceptionGroup)) as found:
        law()
    # A law that fails in two ways within one search says both.
    said = found.value.exceptions if isinstance(found.value, BaseExceptionGroup) else [found.value]
    assert all(isinstance(one, own_words) for one in said), found.value
