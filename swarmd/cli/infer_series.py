"""Series of `swarmd infer`: a sound (`.wav`) or a log (`.csv`), a row a window.

A sound is mixed to one channel and brought to the model's rate. A log has a column a channel, a line a sample, at the
model's rate; a first line that is no numbers names them. What is longer than one request holds goes in pieces.
"""

import argparse
import sys
import wave
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import plain, print_json, print_table
from swarmd.errors import WorkerError
from swarmd.worker.asking import Wish, infer, metadata

if TYPE_CHECKING:
    from swarmd_models.backends.base import Array

SUFFIX = ".series"
FILES = (".wav", ".csv")
_PIECE = 48 << 10
"""Numbers of one request: 192 KiB, so that it may be lent through the brains."""
_WINDOWS = 64
"""Of one request; `swarmd_models.series.WINDOWS_MAX`."""
_LOG_MAX_BYTES = 256 << 20


def is_series(path: Path, model: str) -> bool:
    """Whether an input is a series."""
    return path.suffix.lower() in FILES or model.endswith(SUFFIX)


def run_series(address: str, model: str, wish: Wish, args: argparse.Namespace) -> int:
    """Ask about every window, and show what was said.

    Raises:
        ControlError: No API is reachable.
        WorkerError: It refused, or the file cannot be used.
    """
    import numpy as np

    name = model if model.endswith(SUFFIX) else model + SUFFIX
    told = metadata(address, name, wish)
    rule, port = told["parameters"], told["inputs"][0]
    if wish.borrow and not wish.version and told.get("model_version"):
        wish = replace(wish, version=told["model_version"])  # One release for all of its pieces.
    channels = int(port["shape"][1])
    samples = read_series(Path(args.input), float(rule["rate_hz"]), channels)
    parts, by = [], Counter[str]()
    head: dict[str, Any] = {}
    for at, piece in pieces(samples, int(rule["window"]), int(rule["hop"])):
        head, outputs = infer(address, name, piece, wish, port)
        by[str(head["lender"])] += 1
        outputs = {**outputs, "at_s": outputs["at_s"] + np.float32(at / float(rule["rate_hz"]))}
        parts.append(outputs)
    found = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    if args.out:
        arrays: dict[str, Any] = {
            key: value.astype(str) if value.dtype.hasobject else value for key, value in found.items()
        }
        np.savez(args.out, **arrays)
    rows = rows_of(found, list(rule["labels"]))
    if args.json:
        print_json({"model": head["model_name"], "version": head["model_version"], "lenders": dict(by),
                    "unit": rule.get("unit", ""), "windows": rows})  # fmt: skip
        return 0
    _show(rows, str(rule.get("unit", "")))
    lent = ", ".join(f"{one} {count}" for one, count in by.items() if one)
    print(
        f"{head['model_name']} {head['model_version'][:16]}{', answered by ' + lent if lent else ''}", file=sys.stderr
    )
    return 0


def _show(rows: list[dict[str, Any]], unit: str) -> None:
    routed = ("by",) if rows and "by" in rows[0] else ()
    if rows and "label" in rows[0]:
        print_table(("at_s", "label", "score", *routed),
                    ([r["at_s"], plain(r["label"]), r["score"], *(r[k] for k in routed)] for r in rows))  # fmt: skip
    elif rows:
        names = list(rows[0]["values"])
        heads = [f"{name} ({unit})" if unit else name for name in names]
        print_table(("at_s", *heads), ([r["at_s"], *r["values"].values()] for r in rows))


def rows_of(outputs: "dict[str, Array]", labels: list[str]) -> list[dict[str, Any]]:
    """What was said of each window, for people and programs."""
    rows = []
    for at, at_s in enumerate(outputs["at_s"]):
        row: dict[str, Any] = {"at_s": round(float(at_s), 3)}
        if "scores" in outputs:
            row |= {"label": str(outputs["labels"][at]), "score": round(float(outputs["scores"][at].max()), 4)}
        else:
            said = outputs["values"][at]
            row["values"] = {name: round(float(one), 4) for name, one in zip(labels, said, strict=True)}
        if "routed" in outputs:
            row["by"] = str(outputs["routed"][at])
        rows.append(row)
    return rows


def pieces(samples: "Array", window: int, hop: int) -> "Iterator[tuple[int, Array]]":
    """Parts of a series that fit into a request, whole windows each, and where they begin."""
    most = max(1, min(_WINDOWS, (_PIECE // samples.shape[1] - window) // hop + 1))
    count = max(1, (len(samples) - window) // hop + 1)
    for first in range(0, count, most):
        windows = min(most, count - first)
        yield first * hop, samples[first * hop : first * hop + (windows - 1) * hop + window]


def read_series(path: Path, rate_hz: float, channels: int) -> "Array":
    """A file's samples at a model's rate; shape (n, channels), float32. Raises `WorkerError`."""
    import numpy as np

    try:
        if path.suffix.lower() == ".wav":
            return _sound(path, rate_hz, channels)
        if path.suffix.lower() == ".npy":
            array: Array = np.atleast_2d(np.load(path, allow_pickle=False).astype(np.float32).T).T
        else:
            if path.stat().st_size > _LOG_MAX_BYTES:
                raise WorkerError(f"{path} is larger than {_LOG_MAX_BYTES >> 20} MiB")
            array = _log(path)
    except OSError as error:
        raise WorkerError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, wave.Error, EOFError) as error:
        raise WorkerError(f"{path} is no series that can be read: {str(error)[:160]}") from error
    if array.ndim != 2 or array.shape[1] != channels:
        raise WorkerError(f"{path} has {array.shape[-1]} columns; the model takes {channels}")
    return array


def _log(path: Path) -> "Array":
    import numpy as np

    text = path.read_text(encoding="utf-8-sig")
    first = text.splitlines()[0] if text else ""
    try:
        [float(one) for one in first.replace(";", ",").split(",")]
        skip = 0
    except ValueError:
        skip = 1
    return np.loadtxt(text.replace(";", ",").splitlines(), np.float32, delimiter=",", skiprows=skip, ndmin=2)


def _sound(path: Path, rate_hz: float, channels: int) -> "Array":
    import numpy as np

    from swarmd_models.series import resampled

    with wave.open(str(path), "rb") as file:
        width, count, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        if width not in (1, 2, 4) or file.getnframes() * width * count > _LOG_MAX_BYTES:
            raise WorkerError(f"{path}: 8, 16 or 32 bits a sample, and {_LOG_MAX_BYTES >> 20} MiB at most, are read")
        kind: Any = {1: np.uint8, 2: "<i2", 4: "<i4"}[width]
        raw = np.frombuffer(file.readframes(file.getnframes()), kind)
    scaled = (raw.astype(np.float32) - (128.0 if width == 1 else 0.0)) / float(1 << (8 * width - 1))
    array = scaled.reshape(-1, count)
    if channels == 1:
        array = array.mean(axis=1, keepdims=True, dtype=np.float32)
    if array.shape[1] != channels:
        raise WorkerError(f"{path} has {count} channels; the model takes {channels}")
    return resampled(array, rate, rate_hz)
