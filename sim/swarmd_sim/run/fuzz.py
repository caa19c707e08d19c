"""Many seeds, each with its own subset of faults; the failing ones with the line that replays them."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

from swarmd_sim.errors import SimError
from swarmd_sim.run.coverage import Coverage
from swarmd_sim.run.replay import Replay
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.simulation import Options

DEFAULT_SCENARIO = "fuzz"


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What one seed did."""

    seed: int
    rules: tuple[str, ...]
    text: str
    trace_digest: str
    faults: int
    cpu_s: float
    hits: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class FuzzReport:
    """What many seeds did."""

    outcomes: list[SeedOutcome] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    wall_s: float = 0.0

    @property
    def failing(self) -> list[SeedOutcome]:
        """Seeds that broke a rule, by seed."""
        return sorted((outcome for outcome in self.outcomes if outcome.rules), key=lambda outcome: outcome.seed)


@dataclass(frozen=True, slots=True)
class FuzzPlan:
    """What to run for each seed."""

    scenario: str
    overrides: Mapping[str, Any]
    mutant: str = ""

    def load(self) -> Scenario:
        """The scenario, checked."""
        return load_scenario(self.scenario, self.overrides)


def run_seed(plan: FuzzPlan, seed: int) -> SeedOutcome:
    """Run one seed; a crash of the protocols counts as a violation.

    Args:
        plan: What to run.
        seed: Decides everything.

    Returns:
        What it did.
    """
    replayed = Replay(plan.load(), seed, mutant=plan.mutant)
    started = time.process_time()
    try:
        result = replayed.run(Options())
    except SimError:  # Bad input, such as a damaged trace, is no finding.
        raise
    except Exception as error:  # The protocols must never raise; whatever they raise is the finding.
        text = f"{type(error).__name__}: {error}"
        return SeedOutcome(seed, ("protocol.raised",), text, "", 0, time.process_time() - started)
    rules = tuple(sorted({violation.rule for violation in result.violations}))
    text = result.violations[0].text if result.violations else ""
    digest = str(result.figures["trace_digest"])
    cpu_s = time.process_time() - started
    return SeedOutcome(seed, rules, text, digest, len(result.script), cpu_s, dict(result.coverage.hits))


def _run_seeds(plan: FuzzPlan, seeds: list[int]) -> list[SeedOutcome]:
    return [run_seed(plan, seed) for seed in seeds]


def fuzz(
    plan: FuzzPlan,
    seeds: Iterable[int],
    jobs: int = 1,
    progress: Callable[[SeedOutcome], None] | None = None,
    stop_after: int = 0,
) -> FuzzReport:
    """Run many seeds.

    Args:
        plan: What to run for each.
        seeds: Which.
        jobs: Processes; 1 runs here.
        progress: Told of each outcome.
        stop_after: Stop after so many failing seeds; 0 runs all.

    Returns:
        The report, outcomes by seed.
    """
    plan.load()  # Bad input is told once, before any process starts.
    started = time.perf_counter()
    report = FuzzReport()
    for outcome in _outcomes(plan, list(seeds), jobs):
        report.outcomes.append(outcome)
        report.coverage.merge(Coverage(dict(outcome.hits)))
        if progress is not None:
            progress(outcome)
        if stop_after and len(report.failing) >= stop_after:
            break
    report.outcomes.sort(key=lambda outcome: outcome.seed)
    report.wall_s = time.perf_counter() - started
    return report


def _outcomes(plan: FuzzPlan, seeds: list[int], jobs: int) -> Iterable[SeedOutcome]:
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(plan, seed)
        return
    chunk = max(1, min(8, len(seeds) // (jobs * 4) or 1))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_run_seeds, plan, seeds[i : i + chunk]) for i in range(0, len(seeds), chunk)]
        try:
            for future in futures:
                yield from future.result()
        finally:
            for future in futures:
                future.cancel()


def failing_replay(plan: FuzzPlan, seed: int) -> Replay:
    """A failing seed as a replay that carries its fault script, ready to be shrunk.

    Args:
        plan: What was run.
        seed: The seed that failed.

    Returns:
        The replay.
    """
    bare = Replay(plan.load(), seed, mutant=plan.mutant)
    from swarmd_sim.run.mutants import mutated
    from swarmd_sim.run.simulation import Simulation

    with mutated(plan.mutant):
        script = Simulation(bare.scenario, seed, Options()).script
    return replace(bare, script=tuple(script))
