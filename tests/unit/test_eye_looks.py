"""How the eye says what a thing looks like, and on what way that comes to a sighting."""

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from swarmd.config.sections import EyeSection
from swarmd_models import looks
from swarmd_models.frame_ring import PRIVATE_LABELS
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.looks import FEATURES_BYTES, FORM, Looks, cut_of, head
from swarmd_models.synthetic.thermal import draw_module
from swarmd_models.types import TrackEvent
from swarmd_protocols.state.crdt import facts
from swarmd_protocols.state.dedup.looks import likeness_milli
from swarmd_protocols.state.observations import LocalDetection
from swarmd_recipes.looks import learn, look, patches_of
from tests.support.mutants import Mutant, assert_found, each_mutant

BOX = (100.0, 60.0, 180.0, 100.0)
MODEL = b"m" * 8


def frame_of(patch: np.ndarray, box: tuple[float, float, float, float] = BOX) -> np.ndarray:
    """A frame with a module in it."""
    x1, y1, x2, y2 = (round(side) for side in box)
    rng = np.random.default_rng(3)
    image = np.full((256, 320), 110.0) + rng.normal(0, 2, (256, 320))
    image[y1:y2, x1:x2] += cv2.resize(patch, (x2 - x1, y2 - y1), interpolation=cv2.INTER_AREA)
    return np.clip(image, 0, 255).astype(np.uint8)


def event(
    track: int = 1, score: float = 0.5, kind: str = "new", label: str = "hot-spot",
    box: tuple[float, float, float, float] = BOX,
) -> TrackEvent:  # fmt: skip
    return TrackEvent(kind, track, 0, label, score, box, 0, 3, None)  # type: ignore[arg-type]


def module(seed: int, label: str = "hot-spot") -> np.ndarray:
    return draw_module(label, 96, 192, np.random.default_rng(seed))


def alike(a: bytes, b: bytes) -> int:
    found = likeness_milli(MODEL + a, MODEL + b)
    assert found is not None
    return found


def features(patch: np.ndarray, box: tuple[float, float, float, float] = BOX) -> bytes:
    return Looks().noted(frame_of(patch, box), [event(box=box)])[0].features


def test_a_look_has_the_form_of_the_wire() -> None:
    assert (FEATURES_BYTES, len(features(module(1)))) == (facts.FEATURES_BYTES, facts.FEATURES_BYTES)
    assert features(module(1))[0] == FORM


def test_law_a_thing_looks_like_itself_lying_standing_and_upside_down() -> None:
    patch = module(1)
    lying = features(patch)
    standing = (100.0, 60.0, 140.0, 140.0)
    for other in (patch[::-1, ::-1], patch):
        assert alike(lying, features(other)) > 900
    for quarter in (1, 3):
        assert alike(lying, features(np.rot90(patch, quarter), standing)) > 900
    assert min(alike(lying, features(module(seed))) for seed in range(2, 12)) < 400


def test_law_a_look_tells_real_neighbours_apart() -> None:
    """Two noisy looks at a drawn module beside looks at others: most unlike pairs are of two things."""
    rng = np.random.default_rng(9)
    patches = patches_of(None, 0, 60, rng)
    first, second = ([head().features(look(patch, rng, 6.0)) for patch in patches] for _ in range(2))
    same = [alike(a, b) for a, b in zip(first, second, strict=True)]
    other = [alike(first[n], second[n - 1]) for n in range(60)]
    assert np.median(same) > 800
    assert np.median(other) < 500


@pytest.mark.parametrize("label", [*PRIVATE_LABELS, "Person walking", *EyeSection().thumbnails_never])
def test_law_of_people_there_is_no_look(label: str) -> None:
    told = Looks(EyeSection().thumbnails_never).noted(frame_of(module(1)), [event(label=label)])
    assert told[0].features == b""


def test_law_only_a_whole_thing_has_a_look() -> None:
    image = frame_of(module(1))
    for box in ((0.0, 60.0, 80.0, 100.0), (250.0, 60.0, 320.0, 100.0), (100.0, 60.0, 107.0, 100.0),
                (float("nan"), 60.0, 180.0, 100.0), (180.0, 60.0, 100.0, 100.0)):  # fmt: skip
        assert cut_of(image, box) is None
        assert Looks().noted(image, [event(box=box)])[0].features == b""
    assert Looks().noted(np.full((256, 320), 90, np.uint8), [event()])[0].features == b"", "all of one grey"
    assert len(Looks().noted(np.stack([image] * 3, axis=-1), [event()])[0].features) == FEATURES_BYTES


def test_a_track_is_looked_at_again_only_for_a_better_score_and_bounds_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    image, maker = frame_of(module(1)), Looks()

    def said(*events: TrackEvent) -> list[bool]:
        return [bool(one.features) for one in maker.noted(image, events)]

    assert said(event(score=0.5)) == [True]
    assert said(event(score=0.52, kind="update"), event(score=0.6, kind="update")) == [False, True]
    assert said(event(score=0.6, kind="update", label="crack")) == [True]
    assert said(event(kind="end"), event()) == [False, True]
    assert sum(said(*(event(track) for track in range(10, 60)))) == looks.PER_FRAME_MAX
    monkeypatch.setattr(looks, "TRACKS_MAX", 5)
    said(*(event(track) for track in range(100, 120)))
    assert len(maker._best) <= looks.PER_FRAME_MAX + 10
    assert said(event(119, 0.9, "update")) == [True]


def placed(one: TrackEvent, digest: str = "ab" * 32) -> LocalDetection:
    return SightingFilter(LocalDetection, None, None, 0.95).place(one, digest, False)


def test_law_a_look_in_a_frame_that_is_not_shared_comes_with_the_next_that_is() -> None:
    tracks = SightingFilter(LocalDetection, None, None, 0.95)
    better = replace(event(kind="update", score=0.9), features=b"\1" * 17)
    assert tracks.take([placed(event())])[0].features == b""
    assert tracks.take([placed(better)]) == []
    later = tracks.take([placed(replace(event(kind="update"), captured_ns=2_000_000_000))])
    assert [one.features for one in later] == [b"\1" * 17]
    assert [one.features for one in tracks.take([placed(event(kind="end"))])] == [b""]
    tracks.take([placed(event(2)), placed(replace(better, track_id=2))])
    assert [one.features for one in tracks.take([placed(event(2, kind="end"))])] == [b"\1" * 17]


def test_law_a_look_never_stands_beside_another_models_name() -> None:
    tracks = SightingFilter(LocalDetection, None, None, 0.95)
    tracks.take([placed(event()), placed(replace(event(kind="update"), features=b"\1" * 17))])
    swapped = placed(replace(event(kind="update"), captured_ns=2_000_000_000), "cd" * 32)
    assert [one.features for one in tracks.take([swapped])] == [b""]


def test_the_recipe_gives_equal_bytes_for_equal_things() -> None:
    heads = [learn(patches_of(None, 0, 40, rng), rng) for rng in (np.random.default_rng(2), np.random.default_rng(2))]
    assert heads[0].even.tobytes() + heads[0].odd.tobytes() == heads[1].even.tobytes() + heads[1].odd.tobytes()
    shipped = head()
    assert (shipped.even.shape, shipped.odd.shape, shipped.mean.shape) == ((31, 8), (32, 8), (31,))


def looks_of_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks.Looks, "_is_wanted", lambda self, one: True)


def halves_are_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks, "cut_of", lambda image, box: np.ascontiguousarray(image[:24, :48]))


def a_look_is_lost_with_its_frame(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_models.geo.sightings._with_look", lambda track, detection: detection)


def whose_look_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_models.geo.sightings._with_look", lambda track, one: replace(one, features=track.look[0]))


def _people() -> None:
    test_law_of_people_there_is_no_look("person")


@each_mutant(
    [
        (_people, looks_of_all),
        (test_law_only_a_whole_thing_has_a_look, halves_are_looked_at),
        (test_law_a_look_in_a_frame_that_is_not_shared_comes_with_the_next_that_is, a_look_is_lost_with_its_frame),
        (test_law_a_look_never_stands_beside_another_models_name, whose_look_does_not_matter),
    ]
)
def test_mutants_of_looks_are_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
