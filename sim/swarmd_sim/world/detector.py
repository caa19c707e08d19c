"""A detector as statistics: what an eye would report from here, without rendering a pixel.

Recall falls with the distance from the point below the camera (range and angle in one), position error grows with
it, false alarms come at a rate, and each report is late by a draw from a measured latency table.

With `drift_cm` above 0 an eye's places have an error in common, as those of a flight have by GPS, and say so; with
`looks` a track tells how its thing looks, as an eye with `eye.looks` does. What likenesses such looks have is set to
what was measured on real modules (`python -m tests.bench.feature_sharing`).

With `asset_probability` above 0 what of it is told, when, and under which asset is decided by the daemon's own
`SightingFilter`: with a site map a track whose asset is ambiguous is held back until the mean of its looks settles it,
or until it leaves the view. With 0 every look is told, under the asset nearest to it whatever its error: a swarm must
live with eyes that put a fault on the neighbour.
"""

import random
from dataclasses import dataclass, replace
from math import isqrt

from swarmd_models.geo.sightings import SightingFilter
from swarmd_protocols.state.observations import LocalDetection
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.world.site import Site, SiteModule


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """How well the detector sees."""

    footprint_cm: int = 900
    """Radius of the ground that one frame shows."""
    recall_ppm: int = 700_000
    """For one look straight down."""
    edge_recall_ppm: int = 300_000
    """At the rim of the footprint."""
    confusion_ppm: int = 0
    """Share of reports with another fault's label."""
    false_alarms_ppm: int = 2_000
    """For one look."""
    sigma_cm: int = 12
    edge_sigma_cm: int = 20
    latency_ms: tuple[int, ...] = (28, 30, 31, 33, 35, 38, 42, 47, 60, 110)
    """Equally likely times from capture to report."""
    model_digest: bytes = b"sim-eye\0"
    asset_probability: float = 0.0
    """How sure an asset must be to be named, as the daemon's `dedup.asset_probability`; 0: the nearest is named."""
    drift_cm: int = 0
    """Deviation of the error that all places of one eye have in common, either way."""
    looks: bool = False
    """Tracks tell how their things look."""


_LOOK_FORM = b"\1"
_LOOK_ALIKE, _LOOK_OWN, _LOOK_NOISE, _LOOK_BAD_NOISE = 18, 34, 15, 44
"""Deviations of a look's numbers: what all faults have in common, what each has of its own, what a track adds; and one
in `_LOOK_BAD` that was seen badly. Under a likeness of 0.4 are so one to three of a hundred pairs of one thing and four
of five pairs of two, as of real modules."""
_LOOK_BAD = 20
_LOOK_NUMBERS = 16


@dataclass(slots=True)
class _Track:
    """One thing in view: like the eye's tracker, its position is the mean of the looks at it."""

    number: int
    asset: str
    """What is really there; "" for a false alarm."""
    last: LocalDetection | None = None
    looks: int = 0
    east_sum_cm: int = 0
    north_sum_cm: int = 0
    features: bytes = b""


class DetectorModel:
    """The statistical eye of one drone.

    Args:
        config: How well it sees.
        site: What there is to see.
        site_map: Whether reports name assets.
        choices: All randomness.
    """

    def __init__(self, config: DetectorConfig, site: Site, site_map: bool, choices: Choices) -> None:
        self._config = config
        self._site = site
        self._choices = choices
        self._site_map = site_map
        self._sightings = (
            SightingFilter(LocalDetection, None, site.map if site_map else None, config.asset_probability)
            if config.asset_probability
            else None
        )
        self._tracks: dict[int, _Track] = {}
        self._track_of: dict[str, int] = {}
        """Faulty assets in view to their tracks."""
        self._next_track = 1
        self.drift_cm = (self._error(config.drift_cm), self._error(config.drift_cm))
        """By how much its places are wrong, east and north."""
        self._labels = sorted({module.label for module in site.faults}) or ["hot-spot"]
        self.seen: set[str] = set()
        """Faulty assets that this eye has reported."""
        self.alarms: list[tuple[int, int]] = []
        """Where it has reported what is not there, centimetres."""

    def look(self, east_cm: int, north_cm: int, captured_ns: int) -> list[LocalDetection]:
        """One look at the ground.

        Args:
            east_cm: Below the camera.
            north_cm: Below the camera.
            captured_ns: The node's monotonic clock.

        Returns:
            What is to be shared of it.
        """
        config, choices = self._config, self._choices
        faults = [m for m in self._site.near(east_cm, north_cm, config.footprint_cm) if m.label]
        found = self._end({module.asset for module in faults}, captured_ns)
        for module in faults:
            off_cm = isqrt((module.east_cm - east_cm) ** 2 + (module.north_cm - north_cm) ** 2)
            recall = self._blend(config.recall_ppm, config.edge_recall_ppm, off_cm)
            # Inverted, so that a draw of 0 sees the fault: the benign answer.
            if not choices.chance("eye.miss", MILLION - recall):
                sigma_cm = self._blend(config.sigma_cm, config.edge_sigma_cm, off_cm)
                found.append(self._report(module, sigma_cm, captured_ns))
        if choices.chance("eye.false", config.false_alarms_ppm):
            found.append(self._false_alarm(east_cm, north_cm, captured_ns))
        return self._share(found)

    def look_away(self, captured_ns: int) -> list[LocalDetection]:
        """The drone looks at the ground no longer: all tracks end; returns what is to be shared of them."""
        return self._share(self._end(set(), captured_ns)) if self._tracks else []

    def forget(self) -> None:
        """The process ended: nothing is in view, and what was held back is lost."""
        if self._sightings is not None:
            self._sightings.forget_all(0)
            self._tracks.clear()
            self._track_of.clear()

    def _end(self, in_view: set[str], captured_ns: int) -> list[LocalDetection]:
        """The last words of tracks whose asset is not in view."""
        if self._sightings is None:
            return []
        gone = [track.last for track in self._tracks.values() if track.asset not in in_view and track.last is not None]
        return [replace(last, kind="end", captured_ns=captured_ns) for last in gone]

    def _share(self, found: list[LocalDetection]) -> list[LocalDetection]:
        shared = found if self._sightings is None else self._sightings.take(found)
        self.seen.update(asset for one in shared if (asset := self._tracks[one.track_id].asset))
        for one in found:
            if one.kind == "end":
                self._track_of.pop(self._tracks.pop(one.track_id).asset, None)
        return shared

    def latency_ns(self) -> int:
        """How late this report is."""
        table = self._config.latency_ms
        return table[self._choices.choose("eye.latency", len(table))] * 1_000_000

    def _blend(self, centre: int, edge: int, off_cm: int) -> int:
        return centre + (edge - centre) * off_cm // max(1, self._config.footprint_cm)

    def _report(self, module: SiteModule, sigma_cm: int, captured_ns: int) -> LocalDetection:
        number = self._track_of.get(module.asset)
        kind = "new" if number is None else "update"
        track = self._begin(module.asset) if number is None else self._tracks[number]
        label = module.label
        if self._choices.chance("eye.confuse", self._config.confusion_ppm):
            label = self._labels[self._choices.choose("eye.label", len(self._labels))]
        track.looks += 1
        track.east_sum_cm += module.east_cm + self._error(sigma_cm) + self.drift_cm[0]
        track.north_sum_cm += module.north_cm + self._error(sigma_cm) + self.drift_cm[1]
        east, north = track.east_sum_cm // track.looks, track.north_sum_cm // track.looks
        return self._detection(kind, track, label, east, north, sigma_cm // isqrt(track.looks), captured_ns)

    def _begin(self, asset: str) -> _Track:
        track = self._tracks[self._next_track] = _Track(self._next_track, asset)
        if asset:
            self._track_of[asset] = track.number
            track.features = self._look_at(asset)
        self._next_track += 1
        return track

    def _false_alarm(self, east_cm: int, north_cm: int, captured_ns: int) -> LocalDetection:
        reach = self._config.footprint_cm
        east = east_cm - reach + self._choices.choose("eye.false", 2 * reach + 1)
        north = north_cm - reach + self._choices.choose("eye.false", 2 * reach + 1)
        label = self._labels[self._choices.choose("eye.label", len(self._labels))]
        self.alarms.append((east, north))
        return self._detection("new", self._begin(""), label, east, north, self._config.sigma_cm, captured_ns)

    def _error(self, sigma_cm: int) -> int:
        """A bell of this width from four uniform draws."""
        if not sigma_cm:
            return 0
        total = sum(self._choices.choose("eye.error", 2 * sigma_cm + 1) for _ in range(4))
        return (total - 4 * sigma_cm) * 866 // 1_000

    def _look_at(self, asset: str) -> bytes:
        """How a thing looks in this track: each thing in its own way, with noise, half of them upside down."""
        if not self._config.looks:
            return b""
        alike, own = random.Random("what faults have in common"), random.Random(f"look of {asset}")
        noise = _LOOK_BAD_NOISE if self._choices.chance("eye.look.bad", MILLION // _LOOK_BAD) else _LOOK_NOISE
        is_turned = self._choices.chance("eye.look.turned", MILLION // 2)
        numbers = []
        for at in range(_LOOK_NUMBERS):
            true = alike.gauss(0, _LOOK_ALIKE) + own.gauss(0, _LOOK_OWN)
            sign = -1 if is_turned and at >= _LOOK_NUMBERS // 2 else 1
            numbers.append(max(-127, min(127, sign * round(true) + self._error(noise))) % 256)
        return _LOOK_FORM + bytes(numbers)

    def _detection(
        self, kind: str, track: _Track, label: str, east: int, north: int, sigma_cm: int, captured_ns: int
    ) -> LocalDetection:
        variance_cm2 = max(1, sigma_cm * sigma_cm + self._config.drift_cm**2)
        track.last = LocalDetection(
            kind=kind,
            track_id=track.number,
            label=label,
            score_milli=550 + self._choices.choose("eye.score", 400),
            east_cm=east,
            north_cm=north,
            covariance_cm2=(variance_cm2, 0, variance_cm2),
            asset=self._asset_at(east, north, variance_cm2),
            moving=False,
            captured_ns=captured_ns,
            model_digest=self._config.model_digest,
            features=track.features,
        )
        return track.last

    def _asset_at(self, east: int, north: int, variance_cm2: int) -> str:
        if self._sightings is None:
            return self._site.asset_at(east, north) if self._site_map else ""
        variance_m2 = variance_cm2 / 1e4
        return self._sightings.asset_at(east / 100, north / 100, (variance_m2, 0.0, variance_m2))
