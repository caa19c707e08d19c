"""A track's picture on its way into the shared state: kept when it is named, named with what is said anyway."""

from dataclasses import replace
from typing import Any

from swarmd.api.histogram import Histogram
from swarmd.brain.track_feed import CROPS_MAX, TrackFeed
from swarmd.eye.ipc import Crop, FrameDone
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.types import GroundPosition, TrackEvent
from swarmd_protocols.state.observations import LocalDetection, Observed
from swarmd_protocols.thumbs.form import name_of
from swarmd_sim.run.thumbs import picture_of
from tests.support.state_mesh import Mesh, detection

FIRST, SECOND, THIRD = (picture_of(number) for number in (1, 2, 3))


class Brain:
    """What a feed tells of one track."""

    def __init__(self, keeps: bool = True) -> None:
        self.told: list[LocalDetection] = []
        self.shelved: list[bytes] = []
        self.keeps = keeps
        sightings = SightingFilter(LocalDetection, Plane(48.0, 11.0), None, 0.95)
        self.feed = TrackFeed(sightings, self.command, Histogram(), False, self.shelve)

    def command(self, request: Any) -> None:
        assert isinstance(request, Observed)
        self.told += request.detections

    def shelve(self, crop: Crop) -> bool:
        self.shelved.append(crop.jpeg)
        return self.keeps

    def frame(self, at_s: float, kind: str, label: str = "hot-spot", track: int = 1, north_m: float = 0.0) -> None:
        place = GroundPosition(48.0 + north_m / 111_000, 11.0, (0.01, 0.0, 0.01))
        box = (10.0, 10.0, 30.0, 30.0)
        event = TrackEvent(kind, track, 0, label, 0.9, box, round(at_s * 1e9), 3, place)  # type: ignore[arg-type]
        self.feed.take(FrameDone(0, round(at_s * 1e9), 0, 1, 0.9, (event,), {}, width=640, height=480), "ab" * 32)


def test_a_picture_is_named_with_what_is_told_next() -> None:
    brain = Brain()
    brain.feed.take_crop(Crop(1, "hot-spot", FIRST))
    assert brain.shelved == []  # Nothing names it yet.
    brain.frame(0, "new")
    brain.feed.take_crop(Crop(1, "hot-spot", SECOND))
    brain.frame(0.1, "update")  # No news: not told.
    brain.feed.take_crop(Crop(1, "hot-spot", THIRD))
    brain.frame(0.2, "end")
    assert [one.thumb for one in brain.told] == [name_of(FIRST), name_of(THIRD)]
    assert brain.shelved == [FIRST, THIRD]


def test_a_picture_of_another_label_is_not_told() -> None:
    brain = Brain()
    brain.feed.take_crop(Crop(1, "hot-spot", FIRST))
    brain.frame(0, "new", label="person")
    assert [one.thumb for one in brain.told] == [b""]
    assert brain.shelved == []


def test_what_is_not_kept_is_not_named() -> None:
    brain = Brain(keeps=False)
    brain.feed.take_crop(Crop(1, "hot-spot", FIRST))
    brain.frame(0, "new")
    assert [one.thumb for one in brain.told] == [b""]


def test_what_waits_is_bounded_and_goes_with_its_track() -> None:
    brain = Brain()
    for track in range(CROPS_MAX + 10):
        brain.feed.take_crop(Crop(track, "hot-spot", FIRST))
    assert len(brain.feed._crops) == CROPS_MAX
    brain.frame(0, "end", track=CROPS_MAX)
    brain.feed.end_all()
    assert brain.feed._crops == {}


def test_the_first_picture_and_the_last_are_said() -> None:
    """A register that was said without one says its first; a better one waits for what is said anyway, or the end."""
    mesh = Mesh(2, loss=0.0)
    here, there = mesh.members[0], mesh.members[1]

    def see(kind: str, jpeg: bytes) -> None:
        thumb = name_of(jpeg) if jpeg else b""
        mesh.see(0, replace(detection(here.local_ns(mesh.now_ns), kind=kind), thumb=thumb))
        mesh.run(3)

    def known() -> list[bytes]:
        assert there.replica is not None
        return [view.thumb for view in there.replica.views.detections()]

    mesh.run(2)
    see("new", b"")
    assert known() == [b""]
    see("update", FIRST)
    assert known() == [name_of(FIRST)]
    see("update", SECOND)
    assert known() == [name_of(FIRST)]
    assert here.replica is not None
    assert here.replica.views.pictures() == {name_of(FIRST), name_of(SECOND)}
    see("end", THIRD)
    assert known() == [name_of(THIRD)]
    assert there.replica is not None
    assert [view.thumb for view in there.replica.views.objects()] == [name_of(THIRD)]
    assert there.replica.views.authors_of_picture(name_of(THIRD)) == [here.node]
    assert there.replica.views.authors_of_picture(name_of(FIRST)) == []
    assert here.replica.views.pictures() == {name_of(THIRD)}
