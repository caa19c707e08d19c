"""`swarmd bundle init MODEL`: the bundle of any model, written from what can be read off it and a trial run.

`swarmd bundle show MODEL` says what one holds (`bundle_show.py`), `swarmd bundle cut MODEL` cuts one into parts
(`bundle_cut.py`), `swarmd bundle series MODEL` writes the bundle of a net for sounds and logs (`bundle_series.py`).
"""

import argparse
import sys
from pathlib import Path

from swarmd.cli.bundle_cut import add_cut, cut
from swarmd.cli.bundle_series import add_series, series
from swarmd.cli.bundle_show import add_show, show
from swarmd.cli.common import add_json, plain, print_json
from swarmd.errors import EyeError
from swarmd_models.bundle import HEADS


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("bundle", help="make a bundle of a model file, show one, or cut one")
    verbs = parser.add_subparsers(dest="bundle_verb", required=True, metavar="VERB")
    init = verbs.add_parser("init", help="write the bundle of a .tflite or .onnx, and try it")
    init.add_argument("model", type=Path, metavar="MODEL", help="a .tflite or .onnx")
    init.add_argument("-o", "--out", type=Path, metavar="FILE.toml", help="the bundle (default: beside the model)")
    init.add_argument("--picture", type=Path, metavar="FILE", help="what the model is tried on (default: a drawn one)")
    init.add_argument("--labels", type=Path, metavar="FILE", help="labels, one a line, instead of the model's own")
    init.add_argument("--head", choices=HEADS, default="auto", help="which of YOLO's heads it is, where several fit")
    init.add_argument("--channels", choices=("gray", "bgr", "rgb"), default="", help="order of the input's channels")
    init.add_argument("--resize", choices=("letterbox", "stretch", "none"), default="", help="how a picture is fitted")
    init.add_argument("--mean", type=_numbers, metavar="M[,M,M]", help="real input = (pixel - mean) / std")
    init.add_argument("--std", type=_numbers, metavar="S[,S,S]", help="one number, or one a channel")
    init.add_argument("--classes", default="", metavar="A,B", help="the labels that count (default: all)")
    init.add_argument(
        "--rename", action="append", default=[], metavar="A=B", help="report label A as B; may be repeated"
    )
    init.add_argument("--backend", default="", metavar="LIST", help="runtimes to try, comma-separated")
    init.add_argument("--force", action="store_true", help="write over a bundle that is there")
    add_json(init)
    add_show(verbs)
    add_cut(verbs)
    add_series(verbs)


def run(args: argparse.Namespace) -> int:
    """Write the bundle and say how the model was read, and what it saw.

    Raises:
        EyeError: The model leaves no reading, or several, or cannot be run or cut.
    """
    if args.bundle_verb == "cut":
        return cut(args)
    if args.bundle_verb == "show":
        return show(args)
    if args.bundle_verb == "series":
        return series(args)
    from swarmd_models.bundle import GivenInput
    from swarmd_models.bundle_init import InitOptions, init_bundle
    from swarmd_models.errors import ModelError
    from swarmd_models.trial_run import BACKENDS

    rename = dict(one.partition("=")[::2] for one in args.rename)
    if not all(old and new for old, new in rename.items()):
        raise EyeError("--rename takes LABEL=NAME")
    options = InitOptions(
        out=args.out,
        labels_path=args.labels,
        picture=args.picture,
        head=args.head,
        given=GivenInput(args.channels, args.resize, args.mean, args.std),
        classes=tuple(one.strip() for one in args.classes.split(",") if one.strip()),
        rename=rename,
        backends=tuple(args.backend.split(",")) if args.backend else BACKENDS,
        overwrite=args.force,
    )
    try:
        made = init_bundle(args.model, options, lambda text: None)
    except ModelError as error:
        raise EyeError(str(error)) from error
    found = [
        {"label": d.label, "score": round(d.score, 4), "box": [round(x, 1) for x in d.box]} for d in made.detections
    ]
    picture = str(args.picture or "a drawn picture")
    if args.json:
        print_json(
            {
                "bundle": str(made.path),
                "digest": made.bundle.digest,
                "reading": made.reading,
                "runtime": made.runtime,
                "picture": picture,
                "detections": found,
            }
        )
        return 0
    print(f"{made.path}: read as {plain(made.reading)}")
    seen = ", ".join(f"{plain(one['label'])} {one['score']:.2f}" for one in found[:10])
    print(f"tried with {made.runtime} on {picture}: {seen or 'nothing'}")
    if args.picture and not found:
        print(f"nothing was found in {picture}; if something should be, the reading is wrong", file=sys.stderr)
    return 0


def _numbers(text: str) -> float | tuple[float, ...]:
    values = tuple(float(one) for one in text.split(","))
    if len(values) not in (1, 3):
        raise argparse.ArgumentTypeError("must be one number, or three")
    return values[0] if len(values) == 1 else values
