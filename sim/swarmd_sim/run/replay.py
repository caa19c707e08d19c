"""A run as a file: enough to repeat it exactly, and a mark of the code that it holds for.

A replay names the scenario (by its whole table), the seed, the fault script, the streams that were silenced, the mutant
and the horizon. The mark is a hash over the source of the protocols and the simulator: other code draws other
numbers, so a replay of another version is refused instead of silently showing something else.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import swarmd_protocols
import swarmd_sim
from swarmd_sim.errors import ReplayError
from swarmd_sim.faults.faults import Fault, fault_from_row
from swarmd_sim.run.mutants import mutated
from swarmd_sim.run.neighbours import TwoSwarms
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.simulation import Options, Simulation

FORMAT = 1
_FILE_MAX_BYTES = 32 * 1024 * 1024


@cache
def code_mark() -> str:
    """16 hex digits over every source file of the protocols and the simulator."""
    mark = blake2b(digest_size=8, person=b"swarmd-sim-code")
    for package in (swarmd_protocols, swarmd_sim):
        root = Path(next(iter(package.__path__)))
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
            mark.update(path.relative_to(root).as_posix().encode() + b"\0")
            mark.update(path.read_bytes() + b"\0")
    return mark.hexdigest()


@dataclass(frozen=True, slots=True)
class Replay:
    """Everything that decides a run."""

    scenario: Scenario
    seed: int
    script: tuple[Fault, ...] | None = None
    """None: drawn from the seed."""
    zeroed: tuple[str, ...] = ()
    mutant: str = ""

    def run(self, options: Options | None = None) -> Result:
        """Run it.

        Args:
            options: How to drive it; script and silenced streams come from this replay.

        Returns:
            The result.
        """
        chosen = options or Options()
        chosen.script = self.script
        chosen.zeroed = self.zeroed
        with mutated(self.mutant):
            if self.scenario.neighbours.agree_at_s:
                return TwoSwarms(self.scenario, self.seed, chosen).run()
            if self.scenario.learning.labelled:
                return _learning(self.scenario, self.seed, chosen)
            return Simulation(self.scenario, self.seed, chosen).run()

    def to_json(self) -> str:
        """The form in a file."""
        table = asdict(self.scenario)
        rows = None if self.script is None else [fault.to_row() for fault in self.script]
        return json.dumps(
            {
                "format": FORMAT,
                "version": swarmd_sim_version(),
                "code": code_mark(),
                "scenario": table,
                "seed": self.seed,
                "script": rows,
                "zeroed": list(self.zeroed),
                "mutant": self.mutant,
            },
            indent=1,
        )


def _learning(scenario: Scenario, seed: int, options: Options) -> Result:
    # Models and their runtime are heavy imports that only such runs pay for.
    from swarmd_sim.run.learning import LearningSwarm

    return LearningSwarm(scenario, seed, options).run()


@dataclass(slots=True)
class LoadedReplay:
    """A replay from a file."""

    replay: Replay
    warnings: list[str] = field(default_factory=list)


def swarmd_sim_version() -> str:
    """The distribution's version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("swarmd")
    except PackageNotFoundError:
        return "unknown"


def load_replay(path: Path, *, any_code: bool = False) -> LoadedReplay:
    """Read a replay file.

    Args:
        path: The file.
        any_code: Take a file of other code too, with a warning.

    Returns:
        The replay.

    Raises:
        ReplayError: The file is missing or damaged, or was recorded by other code.
    """
    table = _read(path)
    warnings = []
    if table.get("format") != FORMAT:
        raise ReplayError(f"{path} has format {table.get('format')!r}; this reads {FORMAT}")
    if table.get("code") != code_mark():
        text = (
            f"{path} was recorded by version {table.get('version')} (code {table.get('code')}); this is "
            f"{swarmd_sim_version()} (code {code_mark()}). The same seed means another run here"
        )
        if not any_code:
            raise ReplayError(f"{text}; check out that version, or pass --any-code to try it all the same")
        warnings.append(text)
    try:
        scenario_table = dict(table["scenario"])
        scenario = scenario_from_table(
            scenario_table, name=str(scenario_table.get("name", "replay")), folder=str(scenario_table.get("folder", ""))
        )
        rows = table["script"]
        script = None if rows is None else tuple(fault_from_row(row) for row in rows)
        replay = Replay(scenario, int(table["seed"]), script, tuple(map(str, table["zeroed"])), str(table["mutant"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ReplayError(f"{path} is damaged: {error}") from error
    if any(node >= scenario.swarm.nodes for fault in script or () for node in fault.nodes):
        raise ReplayError(f"{path} is damaged: a fault names a node that the scenario does not have")
    return LoadedReplay(replay, warnings)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _FILE_MAX_BYTES:
            raise ReplayError(f"{path} is larger than {_FILE_MAX_BYTES >> 20} MiB; that is no replay")
        table = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{path} is no replay file: {error}") from error
    if not isinstance(table, dict):
        raise ReplayError(f"{path} is no replay file")
    return table


def readable_timeline(result: Result, last: int = 0) -> Sequence[str]:
    """The timeline as lines of text.

    Args:
        result: A run whose timeline was kept.
        last: Only so many of the latest lines; 0 is all.

    Returns:
        One line an entry: time, host, what happened.
    """
    entries = result.timeline[-last:] if last else result.timeline
    return [f"{at / 1e9:12.6f} s  {'swarm' if host < 0 else f'n{host}':>6}  {text}" for at, host, text in entries]
