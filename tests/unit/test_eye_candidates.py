"""Candidates in the eye: found beside what is sure, told with what they need, sure when as many looks are as ever."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from swarmd.config.loading import load
from swarmd.errors import ConfigError
from swarmd_models import tracker as tracker_module
from swarmd_models.bundle import at_rate, load_bundle
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import nominal_pixel_m
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.synthetic.scenes import SceneMaker, SceneOptions
from swarmd_models.tracker import Tracker
from swarmd_models.types import Detection, TrackEvent
from swarmd_protocols.state.observations import LocalDetection

SURE, WIDE = 1.0, 30.0
MS = 1_000_000


def test_what_is_sure_stays_and_candidates_come_beside_it() -> None:
    """On drawn frames with little contrast, where the model is often unsure."""
    bundle = load_bundle("zoo:small-320")
    assert bundle.second is not None
    bundle = replace(bundle, second=replace(bundle.second, budget_ms=0.0))
    maker = SceneMaker(SceneOptions(320, 256, pixel_m=nominal_pixel_m(bundle), real_share=0.0), 4711)
    images = [np.clip(maker.scene(at).image * 0.45 + 110, 0, 255).astype(np.uint8) for at in range(12)]
    plain = Detector.open(bundle, DetectorOptions(false_per_1000=SURE))
    tiered = Detector.open(bundle, DetectorOptions(false_per_1000=SURE, candidates_per_1000=WIDE))
    found = [tiered.detect(image) for image in images]
    sure = [[one for one in seen if not one.need] for seen in found]
    assert sure == [plain.detect(image) for image in images]
    candidates = [one for seen in found for one in seen if one.need]
    assert candidates
    threshold = at_rate(bundle, SURE).threshold_of("cell")
    assert tiered.sure_from("cell") == threshold
    assert all(one.score < one.need == threshold for one in candidates)


def test_without_its_second_stage_the_eye_has_no_candidates() -> None:
    """The first stage's word counts by its own thresholds, as ever: a curve of joined scores says nothing of them."""
    bundle = load_bundle("zoo:small-320")
    assert bundle.golden is not None
    detector = Detector.open(bundle, DetectorOptions(false_per_1000=SURE, candidates_per_1000=WIDE))
    detector.looks_twice = False
    with np.load(bundle.golden.path) as arrays:
        assert not any(one.need for one in detector.detect(arrays["image"]))


def seen(score: float, need: float) -> Detection:
    return Detection(0, "a", score, (10.0, 10.0, 40.0, 40.0), None, need if score < need else 0.0)


def told(scores: list[float], min_hits: int = 3) -> list[TrackEvent]:
    """Events of a thing that is seen with these scores in turn, where 0.9 is sure."""
    tracker = Tracker(TrackRule(min_hits=min_hits, lost_ms=700, static=True), 10**12)
    return [
        event
        for at, score in enumerate(scores)
        for event in tracker.update(at * 100 * MS, [seen(score, 0.9)], [None], None, None)
    ]


def test_a_track_is_sure_when_as_many_looks_are_as_are_needed_to_be_told() -> None:
    assert [(one.kind, one.need) for one in told([0.95, 0.95, 0.95])] == [("new", 0.0)]
    assert [(one.kind, one.need) for one in told([0.5, 0.5, 0.95, 0.95])] == [("new", 0.9)]
    kinds = [(one.kind, one.need) for one in told([0.5, 0.5, 0.95, 0.95, 0.95, 0.2])]
    assert kinds == [("new", 0.9), ("update", 0.0)], "at once, whatever the interval of updates is"


@pytest.mark.parametrize(("score", "need"), [(0.5, 0.9677), (0.9676, 0.9677), (0.99, 0.9), (0.9999, 0.99999)])
def test_what_is_not_sure_is_shared_below_what_it_needs(score: float, need: float) -> None:
    """Also where one look was above it, and rounding would say so of others."""
    event = TrackEvent("new", 1, 0, "a", score, (0.0, 0.0, 9.0, 9.0), 5, 3, None, need=need)
    shared = SightingFilter(LocalDetection, None, None, 0.95).place(event, "", False)
    assert shared.score_milli < shared.need_milli <= 1000
    assert SightingFilter(LocalDetection, None, None, 0.95).place(replace(event, need=0.0), "", False).need_milli == 0


def test_to_become_sure_is_news() -> None:
    tracks = SightingFilter(LocalDetection, None, None, 0.95)
    event = TrackEvent("new", 1, 0, "a", 0.5, (0.0, 0.0, 9.0, 9.0), 5, 3, None, need=0.9)

    def take(one: TrackEvent) -> list[int]:
        return [shared.need_milli for shared in tracks.take([tracks.place(one, "", False)])]

    assert take(event) == [900]
    assert take(replace(event, kind="update", captured_ns=6)) == []
    assert take(replace(event, kind="update", captured_ns=7, score=0.95, need=0.0)) == [0]


def test_candidates_below_the_rate_of_what_is_sure_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "swarmd.toml"
    path.write_text("[eye]\nfalse_alarms_per_1000 = 3.0\ncandidates_per_1000 = 1.0\n")
    with pytest.raises(ConfigError, match="candidates_per_1000 is 1; it must exceed"):
        load(path)


def test_candidates_take_no_room_from_what_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "MAX_TRACKS", 3)
    tracker = Tracker(TrackRule(min_hits=1, lost_ms=700, static=True), 1)
    frame = [Detection(0, "a", 0.95, (at * 50.0, 10.0, at * 50.0 + 30, 40.0), None, 0.97) for at in range(5)]
    frame.append(Detection(0, "a", 0.9, (500.0, 10.0, 530.0, 40.0)))
    events = tracker.update(MS, frame, [None] * 6, None, None)
    assert [event.score for event in events if not event.need] == [0.9]
    assert len(events) == 3
