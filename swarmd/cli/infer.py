"""`swarmd infer MODEL --input FILE`: ask the inference API of this device; a folder or a video is a batch.

A picture is seen through all of the bundle, a `.npy` through its graph; a `.wav` or a `.csv` is judged by windows. Exit
status: 0 answered, 1 refused (said in one sentence), 2 usage, 3 no API is reachable.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from swarmd.cli.common import add_control, add_json, ask, print_json, print_table
from swarmd.cli.infer_batch import is_batch, rows_of, run_batch
from swarmd.cli.infer_ray import run_ray
from swarmd.cli.infer_series import is_series, run_series
from swarmd.cli.infer_text import run_text
from swarmd.errors import WorkerError
from swarmd.worker.asking import Wish, address_of, infer, named

if TYPE_CHECKING:
    from swarmd_models.backends.base import Array


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb's flags."""
    parser = subparsers.add_parser("infer", help="ask the inference API of this device")
    parser.add_argument(
        "model", metavar="MODEL", help="name as served, or a bundle (zoo:NAME, .toml): exactly that one"
    )
    parser.add_argument(
        "--input",
        default="",
        metavar="FILE",
        help="a picture: detections; a .npy array: the graph's outputs; a .wav or a .csv: a row a window; "
        "a folder of pictures or a video: a line of JSON a frame; with --stream a text, - reads it from standard input",
    )
    parser.add_argument(
        "--out", default="", metavar="FILE", help="write the outputs there (.npz); of a batch its lines (.jsonl)"
    )
    parser.add_argument("--url", default="", metavar="HOST:PORT", help="the API (default: that of the daemon here)")
    parser.add_argument("--priority", type=int, choices=(1, 2, 3), default=2, help="1 is the most urgent")
    parser.add_argument("--borrow", action="store_true", help="another member may answer (lending.borrow)")
    parser.add_argument(
        "--unsure", action="store_true", help="better models of others are asked where the own one is in doubt "
        "(lending.plan)"
    )  # fmt: skip
    parser.add_argument(
        "--split", action="store_true", help="parts of the model may run on other members (lending.split)"
    )
    parser.add_argument(
        "--fleet",
        action="store_true",
        help="a batch: whoever of the fleet is idle takes the next frame (lending.borrow)",
    )
    parser.add_argument(
        "--ray",
        default="",
        metavar="ADDRESS",
        help="a batch of a bundle on Ray: auto (the cluster that runs here), HOST:PORT, ray://HOST:PORT, or local",
    )
    parser.add_argument(
        "--grade-min", type=float, default=0.0, metavar="G", help="with able:ABILITY as MODEL: the least grade"
    )
    parser.add_argument("--keep-s", type=float, default=0.0, metavar="N", help="a borrowed answer may be kept so long")
    parser.add_argument(
        "--copies", type=int, choices=(1, 2), default=1, help="2: two members have it at once, so that the death of "
        "one loses nothing that the other has time for; with --borrow or --unsure"
    )  # fmt: skip
    parser.add_argument(
        "--form", choices=("raw", "lossless"), default="", help="a picture leaves with its very pixels, whatever "
        "lending.jpeg_quality says"
    )  # fmt: skip
    parser.add_argument("--version", default="", metavar="DIGEST", help="exactly this bundle; needed to borrow by name")
    parser.add_argument("--deadline-ms", type=int, metavar="N", help="answer within so many milliseconds")
    text = parser.add_argument_group("language models")
    text.add_argument("--stream", action="store_true", help="go on with a text, and show it as it comes")
    text.add_argument("--prompt", default="", metavar="TEXT", help="the text, in place of --input")
    text.add_argument("--max-tokens", type=int, default=128, metavar="N", help="at most so many pieces of text")
    text.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 (default): the likeliest always")
    text.add_argument("--seed", type=int, default=0, metavar="N", help="decides the draw at a temperature above 0")
    text.add_argument(
        "--session", default="", metavar="FILE", help="go on where the text in FILE ended, and keep there how this one "
        "may go on, for ten minutes, on this device"
    )  # fmt: skip
    add_control(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Ask once.

    Raises:
        ControlError: No API is reachable.
        WorkerError: It refused, or the file cannot be used.
    """
    import numpy as np

    flags = (("fleet", args.fleet), ("split", args.split), ("unsure", args.unsure), ("yes", args.borrow))
    borrow = next((word for word, is_set in flags if is_set), "")
    wish = Wish(args.version, args.priority, args.deadline_ms, borrow, args.grade_min, args.keep_s, args.copies)
    wish = replace(wish, form=args.form)
    if args.ray:
        if not (args.input and is_batch(Path(args.input))):
            raise WorkerError("--ray is for a batch: --input names a folder of pictures or a video")
        return run_ray(args)
    address = args.url or address_of(ask(args, "status"))
    model, version = named(args.model)
    if args.stream:
        return run_text(address, model, replace(wish, version=args.version or version), args)
    if not args.input:
        raise WorkerError("--input FILE is missing; only --stream takes --prompt in its place")
    if is_batch(Path(args.input)):
        return run_batch(address, model, replace(wish, version=args.version or version), args)
    if is_series(Path(args.input), model):
        return run_series(address, model, replace(wish, version=args.version or version), args)
    array = _read(Path(args.input))
    is_picture = Path(args.input).suffix != ".npy"
    name = f"{model}.detect" if is_picture and not model.endswith(".detect") else model
    head, outputs = infer(address, name, array, replace(wish, version=args.version or version))
    if args.out:
        np.savez(args.out, **cast(dict[str, Any], outputs))
    _show(head, outputs, args)
    return 0


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read(path: Path) -> "Array":
    import numpy as np

    from swarmd_models.errors import SourceError
    from swarmd_models.picture_file import read_pixels

    if path.suffix == ".npy":
        try:
            array: Array = np.load(path, allow_pickle=False)
        except OSError as error:
            raise WorkerError(f"{path} cannot be read: {_reason(error)}") from error
        except ValueError as error:  # NumPy speaks of pickles, which nobody should load.
            raise WorkerError(f"{path} is no .npy array of numbers") from error
        return array
    try:
        image = read_pixels(path)
    except SourceError as error:
        raise WorkerError(f"{error}; a tensor is a .npy file") from error
    return image[..., None] if image.ndim == 2 else image


def _show(head: dict[str, Any], outputs: dict[str, "Array"], args: argparse.Namespace) -> None:
    if "labels" in outputs:
        rows = rows_of(outputs)
        if args.json:
            print_json({**_answerer(head), "detections": rows})
            return
        print_table(("label", "score", "box"), ([r["label"], r["score"], " ".join(map(str, r["box"]))] for r in rows))
    else:
        shapes = {name: {"datatype": str(array.dtype), "shape": array.shape} for name, array in outputs.items()}
        if args.json:
            print_json({**_answerer(head), "outputs": shapes})
            return
        print_table(("output", "type", "shape"), ([n, s["datatype"], s["shape"]] for n, s in shapes.items()))
    by = f", answered by {head['lender']}" if head["lender"] else ""
    took_us = head["parameters"]["took_us"]
    print(f"{head['model_name']} {head['model_version'][:16]}, {took_us} us{by}", file=sys.stderr)


def _answerer(head: dict[str, Any]) -> dict[str, Any]:
    told = {"model": head["model_name"], "version": head["model_version"]}
    return told | {key: head[key] for key in ("lender", "parts", "kept") if head[key]}
