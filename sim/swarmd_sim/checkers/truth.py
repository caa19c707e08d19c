"""Truth: what of the faults on the ground the swarm has found, doubled, invented or merged.

An object belongs to the faulty module that its place or asset names. Where the places of a drone have an error in
common (`detector.drift_m`) neither can say it: there a sighting shows the module that lies where it would be without
its drone's error, and an object belongs to the module that most of its sightings show.
"""

from collections import Counter
from dataclasses import dataclass

from swarmd_protocols.state.observations import ObjectView
from swarmd_sim.checkers.base import CheckerBase
from swarmd_sim.run.host import Host
from swarmd_sim.world.site import SiteModule

MATCH_CM = 100
"""An object without an asset belongs to the nearest faulty module within this."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The map against the ground."""

    faults: int
    seen: int
    """Faults that some eye reported at all."""
    found: int
    missed: int
    false: int
    """Objects that stand for no fault."""
    false_alarms: int
    """Of those, what an eye reported there by mistake; the rest the swarm has invented."""
    duplicates: int
    distinct_lost: int
    """Faults that an eye reported but that no object stands for: swallowed by a neighbour's."""

    @property
    def recall(self) -> float:
        """Share of the faults that are on the map."""
        return self.found / self.faults if self.faults else 1.0


class TruthChecker(CheckerBase):
    """See the module."""

    def measure(self) -> Truth:
        """Compare the map of the first live host with the ground."""
        run = self.run
        hosts = [host for host in run.component() if run.replica(host) is not None]
        objects = run.replica(hosts[0]).views.objects() if hosts else []
        shown = self._shown(hosts) if run.scenario.detector.drift_m else None
        by_asset = {module.asset: module for module in run.site.faults}
        matched: dict[str, int] = {}
        fleet = run.watch.fleet
        alarms = fleet.alarms() if fleet is not None else []
        false = false_alarms = 0
        for view in objects:
            module = self._match(view, by_asset) if shown is None else by_asset.get(shown.get(view.object_id, ""))
            if module is None:
                false += 1
                false_alarms += _is_alarm(view, alarms)
            else:
                matched[module.asset] = matched.get(module.asset, 0) + 1
        seen = fleet.seen() & set(by_asset) if fleet is not None else set()
        return Truth(
            faults=len(by_asset),
            seen=len(seen),
            found=len(matched),
            missed=len(by_asset) - len(matched),
            false=false,
            false_alarms=false_alarms,
            duplicates=sum(count - 1 for count in matched.values()),
            distinct_lost=len(seen - set(matched)),
        )

    def _shown(self, hosts: list[Host]) -> dict[str, str]:
        """The asset that most sightings of an object show, by its id."""
        run, votes = self.run, dict[str, Counter[str]]()
        fleet = run.watch.fleet
        drifts = {host.node_id: fleet.drift_cm(host) for host in run.hosts} if fleet is not None else {}
        for one in run.replica(hosts[0]).views.detections() if hosts else []:
            if one.east_cm is None or one.north_cm is None or one.origin not in drifts:
                continue
            drift = drifts[one.origin]
            module = self._near(one.east_cm - drift[0], one.north_cm - drift[1])
            if module is not None:
                votes.setdefault(one.object_id, Counter())[module.asset] += 1
        return {name: max(sorted(found), key=found.__getitem__) for name, found in votes.items()}

    def placed(self) -> tuple[set[str], list[tuple[int, int]]]:
        """For the map: faulty assets that are found, and positions of objects that stand for nothing."""
        run = self.run
        hosts = [host for host in run.component() if run.replica(host) is not None]
        by_asset = {module.asset: module for module in run.site.faults}
        found, alarms = set(), []
        for view in run.replica(hosts[0]).views.objects() if hosts else []:
            module = self._match(view, by_asset)
            if module is not None:
                found.add(module.asset)
            elif view.east_cm is not None and view.north_cm is not None:
                alarms.append((view.east_cm, view.north_cm))
        return found, alarms

    def _match(self, view: ObjectView, by_asset: dict[str, SiteModule]) -> SiteModule | None:
        if view.asset:
            return by_asset.get(view.asset)
        if view.east_cm is None or view.north_cm is None:
            return None
        return self._near(view.east_cm, view.north_cm)

    def _near(self, east: int, north: int) -> SiteModule | None:
        near = [module for module in self.run.site.near(east, north, MATCH_CM) if module.label]
        return min(near, key=lambda m: ((m.east_cm - east) ** 2 + (m.north_cm - north) ** 2, m.asset), default=None)

    def on_end(self, now_ns: int) -> None:
        """Compare with the scenario's bound."""
        truth = self.measure()
        checks = self.run.scenario.checks
        if 0 <= checks.distinct_lost < truth.distinct_lost:
            self.run.watch.violate(
                "truth.merged",
                f"{truth.distinct_lost} of {truth.seen} reported faults have no object of their own; at most "
                f"{checks.distinct_lost}",
            )
        least = checks.recall
        if truth.faults and truth.recall < least:
            self.run.watch.violate(
                "truth.recall", f"{truth.found} of {truth.faults} faults found; at least {least:.0%} are wanted"
            )


def _is_alarm(view: ObjectView, alarms: list[tuple[int, int]]) -> bool:
    """Whether an eye reported something where an object is, and nothing is."""
    if view.east_cm is None or view.north_cm is None:
        return False
    return any((east - view.east_cm) ** 2 + (north - view.north_cm) ** 2 <= MATCH_CM**2 for east, north in alarms)
