"""`swarmd sim`: run, fuzz, replay, sweep and report simulations of the daemon's own protocol objects."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from swarmd.cli.common import add_json, print_json
from swarmd.errors import DaemonError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its own verbs."""
    parser = subparsers.add_parser("sim", help="simulate a swarm: run, fuzz, replay, sweep, report")
    verbs = parser.add_subparsers(dest="sim_verb", metavar="VERB", title="verbs", required=True)
    _add_run(verbs)
    _add_fuzz(verbs)
    _add_replay(verbs)
    _add_sweep(verbs)
    _add_report(verbs)
    _add_bridge(verbs)
    _add_mutants(verbs)
    verbs.add_parser("scenarios", help="list the scenarios that ship")


def _add_common(parser: argparse.ArgumentParser, default: str | None = None, nodes: str = "N") -> None:
    if default is None:
        parser.add_argument("scenario", metavar="SCENARIO", help="a scenario that ships, or a .toml file")
    else:
        parser.add_argument("--scenario", default=default, help="a scenario that ships, or a .toml file (%(default)s)")
    if "," in nodes:
        parser.add_argument(
            "--nodes", type=_counts, default=(), metavar=nodes, help="override swarm.nodes, one or more"
        )
    else:
        parser.add_argument("--nodes", type=_count, metavar=nodes, help="override swarm.nodes")
    parser.add_argument("--seconds", type=_count, metavar="S", help="override swarm.seconds")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override any key, such as radio.loss=0.3"
    )
    parser.add_argument("--mutant", default="", metavar="NAME", help="switch a protocol bug on (inside a checkout)")
    add_json(parser)


def _add_run(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    run_parser = verbs.add_parser("run", help="run one scenario with one seed")
    _add_common(run_parser)
    run_parser.add_argument("--seed", type=int, default=7, help="decides everything (%(default)s)")
    run_parser.add_argument("--timeline", action="store_true", help="print what happened, readable")
    run_parser.add_argument("--save", type=Path, metavar="FILE", help="write a replay file")
    run_parser.add_argument("--record", type=Path, metavar="FILE.mcap", help="record it for `swarmd ground FILE.mcap`")
    run_parser.add_argument("--view", action="store_true", help="show it in the ground view when it has run")
    run_parser.add_argument(
        "--seen-by", type=int, default=0, metavar="HOST", help="whose knowledge is recorded and shown (%(default)s)"
    )
    run_parser.add_argument("--page", default="127.0.0.1:7982", metavar="HOST:PORT", help="of --view (%(default)s)")
    run_parser.add_argument("--open", action="store_true", help="with --view: open this machine's browser")


def _add_fuzz(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    fuzz_parser = verbs.add_parser("fuzz", help="many seeds, each with its own faults")
    _add_common(fuzz_parser, "fuzz")
    fuzz_parser.add_argument("--seeds", type=_count, default=100, help="how many (%(default)s)")
    fuzz_parser.add_argument("--first-seed", type=int, default=1, help="the first (%(default)s)")
    fuzz_parser.add_argument("--jobs", type=_count, default=_cores(), help="processes (every core: %(default)s)")
    fuzz_parser.add_argument("--stop-after", type=int, default=0, metavar="N", help="stop after N failing seeds")
    fuzz_parser.add_argument("--shrink", type=int, default=0, metavar="RUNS", help="shrink the first failing seed")
    fuzz_parser.add_argument("--coverage", type=Path, metavar="FILE", help="write the coverage matrix as Markdown")
    fuzz_parser.add_argument("--out", type=Path, default=Path("sim-failures"), help="folder for replays (%(default)s)")


def _add_replay(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    replay_parser = verbs.add_parser("replay", help="repeat a recorded run, to the end or to any event")
    replay_parser.add_argument("file", type=Path)
    replay_parser.add_argument("--to-event", type=_count, default=0, metavar="N", help="stop at this event")
    replay_parser.add_argument("--watch", type=int, action="append", default=[], metavar="HOST", help="all its events")
    replay_parser.add_argument("--last", type=_count, default=60, help="lines of the timeline (%(default)s)")
    replay_parser.add_argument("--any-code", action="store_true", help="take a file of another version")
    add_json(replay_parser)


def _add_sweep(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sweep_parser = verbs.add_parser("sweep", help="many parameters times many seeds: a table and plots")
    _add_common(sweep_parser, nodes="N,N")
    sweep_parser.add_argument(
        "--vary", action="append", default=[], metavar="KEY=A,B,C", help="a parameter and its values; repeatable"
    )
    sweep_parser.add_argument("--seeds", type=_count, default=3, help="seeds a point (%(default)s)")
    sweep_parser.add_argument("--first-seed", type=int, default=1)
    sweep_parser.add_argument("--engine", choices=("local", "ray"), default="local")
    sweep_parser.add_argument("--jobs", type=_count, default=2, help="processes (%(default)s)")
    sweep_parser.add_argument("--out", type=Path, default=Path("sim-sweep"), help="folder (%(default)s)")


def _add_report(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report_parser = verbs.add_parser("report", help="run a scenario and write one self-contained HTML page")
    _add_common(report_parser)
    report_parser.add_argument("--seed", type=int, default=7)
    report_parser.add_argument("-o", "--out", type=Path, default=Path("sim-report.html"), help="file (%(default)s)")


def _add_bridge(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bridge_parser = verbs.add_parser(
        "bridge", help="predicted medians beside those of real daemons in network namespaces"
    )
    bridge_parser.add_argument("--nodes", type=_count, default=8)
    bridge_parser.add_argument(
        "--seconds", type=_count, default=5, help="quiet time before the first event (%(default)s)"
    )
    bridge_parser.add_argument("--seed", type=int, default=7)
    bridge_parser.add_argument("--rounds", type=_count, default=12, help="events, and crashes (%(default)s)")
    bridge_parser.add_argument("--formations", type=_count, default=3, help="starts from nothing (%(default)s)")
    add_json(bridge_parser)


def _add_mutants(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    mutants_parser = verbs.add_parser("mutants", help="how many seeds it takes to find each protocol bug on purpose")
    mutants_parser.add_argument("--seeds", type=_count, default=50, help="most seeds a mutant (%(default)s)")
    mutants_parser.add_argument("--only", default="", help="mutants whose name contains this")
    mutants_parser.add_argument("--jobs", type=_count, default=_cores(), help="processes (every core: %(default)s)")
    add_json(mutants_parser)


def _cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(one) for one in text.split(","))


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


def run(args: argparse.Namespace) -> int:
    """Run the chosen verb; what the simulator refuses becomes one sentence."""
    from swarmd_sim.errors import SimError

    handlers: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": _run,
        "fuzz": _fuzz,
        "replay": _replay,
        "sweep": _sweep,
        "report": _report,
        "bridge": _bridge,
        "mutants": _mutants,
        "scenarios": _scenarios,
    }
    try:
        return handlers[args.sim_verb](args)
    except SimError as error:
        raise DaemonError(str(error)) from error


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    overrides = dict(_assignment(text) for text in args.set)
    if args.nodes:
        overrides["swarm.nodes"] = args.nodes
    if args.seconds:
        overrides["swarm.seconds"] = args.seconds
    return overrides


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise DaemonError(f"--set {text}: write KEY=VALUE, such as --set radio.loss=0.3")
    return key, _value(value)


def _value(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _scenarios(args: argparse.Namespace) -> int:
    from swarmd_sim.run.scenario import load_scenario, scenario_names

    for name in scenario_names():
        print(f"{name:22} {load_scenario(name).title}")
    return 0


def _run(args: argparse.Namespace) -> int:
    from swarmd_sim.run import looks_rules
    from swarmd_sim.run.offload_rules import compared, is_worth_comparing
    from swarmd_sim.run.progress import Progress
    from swarmd_sim.run.replay import Replay, readable_timeline
    from swarmd_sim.run.scenario import load_scenario
    from swarmd_sim.run.simulation import Options

    scenario = load_scenario(args.scenario, _overrides(args))
    replay = Replay(scenario, args.seed, mutant=args.mutant)
    if args.view or args.record:
        from swarmd.ground.shows import SimulationShow

        show = SimulationShow(args.record, args.seen_by, args.page if args.view else "")
    else:
        show = None
    with Progress(scenario.swarm.seconds, "virtual s", quiet=args.json) as progress:
        result = replay.run(
            Options(timeline=args.timeline, progress=progress.to, look=None if show is None else show.attach)
        )
    if args.save:
        args.save.write_text(replay.to_json(), encoding="utf-8")
    if args.timeline and not args.json:
        print("\n".join(readable_timeline(result)))
    figures: dict[str, Any] = dict(result.figures)
    if is_worth_comparing(scenario) and not args.mutant:
        figures["rules"] = compared(scenario, args.seed, figures["offload"])
    if looks_rules.is_worth_comparing(scenario) and not args.mutant:
        figures["rules"] = looks_rules.compared(scenario, args.seed, result.figures)
    _print_result(args.json, figures)
    if show is not None:
        sys.stdout.flush()
        show.end(is_opened=args.open)
    return 1 if result.violations else 0


def _print_result(as_json: bool, figures: Mapping[str, Any]) -> None:
    if as_json:
        print_json(figures)
        return
    for key, value in figures.items():
        if key not in ("violations", "faults"):
            print(f"{key:22} {value}")
    print(f"{'faults':22} {len(figures['faults'])}")
    for violation in figures["violations"]:
        print(f"VIOLATION {violation['rule']} at {violation['at_s']} s: {violation['text']}")
    if not figures["violations"]:
        print("no rule was broken")


def _fuzz(args: argparse.Namespace) -> int:
    from swarmd_sim.run.fuzz import FuzzPlan, fuzz
    from swarmd_sim.run.progress import Progress

    plan = FuzzPlan(args.scenario, _overrides(args), args.mutant)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    with Progress(args.seeds, "seeds", quiet=args.json) as progress:
        report = fuzz(plan, seeds, args.jobs, lambda _outcome: progress.step(), args.stop_after)
    lines: list[dict[str, Any]] = []
    for outcome in report.failing:
        path = _save_failure(args, plan, outcome.seed)
        lines.append(
            {
                "seed": outcome.seed,
                "rules": list(outcome.rules),
                "text": outcome.text,
                "replay": f"swarmd sim replay {path}",
            }
        )
    shrunk = _shrink(args, plan, report.failing[0].seed, report.failing[0].rules[0]) if lines and args.shrink else None
    summary = {
        "seeds": len(report.outcomes),
        "failing": lines,
        "coverage": round(report.coverage.share(), 4),
        "wall_s": round(report.wall_s, 3),
        "cpu_s": round(sum(outcome.cpu_s for outcome in report.outcomes), 3),
        "shrunk": shrunk,
    }
    if args.coverage:
        args.coverage.write_text("\n".join(report.coverage.lines()) + "\n", encoding="utf-8")
    if args.json:
        print_json(summary)
    else:
        for line in lines:
            print(f"seed {line['seed']}: {', '.join(line['rules'])}: {line['text']}\n    {line['replay']}")
        if shrunk:
            print(f"shrunk to {shrunk['faults']} faults in {shrunk['runs']} runs: {shrunk['replay']}")
        met = f"{summary['coverage']:.1%} of the pairs of fault kind and protocol state were met"
        print(f"{len(report.outcomes)} seeds, {len(lines)} failing; {met}")
    return 1 if lines else 0


def _save_failure(args: argparse.Namespace, plan: Any, seed: int) -> Path:
    from swarmd_sim.run.replay import Replay

    args.out.mkdir(parents=True, exist_ok=True)
    mark = f"-{args.mutant}" if args.mutant else ""
    path: Path = args.out / f"{Path(plan.scenario).stem}{mark}-{seed}.json"
    path.write_text(Replay(plan.load(), seed, mutant=plan.mutant).to_json(), encoding="utf-8")
    return path


def _shrink(args: argparse.Namespace, plan: Any, seed: int, rule: str) -> dict[str, Any]:
    from swarmd_sim.run.fuzz import failing_replay
    from swarmd_sim.run.progress import Progress
    from swarmd_sim.run.shrink import Shrinker

    with Progress(args.shrink, "shrinking", quiet=args.json) as progress:
        shrinker = Shrinker(failing_replay(plan, seed), rule, args.shrink, lambda runs, _left: progress.to(runs))
        shrunk = shrinker.shrink()
    path = args.out / f"{Path(plan.scenario).stem}-{seed}-shrunk.json"
    path.write_text(shrunk.replay.to_json(), encoding="utf-8")
    script = shrunk.replay.script or ()
    return {
        "rule": rule,
        "faults": len(script),
        "script": [fault.describe() for fault in script],
        "nodes": shrunk.replay.scenario.swarm.nodes,
        "silenced": list(shrunk.replay.zeroed),
        "runs": shrunk.runs,
        "replay": f"swarmd sim replay {path}",
    }


def _replay(args: argparse.Namespace) -> int:
    from swarmd_sim.run.replay import load_replay, readable_timeline
    from swarmd_sim.run.simulation import Options

    loaded = load_replay(args.file, any_code=args.any_code)
    for warning in loaded.warnings:
        print(f"swarmd sim replay: warning: {warning}", file=sys.stderr)
    options = Options(timeline=True, watch_events=tuple(args.watch), stop_at_event=args.to_event)
    result = loaded.replay.run(options)
    if args.json:
        print_json({**result.figures, "timeline": readable_timeline(result, args.last)})
    else:
        print("\n".join(readable_timeline(result, args.last)))
        _print_result(False, result.figures)
    return 1 if result.violations else 0


def _sweep(args: argparse.Namespace) -> int:
    from swarmd_sim.run.progress import Progress
    from swarmd_sim.run.sweep import SweepPlan, has_parquet, sweep, write_tables

    vary: dict[str, tuple[Any, ...]] = {"swarm.nodes": args.nodes} if args.nodes else {}
    args.nodes = None
    for text in args.vary:
        key, equals, values = text.partition("=")
        if not equals:
            raise DaemonError(f"--vary {text}: write KEY=A,B,C, such as --vary radio.loss=0,0.1,0.3")
        vary[key] = tuple(_value(value) for value in values.split(","))
    seeds = tuple(range(args.first_seed, args.first_seed + args.seeds))
    plan = SweepPlan(args.scenario, _overrides(args), vary, seeds, args.mutant)
    with Progress(plan.size, "runs", quiet=args.json) as progress:
        outcome = sweep(plan, args.engine, args.jobs, progress.step)
    files = write_tables(outcome, args.out)
    if args.json:
        print_json(
            {
                "runs": len(outcome.rows),
                "failing": sum(1 for row in outcome.rows if row["violations"]),
                "engine": args.engine,
                "jobs": args.jobs,
                "wall_s": round(outcome.wall_s, 3),
                "cpu_s": round(outcome.cpu_s, 3),
                "files": [str(path) for path in files],
                "rows": outcome.rows,
            }
        )
    else:
        print("\n".join(outcome.table()))
        print("\n".join(f"wrote {path}" for path in files))
        if not has_parquet():
            print("no results.parquet: install swarmd[parquet] for it")
    return 1 if any(row["violations"] for row in outcome.rows) else 0


def _report(args: argparse.Namespace) -> int:
    from swarmd_sim.report.report import write_report
    from swarmd_sim.run.mutants import mutated
    from swarmd_sim.run.progress import Progress
    from swarmd_sim.run.scenario import load_scenario
    from swarmd_sim.run.simulation import Options, Simulation

    scenario = load_scenario(args.scenario, _overrides(args))
    with mutated(args.mutant), Progress(scenario.swarm.seconds, "virtual s", quiet=args.json) as progress:
        simulation = Simulation(scenario, args.seed, Options(timeline=True, progress=progress.to))
        result = simulation.run()
    write_report(simulation, result, args.out)
    if args.json:
        print_json({"file": str(args.out), "violations": result.figures["violations"]})
    else:
        print(f"wrote {args.out}")
    return 1 if result.violations else 0


def _bridge(args: argparse.Namespace) -> int:
    from swarmd.demo.predictions import compare

    # SIGTERM ends it as an exception, so that namespaces and daemons go with it.
    before = signal.signal(signal.SIGTERM, _end)
    try:
        table = compare(args.nodes, args.seconds, args.seed, args.rounds, args.formations)
    finally:
        signal.signal(signal.SIGTERM, before)
    if args.json:
        print_json(table.to_json())
    else:
        print("\n".join(table.lines()))
    return 0


def _end(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # A second one must not cut the cleaning short.
    raise SystemExit(128 + number)


def _mutants(args: argparse.Namespace) -> int:
    from swarmd_sim.run.mutants import catalogue
    from swarmd_sim.run.mutation_score import score_mutants
    from swarmd_sim.run.progress import Progress

    names = sorted(name for name in catalogue() if args.only in name)
    with Progress(len(names), "mutants", quiet=args.json) as progress:
        table = score_mutants(names, args.seeds, args.jobs, progress.step)
    if args.json:
        print_json(table.to_json())
    else:
        print("\n".join(table.lines()))
    return 0 if table.all_found else 1
