"""A detector as statistics: what an eye would report from here, without rendering a pixel.

Recall falls with the distance from the point below the camera (range and angle in one), position error grows with
it, false alarms come at a rate, and each report is late by a draw from a measured latency table. With a site map, the
position is snapped to the asset it falls on, as the daemon does it.
"""

from dataclasses import dataclass
from math import isqrt

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
    sigma_cm: int = 60
    edge_sigma_cm: int = 120
    latency_ms: tuple[int, ...] = (28, 30, 31, 33, 35, 38, 42, 47, 60, 110)
    """Equally likely times from capture to report."""
    model_digest: bytes = b"sim-eye\0"


@dataclass(slots=True)
class _Track:
    """One thing in view: like the eye's tracker, its position is the mean of the looks at it."""

    number: int
    looks: int = 0
    east_sum_cm: int = 0
    north_sum_cm: int = 0


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
        self._site_map = site_map
        self._choices = choices
        self._tracks: dict[str, _Track] = {}
        self._next_track = 1
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
            What the eye reports of it.
        """
        config, choices = self._config, self._choices
        found = []
        for module in self._site.near(east_cm, north_cm, config.footprint_cm):
            if not module.label:
                continue
            off_cm = isqrt((module.east_cm - east_cm) ** 2 + (module.north_cm - north_cm) ** 2)
            recall = self._blend(config.recall_ppm, config.edge_recall_ppm, off_cm)
            # Inverted, so that a draw of 0 sees the fault: the benign answer.
            if not choices.chance("eye.miss", MILLION - recall):
                sigma_cm = self._blend(config.sigma_cm, config.edge_sigma_cm, off_cm)
                found.append(self._report(module, sigma_cm, captured_ns))
        if choices.chance("eye.false", config.false_alarms_ppm):
            found.append(self._false_alarm(east_cm, north_cm, captured_ns))
        return found

    def latency_ns(self) -> int:
        """How late this report is."""
        table = self._config.latency_ms
        return table[self._choices.choose("eye.latency", len(table))] * 1_000_000

    def _blend(self, centre: int, edge: int, off_cm: int) -> int:
        return centre + (edge - centre) * off_cm // max(1, self._config.footprint_cm)

    def _report(self, module: SiteModule, sigma_cm: int, captured_ns: int) -> LocalDetection:
        self.seen.add(module.asset)
        track = self._tracks.get(module.asset)
        kind = "new" if track is None else "update"
        if track is None:
            track = self._tracks[module.asset] = _Track(self._next_track)
            self._next_track += 1
        label = module.label
        if self._choices.chance("eye.confuse", self._config.confusion_ppm):
            label = self._labels[self._choices.choose("eye.label", len(self._labels))]
        track.looks += 1
        track.east_sum_cm += module.east_cm + self._error(sigma_cm)
        track.north_sum_cm += module.north_cm + self._error(sigma_cm)
        east, north = track.east_sum_cm // track.looks, track.north_sum_cm // track.looks
        return self._detection(kind, track.number, label, east, north, sigma_cm // isqrt(track.looks), captured_ns)

    def _false_alarm(self, east_cm: int, north_cm: int, captured_ns: int) -> LocalDetection:
        reach = self._config.footprint_cm
        east = east_cm - reach + self._choices.choose("eye.false", 2 * reach + 1)
        north = north_cm - reach + self._choices.choose("eye.false", 2 * reach + 1)
        label = self._labels[self._choices.choose("eye.label", len(self._labels))]
        self._next_track += 1
        self.alarms.append((east, north))
        return self._detection("new", self._next_track - 1, label, east, north, self._config.sigma_cm, captured_ns)

    def _error(self, sigma_cm: int) -> int:
        """A bell of this width from four uniform draws."""
        if not sigma_cm:
            return 0
        total = sum(self._choices.choose("eye.error", 2 * sigma_cm + 1) for _ in range(4))
        return (total - 4 * sigma_cm) * 866 // 1_000

    def _detection(
        self, kind: str, track: int, label: str, east: int, north: int, sigma_cm: int, captured_ns: int
    ) -> LocalDetection:
        asset = self._site.asset_at(east, north) if self._site_map else ""
        return LocalDetection(
            kind=kind,
            track_id=track,
            label=label,
            score_milli=550 + self._choices.choose("eye.score", 400),
            east_cm=east,
            north_cm=north,
            covariance_cm2=(sigma_cm * sigma_cm, 0, sigma_cm * sigma_cm),
            asset=asset,
            moving=False,
            captured_ns=captured_ns,
            model_digest=self._config.model_digest,
        )
