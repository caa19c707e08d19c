"""What a model says of the frames it was made for: `python -m swarmd_models.reference --model BUNDLE.toml`.

Measures the bundle on composed frames (half of them with real crops, where `--crops` names some; else all drawn) or on
the pictures of a folder, and writes its table `[reference]`, against which the eye tells drift. Do it last: thresholds
and a second stage change what the model says.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from swarmd_models.backends.base import Array
from swarmd_models.bundle import Bundle, load_bundle, resolve, unhurried
from swarmd_models.bundle_rules import Reference
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.strange import box_detail, detail_of
from swarmd_models.types import Detection, Image
from swarmd_models.watch import features_of, measure_reference

FRAMES = 120
"""Composed frames of each kind that a reference is made of."""
_PREVALENCE = 0.02
"""Share of faulty modules in them; ordinary plants have one or two in a hundred."""
_SEED = 78
"""Of the composed frames, so that a reference can be made again."""
_MIN_FRAMES = 20
"""Fewer frames give histograms of chance."""


def measure(bundle: Bundle, images: Iterable[Image], backends: tuple[str, ...] = ("litert",)) -> Reference:
    """The reference of a bundle from frames like those it was made for.

    Args:
        bundle: With its final thresholds.
        images: Frames, in any order.
        backends: Runtimes, the preferred first.

    Raises:
        ArtefactError: There are too few frames to know anything.
        ModelError: The bundle cannot be run, or not on these frames.
    """
    detector = Detector.open(unhurried(bundle), DetectorOptions(backends))
    seen: list[tuple[Sequence[Detection], Array]] = []
    details: list[tuple[float, list[float]]] = []
    try:
        for image in images:
            found = detector.detect(image)
            seen.append((found, features_of(image, detector.pooled())))
            canvas, to_canvas = detector.seen()
            detail = detail_of(canvas)
            details.append((float(detail.mean()), [box_detail(detail, to_canvas(one.box)) for one in found]))
    finally:
        detector.close()
    if len(seen) < _MIN_FRAMES:
        raise ArtefactError(f"a reference of {len(seen)} frames says nothing; give at least {_MIN_FRAMES}")
    return measure_reference(seen, details)


def composed(bundle: Bundle, crops: str, frames: int = FRAMES) -> Iterator[Image]:
    """Composed frames at 2 % prevalence: as many of real crops (when there are any) as of drawn modules."""
    from swarmd_models.evaluate import FrameSpec, frames_of

    for source in (crops, "") if crops else ("",):
        spec = FrameSpec(prevalence=_PREVALENCE, frames=frames, seed=_SEED, crops=source)
        yield from (scene.image for scene in frames_of(spec, bundle))


def write(path: Path, reference: Reference) -> None:
    """Replace the table `[reference]` of a bundle's TOML; raises `ArtefactError`."""
    lines = ["[reference]", f"detections_per_frame = {round(reference.detections_per_frame, 4)}"]
    for key in ("score_histogram", "feature_mean", "feature_std", "feature_deciles", "detail"):
        if values := getattr(reference, key):
            lines.append(f"{key} = {[round(value, 5) for value in values]}")
    table = "\n".join(lines) + "\n"
    try:
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^\[reference\]\n(?:(?!\[).*\n)*?(?=\n?\[|\n*\Z)", text, re.MULTILINE)
        if found is None:
            text = text.rstrip("\n") + "\n\n" + table
        else:
            text = text[: found.start()] + table + text[found.end() :]
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArtefactError(f"the reference cannot be written into {path}: {error.strerror}") from error


def _pictures(folder: Path) -> Iterator[Image]:
    from swarmd_models.sources import open_source

    source = open_source(str(folder))
    try:
        while (frame := source.read()) is not None:
            yield frame.image
    finally:
        source.close()


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_models.reference", description="Writes a bundle's [reference].")
    parser.add_argument("--model", required=True, help="the bundle's .toml, or zoo:NAME; it is changed")
    parser.add_argument("--crops", default="", metavar="FILE.npz", help="real module crops, as modules_ir_visible.npz")
    parser.add_argument(
        "--images", type=Path, metavar="FOLDER", help="pictures to measure on, instead of composed ones"
    )
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"composed frames of each kind (default {FRAMES})")
    options = parser.parse_args(arguments)
    try:
        path = resolve(options.model)
        if path.suffix != ".toml":
            raise ArtefactError(f"{path} is no bundle (.toml); a bare model has no [reference]")
        bundle = load_bundle(path)
        images = _pictures(options.images) if options.images else composed(bundle, options.crops, options.frames)
        reference = measure(bundle, images)
        write(path, reference)
        load_bundle(path)
    except ModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{path}: {reference.detections_per_frame:.3f} detections a frame\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
