"""`swarmd frames`: frames that the model was unsure of, kept on this device when the configuration says so, to people
and back."""

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
    imported = names.add_parser("import", help="make a training set of an export and its corrected labels")
    imported.add_argument("--export", type=Path, required=True, metavar="DIR", help="what `frames export` wrote")
    imported.add_argument(
        "--labels",
        type=Path,
        required=True,
        metavar="FILE",
        help="COCO, CVAT for images 1.1, Label Studio's JSON, or objects as `swarmd objects --geojson` writes them",
    )
    imported.add_argument("--out", type=Path, required=True, metavar="SET", help="a new folder")
    imported.add_argument(
        "--by", default="", metavar="NAME", help="who has looked at every picture of FILE and says that it is right"
    )
    imported.add_argument(
        "--held-share", type=float, default=0.25, help="of the frames, the last ones, that only judge (default 0.25)"
    )
    add_json(imported)


def run(args: argparse.Namespace) -> int:
    """Export, or import.

    Raises:
        EyeError: There is nothing to export, a file cannot be used, or nothing can be written.
    """
    return _import(args) if args.name == "import" else _export(args)


def _import(args: argparse.Namespace) -> int:
    from swarmd_models.errors import ModelError
    from swarmd_models.labelling.training_set import import_labels

    try:
        made, form = import_labels(args.export, args.labels, args.out, args.by, args.held_share)
    except ModelError as error:
        raise EyeError(str(error)) from error
    held = sum(one.is_held for one in made.pictures)
    boxes = sum(len(one.boxes) for one in made.pictures)
    if args.json:
        said = {"set": str(args.out), "digest": made.digest, "form": form, "images": len(made.pictures)}
        print_json({**said, "held_back": held, "boxes": boxes, "labelled_by": list(made.labelled_by)})
    else:
        print(f"{args.out}: {len(made.pictures)} pictures ({held} held back), {boxes} boxes, from {form}")
        print(f"labelled by {', '.join(made.labelled_by)}; digest {made.digest}")
    return 0


def _export(args: argparse.Namespace) -> int:
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
