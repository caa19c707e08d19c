"""`swarmd frames`: frames that the model was unsure of, kept on this device when the configuration says so."""

import argparse
from pathlib import Path

from swarmd.cli.common import add_json, print_json
from swarmd.errors import EyeError

REVIEWS_MAX_BYTES = 256 << 20
"""Bytes of a file of objects: 100,000 of them."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb's flags."""
    parser = subparsers.add_parser("frames", help="frames kept for labelling")
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    export = names.add_parser("export", help="write the kept frames as a COCO data set")
    export.add_argument("--folder", type=Path, required=True, help="where the eye keeps frames (eye.keep_frames)")
    export.add_argument("--out", type=Path, required=True, help="folder for annotations.json and images/")
    export.add_argument(
        "--reviews",
        type=Path,
        metavar="FILE",
        help="objects as `swarmd objects --geojson` writes them: labels of operators",
    )
    add_json(export)


def run(args: argparse.Namespace) -> int:
    """Export.

    Raises:
        EyeError: There is nothing to export, or it cannot be written.
    """
    from swarmd_models.errors import ModelError
    from swarmd_models.frame_ring import export_coco
    from swarmd_models.reviewed import reviewed_of

    try:
        reviewed = [] if args.reviews is None else reviewed_of(_read_json(args.reviews))
        pictures, annotations = export_coco(args.folder, args.out, reviewed)
    except ModelError as error:
        raise EyeError(str(error)) from error
    if args.json:
        print_json({"images": pictures, "annotations": annotations, "file": str(args.out / "annotations.json")})
    else:
        print(f"{pictures} pictures, {annotations} annotations in {args.out / 'annotations.json'}")
    return 0


def _read_json(path: Path) -> object:
    import json

    try:
        if path.stat().st_size > REVIEWS_MAX_BYTES:
            raise EyeError(f"{path} has more than {REVIEWS_MAX_BYTES >> 20} MiB; export fewer objects")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise EyeError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise EyeError(f"{path} is no JSON: {error}") from error
