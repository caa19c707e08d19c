"""Searches the architecture for a device class: `python -m swarmd_recipes.search slow-core --crops FILE.npz`.

Optuna (extra `search`) proposes shapes of the plan's space (`space.py`), three objectives at once: score on data held
back, latency of the device's table (`latency.py`), size. Each is trained for a short while (`proxy.py`); then the best
few in full, and the best of these becomes a bundle, its recipe beside it.

The study is a SQLite file in the work directory. A trial is drawn from the plan's seed, its own number and the trials
before it, and a killed trial is run again with its shape, so a search that was killed and goes on has the trials of
one that was not. A trial that breaks is recorded with its reason and the search goes on, until `MAX_BROKEN` break in a
row. A shape that is proposed again is not trained again.
"""

import argparse
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swarmd_models.errors import ArtefactError, ModelError
from swarmd_recipes.latency import Cost, LatencyTable, load_table, table_path
from swarmd_recipes.space import Plan, Shape, load_plan, recipe_of, recipe_toml

Say = Callable[[str], None]
Judge = Callable[[Shape], dict[str, float]]
"""Trains and judges a shape: its figures, of which "score" (0 to 1, more is better) is what the search wants."""

MAX_BROKEN = 4
"""Trials that break one after the other: then it is no shape that is wrong, but the machine or the data."""
ASKS_A_TRIAL = 12
"""Proposals for each trial, repeats among them; a sampler that keeps to one corner must not turn for ever."""
_STARTUP = 5
"""Trials that are drawn at random before the sampler learns from them."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a shape."""

    number: int
    shape: Shape
    cost: Cost
    figures: dict[str, float]
    """Empty where the trial broke."""
    error: str = ""

    @property
    def score(self) -> float:
        """Of data held back, 0 to 1."""
        return self.figures["score"]


def search(plan: Plan, table: LatencyTable, data: str, work: Path, judge: Judge, say: Say) -> list[Trial]:
    """Run the search to its end, from where it stands.

    Args:
        plan: The space and how many shapes are wanted.
        table: What each of them costs; it must have all.
        data: What names the data, such as its SHA-256: a study is of one plan, one table and one set of data.
        work: Gets `study.sqlite`.
        judge: Trains and judges a shape. What it raises is written down, but for what ends the process.
        say: Told about each trial.

    Returns:
        The trials, each shape once, in the order in which they were drawn.

    Raises:
        ArtefactError: The table lacks a shape, the study is of something else, another process runs it, Optuna is not
            installed, or too many trials broke in a row.
    """
    table.covers(plan)
    work.mkdir(parents=True, exist_ok=True)
    with _alone(work):
        study = _study(plan, table, data, work)
        trials = _told(study, plan, table)
        asked = len(study.get_trials(deepcopy=False))
        while len(trials) < plan.proxy.trials:
            _stop_if_broken(trials)
            number, shape = _next(study, plan)
            asked += 1
            known = next((trial for trial in trials if trial.shape == shape), None)
            if known is None:
                known = _tried(number, shape, table.of(shape), judge)
                trials.append(known)
                say(f"trial {len(trials)} of {plan.proxy.trials}, {shape.name}: {known.error or _line(known)}")
            _tell(study, number, known)
            if asked >= ASKS_A_TRIAL * plan.proxy.trials:
                say(f"{asked} proposals gave {len(trials)} shapes; no more are drawn")
                break
        _stop_if_broken(trials)
    return trials


def _line(trial: Trial) -> str:
    return f"score {trial.score:.4f}, {trial.cost.p50_ms} ms, {trial.cost.size_bytes} bytes"


def _stop_if_broken(trials: list[Trial]) -> None:
    last = trials[-MAX_BROKEN:]
    if len(last) == MAX_BROKEN and all(trial.error for trial in last):
        raise ArtefactError(f"the last {MAX_BROKEN} trials broke, the last one with: {last[-1].error}")


def _tried(number: int, shape: Shape, cost: Cost, judge: Judge) -> Trial:
    try:
        figures = {name: float(value) for name, value in judge(shape).items()}
        if not 0.0 <= figures["score"] <= 1.0:
            raise ValueError(f"its score is {figures['score']}")
    except Exception as error:  # Whatever a training raises, it is that shape's, and it is written down.
        return Trial(number, shape, cost, {}, f"{type(error).__name__}: {error}"[:300])
    return Trial(number, shape, cost, figures)


# --- The study -------------------------------------------------------------------------------------------------------


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Hold the work directory: two processes would take each other's trials for killed ones."""
    handle = os.open(work / "search.lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArtefactError(f"{work} is in use by another search") from error
        yield
    finally:
        os.close(handle)


def _study(plan: Plan, table: LatencyTable, data: str, work: Path) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ArtefactError("Optuna is not installed; it is an extra (search)") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = work / "study.sqlite"
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path.resolve()}",
            study_name=plan.name,
            directions=["maximize", "minimize", "minimize"],
            load_if_exists=True,
        )
    except Exception as error:  # SQLAlchemy's and SQLite's own, of which Optuna hides none.
        raise ArtefactError(f"{path} cannot be used as a study ({str(error).splitlines()[0][:200]})") from error
    of = {"plan": plan.fingerprint, "table": table.fingerprint, "data": data}
    said = study.user_attrs.get("of")
    if said is None:
        study.set_user_attr("of", of)
    elif said != of:
        other = ", ".join(name for name in of if said.get(name) != of[name])
        raise ArtefactError(f"{path} is of another {other}; name another --work directory or remove it")
    return study


def _distributions(plan: Plan) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution

    return {
        axis: CategoricalDistribution(sorted({getattr(shape, axis) for shape in plan.shapes}))
        for axis in ("stem", "depth", "width")
    }


def _next(study: Any, plan: Plan) -> tuple[int, Shape]:
    """The number and shape of the trial to run: one that was killed, or a new one."""
    import optuna

    of = _distributions(plan)
    for left in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if set(left.params) == set(of):
            return left.number, Shape(**left.params)
        study.tell(left.number, state=optuna.trial.TrialState.FAIL)  # Killed before its shape was drawn.
    drawn = sum(1 for trial in study.get_trials(deepcopy=False) if set(trial.params) == set(of))
    study.sampler = optuna.samplers.TPESampler(seed=plan.seed * 100_003 + drawn, n_startup_trials=_STARTUP)
    trial = study.ask(of)
    return trial.number, Shape(**trial.params)


def _tell(study: Any, number: int, trial: Trial) -> None:
    """Write down what a trial gave; the figures first, so that a study never has a result without them."""
    import optuna

    study.set_user_attr(f"trial-{number}", {"figures": trial.figures, "error": trial.error})
    if trial.error:
        study.tell(number, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(number, [trial.score, trial.cost.p50_ms, float(trial.cost.size_bytes)])


def _told(study: Any, plan: Plan, table: LatencyTable) -> list[Trial]:
    """The trials that a study has, each shape once."""
    found: dict[Shape, Trial] = {}
    notes = study.user_attrs
    for frozen in study.get_trials(deepcopy=False):
        note = notes.get(f"trial-{frozen.number}")
        if note is None or not frozen.state.is_finished():
            continue
        shape = Shape(**frozen.params)
        found.setdefault(shape, Trial(frozen.number, shape, table.of(shape), note["figures"], note["error"]))
    return list(found.values())


# --- What is best ----------------------------------------------------------------------------------------------------


def front(points: list[tuple[float, float, float]]) -> list[bool]:
    """Which points (score, latency, size) no other one beats: none has more score at no more latency and size.

    >>> front([(0.9, 2.0, 10.0), (0.8, 1.0, 5.0), (0.7, 1.5, 9.0)])
    [True, True, False]
    """

    def beats(a: tuple[float, float, float], b: tuple[float, float, float]) -> bool:
        return a[0] >= b[0] and a[1] <= b[1] and a[2] <= b[2] and a != b

    return [not any(beats(other, point) for other in points) for point in points]


def finalists(plan: Plan, table: LatencyTable, trials: list[Trial]) -> list[Trial]:
    """Who is trained in full: the best scores of the front that take at most the plan's share of the neighbour's time.

    Raises:
        ArtefactError: There is none.
    """
    sound = [trial for trial in trials if not trial.error]
    best = front([(t.score, t.cost.p50_ms, float(t.cost.size_bytes)) for t in sound])
    limit_ms = plan.full.latency_share * table.zoo[plan.full.neighbour].p50_ms
    fits = [trial for trial, is_best in zip(sound, best, strict=True) if is_best and trial.cost.p50_ms <= limit_ms]
    if not fits:
        raise ArtefactError(f"no shape of the front takes {limit_ms:.3f} ms or less on {table.device!r}")
    return sorted(fits, key=lambda t: (-t.score, t.cost.p50_ms))[: plan.full.finalists]


def document(plan: Plan, table: LatencyTable, trials: list[Trial], full: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """All of a search as JSON has it.

    Args:
        plan: The search's.
        table: Latencies.
        trials: Of `search`.
        full: By shape, what training in full gave.
    """
    sound = [trial for trial in trials if not trial.error]
    best = front([(t.score, t.cost.p50_ms, float(t.cost.size_bytes)) for t in sound])
    is_best = {trial.shape.name for trial, on in zip(sound, best, strict=True) if on}
    return {
        "search": plan.name,
        "seed": plan.seed,
        "plan_sha256": plan.fingerprint,
        "device": table.device,
        "runtime": table.runtime,
        "trials": [
            {
                "shape": t.shape.name,
                **({"error": t.error} if t.error else t.figures),
                **asdict(t.cost),
                "front": t.shape.name in is_best,
            }
            for t in trials
        ],
        "full": full,
        "zoo": {name: asdict(cost) for name, cost in table.zoo.items()},
    }


# --- Command ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.search", description=__doc__.splitlines()[0])
    parser.add_argument("plan", help="such as slow-core, or a path ending in .toml")
    parser.add_argument("--crops", type=Path, help="npz of real module crops; without it all modules are drawn")
    parser.add_argument("--table", type=Path, help="latency table; default: beside the plan")
    parser.add_argument(
        "--work", type=Path, default=Path("build/search"), help="the study; gone on with if it is there"
    )
    parser.add_argument("--out", type=Path, help="folder for the JSON and the picture; default: the work directory")
    parser.add_argument("--only-search", action="store_true", help="train nobody in full; the JSON has no `full`")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        plan = load_plan(options.plan)
        table = load_table(options.table or table_path(options.plan))
        table.covers(plan)
        _run(plan, table, options)
    except (ModelError, OSError) as error:
        _say(f"error: {error}")
        return 1
    return 0


def _run(plan: Plan, table: LatencyTable, options: argparse.Namespace) -> None:
    from swarmd_recipes.pareto import picture
    from swarmd_recipes.proxy import Proxies

    data = hashlib.sha256(options.crops.read_bytes()).hexdigest() if options.crops else "drawn"
    out = options.out or options.work
    out.mkdir(parents=True, exist_ok=True)
    proxies = Proxies(plan, options.crops, options.work, options.threads)
    trials = search(plan, table, data, options.work, proxies.judge, _say)
    full: dict[str, dict[str, Any]] = {}
    beside = {name: proxies.score_of(name) for name in table.zoo}

    def write() -> None:
        said = document(plan, table, trials, full) | {"data_sha256": data}
        said["zoo"] = {name: cost | beside[name] for name, cost in said["zoo"].items()}
        (out / f"search-{plan.name}.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        (out / f"search-{plan.name}.svg").write_text(picture(said), encoding="utf-8")

    write()
    if options.only_search:
        return
    for trial in finalists(plan, table, trials):
        full[trial.shape.name] = asdict(trial.cost) | proxies.full(trial.shape)
        _say(f"{trial.shape.name}, in full: {json.dumps(full[trial.shape.name])}")
        write()
    best = max(full, key=lambda name: float(full[name]["score"]))
    shape = next(shape for shape in plan.shapes if shape.name == best)
    recipe = recipe_of(plan, shape, is_full=True)
    about = f"Came out of `python -m swarmd_recipes.search {plan.name}` as {best}; searches/{plan.name}.toml says why."
    path = options.work / f"{recipe['name']}.toml"
    path.write_text(recipe_toml(recipe, about), encoding="utf-8")
    _say(f"the best in full is {best}; its recipe is {path}")
    proxies.member(path, best)


def _say(text: str) -> None:
    """One line on standard error, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
