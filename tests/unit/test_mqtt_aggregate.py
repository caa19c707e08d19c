"""Counts for a cloud: the noise's law, one object changes one count by one, and the day's budget."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest
from msgspec.structs import replace

from swarmd.bridges.mqtt.aggregate import (
    GRACE_S,
    WINDOW_S,
    WINDOWS_A_DAY,
    HourlyCounts,
    Privacy,
    discrete_laplace,
    is_told,
    window_of,
    windows_told,
)
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, LOGICAL_BITS
from swarmd_protocols.state.observations import ObjectView
from tests.support.bridge_world import ALICE, BOB, object_view

HOUR = 480_000
"""An hour since 1970, first of its day."""


def stamp(hour: int, second: int = 10) -> int:
    return (hour * WINDOW_S + second - EPOCH_2020_NS // 1_000_000_000) * 1000 << LOGICAL_BITS


def seen(name: str, hour: int = HOUR, label: str = "person", observers: tuple[NodeId, ...] = (ALICE,)) -> ObjectView:
    return replace(object_view(name), label=label, observers=observers, first_hlc=stamp(hour))


def no_noise(_: int) -> int:
    """`discrete_laplace` gives 0 for it: the first part is 0, its coin says yes, nothing whole follows."""
    return next(_DRAWS)


class _Draws:
    """0 (part), 1 (rarer than exp(0): yes at once), then 0, 1: exp(-1) fails at once; 0: positive."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> int:
        self.at += 1
        return (0, 1, 0, 1, 0)[(self.at - 1) % 5]


_DRAWS = _Draws()


def counts(
    node: NodeId, objects: Sequence[ObjectView], scope: str = "own", labels: Sequence[str] = ("person",)
) -> dict[str, int]:
    _DRAWS.at = 0
    hours = HourlyCounts(node, Privacy(Fraction(1), Fraction(0), scope), no_noise, HOUR * WINDOW_S)
    message = hours.close(objects, labels, (HOUR + 1) * WINDOW_S + GRACE_S)
    assert message is not None
    told = message["counts"]
    assert isinstance(told, dict)
    return told


def test_the_noise_follows_the_discrete_laplace_law() -> None:
    rng, epsilon, draws = random.Random(7), Fraction(1, 2), 40_000
    found = Counter(discrete_laplace(epsilon, rng.randrange) for _ in range(draws))
    ratio = math.exp(-0.5)
    for value in range(-6, 7):
        wanted = (1 - ratio) / (1 + ratio) * ratio ** abs(value)
        # Five standard deviations; the seed is fixed.
        assert abs(found[value] / draws - wanted) < 5 * math.sqrt(wanted / draws), value


def test_privacy_loss_of_one_object_is_bounded_by_epsilon() -> None:
    """The worst ratio between neighbouring counts is exp(epsilon), from the law itself; here from draws, with slack."""
    rng, epsilon, draws = random.Random(11), Fraction(1), 60_000
    found = Counter(discrete_laplace(epsilon, rng.randrange) for _ in range(draws))
    for value in range(-2, 3):
        assert abs(math.log(found[value] / found[value + 1])) < 1.0 + 0.15


def test_one_object_more_changes_one_count_of_one_device_by_one() -> None:
    both = seen("o2", observers=(BOB, ALICE))
    without, with_it = [seen("o1")], [seen("o1"), both]
    assert counts(ALICE, without) == {"person": 1}
    assert counts(ALICE, with_it) == {"person": 2}
    assert counts(BOB, without) == counts(BOB, with_it) == {"person": 0}, "alice has the lower id: she owns it"


def test_an_object_of_another_hour_is_not_counted_again() -> None:
    assert counts(ALICE, [seen("old", HOUR - 1), seen("new"), seen("next", HOUR + 1)]) == {"person": 1}


def test_every_known_label_is_told_and_no_other() -> None:
    told = counts(ALICE, [seen("o1", label="person"), seen("o2", label="ghost")], labels=("person", "car"))
    assert told == {"car": 0, "person": 1}


def test_one_device_may_count_for_all() -> None:
    assert counts(BOB, [seen("o1"), seen("o2")], scope="swarm") == {"person": 2}


def test_an_object_that_expired_within_its_hour_was_there() -> None:
    _DRAWS.at = 0
    hours = HourlyCounts(ALICE, Privacy(Fraction(1), Fraction(0), "own"), no_noise, HOUR * WINDOW_S)
    hours.expired(seen("gone"))
    hours.expired(seen("older", HOUR - 1))
    message = hours.close([], ["person"], (HOUR + 1) * WINDOW_S + GRACE_S)
    assert message is not None
    assert message["counts"] == {"person": 1}
    again = hours.close([], ["person"], (HOUR + 2) * WINDOW_S + GRACE_S)
    assert again is not None
    assert again["counts"] == {"person": 0}


def test_an_hour_is_told_once_and_not_before_its_end() -> None:
    hours = HourlyCounts(ALICE, Privacy(Fraction(1), Fraction(0), "own"), random.Random(1).randrange, HOUR * WINDOW_S)
    end_s = (HOUR + 1) * WINDOW_S + GRACE_S
    assert hours.close([], ["person"], end_s - 1) is None
    assert hours.close([], ["person"], end_s) is not None
    assert hours.close([], ["person"], end_s) is None
    # A clock that was set back tells nothing twice; one that jumped ahead skips what nobody counted.
    assert hours.close([], ["person"], end_s - 7200) is None
    assert hours.wait_s(end_s + 5 * WINDOW_S) == 0
    assert hours.close([], ["person"], end_s + 5 * WINDOW_S) is not None
    assert hours.close([], ["person"], end_s + 5 * WINDOW_S) is None


@pytest.mark.parametrize(
    ("epsilon", "day", "told"), [("0.1", "1", 10), ("1", "0", 24), ("1", "0.5", 0), ("1", "99", 24)]
)
def test_the_budget_of_a_day_bounds_the_hours(epsilon: str, day: str, told: int) -> None:
    windows = windows_told(Fraction(epsilon), Fraction(day))
    assert windows == told
    assert sum(is_told(HOUR + hour, windows) for hour in range(WINDOWS_A_DAY)) == told
    if Fraction(day):
        assert windows * Fraction(epsilon) <= Fraction(day)


def test_hours_follow_swarm_time() -> None:
    assert window_of(stamp(HOUR, 0)) == HOUR
    assert window_of(stamp(HOUR, 3599)) == HOUR
