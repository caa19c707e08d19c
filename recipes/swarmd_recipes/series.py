"""The zoo's models of series: faults of a propeller by its sound, minutes of a battery by its log. With numpy alone.

    python -m swarmd_recipes.series OUT [--share 1.0]

`propeller-sound` knows all kinds of aircraft and is the largest; `propeller-quad` and its like know one each and are an
eighth of it; `propeller-kind` tells the kinds apart, and `propeller-experts` is the ensemble of them. `battery-minutes`
gives a number. All are taught on drawn series and scored on draws that they have not seen (`sounds.py`).
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.detector import DetectorOptions
from swarmd_models.series import Bands, features_of, softmax
from swarmd_models.series_rule import SeriesRule
from swarmd_models.service import SERIES, Service
from swarmd_recipes.mlp import F32, Layers, Lesson, as_onnx, as_tflite, said, taught
from swarmd_recipes.sounds import (
    CRAFTS,
    FAULTS,
    FLIGHT_WINDOW,
    RATE_HZ,
    WINDOW,
    by_rule,
    flight,
    sound,
)

SEED = 15
SOUNDS, FLIGHTS = 8_000, 20_000
"""Drawn for training; a tenth of it more chooses sharpness and thresholds, and as much again is held out."""
HEARS = SeriesRule("classify", RATE_HZ, WINDOW, WINDOW // 2, 1, "spectrum", 4096, 128, 15.0, 3_900.0, "mean")
LOGS = SeriesRule("regress", 1.0, FLIGHT_WINDOW, FLIGHT_WINDOW // 2, 3, "samples", unit="min")
LARGEST, SMALL, ROUTER = (256, 128), (32,), (16,)
"""Widths of the layers between."""
LEAST = 0.5
"""Of the router's score, below which the largest is asked."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Drawn sounds."""

    x: F32
    """Shape (n, features)."""
    fault: npt.NDArray[np.int64]
    craft: npt.NDArray[np.int64]
    sha256: str
    """Of the samples."""


def heard(count: int, seed: int) -> Heard:
    """So many drawn sounds, every kind and fault alike often."""
    rng, bands, digest = np.random.default_rng(seed), Bands(HEARS), hashlib.sha256()
    crafts, rows, faults, kinds = list(CRAFTS), [], [], []
    for at in range(count):
        craft, fault = at % len(crafts), at // len(crafts) % len(FAULTS)
        made = sound(rng, crafts[craft], FAULTS[fault])
        digest.update(np.rint(made * 32_767).astype("<i2").tobytes())  # As a .wav has them; the last bits are no data.
        rows.append(features_of(made[:, None], HEARS, bands))
        faults.append(fault)
        kinds.append(craft)
    return Heard(np.stack(rows), np.array(faults), np.array(kinds), digest.hexdigest())


def flights(count: int, seed: int) -> tuple[F32, npt.NDArray[np.float64], str]:
    """So many drawn logs, shape (n, window, 3), their minutes, and the SHA-256 of the logs in thousandths."""
    rng, digest = np.random.default_rng(seed), hashlib.sha256()
    rows, left = [], []
    for _ in range(count):
        log, minutes = flight(rng)
        digest.update(np.rint(log * 1_000).astype("<i4").tobytes())
        rows.append(log)
        left.append(minutes)
    return np.stack(rows), np.array(left), digest.hexdigest()


def sharpness_of(logits: npt.NDArray[np.float64], wanted: npt.NDArray[np.int64]) -> float:
    """By what logits are multiplied so that their scores are probabilities; the likeliest of a grid."""
    grid = np.geomspace(0.2, 3.0, 60)
    lost = [-np.log(softmax(logits * one)[np.arange(len(wanted)), wanted] + 1e-12).mean() for one in grid]
    return round(float(grid[int(np.argmin(lost))]), 4)


def macs(net: Layers) -> int:
    """Multiplications of one window."""
    return sum(weights.size for weights, _ in net)


def make_series(out: Path, say: Callable[[str], None], share: float = 1.0) -> dict[str, Any]:
    """Teach all of them, write the bundles, score the files; the scores.

    Args:
        out: A folder for the bundles.
        say: Told of progress.
        share: Of the usual data.
    """
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"battery-minutes": _battery(out, say, share)}
    n = max(400, round(SOUNDS * share))
    teach, choose, held_out = heard(n, SEED), heard(n // 10, SEED + 1), heard(max(200, n // 10), SEED + 2)
    say(f"{n} sounds are drawn")
    found["propeller-sound"] = _classifier(
        out, "propeller-sound", FAULTS, teach, choose, LARGEST, lambda one: one.fault, say,
        "faults of a propeller by a second of its sound, any aircraft",
    )  # fmt: skip
    found["propeller-kind"] = _classifier(
        out, "propeller-kind", tuple(CRAFTS), teach, choose, ROUTER, lambda one: one.craft, say,
        "kind of an aircraft by a second of its sound: the router of propeller-experts",
    )  # fmt: skip
    for at, craft in enumerate(CRAFTS):
        found[f"propeller-{craft}"] = _classifier(
            out, f"propeller-{craft}", FAULTS, _of(teach, at), _of(choose, at), SMALL, lambda one: one.fault, say,
            f"faults of a propeller by a second of its sound, {craft} alone",
        )  # fmt: skip
    _write_ensemble(out, teach.sha256)
    found |= _scored(out, held_out, found)
    return found


def _of(one: Heard, craft: int) -> Heard:
    chosen = one.craft == craft
    return Heard(one.x[chosen], one.fault[chosen], one.craft[chosen], one.sha256)


def _classifier(
    out: Path,
    name: str,
    labels: Sequence[str],
    teach: Heard,
    choose: Heard,
    hidden: tuple[int, ...],
    wanted: Callable[[Heard], npt.NDArray[np.int64]],
    say: Callable[[str], None],
    about: str,
) -> dict[str, Any]:
    epochs = 20 if len(teach.x) > 4_000 else 120
    net = taught(teach.x, wanted(teach), len(labels), Lesson(hidden, epochs, seed=SEED, noise=0.3), say)
    logits = said(net, choose.x)
    scores = {
        "n": len(choose.x), "accuracy_while_chosen": round(float((logits.argmax(1) == wanted(choose)).mean()), 4),
        "macs": macs(net),
    }  # fmt: skip
    say(f"{name}: {scores}")
    rule = {
        "task": HEARS.task, "rate_hz": HEARS.rate_hz, "window": HEARS.window, "hop": HEARS.hop,
        "features": HEARS.features, "frame": HEARS.frame, "bands": HEARS.bands, "low_hz": HEARS.low_hz,
        "high_hz": HEARS.high_hz, "level": HEARS.level, "sharpness": sharpness_of(logits, wanted(choose)),
    }  # fmt: skip
    write_bundle(out, name, labels, net, rule, about, f"swarmd_recipes.sounds, {len(teach.x)} sounds", teach.sha256,
                 scores)  # fmt: skip
    return scores


def _battery(out: Path, say: Callable[[str], None], share: float) -> dict[str, Any]:
    n = max(1_000, round(FLIGHTS * share))
    logs, left, digest = flights(n, SEED)
    flat = logs.transpose(0, 2, 1).reshape(n, -1)
    net = taught(flat, left[:, None] / 10.0, 1, Lesson((64, 32), 40, seed=SEED, noise=0.02), say)
    weights, offsets = net[-1]
    net[-1] = weights * 10.0, offsets * 10.0
    logs, left, _ = flights(max(500, n // 10), SEED + 2)
    off = np.abs(said(net, logs.transpose(0, 2, 1).reshape(len(logs), -1))[:, 0] - left)
    by_hand = np.abs(by_rule(logs) - left)
    scores = {
        "n": len(left), "mean_error_min": round(float(off.mean()), 3), "p95_error_min": _p95(off),
        "by_rule_mean_error_min": round(float(by_hand.mean()), 3), "by_rule_p95_error_min": _p95(by_hand),
        "macs": macs(net),
    }  # fmt: skip
    say(f"battery-minutes: {scores}")
    rule = {"task": LOGS.task, "rate_hz": LOGS.rate_hz, "window": LOGS.window, "hop": LOGS.hop,
            "channels": LOGS.channels, "features": LOGS.features, "unit": LOGS.unit}  # fmt: skip
    write_bundle(
        out, "battery-minutes", ("minutes_left",), net, rule,
        "minutes that a battery lasts, by a minute of volts a cell, amperes for each Ah and degrees",
        f"swarmd_recipes.sounds, {n} logs", digest, scores,
    )  # fmt: skip
    return scores


def _p95(values: npt.NDArray[np.float64]) -> float:
    return round(float(np.quantile(values, 0.95)), 3)


def write_bundle(
    out: Path,
    name: str,
    labels: Sequence[str],
    net: Layers,
    rule: Mapping[str, Any],
    about: str,
    data: str,
    data_sha256: str,
    scores: Mapping[str, Any],
) -> None:
    """The files of one bundle."""
    files = {f"{name}.tflite": as_tflite(net), f"{name}.onnx": as_onnx(net)}
    hashes = []
    for file, content in files.items():
        (out / file).write_bytes(content)
        hashes.append(hashlib.sha256(content).hexdigest())
    lines = [
        "# Written by swarmd_recipes.series; docs/models.md says what the numbers mean.", "format = 1",
        f'name = "{name}"', 'version = "1"', 'decoder = "series"', f"labels = {json.dumps(list(labels))}", "",
        "[model]", f'file = "{name}.tflite"', f'sha256 = "{hashes[0]}"', f'onnx = "{name}.onnx"',
        f'onnx_sha256 = "{hashes[1]}"', "", "[series]", *_lines(rule), "", *_provenance(about, data, data_sha256),
        "[provenance.scores]", *_lines(scores), "",
    ]  # fmt: skip
    (out / f"{name}.toml").write_text("\n".join(lines), encoding="utf-8")


def _provenance(about: str, data: str, data_sha256: str) -> list[str]:
    return [
        "[provenance]", f'about = "{about}; drawn, never recorded"', f'recipe = "swarmd_recipes.series, seed {SEED}"',
        f'data = "{data}"', f'data_sha256 = "{data_sha256}"',
    ]  # fmt: skip


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def _write_ensemble(out: Path, data_sha256: str) -> None:
    members = {
        name: load_bundle(out / f"{name}.toml").digest
        for name in ("propeller-kind", *(f"propeller-{craft}" for craft in CRAFTS), "propeller-sound")
    }
    rows = []
    for name, digest in list(members.items())[1:]:
        when = [] if name == "propeller-sound" else [name.removeprefix("propeller-")]
        rows += ["[[ensemble.expert]]", f'bundle = "{name}.toml"', f'digest = "{digest}"', f"when = {json.dumps(when)}"]
    lines = [
        "# Written by swarmd_recipes.series; docs/models.md says what the numbers mean.", "format = 1",
        'name = "propeller-experts"', 'version = "1"', 'decoder = "ensemble"', f"labels = {json.dumps(list(FAULTS))}",
        "", "[ensemble]", 'lane = "series"', 'router = "propeller-kind.toml"',
        f'router_digest = "{members["propeller-kind"]}"', f"least = {LEAST}", *rows, "",
        *_provenance("faults of a propeller by a second of its sound; a router and an expert for each kind of aircraft",
                     "that of its members", data_sha256), "",
    ]  # fmt: skip
    (out / "propeller-experts.toml").write_text("\n".join(lines), encoding="utf-8")


def _scored(out: Path, held_out: Heard, found: Mapping[str, Any]) -> dict[str, Any]:
    """The ensemble beside its router's oracle, the largest alone, and each expert on everything."""
    experts = [f"propeller-{craft}" for craft in CRAFTS]
    right = {
        name: _answers(load_bundle(out / f"{name}.toml"), held_out) == held_out.fault
        for name in (*experts, "propeller-sound")
    }
    kinds, sure = _routed(load_bundle(out / "propeller-kind.toml"), held_out)
    is_sure = sure >= LEAST
    by_expert = np.stack([right[name] for name in experts])
    places = np.arange(len(held_out.fault))
    ours = np.where(is_sure, by_expert[kinds, places], right["propeller-sound"])
    cost = found["propeller-kind"]["macs"] + np.where(is_sure, found[experts[0]]["macs"],
                                                      found["propeller-sound"]["macs"])  # fmt: skip
    return {"ensemble": {
        "n": len(places), "ours": _share(ours), "largest": _share(right["propeller-sound"]),
        "oracle_router": _share(by_expert[held_out.craft, places]), "any_expert_right": _share(by_expert.max(0)),
        "router": _share(kinds == held_out.craft), "unsure": _share(~is_sure),
        "macs": round(float(cost.mean())), "macs_largest": found["propeller-sound"]["macs"],
        "macs_oracle": found[experts[0]]["macs"],
        "wrong_expert": {name: _share(right[name]) for name in experts},
    }}  # fmt: skip


def _share(values: npt.NDArray[np.bool_]) -> float:
    return round(float(values.mean()), 4)


def _answers(bundle: Bundle, sounds: Heard) -> npt.NDArray[np.int64]:
    """What the file's net says, in its runtime."""
    found: npt.NDArray[np.int64] = _logits(bundle, sounds).argmax(1)
    return found


def _routed(bundle: Bundle, sounds: Heard) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    shares = softmax(_logits(bundle, sounds) * bundle.series.sharpness)
    return shares.argmax(1), shares.max(1)


def _logits(bundle: Bundle, sounds: Heard) -> npt.NDArray[np.float64]:
    service = Service.open(bundle, DetectorOptions(("litert",)), lambda text: None)
    assert SERIES in service.lanes
    rows = []
    for x in sounds.x:
        np.copyto(service.backend.input_view(), x)
        service.backend.infer()
        rows.append(np.array(service.backend.output_views()[0], np.float64))
    service.close()
    return np.stack(rows)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.series", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of the usual data")
    args = parser.parse_args(arguments)
    found = make_series(args.out, lambda text: print(text, file=sys.stderr), args.share)  # noqa: T201
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
