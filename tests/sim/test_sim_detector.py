"""The statistical eye tells what a daemon would tell: an asset where it is sure, each track once, nothing for ever."""

from collections import Counter
from typing import Any

import pytest

from swarmd_protocols.state.observations import LocalDetection
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.world.detector import DetectorConfig, DetectorModel
from swarmd_sim.world.site import Site, farm_site

TICK_NS = 500_000_000
LANE_STEP_CM = 400
"""8 m/s, two looks a second."""


def fly(eye: DetectorModel, site: Site) -> list[LocalDetection]:
    """One pass along every cell of the survey."""
    told: list[LocalDetection] = []
    now_ns = 0
    for cell in site.cells:
        (east, south), (_, north) = cell.start_cm, cell.end_cm
        low, high = min(south, north), max(south, north)
        for y in range(low, high + 1, LANE_STEP_CM):
            now_ns += TICK_NS
            told += eye.look(east, y, now_ns)
        told += eye.look_away(now_ns)
    return told


def wrong_names(told: list[LocalDetection], site: Site) -> tuple[int, int]:
    """How often tracks name a module without a fault, and how often one at all."""
    named = {(one.track_id, one.asset) for one in told if one.asset}
    faulty = {module.asset for module in site.faults}
    return sum(asset not in faulty for _, asset in named), len(named)


def an_eye(site: Site, seed: int, **config: Any) -> DetectorModel:
    quiet = DetectorConfig(**{"false_alarms_ppm": 0, "asset_probability": 0.9, **config})
    return DetectorModel(quiet, site, True, Choices(seed))


@pytest.fixture(scope="module")
def site() -> Site:
    return farm_site(7, 24, 40, MILLION // 20, 2_000)


@pytest.mark.parametrize(("sigma_cm", "edge_sigma_cm"), [(12, 20), (20, 35), (30, 40)])
def test_a_name_is_right_nine_times_in_ten(site: Site, sigma_cm: int, edge_sigma_cm: int) -> None:
    sigmas = {"sigma_cm": sigma_cm, "edge_sigma_cm": edge_sigma_cm}
    wrong = named = nearest_wrong = nearest_named = 0
    for seed in range(12):
        counts = wrong_names(fly(an_eye(site, seed, **sigmas), site), site)
        wrong, named = wrong + counts[0], named + counts[1]
        counts = wrong_names(fly(an_eye(site, seed, asset_probability=0.0, **sigmas), site), site)
        nearest_wrong, nearest_named = nearest_wrong + counts[0], nearest_named + counts[1]
    assert named >= 20
    assert wrong <= 0.1 * named
    if sigma_cm >= 30:
        assert nearest_wrong > 0.1 * nearest_named, (
            "what the nearest module would keep as well holds nobody to anything"
        )


def test_each_track_is_told_as_new_once_and_ends_once(site: Site) -> None:
    for seed in range(4):
        eye = an_eye(site, seed)
        told = fly(eye, site)
        kinds = Counter((one.track_id, one.kind) for one in told)
        tracks = {one.track_id for one in told}
        assert tracks
        for track in tracks:
            assert kinds[track, "new"] == kinds[track, "end"] == 1
        first = {one.track_id: one.kind for one in reversed(told)}
        assert set(first.values()) == {"new"}
        assert eye.look_away(1 << 60) == []


def test_all_that_it_counts_as_seen_was_told(site: Site) -> None:
    eye = an_eye(site, 3)
    lane = site.cells[0]
    eye.look(*lane.start_cm, TICK_NS)
    before = set(eye.seen)
    eye.forget()
    assert eye.look_away(2 * TICK_NS) == [], "what a dead process held back is told by nobody"
    assert eye.seen == before
    told = fly(eye, site)
    assert len(eye.seen - before) <= len({one.track_id for one in told})


def test_a_sharp_eye_names_every_fault_at_its_first_look(site: Site) -> None:
    eye = an_eye(site, 1, sigma_cm=5, edge_sigma_cm=5, recall_ppm=MILLION, edge_recall_ppm=MILLION)
    told = fly(eye, site)
    assert eye.seen == {module.asset for module in site.faults}
    assert {one.asset for one in told} == eye.seen
