"""A model with everything needed to use it: the bundle, a TOML file beside the model, or a bare `.tflite` or `.onnx`.

All problems of a TOML are reported at once. Paths in it are relative to it and cannot leave its folder; digests are
checked on load. What only the runtime knows (shapes), and how a bare model is decoded, `recognise.py` finds out.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swarmd_models.backends.base import Artefact
from swarmd_models.bounded_file import read_bounded
from swarmd_models.bundle_digest import digest_of_bare, digest_of_bundle
from swarmd_models.bundle_files import checked_file, inside
from swarmd_models.bundle_rules import Reference, TrackRule, read_reference, read_track_rule
from swarmd_models.ensemble import EnsembleRule, read_ensemble
from swarmd_models.errors import ArtefactError
from swarmd_models.model_notes import ModelNotes, notes_of
from swarmd_models.onnx_file import read_onnx
from swarmd_models.operating_point import Curve, read_curve
from swarmd_models.series_rule import SeriesRule, read_series_rule
from swarmd_models.texts import TextRule, read_text_rule
from swarmd_models.tflite_file import read_labels, read_model
from swarmd_models.toml_reader import TomlReader, parse_toml

MAX_TOML_BYTES = 1 << 20
"""Of a bundle's description; ours have 4 kB."""
_PROBLEMS_MAX = 32
"""Problems of a bundle that are told at once: a person mends them one by one, and each label may make one."""
LABELS_BYTES_MAX = 1 << 19
"""Of all labels of a model as text: half of what one word from the eye to the daemon may have, which tells them all."""
DECODERS = ("ssd", "anchor_free", "yolo", "classifier", "text", "series", "ensemble")
BLIND = ("text", "series", "ensemble")
"""Decoders of what is no eye's model: words, sounds, or several models in one."""
HEADS = ("auto", "v8", "v5", "v6", "yolox", "obb", "pose", "end2end")
"""What `decode.head` may name of the YOLO family (`decoders/yolo_heads.py`)."""
NEVER = 2.0
"""A threshold that no score reaches."""
MODEL_SUFFIXES = (".tflite", ".onnx")
ZOO = Path(__file__).parent / "zoo"
DEFAULT_MODEL = "zoo:small-320"


@dataclass(frozen=True, slots=True)
class InputRule:
    """How a frame becomes the model's input."""

    width: int = 0
    """0: whatever the input tensor says."""
    height: int = 0
    channels: str = "rgb"
    """"gray", "bgr" or "rgb"."""
    resize: str = "stretch"
    """"letterbox" (keeps the shape, fills with `pad`), "stretch" or "none" (frames must have the input's size)."""
    pad: int = 114
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 255.0
    """One number, or one a channel in the order of `channels`: real input = (pixel - mean) / std."""
    as_is: bool = False
    """Raw pixel bytes go into an 8-bit input unchanged (bare quantised models)."""


@dataclass(frozen=True, slots=True)
class GivenInput:
    """Parts of an `InputRule` that a person gives for a bare model; None and "" where nothing is given."""

    channels: str = ""
    resize: str = ""
    mean: float | tuple[float, ...] | None = None
    std: float | tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class DecodeRule:
    """How the model's outputs become detections."""

    strides: tuple[int, ...] = (8, 16, 32)
    score_threshold: float = 0.5
    class_thresholds: dict[str, float] = field(default_factory=dict)
    iou_threshold: float = 0.5
    max_detections: int = 100
    class_agnostic_nms: bool = False
    scores: str = "auto"
    """"logits", "probabilities" or "auto"; for the classifier."""
    box_units: str = "auto"
    """"pixels", "fraction" or "auto"; for yolo."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Role to tensor name, where shapes and names do not tell them apart."""
    head: str = "auto"
    """Which of the YOLO family's heads it is, where the shape leaves several: one of `HEADS`."""
    classes: tuple[str, ...] = ()
    """Labels that count; empty: all of them."""
    rename: dict[str, str] = field(default_factory=dict)
    """Label of the model to the label that is reported; several may become one."""

    def allows(self, label: str) -> bool:
        """Whether things of this label are looked for."""
        return not self.classes or label in self.classes

    def threshold_of(self, label: str) -> float:
        """The score from which a detection of this label counts."""
        return self.class_thresholds.get(label, self.score_threshold) if self.allows(label) else NEVER


@dataclass(frozen=True, slots=True)
class SecondRule:
    """A second net that judges single boxes of the first, and how both opinions are joined (`second.py`)."""

    path: Path
    onnx_path: Path | None = None
    margin: float = 0.15
    """Added on every side of a box, as a share of its side."""
    level: str = "none"
    """"median" moves the median of each cut to 128; "none" leaves it."""
    flips: int = 1
    """Views of a cut whose logits are averaged: 1, 2 (also mirrored) or 4 (in both directions)."""
    candidate_threshold: float = 0.02
    """First-stage score from which a box is looked at again."""
    sure_above: float = 1.0
    """First-stage score from which it need not be."""
    max_candidates: int = 24
    """In one frame."""
    budget_ms: float = 5.0
    """In one frame; 0: no limit."""
    first_weight: float = 0.5
    second_weight: float = 1.0
    bias: float = 0.0
    """score = sigmoid(first_weight * first logit + second_weight * second logit + bias)."""
    kind_weight: float = 0.5
    """Of the first stage when the class is named."""
    score_threshold: float = 0.5
    class_thresholds: dict[str, float] = field(default_factory=dict)
    """Of joined scores; `DecodeRule` has those of the first stage alone."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """score = sigmoid(scale * logit + bias); one number for all classes, or one a class."""

    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class Golden:
    """One input with the outputs that the training machine got: proof that a runtime computes the same model."""

    path: Path
    tolerance_steps: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A model that has been read and checked, though not yet loaded into a runtime."""

    name: str
    version: str
    decoder: str
    """One of `DECODERS`; "" until the tensors of a bare model have been seen."""
    labels: tuple[str, ...]
    model_path: Path
    digest: str
    """SHA-256 of all that decides its answers: description, labels and files (`bundle_digest.py`)."""
    onnx_path: Path | None = None
    input: InputRule = field(default_factory=InputRule)
    decode: DecodeRule = field(default_factory=DecodeRule)
    calibration: Calibration = field(default_factory=Calibration)
    track: TrackRule = field(default_factory=TrackRule)
    golden: Golden | None = None
    reference: Reference = field(default_factory=Reference)
    second: SecondRule | None = None
    curve: Curve | None = None
    """Thresholds over the rate of false alarms, where they were measured."""
    text: TextRule = field(default_factory=TextRule)
    series: SeriesRule = field(default_factory=SeriesRule)
    ensemble: "EnsembleRule[Bundle] | None" = None
    toml_path: Path | None = None
    """The description; None: a bare model."""
    labels_path: Path | None = None
    """The file that the labels come from, where the bundle names one."""
    provenance: dict[str, Any] = field(default_factory=dict)
    given: GivenInput | None = None
    """What a person says of a bare model's input, against what would be read off it."""
    notes: ModelNotes = field(default_factory=ModelNotes)
    """What the exporter wrote into a bare model's file."""
    reading: str = ""
    """How a bare model has been read, for people; "" until its tensors have been seen, and where a bundle says it."""

    def artefact(self) -> Artefact:
        """The files, for backends."""
        if self.model_path.suffix == ".onnx":
            return Artefact(self.name, None, self.model_path)
        return Artefact(self.name, self.model_path, self.onnx_path)

    def second_artefact(self) -> Artefact | None:
        """The second stage's files, for backends."""
        if (second := self.second) is None:
            return None
        return Artefact(f"{self.name} (second)", second.path, second.onnx_path)

    def files(self) -> tuple[Path, ...]:
        """Every file that the bundle names, the model first; its own TOML is not among them."""
        second = (self.second.path, self.second.onnx_path) if self.second is not None else ()
        golden = self.golden.path if self.golden is not None else None
        members = self.ensemble.files() if self.ensemble is not None else ()
        found = (self.model_path, self.onnx_path, *second, golden, self.labels_path, *members)
        return tuple(dict.fromkeys(path for path in found if path is not None))

    def threshold_of(self, label: str) -> float:
        """The score from which a detection of this label, the model's or the one reported, counts."""
        if label not in self.labels:
            known = [old for old, new in self.decode.rename.items() if new == label]
            return min((self.threshold_of(old) for old in known), default=self.threshold)
        if self.second is None or not self.decode.allows(label):
            return self.decode.threshold_of(label)
        return self.second.class_thresholds.get(label, self.second.score_threshold)

    @property
    def threshold(self) -> float:
        """The score from which a detection counts, where its label has no threshold of its own."""
        return self.decode.score_threshold if self.second is None else self.second.score_threshold

    def label_of(self, class_index: int) -> str:
        """The label, or "class 91" for an index that the list does not have."""
        return self.labels[class_index] if 0 <= class_index < len(self.labels) else f"class {class_index}"


def load_bundle(model: str | Path, labels_path: str | Path | None = None) -> Bundle:
    """Read a model by path or by its name in the zoo.

    Args:
        model: A bundle's `.toml`, a bare `.tflite` or `.onnx`, or "zoo:NAME".
        labels_path: Labels, one a line, instead of the model's own.

    Raises:
        ArtefactError: It cannot be used; the message says why and what would help.
    """
    path = resolve(model)
    labels = None if labels_path is None else read_labels(Path(labels_path))
    bundle = _load_toml(path, labels) if path.suffix == ".toml" else _load_bare(path, labels)
    size = sum(len(label.encode()) + 3 for label in bundle.labels)
    if size > LABELS_BYTES_MAX:
        raise ArtefactError(f"the labels of {path} take {size} bytes, {LABELS_BYTES_MAX} at most; shorten them")
    return bundle


def at_rate(bundle: Bundle, rate: float) -> Bundle:
    """The bundle with the thresholds of its curve at so many false alarms in 1,000; raises `ArtefactError`."""
    if bundle.curve is None:
        remedy = "0 takes the thresholds that it has, and docs/eye.md says how a curve is measured"
        raise ArtefactError(f"{rate:g} false alarms in 1,000: model {bundle.name} has no [curve]; {remedy}")
    chosen = bundle.curve.at(rate)
    if bundle.second is None:
        return replace(bundle, decode=replace(bundle.decode, class_thresholds=chosen))
    return replace(bundle, second=replace(bundle.second, class_thresholds=chosen))


def unhurried(bundle: Bundle) -> Bundle:
    """The bundle with all the time that its second stage wants: what it says is its, not that of a busy machine."""
    if bundle.second is None:
        return bundle
    return replace(bundle, second=replace(bundle.second, budget_ms=0.0))


def resolve(model: str | Path) -> Path:
    """The file that a path or "zoo:NAME" means; raises `ArtefactError` when there is none."""
    name = str(model)
    if name.startswith("zoo:"):
        known = sorted(p.stem for p in ZOO.glob("*.toml"))
        if name[4:] not in known:
            raise ArtefactError(f"the zoo has no model {name[4:]!r}; it has {', '.join(known) or 'none'}")
        return ZOO / f"{name[4:]}.toml"
    path = Path(name)
    if not path.exists():
        hint = f"; zoo:{name} is one" if (ZOO / f"{name}.toml").is_file() else ""
        raise ArtefactError(f"no model at {path}{hint}")
    if path.suffix not in (".toml", *MODEL_SUFFIXES):
        raise ArtefactError(f"{path} is neither a bundle (.toml) nor a LiteRT or ONNX model (.tflite, .onnx)")
    return path


def _load_bare(path: Path, labels: tuple[str, ...] | None) -> Bundle:
    data = _read_any(path)
    notes = notes_of(data, path.suffix == ".onnx")
    found = labels if labels is not None else notes.labels
    return Bundle(path.stem, "", "", found, path, digest_of_bare(data, labels), notes=notes)


def _read_any(path: Path) -> bytes:
    return read_onnx(path) if path.suffix == ".onnx" else read_model(path)


def _load_toml(path: Path, labels: tuple[str, ...] | None) -> Bundle:
    document = _parse(path)
    top = TomlReader(document, str(path))
    if top.integer("format", 1, 1, 1) != 1:
        top.problem("format must be 1")
    name, version = top.text("name", path.stem), top.text("version", "")
    decoder = top.choice("decoder", DECODERS, None)
    own_labels = _labels(top, path, labels)
    ensemble = read_ensemble(top.table("ensemble"), path, own_labels, _expert) if decoder == "ensemble" else None
    if ensemble is not None:
        model_path, onnx_path = ensemble.router.model_path, ensemble.router.onnx_path
    else:
        model_path, onnx_path = (
            (path, None) if decoder == "ensemble" else (_model_file(top, path), _onnx_file(top, path))
        )
    second = _second(top, path, own_labels)
    bundle = Bundle(
        name,
        version,
        decoder,
        own_labels,
        model_path,
        digest_of_bundle(document, own_labels),
        onnx_path,
        input=_input_rule(top.table("input")),
        decode=_decode_rule(top.table("decode"), own_labels),
        calibration=_calibration(top.table("calibration"), len(own_labels)),
        track=read_track_rule(top.table("track")),
        golden=_golden(top, path),
        reference=read_reference(top.table("reference")),
        second=second,
        curve=read_curve(top.table("curve"), own_labels),
        text=read_text_rule(top.table("text")),
        series=read_series_rule(top.table("series"), decoder == "series"),
        ensemble=ensemble,
        toml_path=path,
        labels_path=_labels_path(top, path),
        provenance=top.free_table("provenance"),
    )
    if problems := top.finish():
        more = f"; and {len(problems) - _PROBLEMS_MAX} more" if len(problems) > _PROBLEMS_MAX else ""
        raise ArtefactError(f"bundle {path} cannot be used: " + "; ".join(problems[:_PROBLEMS_MAX]) + more)
    return bundle


def _expert(path: Path) -> Bundle:
    """A member of an ensemble, which is no ensemble itself."""
    if _parse(path).get("decoder") == "ensemble":
        raise ArtefactError(f"{path.name} is an ensemble; one is made of models")
    return _load_toml(path, None)


def _parse(path: Path) -> dict[str, Any]:
    data = read_bounded(path, MAX_TOML_BYTES, "bundle", ArtefactError)
    try:
        return parse_toml(data.decode("utf-8"))
    # Python's own limit for whole numbers is a ValueError, as are the reader's errors.
    except ValueError as error:
        raise ArtefactError(f"bundle {path} is no valid TOML: {error}") from error


def _labels(top: TomlReader, path: Path, given: tuple[str, ...] | None) -> tuple[str, ...]:
    labels, file = top.texts("labels"), top.text("labels_file", "")
    if given is not None:
        return given
    if file and (found := inside(top, path, file)) is not None:
        try:
            return read_labels(found)
        except ArtefactError as error:
            top.problem(str(error))
    if not labels and not file:
        top.problem("labels or labels_file is missing")
    return labels


def _labels_path(top: TomlReader, path: Path) -> Path | None:
    name = top.text("labels_file", "")
    return inside(top, path, name) if name else None


def _model_file(top: TomlReader, path: Path) -> Path:
    model = top.table("model")
    name, sha256 = model.text("file", None), model.text("sha256", None)
    checked = checked_file(top, path, name, sha256, "model") if name and sha256 else None
    if checked is None:
        return path
    try:
        _read_any(checked)
    except ArtefactError as error:
        top.problem(str(error))
    return checked


def _onnx_file(top: TomlReader, path: Path) -> Path | None:
    model = top.table("model")
    name, sha256 = model.text("onnx", ""), model.text("onnx_sha256", "")
    return checked_file(top, path, name, sha256, "model") if name else None


def _second(top: TomlReader, path: Path, labels: tuple[str, ...]) -> SecondRule | None:
    if not top.has("second"):
        return None
    table = top.table("second")
    name, sha256 = table.text("file", None), table.text("sha256", None)
    checked = checked_file(top, path, name, sha256, "second stage") if name and sha256 else None
    onnx_name, onnx_sha256 = table.text("onnx", ""), table.text("onnx_sha256", "")
    onnx = checked_file(top, path, onnx_name, onnx_sha256, "second stage") if onnx_name else None
    flips = table.integer("flips", 1, 1, 4)
    if flips == 3:
        table.problem("flips is 3; it must be 1, 2 or 4")
    if checked is not None:
        try:
            read_model(checked)
        except ArtefactError as error:
            top.problem(str(error))
    return SecondRule(
        checked or path,
        onnx,
        table.number("margin", 0.15, 0.0, 2.0),
        table.choice("level", ("none", "median"), "none"),
        flips,
        table.number("candidate_threshold", 0.02, 0.0001, 1.0),
        table.number("sure_above", 1.0, 0.0, 1.0),
        table.integer("max_candidates", 24, 1, 1000),
        table.number("budget_ms", 5.0, 0.0, 10_000.0),
        table.number("first_weight", 0.5, -100.0, 100.0),
        table.number("second_weight", 1.0, -100.0, 100.0),
        table.number("bias", 0.0, -1e3, 1e3),
        table.number("kind_weight", 0.5, 0.0, 100.0),
        table.number("score_threshold", 0.5, 0.001, 1.0),
        _class_thresholds(table, labels),
    )


def _class_thresholds(table: TomlReader, labels: tuple[str, ...]) -> dict[str, float]:
    thresholds = table.numbers_by_name("class_thresholds", 0.0, 1.0)
    for label in thresholds.keys() - set(labels):
        table.problem(f"class_thresholds names {label!r}, which is no label")
    return thresholds


def _golden(top: TomlReader, path: Path) -> Golden | None:
    table = top.table("golden")
    name, sha256, steps = table.text("file", ""), table.text("sha256", ""), table.integer("tolerance_steps", 8, 0, 255)
    checked = checked_file(top, path, name, sha256, "golden vector") if name else None
    return Golden(checked, steps) if checked else None


def _input_rule(table: TomlReader) -> InputRule:
    channels = table.choice("channels", ("gray", "bgr", "rgb"), "bgr")
    mean = table.number_or_numbers("mean", 0.0, -1e3, 1e3)
    std = table.number_or_numbers("std", 255.0, 1e-3, 1e4)
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, 1 if channels == "gray" else 3):
            table.problem(f"{name} has {len(values)} numbers; give one, or one for each channel of {channels}")
    return InputRule(
        table.integer("width", 0, 0, 4096),
        table.integer("height", 0, 0, 4096),
        channels,
        table.choice("resize", ("letterbox", "stretch", "none"), "letterbox"),
        table.integer("pad", 114, 0, 255),
        mean[0] if len(mean) == 1 else mean,
        std[0] if len(std) == 1 else std,
    )


def _decode_rule(table: TomlReader, labels: tuple[str, ...]) -> DecodeRule:
    classes, rename = table.texts("classes"), table.texts_by_name("rename")
    for label in sorted({*classes, *rename} - set(labels)):
        table.problem(f"classes or rename names {label!r}, which is no label")
    return DecodeRule(
        table.integers("strides", (8, 16, 32), 1, 1024),
        table.number("score_threshold", 0.5, 0.001, 1.0),
        _class_thresholds(table, labels),
        table.number("iou_threshold", 0.5, 0.0, 1.0),
        table.integer("max_detections", 100, 1, 1000),
        table.boolean("class_agnostic_nms", False),
        table.choice("scores", ("auto", "logits", "probabilities"), "auto"),
        table.choice("box_units", ("auto", "pixels", "fraction"), "auto"),
        table.texts_by_name("outputs"),
        table.choice("head", HEADS, "auto"),
        classes,
        rename,
    )


def _calibration(table: TomlReader, classes: int) -> Calibration:
    scale = table.number_or_numbers("scale", 1.0, 1e-3, 1e3)
    bias = table.number_or_numbers("bias", 0.0, -1e3, 1e3)
    for name, values in (("scale", scale), ("bias", bias)):
        if len(values) not in (1, classes):
            table.problem(f"{name} has {len(values)} numbers; give one, or one for each of the {classes} labels")
    return Calibration(scale, bias)
