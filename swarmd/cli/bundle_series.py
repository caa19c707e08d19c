"""`swarmd bundle series MODEL`: the bundle of any net that judges windows of a sound or a log, tried on silence."""

import argparse
import hashlib
import json
from pathlib import Path

from swarmd.cli.common import add_json, plain, print_json
from swarmd.errors import EyeError
from swarmd_models.series_rule import CLASSIFY, REGRESS, SAMPLES, SPECTROGRAM, SPECTRUM


def add_series(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser("series", help="write the bundle of a .tflite or .onnx that judges a sound or a log")
    parser.add_argument("model", type=Path, metavar="MODEL", help="a .tflite or .onnx: one tensor in, one out, float32")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE.toml", help="the bundle (default: beside the model)")
    parser.add_argument("--labels", type=Path, required=True, metavar="FILE", help="one a line: classes, or numbers")
    parser.add_argument("--rate-hz", type=float, required=True, metavar="HZ", help="samples a second")
    parser.add_argument("--window", type=int, required=True, metavar="N", help="samples that the net judges at once")
    parser.add_argument("--hop", type=int, default=0, metavar="N", help="from window to window (default: a window)")
    parser.add_argument("--task", choices=(CLASSIFY, REGRESS), default=CLASSIFY, help="logits of labels, or numbers")
    parser.add_argument("--channels", type=int, default=1, metavar="N", help="of each sample")
    parser.add_argument(
        "--features", choices=(SAMPLES, SPECTRUM, SPECTROGRAM), default=SAMPLES, help="what the net is given"
    )
    parser.add_argument("--frame", type=int, default=1024, metavar="N", help="samples of one Fourier transform")
    parser.add_argument("--bands", type=int, default=64, metavar="N", help="of a spectrum")
    parser.add_argument("--unit", default="", metavar="TEXT", help="of the numbers of a regression")
    parser.add_argument("--force", action="store_true", help="write over a bundle that is there")
    add_json(parser)


def series(args: argparse.Namespace) -> int:
    """Write it, load it, and judge silence once; raises `EyeError`, and leaves nothing then."""
    import numpy as np

    from swarmd_models.bundle import load_bundle
    from swarmd_models.detector import DetectorOptions
    from swarmd_models.errors import ModelError
    from swarmd_models.service import SERIES, Service

    model: Path = args.model
    path: Path = args.out or model.with_suffix(".toml")
    if path.suffix != ".toml" or path.parent.resolve() != model.parent.resolve():
        raise EyeError(f"{path} must be a .toml in the folder of {model}")
    if path.exists() and not args.force:
        raise EyeError(f"{path} is there already; --force writes over it")
    try:
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        labels = [line.strip() for line in args.labels.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise EyeError(f"{model} or {args.labels} cannot be read: {error}") from error
    rows = {"task": args.task, "rate_hz": args.rate_hz, "window": args.window, "hop": args.hop or args.window,
            "channels": args.channels, "features": args.features, "unit": args.unit}  # fmt: skip
    if args.features != SAMPLES:
        rows |= {"frame": args.frame, "bands": args.bands}
    lines = [
        "# Written by swarmd bundle series.", "format = 1", f"name = {json.dumps(model.stem)}", 'version = "1"',
        'decoder = "series"', f"labels = {json.dumps(labels, ensure_ascii=False)}", "", "[model]",
        f"file = {json.dumps(model.name)}", f'sha256 = "{digest}"', "", "[series]",
        *(f"{key} = {json.dumps(value)}" for key, value in rows.items()), "",
    ]  # fmt: skip
    kept = path.read_bytes() if path.exists() else None
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        bundle = load_bundle(path)
        service = Service.open(bundle, DetectorOptions(("litert", "onnx")), lambda text: None)
        run = service.steps(SERIES, {"samples": np.zeros((args.window, args.channels), np.float32)})
        run.step()
        said = run.result()
        service.close()
    except ModelError as error:
        if kept is None:
            path.unlink()
        else:
            path.write_bytes(kept)
        raise EyeError(str(error)) from error
    first = {name: [str(one) if one.dtype.hasobject else round(float(one), 4) for one in array.ravel()[:8]]
             for name, array in said.items()}  # fmt: skip
    if args.json:
        print_json({"bundle": str(path), "digest": bundle.digest, "silence": first})
        return 0
    print(f"{path}: {len(labels)} labels, a window of {args.window} samples at {args.rate_hz:g} Hz")
    print(f"digest {bundle.digest}")
    print(f"tried on silence: {plain(json.dumps(first))}")
    return 0
