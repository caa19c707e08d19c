"""Ensembles: a small router that chooses, for each input, which of several specialised bundles answers.

A bundle with `decoder = "ensemble"` names a router and experts by file and by digest. All of that is in its own digest,
so an ensemble is one version, however many models are in it: who asks for it by digest, here or at a lender, never gets
the answer of an expert of another release.

```toml
decoder = "ensemble"
labels = ["healthy", "chipped"]      # what experts say; of series each has these very labels
[ensemble]
lane = "series"                      # what it takes: "series", or "detect" for pictures
router = "kind.toml"                 # its labels are what `when` names
router_digest = "…"
least = 0.6                          # below this score of the router's the expert `other` is asked
[[ensemble.expert]]
bundle = "quad.toml"
digest = "…"
when = ["quad"]
[[ensemble.expert]]
bundle = "any.toml"
digest = "…"
when = []                            # nothing: it is `other`; every ensemble has one such
```
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from swarmd_models.errors import ArtefactError
from swarmd_models.series_rule import CLASSIFY, SeriesRule
from swarmd_models.toml_reader import TomlReader

EXPERTS_MAX = 16
"""Each holds its weights in memory."""
LANES = ("series", "detect")


class Member(Protocol):
    """What an ensemble has to know of a bundle in it (`bundle.Bundle`)."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def decoder(self) -> str:
        """How its outputs are read."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """What it says."""
        ...

    @property
    def digest(self) -> str:
        """Its version."""
        ...

    @property
    def series(self) -> SeriesRule:
        """How it judges series."""
        ...

    @property
    def toml_path(self) -> Path | None:
        """Its description."""
        ...

    def files(self) -> tuple[Path, ...]:
        """Every file that it names."""
        ...


AnyBundle = TypeVar("AnyBundle", bound=Member)


@dataclass(frozen=True, slots=True)
class Expert(Generic[AnyBundle]):
    """One of those that are chosen from."""

    bundle: AnyBundle
    when: tuple[str, ...]
    """Labels of the router; none: it answers where no other does."""


@dataclass(frozen=True, slots=True)
class EnsembleRule(Generic[AnyBundle]):
    """Who chooses, and from whom."""

    lane: str
    router: AnyBundle
    experts: tuple[Expert[AnyBundle], ...]
    least: float

    def place_of(self, label: str, score: float) -> int:
        """Which expert answers, by the router's surest word; raises nothing."""
        if score >= self.least:
            for place, one in enumerate(self.experts):
                if label in one.when:
                    return place
        return next(place for place, one in enumerate(self.experts) if not one.when)

    def files(self) -> tuple[Path, ...]:
        """Of all its bundles, their descriptions among them."""
        found: list[Path] = []
        for one in (self.router, *(expert.bundle for expert in self.experts)):
            found += [one.toml_path, *one.files()] if one.toml_path is not None else one.files()
        return tuple(dict.fromkeys(found))


def read_ensemble(
    table: TomlReader, path: Path, labels: tuple[str, ...], load: Callable[[Path], AnyBundle]
) -> EnsembleRule[AnyBundle] | None:
    """The table `[ensemble]`; None where it does not hold, which is told as problems.

    Args:
        table: It.
        path: The description that it stands in; members lie in its folder.
        labels: The ensemble's.
        load: Reads a member; raises `ArtefactError`.
    """
    lane = table.choice("lane", LANES, "series")
    least = table.number("least", 0.0, 0.0, 1.0)
    router = _member(table, path, table.text("router", None), table.text("router_digest", None), load)
    experts = []
    rows = table.tables("expert", EXPERTS_MAX)
    for row in rows:
        bundle = _member(table, path, row.text("bundle", None), row.text("digest", None), load)
        when = row.texts("when")
        if bundle is not None:
            experts.append(Expert(bundle, when))
    if router is None or len(experts) != len(rows):
        return None
    rule = EnsembleRule(lane, router, tuple(experts), least)
    for problem in _problems(rule, labels):
        table.problem(problem)
    return rule


def _problems(rule: EnsembleRule[AnyBundle], labels: tuple[str, ...]) -> list[str]:
    found = []
    said = [label for one in rule.experts for label in one.when]
    if sum(not one.when for one in rule.experts) != 1:
        found.append("exactly one expert has `when = []`: it answers where the router is unsure, or names none")
    if len(set(said)) != len(said):
        found.append("a label of the router is in `when` of one expert alone")
    found += [f"when names {one!r}, which is no label of the router" for one in said if one not in rule.router.labels]
    for one in (rule.router, *(expert.bundle for expert in rule.experts)):
        if one.decoder in ("ensemble", "text") or (one.decoder == "series") != (rule.lane == "series"):
            found.append(f"{one.name} is of decoder {one.decoder or 'none'!r}; it cannot answer in lane {rule.lane}")
    if rule.lane == "series":
        wanted = rule.router.series
        for expert in rule.experts:
            hears = expert.bundle.series
            if expert.bundle.labels != labels:
                found.append(f"the labels of {expert.bundle.name} are not those of the ensemble")
            looks_alike = (hears.rate_hz, hears.window, hears.hop, hears.channels) == (
                wanted.rate_hz, wanted.window, wanted.hop, wanted.channels,
            )  # fmt: skip
            if not looks_alike or hears.task != rule.experts[0].bundle.series.task:
                found.append(f"{expert.bundle.name} looks at other windows than the router, or has another task")
        if wanted.task != CLASSIFY:
            found.append("a router classifies")
    return found


def _member(
    table: TomlReader, path: Path, name: str, digest: str, load: Callable[[Path], AnyBundle]
) -> AnyBundle | None:
    if not name or not digest:
        return None
    folder = path.parent.resolve()
    found = (folder / name).resolve()
    if not found.is_relative_to(folder) or found == path.resolve() or found.suffix != ".toml":
        table.problem(f"{name} is no other bundle in the ensemble's folder")
        return None
    try:
        bundle = load(found)
    except ArtefactError as error:
        table.problem(str(error))
        return None
    if bundle.digest != digest:
        table.problem(f"{name} is not the bundle that the ensemble was made with: its digest is {bundle.digest[:16]}…")
        return None
    return bundle
