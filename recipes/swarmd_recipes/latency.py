"""The latency table of a device class: every shape of a search's space, untrained, measured by `swarmd bench infer`.

    PYTHONPATH=models:recipes .venv-train/bin/python -m swarmd_recipes.latency export slow-core --work DIR
    .venv/bin/python -m swarmd_recipes.latency measure slow-core --work DIR --device "what it is" [--out FILE]

`export` needs PyTorch; `measure` needs only swarmd. On a device without this checkout, copy DIR/grid there, run
`for m in *.toml; do swarmd bench infer --model $m --backend litert --json > ${m%.toml}.bench.json; done`, and copy the
answers back: `measure` takes what it finds and asks for the rest. How long a net takes does not depend on its weights,
so nothing is trained; what of a frame is counted is the first stage: preprocessing, inference, decoding, suppression.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.thermal import FAULT_LABELS
from swarmd_recipes.space import Plan, Shape, load_plan, recipe_of, searches

STAGES = ("preprocess", "infer", "decode", "nms")
"""Of `swarmd bench infer`, that the first stage has; the second's time depends on what is in the picture."""
BACKEND = "litert"
"""Every device has it."""
_SECONDS = 0.5
"""Of frames for each shape: hundreds, on the slowest core that is meant."""
_LIMIT_S = 600
"""Seconds for one measurement, loading included, on a very slow device."""
_CALIBRATION_FRAMES = 2
"""Of noise: ranges decide no time."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a shape, or a bundle of the zoo, costs on a device."""

    p50_ms: float
    """Of a frame's first stage: the sum of its stages' medians, milliseconds."""
    infer_ms: float
    """Of them, the runtime's."""
    size_bytes: int
    """Of the INT8 file."""


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """What was measured on one device."""

    device: str
    runtime: str
    shapes: dict[str, Cost]
    """By the name of the shape."""
    zoo: dict[str, Cost]
    """By the name of the bundle, such as "zoo:tiny-224"."""

    def of(self, shape: Shape) -> Cost:
        """What a shape costs; raises `ArtefactError` that names a shape which was not measured."""
        if shape.name not in self.shapes:
            raise ArtefactError(f"the latency table of {self.device!r} has no {shape.name}; measure it first")
        return self.shapes[shape.name]

    def covers(self, plan: Plan) -> None:
        """Refuse a table that lacks something of a plan, by name; raises `ArtefactError`."""
        missing = [shape.name for shape in plan.shapes if shape.name not in self.shapes]
        if plan.full.neighbour not in self.zoo:
            missing.append(plan.full.neighbour)
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise ArtefactError(
                f"the latency table of {self.device!r} has no {', '.join(missing[:5])}{more}; measure "
                f"{'it' if len(missing) == 1 else 'them'} with python -m swarmd_recipes.latency"
            )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all of it, as hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def load_table(path: Path) -> LatencyTable:
    """Read a table that `measure` wrote; raises `ArtefactError` when it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        costs = {
            part: {
                str(name): Cost(float(row["p50_ms"]), float(row["infer_ms"]), int(row["size_bytes"]))
                for name, row in data[part].items()
            }
            for part in ("shapes", "zoo")
        }
        table = LatencyTable(str(data["device"]), str(data["runtime"]), costs["shapes"], costs["zoo"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(f"{path} is no latency table ({error!r})") from error
    for name, cost in (table.shapes | table.zoo).items():
        if not 0.0 < cost.p50_ms < 1e6 or not 0 < cost.size_bytes < 1 << 30:
            raise ArtefactError(f"{path}: {name} is said to take {cost.p50_ms} ms and {cost.size_bytes} bytes")
    return table


def table_path(plan_name: str) -> Path:
    """Where the table of a plan is by default: beside the plan."""
    return (
        Path(plan_name.removesuffix(".toml") + ".latency.json")
        if plan_name.endswith(".toml")
        else (searches() / f"{plan_name}.latency.json")
    )


def cost_of(said: dict[str, Any], size_bytes: int) -> tuple[Cost, str]:
    """What `swarmd bench infer --json` said of one bundle, and of the runtime.

    Raises:
        ArtefactError: It holds no measurement.
    """
    try:
        (figures,) = (one for one in said["backends"] if one["backend"] == BACKEND)
        if "error" in figures:
            raise ArtefactError(f"{said['model']}: {figures['error']}")
        medians = {stage: float(figures["stages_ms"][stage]["p50"]) for stage in STAGES}
        runtime = str(figures["runtime"])
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(
            f"that is no answer of swarmd bench infer --backend {BACKEND} --json ({error!r})"
        ) from error
    return Cost(round(sum(medians.values()), 4), round(medians["infer"], 4), size_bytes), runtime


# --- Untrained bundles -----------------------------------------------------------------------------------------------


def export_grid(plan: Plan, work: Path) -> Path:
    """Write an untrained INT8 bundle of every shape; what is there already is kept. Needs PyTorch.

    Args:
        plan: Of the search.
        work: Gets the folder `grid`.

    Returns:
        The folder.
    """
    grid = work / "grid"
    grid.mkdir(parents=True, exist_ok=True)
    for number, shape in enumerate(plan.shapes):
        if not (grid / f"{shape.name}.toml").exists():
            _export(plan, shape, work / "grid.work", grid)
            sys.stderr.write(f"{shape.name}: {number + 1} of {len(plan.shapes)}\n")
    return grid


def _export(plan: Plan, shape: Shape, work: Path, grid: Path) -> None:
    import warnings

    import numpy as np
    import torch

    from swarmd_recipes.export import to_int8, to_tflite
    from swarmd_recipes.net import Detector, NetOptions, fold

    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(plan.seed)
    net_table = recipe_of(plan, shape, is_full=False)["net"]
    options = NetOptions(tuple(net_table["widths"]), tuple(net_table["blocks"]), net_table["neck"], len(FAULT_LABELS))
    net = fold(Detector(options).eval())
    float_path, int8_path = work / "untrained.float.tflite", grid / f"{shape.name}.tflite"
    size = (shape.height, shape.width)
    noise = np.random.default_rng(plan.seed).integers(0, 256, (_CALIBRATION_FRAMES, *size), dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        to_tflite(net, size, float_path)
        to_int8(float_path, int8_path, noise)
    digest = hashlib.sha256(int8_path.read_bytes()).hexdigest()
    lines = [
        "# Untrained: for swarmd bench infer alone. Written by swarmd_recipes.latency.",
        "format = 1",
        f'name = "{shape.name}"',
        'version = "0"',
        'decoder = "anchor_free"',
        f"labels = {json.dumps(list(FAULT_LABELS))}",
        "[model]",
        f'file = "{int8_path.name}"',
        f'sha256 = "{digest}"',
        "[input]",
        f"width = {shape.width}",
        f"height = {shape.height}",
        'channels = "gray"',
        'resize = "letterbox"',
        "pad = 114",
        "mean = 0.0",
        "std = 255.0",
        "[decode]",
        "strides = [8]",
        "score_threshold = 0.9",
        "iou_threshold = 0.4",
        "max_detections = 100",
        "class_agnostic_nms = true",
    ]
    draft = grid / f"{shape.name}.draft"
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft.replace(grid / f"{shape.name}.toml")  # Last, so that a killed export leaves nothing that passes for whole.


# --- Measurements ----------------------------------------------------------------------------------------------------


def measure(plan: Plan, work: Path, device: str, rounds: int = 1) -> LatencyTable:
    """Run `swarmd bench infer` on every bundle of the grid and on the plan's neighbours in the zoo.

    Args:
        plan: Of the search; its grid lies in `work`.
        work: Answers are kept there too: what was measured before is not measured again.
        device: What to call it.
        rounds: The whole grid is measured so often, one after the other; the least median of a shape counts, since
            what else runs on the device only adds to it.

    Raises:
        ArtefactError: A bundle is missing, or could not be measured.
    """
    shapes: dict[str, Cost] = {}
    zoo: dict[str, Cost] = {}
    runtime = ""
    grid = work / "grid"
    for number in range(rounds):
        suffix = "bench.json" if number == 0 else f"bench{number}.json"
        for shape in plan.shapes:
            model = grid / f"{shape.name}.toml"
            if not model.exists():
                raise ArtefactError(f"{model} is missing; run python -m swarmd_recipes.latency export first")
            said = _asked(str(model), grid / f"{shape.name}.{suffix}")
            cost, runtime = cost_of(said, model.with_suffix(".tflite").stat().st_size)
            shapes[shape.name] = _less(shapes.get(shape.name), cost)
        for name in dict.fromkeys((plan.full.neighbour, "zoo:small-320")):
            said = _asked(name, grid / f"{name.replace(':', '-').replace('/', '-')}.{suffix}")
            cost, runtime = cost_of(said, _size(name))
            zoo[name] = _less(zoo.get(name), cost)
    return LatencyTable(device, runtime, shapes, zoo)


def _less(before: Cost | None, now: Cost) -> Cost:
    return now if before is None or now.p50_ms < before.p50_ms else before


def _size(bundle: str) -> int:
    from swarmd_models.bundle import load_bundle

    return load_bundle(bundle).model_path.stat().st_size


def _asked(model: str, kept: Path) -> dict[str, Any]:
    """The answer of `swarmd bench infer` about one model; from `kept` where it stands."""
    if not kept.exists():
        command = [sys.executable, "-m", "swarmd", "bench", "infer", "--model", model, "--backend", BACKEND]
        command += ["--seconds", str(_SECONDS), "--json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise ArtefactError(f"{model}: swarmd bench infer did not end within {_LIMIT_S} s") from error
        if done.returncode != 0:
            raise ArtefactError(f"{model}: swarmd bench infer: {(done.stderr or done.stdout).strip()[-300:]}")
        kept.with_suffix(".draft").write_text(done.stdout, encoding="utf-8")
        kept.with_suffix(".draft").replace(kept)
    try:
        answer: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArtefactError(f"{kept} is no answer of swarmd bench infer --json ({error})") from error
    return answer


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.latency", description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["export", "measure"])
    parser.add_argument("plan", help="such as slow-core, or a path ending in .toml")
    parser.add_argument("--work", type=Path, default=Path("build/search"), help="gets the folder grid")
    parser.add_argument("--device", default="", help="measure: what to call it, with its processor")
    parser.add_argument("--rounds", type=int, default=1, choices=range(1, 10), help="measure: the least of so many")
    parser.add_argument("--out", type=Path, help="measure: the table; default: beside the plan")
    options = parser.parse_args(arguments)
    try:
        plan = load_plan(options.plan)
        if options.step == "export":
            sys.stdout.write(f"{export_grid(plan, options.work)}\n")
            return 0
        if not options.device:
            raise ArtefactError("--device: say what the table was measured on")
        table = measure(plan, options.work, options.device, options.rounds)
        out = options.out or table_path(options.plan)
        out.write_text(json.dumps(asdict(table), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{out}: {len(table.shapes)} shapes\n")
    except ArtefactError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
