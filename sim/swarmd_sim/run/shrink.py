"""From a failing run to the smallest one that fails in the same way.

Faults are removed in halves, quarters and so on (delta debugging), then made smaller one by one; then whole streams
of chance are silenced (no losses, no jitter) and the swarm is made smaller. A step is kept when the same rule is still
broken.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from swarmd_sim.errors import SimError
from swarmd_sim.faults.faults import Fault, simpler
from swarmd_sim.run.replay import Replay
from swarmd_sim.run.simulation import Options

SILENCEABLE = ("radio.loss", "radio.jitter", "radio.shadow", "link.", "clock.", "eye.", "work.")


@dataclass(slots=True)
class Shrunk:
    """The outcome of shrinking."""

    replay: Replay
    rule: str
    runs: int
    exhausted: bool
    """False when the budget of runs ended before nothing more could be removed."""


class Shrinker:
    """Makes one failing run smaller.

    Args:
        failing: A run that breaks a rule.
        rule: The rule that must stay broken.
        budget: Most runs to spend.
        progress: Told after each run: runs so far, faults left.
    """

    def __init__(
        self, failing: Replay, rule: str, budget: int = 200, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self._best = failing
        self._rule = rule
        self._budget = budget
        self._progress = progress
        self._tried: set[str] = set()
        self.runs = 0

    def shrink(self) -> Shrunk:
        """Make it as small as the budget allows."""
        changed = True
        while changed and self.runs < self._budget:
            changed = self._remove_faults()
            changed |= self._simplify_faults()
            changed |= self._silence()
            changed |= self._smaller_swarm()
        return Shrunk(self._best, self._rule, self.runs, not changed)

    def _fails(self, candidate: Replay) -> bool:
        key = candidate.to_json()
        if key in self._tried or self.runs >= self._budget:
            return False
        self._tried.add(key)
        self.runs += 1
        try:
            result = candidate.run(Options())
        except SimError:
            return False
        if self._progress is not None:
            self._progress(self.runs, len(self._best.script or ()))
        return any(violation.rule == self._rule for violation in result.violations)

    def _keep(self, candidates: Iterator[Replay]) -> bool:
        for candidate in candidates:
            if self._fails(candidate):
                self._best = candidate
                return True
        return False

    def _remove_faults(self) -> bool:
        changed = False
        chunk = max(1, len(self._best.script or ()))
        while chunk:
            if self._keep(self._without_chunks(chunk)):
                changed = True
                chunk = min(chunk, len(self._best.script or ()))
            else:
                chunk //= 2
        return changed

    def _without_chunks(self, chunk: int) -> Iterator[Replay]:
        script = self._best.script or ()
        for start in range(0, len(script), chunk):
            yield replace(self._best, script=script[:start] + script[start + chunk :])

    def _simplify_faults(self) -> bool:
        changed = False
        while self._keep(self._simpler_scripts()):
            changed = True
        return changed

    def _simpler_scripts(self) -> Iterator[Replay]:
        script = self._best.script or ()
        for position, fault in enumerate(script):
            for smaller in simpler(fault):
                yield replace(self._best, script=_replaced(script, position, smaller))

    def _silence(self) -> bool:
        candidates = (
            replace(self._best, zeroed=(*self._best.zeroed, stream))
            for stream in SILENCEABLE
            if stream not in self._best.zeroed
        )
        return self._keep(candidates)

    def _smaller_swarm(self) -> bool:
        scenario = self._best.scenario
        highest = max((node for fault in self._best.script or () for node in fault.nodes), default=2)
        sizes = sorted({max(3, highest + 1), (scenario.swarm.nodes + highest + 1) // 2})
        candidates = (
            replace(
                self._best,
                scenario=replace(
                    scenario, swarm=replace(scenario.swarm, nodes=size, seeds=min(size, scenario.swarm.seeds))
                ),
            )
            for size in sizes
            if highest < size < scenario.swarm.nodes
        )
        return self._keep(candidates)


def _replaced(script: Sequence[Fault], position: int, fault: Fault) -> tuple[Fault, ...]:
    return (*script[:position], fault, *script[position + 1 :])
