"""Mutants of ground that is not level: each would claim a place that is none, or a precision; a law finds it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from swarmd_models.geo import ahead, geolocate, terrain
from tests.unit import test_eye_terrain as laws
from tests.unit import test_terrain_ahead as reading

Mutant = Callable[[pytest.MonkeyPatch], None]


def the_model_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    init = terrain.Terrain.__init__

    def mutated(self, reader, rule) -> None:  # type: ignore[no-untyped-def]
        init(self, reader, rule)
        self.sigma_m = 0.0

    monkeypatch.setattr(terrain.Terrain, "__init__", mutated)


def errors_spread_as_on_level_ground(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geolocate, "_fall", lambda ray, meet: ray[2])


def the_ground_below_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    met = terrain.Terrain._meet

    def mutated(self, pose, ray):  # type: ignore[no-untyped-def]
        found = met(self, pose, ray)
        return found if isinstance(found, str) else replace(found, slope_below=found.slope)

    monkeypatch.setattr(terrain.Terrain, "_meet", mutated)


def only_whole_steps_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = terrain._cuts
    monkeypatch.setattr(terrain, "_cuts", lambda start, run, reach: cuts(start, run, reach)[::5])


def voids_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    first = terrain._first_meet
    monkeypatch.setattr(
        terrain, "_first_meet", lambda heights, *rest: first(np.nan_to_num(heights, nan=100.0, posinf=100.0), *rest)
    )


def the_last_meet_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    met = terrain.Terrain._meet

    def mutated(self, pose, ray):  # type: ignore[no-untyped-def]
        found = met(self, pose, ray)
        level = geolocate.LEVEL.meet(pose, ray)
        return found if isinstance(found, str) or level is None else replace(found, distance=level.distance)

    monkeypatch.setattr(terrain.Terrain, "_meet", mutated)


def frames_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead.threading.Thread, "start", lambda thread: thread.run())
    monkeypatch.setattr(reading, "PATIENCE_S", 0.01)


def the_next_is_asked_for_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "AHEAD_M", 500.0)


def all_that_is_wanted_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ahead.ReadAhead._start

    def mutated(self, where, now_s):  # type: ignore[no-untyped-def]
        start(self, where, now_s)
        self._thread = None

    monkeypatch.setattr(ahead.ReadAhead, "_start", mutated)


def a_broken_file_is_read_with_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "RETRY_S", 0.0)


def nees() -> None:
    laws.test_nees_within_its_bounds_on_drawn_terrain((0.3, -0.2))


def reasons() -> None:
    laws.test_why_a_ray_has_no_place(0.0, -20.0, "void")


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (nees, the_model_is_exact),
        (laws.test_the_covariance_is_that_of_small_errors, errors_spread_as_on_level_ground),
        (laws.test_the_covariance_is_that_of_small_errors, the_ground_below_is_forgotten),
        (laws.test_no_ridge_is_missed_and_the_first_counts, only_whole_steps_are_looked_at),
        (laws.test_no_ridge_is_missed_and_the_first_counts, the_last_meet_counts),
        (reasons, voids_are_filled),
        (reading.LAWS["waits"], frames_wait),
        (reading.LAWS["ahead"], the_next_is_asked_for_when_it_is_needed),
        (reading.LAWS["one"], all_that_is_wanted_is_read_at_once),
        (reading.LAWS["again"], a_broken_file_is_read_with_every_frame),
    ],
)
def test_a_mutant_is_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        law()
