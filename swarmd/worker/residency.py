"""Which bundles are served, under which names: the newest version of a name, and the one before it.

A request that names no version gets the newest; one that names a digest gets that bundle or nothing, never another.
A version that is replaced twice is retired: it takes no new request and is closed once the last one that it took has
been answered, so a release in rollout leaves no second without service and mixes no answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from swarmd_models.service import DETECT, GRAPH, SERIES, TEXT, Service

VERSIONS_MAX = 2
"""Of one name: the one that a release brings and the one that it replaces."""
NAMES_MAX = 16
"""Bundles of different names at once: each holds its weights in memory."""
SUFFIX, TEXT_SUFFIX, SERIES_SUFFIX = ".detect", ".text", ".series"
"""Behind a bundle's name: the lane for pictures, that of a language model for texts, and that for samples."""
SUFFIXES = {DETECT: SUFFIX, TEXT: TEXT_SUFFIX, SERIES: SERIES_SUFFIX}
"""By lane; the graph's has none."""


def lane_of(name: str) -> str:
    """The lane that a model's name ends with."""
    return next((lane for lane, suffix in SUFFIXES.items() if name.endswith(suffix)), GRAPH)


def bare(name: str) -> str:
    """A model's name without its lane."""
    return name.removesuffix(SUFFIXES.get(lane_of(name), ""))


@dataclass(slots=True)
class Resident:
    """One bundle that is served, or still has requests to answer."""

    service: Service
    ability: str = ""
    """What it is able to, by its owner's word; "": it does not say."""
    grade_milli: int = 0
    in_use: int = 0
    """Requests that were taken and not answered."""
    is_retired: bool = False

    @property
    def digest(self) -> str:
        """Of the bundle."""
        return self.service.bundle.digest


class NotResidentError(Exception):
    """No such bundle is served; the message says which are."""


class Residency:
    """Names to versions."""

    def __init__(self, close: Callable[[Resident], None]) -> None:
        """Start empty; `close` is called once for each bundle that nothing needs any more."""
        self._close = close
        self._versions: dict[str, list[Resident]] = {}
        """The newest last."""

    def add(self, service: Service, ability: str = "", grade_milli: int = 0) -> Resident:
        """Serve a bundle as the newest of its name; one that is served already becomes the newest again.

        Args:
            service: The bundle.
            ability: What it is able to; "": it does not say.
            grade_milli: How well, thousandths.

        Raises:
            NotResidentError: There are too many names.
        """
        name = service.bundle.name
        if name not in self._versions and len(self._versions) >= NAMES_MAX:
            raise NotResidentError(f"{NAMES_MAX} models are served, {name} would be one too many")
        versions = self._versions.setdefault(name, [])
        for twin in [one for one in versions if one.digest == service.bundle.digest]:
            versions.remove(twin)
            self._retire(twin)
        versions.append(resident := Resident(service, ability, grade_milli))
        while len(versions) > VERSIONS_MAX:
            self._retire(versions.pop(0))
        return resident

    def find(self, name: str, version: str = "") -> tuple[Resident, str]:
        """The bundle and the lane that a model's name, with a version or without, means.

        Args:
            name: A bundle's name, or that and `.detect` or `.text`.
            version: A digest; "": the newest.

        Raises:
            NotResidentError: None is served so.
        """
        lane = GRAPH
        versions = self._versions.get(name)
        if versions is None:
            lane, versions = lane_of(name), self._versions.get(bare(name))
        for one in reversed(versions or ()):
            if lane in one.service.lanes and version in ("", one.digest):
                return one, lane
        if versions is None or not version:
            raise NotResidentError(f"no model {name[:80]!r} is served; there are {', '.join(self.names()) or 'none'}")
        raise NotResidentError(
            f"version {version[:64]!r} of {name} is not served; there are {', '.join(one.digest for one in versions)}"
        )

    def by_digest(self, digest: str, lane: str) -> Resident:
        """The bundle with this digest; raises `NotResidentError` where none is served, or not in this lane."""
        for versions in self._versions.values():
            for one in versions:
                if one.digest == digest and lane in one.service.lanes:
                    return one
        raise NotResidentError(f"no bundle {digest[:16]} is served here")

    def find_able(self, name: str, ability: str, grade_min_milli: int) -> tuple[Resident, str]:
        """The best of the newest bundles that are able to something, and the lane that `name` ends with.

        Raises:
            NotResidentError: There is none.
        """
        lane = lane_of(name)
        newest = [versions[-1] for versions in self._versions.values()]
        found = [one for one in newest if lane in one.service.lanes and one.ability == ability]
        best = max(found, key=lambda one: (one.grade_milli, one.digest), default=None)
        if best is None or best.grade_milli < grade_min_milli:
            raise NotResidentError(
                f"no bundle of grade {grade_min_milli / 1e3:g} or more is able to {ability[:80]!r} here"
            )
        return best, lane

    def abilities(self) -> dict[str, tuple[str, int]]:
        """Ability and grade of those that have one, by digest."""
        return {
            one.digest: (one.ability, one.grade_milli)
            for versions in self._versions.values() for one in versions if one.ability
        }  # fmt: skip

    def digests(self) -> list[str]:
        """Of all bundles that are served."""
        return [one.digest for versions in self._versions.values() for one in versions]

    def names(self) -> list[str]:
        """Every model's name, lanes included."""
        found = []
        for name, versions in sorted(self._versions.items()):
            found.append(name)
            found += [name + SUFFIXES[lane] for lane in versions[-1].service.lanes if lane in SUFFIXES]
        return found

    def versions(self, name: str) -> list[str]:
        """The digests that a name has, the newest last."""
        base = name if name in self._versions else bare(name)
        return [one.digest for one in self._versions.get(base, ())]

    def acquire(self, resident: Resident) -> None:
        """A request was taken for it."""
        resident.in_use += 1

    def release(self, resident: Resident) -> None:
        """That request has its answer."""
        resident.in_use -= 1
        if resident.is_retired and not resident.in_use:
            self._close(resident)

    def _retire(self, resident: Resident) -> None:
        resident.is_retired = True
        if not resident.in_use:
            self._close(resident)
