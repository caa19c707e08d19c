"""`swarmd bench NAME`: measurements on this device. `infer`: a model on one or all runtimes; `delta`: model updates."""

import argparse
from pathlib import Path

from swarmd.cli.common import add_json, print_json, print_table
from swarmd.errors import EyeError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb's flags."""
    parser = subparsers.add_parser("bench", help="measure this device")
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    infer = names.add_parser("infer", help="a model on one or all runtimes: stages, layers, memory")
    infer.add_argument("--model", default="", metavar="M", help="bundle (.toml), bare .tflite or .onnx, or zoo:NAME")
    infer.add_argument("--labels", default="", metavar="FILE", help="labels, one a line, instead of the model's own")
    infer.add_argument("--backend", default="all", metavar="LIST", help="all, or runtimes separated by commas")
    infer.add_argument(
        "--threads", type=int, default=1, choices=range(1, 65), metavar="N", help="threads for inference"
    )
    infer.add_argument("--seconds", type=float, default=2.0, help="how long to measure each")
    add_json(infer)
    delta = names.add_parser("delta", help="our model deltas beside bsdiff4, detools, xdelta3, zstd --patch-from")
    delta.add_argument("old", type=Path, metavar="OLD")
    delta.add_argument("new", type=Path, metavar="NEW")
    add_json(delta)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    return _delta(args) if args.name == "delta" else _infer(args)


def _delta(args: argparse.Namespace) -> int:
    """Bytes and times of every coder on one pair of files."""
    from swarmd.errors import DaemonError
    from swarmd.release.bench import measure

    try:
        found = measure(args.old.read_bytes(), args.new.read_bytes())
    except OSError as error:
        raise DaemonError(f"{error.filename}: {error.strerror}") from error
    if args.json:
        print_json(found)
        return 0
    rows = sorted(found["coders"].items(), key=lambda item: item[1]["bytes"])
    columns = ("coder", "bytes", "ratio", "encode_s", "decode_s")
    print_table(columns, [(name, *(row[column] for column in columns[1:])) for name, row in rows])
    print(f"not installed: {', '.join(found['missing']) or 'none'}; entropy floor {found['floor_bytes']} bytes")
    return 0


def _infer(args: argparse.Namespace) -> int:
    """Measure and print; 1 when no runtime could run the model.

    Raises:
        EyeError: The model cannot be used at all, or a runtime is not known.
    """
    from swarmd_models.backends import BACKENDS, in_order, split_device
    from swarmd_models.bench_infer import measure_all
    from swarmd_models.bundle import DEFAULT_MODEL, load_bundle
    from swarmd_models.errors import ModelError

    kinds = list(BACKENDS) if args.backend == "all" else args.backend.split(",")
    unknown = [kind for kind, _ in map(split_device, kinds) if kind not in BACKENDS]
    if unknown:
        raise EyeError(f"no backend is called {unknown[0]!r}; there are {', '.join(BACKENDS)}")
    kinds = list(in_order(kinds))
    model = args.model or DEFAULT_MODEL
    try:
        bundle = load_bundle(model, args.labels or None)
    except ModelError as error:
        raise EyeError(str(error)) from error
    found = measure_all(model, args.labels, kinds, args.threads, args.seconds)
    if args.json:
        print_json({"model": bundle.name, "digest": bundle.digest, "backends": found})
    else:
        print_table(
            (
                "backend",
                "load ms",
                "first ms",
                "infer p50 ms",
                "p99 ms",
                "golden dB",
                "float dB",
                "raw/frame",
                "all but infer ms",
                "rss MB",
                "note",
            ),
            [_row(figures) for figures in found],
        )
    return 0 if any("error" not in figures for figures in found) else 1


def _note(runtime: str, golden: str) -> str:
    return {"ok": runtime, "none": f"{runtime}; no golden vector"}.get(golden, golden)


def _least(ratios: dict[str, float | str]) -> float | str | None:
    """The worst output's decibels, or "exact" where all are the same; None where there is no reference."""
    numbers = [db for db in ratios.values() if not isinstance(db, str)]
    return min(numbers) if numbers else next(iter(ratios.values()), None)


def _row(figures: dict[str, object]) -> tuple[object, ...]:
    if "error" in figures:
        return (figures["backend"], *[None] * 9, str(figures["error"])[:100])
    stages, other, ratios = figures["stages_ms"], figures["all_but_infer_cpu_ms"], figures["sqnr_db"]
    assert isinstance(stages, dict)
    assert isinstance(other, dict)
    assert isinstance(ratios, dict)
    infer = stages["infer"]
    return (
        figures["backend"],
        figures["load_ms"],
        figures["first_infer_ms"],
        infer["p50"],
        infer["p99"],
        _least(ratios["golden"]),
        _least(ratios["float"]),
        figures["infer_share"],
        other["p50"],
        figures["rss_mb"],
        _note(str(figures["runtime"]), str(figures["golden"])),
    )
