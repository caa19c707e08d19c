"""From what an eye or an outside detector says to what the swarm shares: plane, asset, moment.

Rules: - Degrees become centimetres about the mission origin here, and nowhere else. No origin or no position: the
detection is shared without one. - With a site map, a track whose asset is still ambiguous is held back until a better
look settles it or the track ends: sharing
  it at once under a guessed asset would put a false object on everybody's map.
- `new` and `end` always pass; an `update` passes when it changes the asset or the position noticeably, or `UPDATE_NS`
after the last one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from swarmd_models.geo.positions import Plane
from swarmd_protocols.state.observations import LocalDetection

if TYPE_CHECKING:
    from swarmd_models.geo.sitemap import SiteMap

UPDATE_NS = 1_000_000_000
TRACKS_MAX = 4096
MOVED_CM = 20


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
class _Track:
    shared: LocalDetection | None
    held: LocalDetection | None
    shared_ns: int


class Observing:
    """Turns track events into `LocalDetection`s."""

    def __init__(self, plane: Plane | None, site_map: "SiteMap | None", asset_probability: float) -> None:
        """Place detections about `plane` and name assets from `site_map`, where there are any."""
        self.plane = plane
        self._site_map = site_map
        self._asset_probability = asset_probability
        self._tracks: dict[int, _Track] = {}
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

    def take(self, detections: Iterable[LocalDetection]) -> list[LocalDetection]:
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

    def forget_all(self, now_ns: int) -> list[LocalDetection]:
        """The eye died: every track it had ends now, and what was held back is shared."""
        ends = []
        for track_id in list(self._tracks):
            last = self._tracks[track_id].held or self._tracks[track_id].shared
            if last is not None:
                ends.append(replace(last, kind="end", captured_ns=now_ns))
        return self.take(ends)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _seen(self, detection: LocalDetection) -> list[LocalDetection]:
        track = self._tracks.get(detection.track_id)
        if track is None:
            if len(self._tracks) >= TRACKS_MAX:
                self._tracks.pop(next(iter(self._tracks)))
                self.counts["tracks_forgotten"] += 1
            track = self._tracks[detection.track_id] = _Track(None, None, 0)
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

    def _end(self, detection: LocalDetection) -> list[LocalDetection]:
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
        if track.shared is None:
            self.counts["ambiguous"] += 1
            return [replace(detection, kind="new"), replace(detection, kind="end")]
        return [replace(detection, kind="end")]

    def _share(self, track: _Track, detection: LocalDetection) -> list[LocalDetection]:
        track.shared, track.held, track.shared_ns = detection, None, detection.captured_ns
        return [detection]

    def _is_ambiguous(self, detection: LocalDetection) -> bool:
        if self._site_map is None or detection.asset or detection.east_cm is None or detection.covariance_cm2 is None:
            return False
        assert detection.north_cm is not None
        ee, en, nn = (value / 1e4 for value in detection.covariance_cm2)
        return self._site_map.is_near(detection.east_cm / 100, detection.north_cm / 100, (ee, en, nn))


def _is_news(old: LocalDetection, new: LocalDetection) -> bool:
    if old.asset != new.asset or (old.east_cm is None) != (new.east_cm is None):
        return True
    if old.asset or old.east_cm is None or new.east_cm is None:
        return False
    assert old.north_cm is not None
    assert new.north_cm is not None
    return abs(old.east_cm - new.east_cm) + abs(old.north_cm - new.north_cm) > MOVED_CM
