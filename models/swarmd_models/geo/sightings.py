"""From what an eye or an outside detector says to what is worth sharing: plane, asset, moment.

Rules:

- Degrees become centimetres about the mission origin here, and nowhere else. No origin or no position: the detection is
  shared without one.
- With a site map, a track whose asset is still ambiguous is held back until a better look settles it or the track ends:
  sharing it at once under a guessed asset would put a false object on everybody's map.
- `new` and `end` always pass; an `update` passes when it changes the asset or the position noticeably, or `UPDATE_NS`
  after the last one.

What is shared is of a type that the caller chooses (the daemon and the simulator: the protocols' `LocalDetection`);
this module only asks that it is a dataclass with the fields of `Placed`.
"""

import math
from collections.abc import Iterable
from dataclasses import Field, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from swarmd_models.geo.positions import Plane
from swarmd_models.types import TrackEvent

if TYPE_CHECKING:
    from swarmd_models.geo.sitemap import SiteMap

UPDATE_NS = 1_000_000_000
"""Nanoseconds after which a track that stays where it was is told again: peers keep a sighting's time to a second."""
TRACKS_MAX = 4096
"""Living tracks that are remembered, far more than one frame can hold; the oldest are forgotten first."""
MOVED_CM = 20
"""Centimetres, east and north added up, from which a position counts as changed: about the error of a good fix."""
_DIGEST_BYTES = 8
"""Bytes of the model's SHA-256 that travel with a detection."""


class Placed(Protocol):
    """A detection with its place on the plane, as it is shared."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def kind(self) -> str:
        """ "new", "update" or "end"."""
        ...

    @property
    def track_id(self) -> int:
        """Unique in the life of the detector."""
        ...

    @property
    def east_cm(self) -> int | None:
        """From the mission origin."""
        ...

    @property
    def north_cm(self) -> int | None:
        """From the mission origin."""
        ...

    @property
    def covariance_cm2(self) -> tuple[int, int, int] | None:
        """(east-east, east-north, north-north)."""
        ...

    @property
    def asset(self) -> str:
        """From the site map; "" where none is known."""
        ...

    @property
    def captured_ns(self) -> int:
        """Monotonic clock."""
        ...

    @property
    def model_digest(self) -> bytes:
        """Of the model that saw it."""
        ...

    @property
    def need_milli(self) -> int:
        """Score from which the detector would be sure; 0: it is."""
        ...

    @property
    def features(self) -> bytes:
        """How it looks to that model; b"": not said."""
        ...


D = TypeVar("D", bound=Placed)
D_co = TypeVar("D_co", bound=Placed, covariant=True)


class Make(Protocol[D_co]):
    """Makes one detection as it is shared."""

    def __call__(
        self,
        *,
        kind: str,
        track_id: int,
        label: str,
        score_milli: int,
        east_cm: int | None,
        north_cm: int | None,
        covariance_cm2: tuple[int, int, int] | None,
        asset: str,
        moving: bool,
        captured_ns: int,
        model_digest: bytes,
        features: bytes,
        need_milli: int,
        alike_milli: tuple[int, int],
    ) -> D_co:
        """One detection."""
        ...


class Position(Protocol):
    """A point on the ground with its uncertainty (`swarmd_models.types.GroundPosition`)."""

    @property
    def latitude_deg(self) -> float:
        """WGS84."""
        ...

    @property
    def longitude_deg(self) -> float:
        """WGS84."""
        ...

    @property
    def covariance_m2(self) -> tuple[float, float, float]:
        """(east-east, east-north, north-north)."""
        ...


@dataclass(slots=True)
class _Track(Generic[D]):
    shared: D | None
    held: D | None
    shared_ns: int
    look: tuple[bytes, bytes] = (b"", b"")
    """Features that nothing shared has said yet, and the model whose they are."""


class SightingFilter(Generic[D]):
    """Places track events and says which of them are worth sharing."""

    def __init__(
        self, make: Make[D], plane: Plane | None, site_map: "SiteMap | None", asset_probability: float
    ) -> None:
        """Place detections about `plane` and name assets from `site_map`, where there are any.

        Args:
            make: Makes a detection as it is shared.
            plane: About the mission origin.
            site_map: The site's assets.
            asset_probability: How sure the nearest asset must be to be named, 0 to 1.
        """
        self._make = make
        self.plane = plane
        self._site_map = site_map
        self._asset_probability = asset_probability
        self._tracks: dict[int, _Track[D]] = {}
        self.counts = {"shared": 0, "held_back": 0, "without_position": 0, "ambiguous": 0, "tracks_forgotten": 0}

    def locate(self, position: Position | None) -> tuple[int | None, int | None, tuple[int, int, int] | None, str]:
        """(east cm, north cm, covariance cm², asset); (None, None, None, "") without a position or an origin."""
        if position is None or self.plane is None:
            return None, None, None, ""
        east_m, north_m = self.plane.to_m(position.latitude_deg, position.longitude_deg)
        ee, en, nn = position.covariance_m2
        asset = self.asset_at(east_m, north_m, position.covariance_m2)
        covariance = (max(1, round(ee * 1e4)), round(en * 1e4), max(1, round(nn * 1e4)))
        return round(east_m * 100), round(north_m * 100), covariance, asset

    def asset_at(self, east_m: float, north_m: float, covariance_m2: tuple[float, float, float]) -> str:
        """The asset of a position on the plane; "" where none is sure enough or there is no map."""
        if self._site_map is None:
            return ""
        return self._site_map.asset_of(east_m, north_m, covariance_m2, self._asset_probability)

    def place(self, event: TrackEvent, model_digest: str, moving: bool, alike_milli: tuple[int, int] = (0, 0)) -> D:
        """One track event as it would be shared.

        Args:
            event: From the eye.
            model_digest: SHA-256 of the model, hexadecimal digits; "" where it is unknown.
            moving: What is seen moves by itself.
            alike_milli: How alike looks of that model are (`operating_point.alike_milli`).
        """
        east_cm, north_cm, covariance_cm2, asset = self.locate(event.position)
        return self._make(
            kind=event.kind,
            track_id=event.track_id,
            label=event.label,
            score_milli=_score_milli(event),
            east_cm=east_cm,
            north_cm=north_cm,
            covariance_cm2=covariance_cm2,
            asset=asset,
            moving=moving,
            captured_ns=event.captured_ns,
            model_digest=bytes.fromhex(model_digest)[:_DIGEST_BYTES].ljust(_DIGEST_BYTES, b"\0"),
            features=event.features,
            need_milli=_need_milli(event),
            alike_milli=alike_milli,
        )

    def take(self, detections: Iterable[D]) -> list[D]:
        """Pass on what should be shared now.

        Args:
            detections: Of one frame, already located.

        Returns:
            What to give to the replicated state, in order.
        """
        passed = []
        for detection in detections:
            passed += self._end(detection) if detection.kind == "end" else self._seen(detection)
        self.counts["shared"] += len(passed)
        return passed

    def forget_all(self, now_ns: int) -> list[D]:
        """The eye died: every track it had ends now, and what was held back is shared."""
        ends = []
        for track_id in list(self._tracks):
            last = self._tracks[track_id].held or self._tracks[track_id].shared
            if last is not None:
                ends.append(replace(last, kind="end", captured_ns=now_ns))
        return self.take(ends)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _seen(self, detection: D) -> list[D]:
        track = self._tracks.get(detection.track_id)
        if track is None:
            if len(self._tracks) >= TRACKS_MAX:
                self._tracks.pop(next(iter(self._tracks)))
                self.counts["tracks_forgotten"] += 1
            track = self._tracks[detection.track_id] = _Track(None, None, 0)
        if detection.features:
            track.look = (detection.features, detection.model_digest)
        if detection.east_cm is None:
            self.counts["without_position"] += 1
        if track.shared is None:
            if self._is_ambiguous(detection):
                if track.held is None:
                    self.counts["held_back"] += 1
                track.held = detection
                return []
            return self._share(track, replace(detection, kind="new"))
        if self._is_ambiguous(detection):
            # A worse look than the one that settled the asset: the asset stays.
            detection = replace(
                detection,
                asset=track.shared.asset,
                east_cm=track.shared.east_cm,
                north_cm=track.shared.north_cm,
                covariance_cm2=track.shared.covariance_cm2,
            )
        if _is_news(track.shared, detection) or detection.captured_ns - track.shared_ns >= UPDATE_NS:
            return self._share(track, replace(detection, kind="update"))
        return []

    def _end(self, detection: D) -> list[D]:
        track = self._tracks.pop(detection.track_id, None)
        if track is None:
            return []
        last = track.shared or track.held or detection
        if detection.east_cm is None or self._is_ambiguous(detection):
            detection = replace(
                detection,
                asset=last.asset,
                east_cm=last.east_cm,
                north_cm=last.north_cm,
                covariance_cm2=last.covariance_cm2,
            )
        detection = _with_look(track, detection)
        if track.shared is None:
            self.counts["ambiguous"] += 1
            return [replace(detection, kind="new"), replace(detection, kind="end")]
        return [replace(detection, kind="end")]

    def _share(self, track: _Track[D], detection: D) -> list[D]:
        detection = _with_look(track, detection)
        track.shared, track.held, track.shared_ns = detection, None, detection.captured_ns
        return [detection]

    def _is_ambiguous(self, detection: D) -> bool:
        if self._site_map is None or detection.asset or detection.east_cm is None or detection.covariance_cm2 is None:
            return False
        assert detection.north_cm is not None
        ee, en, nn = (value / 1e4 for value in detection.covariance_cm2)
        return self._site_map.is_near(detection.east_cm / 100, detection.north_cm / 100, (ee, en, nn))


def _with_look(track: _Track[D], detection: D) -> D:
    """A detection with the look that its track waits to say: a frame that was not worth sharing may have had the best.

    Numbers of one model never stand beside another's name: a model that was swapped takes its look with it.
    """
    (features, model), track.look = track.look, (b"", b"")
    return replace(detection, features=features if model == detection.model_digest else b"")


def _need_milli(event: TrackEvent) -> int:
    """What a candidate needs, above its score as that is shared; 0 for what is sure."""
    if not event.need:
        return 0
    return min(1000, max(math.ceil(event.need * 1000), _score_milli(event) + 1))


def _score_milli(event: TrackEvent) -> int:
    """Thousandths; a candidate's leave room for what it needs."""
    return max(0, min(999 if event.need else 1000, round(event.score * 1000)))


def _is_news(old: Placed, new: Placed) -> bool:
    if (
        (old.need_milli and not new.need_milli)
        or old.asset != new.asset
        or (old.east_cm is None) != (new.east_cm is None)
    ):
        return True
    if old.asset or old.east_cm is None or new.east_cm is None:
        return False
    assert old.north_cm is not None
    assert new.north_cm is not None
    return abs(old.east_cm - new.east_cm) + abs(old.north_cm - new.north_cm) > MOVED_CM
