"""`swarmd bundle cut MODEL`: where a model can be cut in parts that run on several devices, and the parts.

Without `--at` it lists the cuts: what lies there, raw and packed as it travels, and how much of the model comes before.
With `--at TENSOR` (twice: a chain of three) it writes the parts and the file for `lending.split`.
"""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.cli.common import add_json, print_json, print_table
from swarmd.errors import EyeError

if TYPE_CHECKING:
    from swarmd_models.types import Image


def add_cut(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser("cut", help="cut a model in parts that run on several devices")
    parser.add_argument("model", metavar="MODEL", help="a bundle (zoo:NAME, .toml) with an ONNX form, or an .onnx")
    parser.add_argument(
        "--at", action="append", default=[], metavar="TENSOR", help="cut there; twice: a chain of three parts"
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FOLDER", help="where the parts go (with --at)")
    parser.add_argument(
        "--picture", type=Path, action="append", default=[], metavar="FILE",
        help="sizes are measured on it; may be repeated (default: the bundle's golden picture)",
    )  # fmt: skip
    add_json(parser)


def cut(args: argparse.Namespace) -> int:
    """List the cuts, or write the parts; raises `EyeError`."""
    from swarmd_models.errors import ModelError

    if bool(args.at) != (args.out is not None):
        raise EyeError("--at TENSOR and --out FOLDER go together; without both the cuts are listed")
    try:
        return _write(args) if args.at else _list(args)
    except ModelError as error:
        raise EyeError(str(error)) from error
    except OSError as error:
        raise EyeError(f"{error.filename}: {error.strerror}") from error


def _write(args: argparse.Namespace) -> int:
    from swarmd_models.bundle import load_bundle
    from swarmd_models.part_export import Cutter

    args.out.mkdir(parents=True, exist_ok=True)
    path = Cutter(load_bundle(args.model), _pictures(args.picture), args.out, _travels).write(args.at)
    parts = sorted(path.parent.glob(f"{path.name.removesuffix('.split.toml')}-*-*.onnx"))
    if args.json:
        print_json({"split": str(path), "parts": [str(part) for part in parts]})
        return 0
    print(f"{path}: set lending.split to it where parts are borrowed")
    for part in parts:
        print(f"{part}: in inference.models of a device that runs it")
    return 0


def _list(args: argparse.Namespace) -> int:
    from swarmd_models.bundle import load_bundle
    from swarmd_models.part_export import Cutter

    with tempfile.TemporaryDirectory() as work:
        cutter = Cutter(load_bundle(args.model), _pictures(args.picture), Path(work), _travels)
        cuts, whole_ms = cutter.cuts(), cutter.whole_ms
    if args.json:
        print_json({"whole_ms": round(whole_ms, 3), "cuts": [asdict(one) for one in cuts]})
        return 0
    print_table(
        ("cut", "shape", "type", "bytes", "packed", "before it, ms", "of the whole"),
        (
            [one.tensor, "x".join(map(str, one.shape)), one.dtype, one.raw_bytes, one.packed_bytes,
             f"{one.head_ms:.2f}", f"{one.head_ms / whole_ms:.0%}"]
            for one in cuts
        ),
    )  # fmt: skip
    return 0


def _travels(data: bytes) -> int:
    from swarmd.worker.coding import packed

    return len(packed(data) or data)


def _pictures(paths: list[Path]) -> "list[Image]":
    from swarmd_models.errors import SourceError
    from swarmd_models.picture_file import read_pixels

    try:
        return [read_pixels(path) for path in paths]
    except SourceError as error:
        raise EyeError(str(error)) from error
