"""Writes the bundle of a bare model: what was read off it, stated; with golden vectors of a trial run.

The bundle is loaded and tried before it counts, so what is written can be used. A person sees in the TOML how the
model was read and why, and changes what is wrong.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from swarmd_models.backends.base import Announce, Array, TensorSpec
from swarmd_models.bundle import Bundle, GivenInput, InputRule, load_bundle
from swarmd_models.decoders.anchor_free import find_head
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.golden import check_golden
from swarmd_models.trial_run import BACKENDS, drawn_picture, read_picture
from swarmd_models.types import Detection

_MANY_LABELS = 200
"""From here on the labels lie in a file of their own."""


@dataclass(frozen=True, slots=True)
class InitOptions:
    """What a person gives, against what would be read off the model."""

    out: Path | None = None
    """The TOML; beside the model where nothing is given."""
    labels_path: Path | None = None
    picture: Path | None = None
    """For the trial run; a drawn one where nothing is given."""
    head: str = "auto"
    given: GivenInput = field(default_factory=GivenInput)
    classes: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = BACKENDS
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Initialised:
    """A bundle that has been written and tried."""

    path: Path
    bundle: Bundle
    reading: str
    runtime: str
    detections: list[Detection]
    """What it saw in the picture."""


def init_bundle(model: Path, options: InitOptions, announce: Announce) -> Initialised:
    """Write the bundle of a bare model and try it.

    Args:
        model: A `.tflite` or `.onnx`.
        options: What a person gives.
        announce: Told about runtimes that are passed over.

    Raises:
        ModelError: The model leaves no reading, or several; it cannot be run; or a file cannot be written.
    """
    if str(model).startswith("zoo:") or model.suffix == ".toml":
        raise ArtefactError(f"{model} is a bundle already")
    bare = load_bundle(model, options.labels_path)
    for label in sorted({*options.classes, *options.rename} - set(bare.labels)):
        raise ArtefactError(f"{label!r} is no label of {model.name}")
    asked = replace(bare.decode, head=options.head, classes=options.classes, rename=dict(options.rename))
    bare = replace(bare, given=options.given, decode=asked)
    path = options.out or model.with_suffix(".toml")
    if path.suffix != ".toml":
        raise ArtefactError(f"{path} must end in .toml")
    if path.exists() and not options.overwrite:
        raise ArtefactError(f"{path} exists already; --force writes it anew")
    detector = Detector.open(bare, DetectorOptions(options.backends), announce)
    try:
        read, size = detector.bundle, (detector.bundle.input.width, detector.bundle.input.height)
        image = read_picture(options.picture, *size) if options.picture else drawn_picture(*size)
        arrays = {"image": image, **_outputs(detector, image)}
        spec = detector.backend.inputs[0]
    finally:
        detector.close()
    try:
        _write(path, model, _stated(read, spec), arrays, options)
    except OSError as error:
        raise ArtefactError(f"{error.filename or path} cannot be written: {error.strerror}") from error
    return _tried(path, image, read.reading, options, announce)


def _tried(path: Path, image: Array, reading: str, options: InitOptions, announce: Announce) -> Initialised:
    """What was written, read back and run."""
    detector = Detector.open(load_bundle(path), DetectorOptions(options.backends), announce)
    try:
        problem = check_golden(detector)
        if problem:
            raise ArtefactError(f"{path} does not answer as the bare model does: {problem}")
        return Initialised(path, detector.bundle, reading, detector.backend.runtime, detector.detect(image))
    finally:
        detector.close()


def _outputs(detector: Detector, image: Array) -> dict[str, Array]:
    """Raw outputs by the names that golden vectors have."""
    outputs = detector.raw_outputs(image)
    if detector.bundle.decoder == "anchor_free":
        cls, dist = find_head(detector.backend.outputs, {})
        return {"cls": outputs[cls], "dist": outputs[dist]}
    return {f"output_{index}": value for index, value in enumerate(outputs)}


def _stated(bundle: Bundle, spec: TensorSpec) -> Bundle:
    """The bundle with numbers for "bytes go in unchanged", which a TOML does not know."""
    rule = bundle.input
    if rule.as_is and spec.is_quantised:
        low = int(np.iinfo(spec.dtype).min)
        rule = replace(rule, mean=float(spec.zero_point - low), std=1.0 / spec.scale, as_is=False)
    return replace(bundle, input=rule)


def _write(path: Path, model: Path, bundle: Bundle, arrays: dict[str, Array], options: InitOptions) -> None:
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != model.parent.resolve():
        shutil.copyfile(model, folder / model.name)
    golden = path.with_suffix(".golden.npz")
    np.savez_compressed(golden, **arrays)  # type: ignore[arg-type]
    labels = f"labels = {_list(bundle.labels)}"
    if len(bundle.labels) > _MANY_LABELS:
        names = path.with_suffix(".labels.txt")
        names.write_text("\n".join(bundle.labels) + "\n", encoding="utf-8")
        labels = f"labels_file = {_text(names.name)}"
    decode = bundle.decode
    lines = [
        "format = 1",
        f"name = {_text(bundle.name)}",
        'version = "1"',
        f"decoder = {_text(bundle.decoder)}",
        labels,
        "",
        "[model]",
        f"file = {_text(model.name)}",
        f'sha256 = "{_sha256(model)}"',
        "",
        *_input_lines(bundle.input),
        "",
        "[decode]",
        *([f"head = {_text(decode.head)}"] if bundle.decoder == "yolo" else []),
        f"score_threshold = {decode.score_threshold}",
        f"iou_threshold = {decode.iou_threshold}",
        *([f"classes = {_list(decode.classes)}"] if decode.classes else []),
        *(["[decode.rename]"] if decode.rename else []),
        *(f"{_text(old)} = {_text(new)}" for old, new in decode.rename.items()),
        "",
        "[golden]",
        f"file = {_text(golden.name)}",
        f'sha256 = "{_sha256(golden)}"',
        "",
        "[provenance]",
        f"read_as = {_text(bundle.reading)}",
        f"tried_on = {_text(options.picture.name if options.picture else 'a drawn picture')}",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _input_lines(rule: InputRule) -> list[str]:
    return [
        "[input]",
        f"width = {rule.width}",
        f"height = {rule.height}",
        f"channels = {_text(rule.channels)}",
        f"resize = {_text(rule.resize)}",
        f"pad = {rule.pad}",
        f"mean = {_numbers(rule.mean)}",
        f"std = {_numbers(rule.std)}",
    ]


def _numbers(value: float | tuple[float, ...]) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(float(value))


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def _text(value: str) -> str:
    """A TOML basic string; JSON's escapes are among TOML's, but for DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
