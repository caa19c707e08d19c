"""Mutants of what a place claims after many looks: each is surer than its errors allow, and the trial finds it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from swarmd_models.geo import place
from swarmd_models.geo.geolocate import GroundFix
from tests.unit import test_eye_places as laws

Mutant = Callable[[pytest.MonkeyPatch], None]


def _with(monkeypatch: pytest.MonkeyPatch, change: Callable[[GroundFix], GroundFix]) -> None:
    weighed = place._weighed
    monkeypatch.setattr(place, "_weighed", lambda fix: weighed(change(fix)))


def all_looks_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, lambda fix: replace(
        fix, pixel_m2=fix.covariance_m2, attitude_m2=(0.0, 0.0, 0.0), bias_m2=(0.0, 0.0, 0.0)
    ))  # fmt: skip


def attitude_averages_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(fix: GroundFix) -> GroundFix:
        (a, b, c), (d, e, f) = fix.pixel_m2, fix.attitude_m2
        return replace(fix, pixel_m2=(a + d, b + e, c + f), attitude_m2=(0.0, 0.0, 0.0))

    _with(monkeypatch, change)


def the_receivers_error_is_the_last_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutated(old, fix, pose, depth_m, seen_ns):  # type: ignore[no-untyped-def]
        found = refined(old, fix, pose, depth_m, seen_ns)
        weight = found.information
        last = place._between(weight, place._added(fix.attitude_m2, fix.bias_m2))
        return replace(found, shared=place._times(last, 1.0 / found.looks))

    refined = place.refined
    monkeypatch.setattr(place, "refined", mutated)


def looks_never_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, lambda fix: replace(fix, bias_m2=fix.covariance_m2))


def _of(name: str) -> Callable[[], None]:
    return lambda: laws.test_truths_lie_inside_the_ellipse_that_is_claimed(name)


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (_of("RTK, mount off"), all_looks_are_independent),
        (_of("GNSS"), all_looks_are_independent),
        (_of("three drones, GNSS, mounts off"), all_looks_are_independent),
        (_of("RTK, mount off"), attitude_averages_out),
        (_of("RTK, mount off, oblique"), attitude_averages_out),
        (_of("three drones, RTK, mounts off"), attitude_averages_out),
        (_of("RTK that starts without corrections, mount off"), the_receivers_error_is_the_last_looks),
        (laws.test_looks_that_differ_still_narrow_a_place, looks_never_narrow),
    ],
)
def test_a_mutant_is_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    law()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        law()
