"""How many seeds it takes to find each protocol bug on purpose: the mutant table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from swarmd_sim.run.fuzz import DEFAULT_SCENARIO, FuzzPlan, fuzz
from swarmd_sim.run.mutants import catalogue


@dataclass(frozen=True, slots=True)
class Found:
    """One row of the table."""

    mutant: str
    text: str
    seeds: int
    """Seeds run until it was found; the budget when it was not."""
    rule: str
    """The rule it broke; "" when it was not found."""
    cpu_s: float


@dataclass(slots=True)
class MutationScore:
    """The whole table."""

    rows: list[Found] = field(default_factory=list)

    @property
    def all_found(self) -> bool:
        """Whether none escaped."""
        return all(row.rule for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The form in JSON."""
        found = [row.seeds for row in self.rows if row.rule]
        return {
            "mutants": len(self.rows),
            "found": len(found),
            "median_seeds": median(found) if found else None,
            "rows": [[row.mutant, row.seeds, row.rule, round(row.cpu_s, 1)] for row in self.rows],
        }

    def lines(self) -> list[str]:
        """The table as Markdown."""
        head = ["| mutant | what is broken | seeds to find | rule | CPU s |", "|---|---|---:|---|---:|"]
        return head + [
            f"| {row.mutant} | {row.text} | {row.seeds if row.rule else f'not in {row.seeds}'} | {row.rule or '-'} "
            f"| {row.cpu_s:.1f} |"
            for row in self.rows
        ]


def score_mutants(
    names: Sequence[str], seeds: int, jobs: int = 1, progress: Callable[[], None] | None = None
) -> MutationScore:
    """Fuzz each mutant until it is found.

    Args:
        names: Mutants of the catalogue.
        seeds: Most seeds a mutant.
        jobs: Processes.
        progress: Called after each mutant.

    Returns:
        The table.
    """
    table = MutationScore()
    for name in names:
        about = catalogue()[name]
        plan = FuzzPlan(about.scenario or DEFAULT_SCENARIO, about.overrides, name)
        report = fuzz(plan, range(1, seeds + 1), jobs, stop_after=1)
        rule = report.failing[0].rules[0] if report.failing else ""
        spent = sum(outcome.cpu_s for outcome in report.outcomes)
        table.rows.append(Found(name, about.text, len(report.outcomes), rule, spent))
        if progress is not None:
            progress()
    return table
