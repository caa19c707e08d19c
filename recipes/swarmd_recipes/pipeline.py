"""From nothing to a bundle with its figures: teacher, second stage, detector, export, thresholds, evaluation.

Each step leaves its result in the work directory and is not repeated, so an interrupted run goes on where it stopped.
Needs the extra `train`; called by `python -m swarmd_recipes`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import FrameSpec, choose_split, evaluate_crops, evaluate_frames, frames_of
from swarmd_models.metrics import auroc, average_precision, macro_f1
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops
from swarmd_recipes import settings

Say = Callable[[str], None]
ABOUT = "composed from real module crops and drawn modules; never tried on real aerial footage"
_EVALUATION_FRAMES = 200
_NOMINAL_VIEW_M2 = 320 * 256 * 0.045**2
"""Of ground in a frame of small-320; wider views have more modules to judge and more time for it."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things come from and go."""

    crops: Path | None
    work: Path
    out: Path
    soft: Path | None = None
    """A teacher's probabilities made before; None trains a teacher if the recipe wants one."""


def make_model(recipe: Any, paths: Paths, say: Say, with_onnx: bool = True, share: float = 1.0) -> dict[str, Any]:
    """Train, export, set thresholds and evaluate one recipe.

    Args:
        recipe: A `train.Recipe`.
        paths: Data, work directory, and the folder for the bundle.
        say: Told about progress.
        with_onnx: Also write the QDQ ONNX.
        share: Of the frames that thresholds and figures come from.

    Returns:
        The figures, as they stand in the bundle's provenance.
    """
    crops = Crops.load(paths.crops) if paths.crops else None
    students = crops.with_part_held_back() if crops is not None else None
    soft = _teacher(recipe, crops, paths, say)
    second = _second(recipe, students, soft, paths, say, with_onnx)
    exported, macs = _first(recipe, students, soft, paths, say, with_onnx, share)
    return finish(recipe, exported, second, paths, say, soft, {"first": macs}, share)


def _first(
    recipe: Any,
    crops: Crops | None,
    soft: npt.NDArray[np.float32] | None,
    paths: Paths,
    say: Say,
    with_onnx: bool,
    share: float,
) -> tuple[Any, float]:
    """The detector's files and its millions of multiplications; trained and exported unless that is done."""
    from swarmd_recipes.export import export_model
    from swarmd_recipes.net import million_macs
    from swarmd_recipes.train import fingerprint, train

    work, name = paths.work / recipe.name, recipe.name
    note = work / f"{name}.json"
    kept = json.loads(note.read_text()) if note.exists() else {}
    if kept.get("recipe") != fingerprint(recipe):
        net = train(recipe, crops, work, soft)
        macs = round(million_macs(net, recipe.scene.height, recipe.scene.width), 1)
        say(f"{name}: exporting")
        exported = export_model(net, recipe, crops, work, with_onnx, share)
        kept = {"recipe": fingerprint(recipe), "macs": macs, "sqnr_db": exported.sqnr_db}
        note.write_text(json.dumps(kept | {"correlation": exported.correlation}))
        kept = json.loads(note.read_text())
    return _files(work, name, kept), kept["macs"]


def _files(work: Path, name: str, about: dict[str, Any]) -> Any:
    from swarmd_recipes.export import Exported

    onnx = work / f"{name}.qdq.onnx"
    files = (work / f"{name}.float.tflite", work / f"{name}.tflite", onnx if onnx.exists() else None)
    return Exported(*files, about["sqnr_db"], about["correlation"])


def _teacher(recipe: Any, crops: Crops | None, paths: Paths, say: Say) -> npt.NDArray[np.float32] | None:
    from swarmd_recipes.teacher import CLASSES, TeacherOptions, teach
    from swarmd_recipes.train import load_soft

    kept = paths.work / "teacher" / "soft.npz"
    if paths.soft is not None:
        return load_soft(paths.soft, crops)
    if crops is None or recipe.train.teacher_epochs == 0:
        return None
    if kept.exists():
        return load_soft(kept, crops)
    options = TeacherOptions(epochs=recipe.train.teacher_epochs, members=recipe.train.teacher_members)
    soft = teach(crops, kept.parent, options, say)
    np.savez_compressed(kept, probability=soft, classes=np.array(CLASSES))
    return soft


def _second(
    recipe: Any, crops: Crops | None, soft: npt.NDArray[np.float32] | None, paths: Paths, say: Say, with_onnx: bool
) -> Any:
    """The second stage's files; trained and exported here, or before by the recipe that it is taken from."""
    from swarmd_recipes.export import SecondFiles, convert
    from swarmd_recipes.judge import ExampleMaker, train_judge
    from swarmd_recipes.net import million_macs

    options = recipe.second
    if options is None:
        return None
    if options.take_from.startswith("zoo:"):
        return committed_second(options.take_from)
    owner = options.take_from or recipe.name
    work, name = paths.work / owner, f"{owner}.second"
    note = work / f"{name}.json"
    if not note.exists():
        if options.take_from:
            raise ArtefactError(f"{note} is missing; make {owner} first, with the same --work")
        net = train_judge(options, recipe.scene, recipe.seed, crops, soft, work)
        maker = ExampleMaker(options, recipe.scene, recipe.seed + 1, crops, soft)
        seen = maker.chunk(0).pixels
        macs = million_macs(net, options.height, options.width)
        say(f"{name}: exporting")
        exported = convert(net, name, ("logits",), seen[:512], seen[512:1024], work, with_onnx)
        about = {"sqnr_db": exported.sqnr_db, "correlation": exported.correlation, "macs": macs}
        note.write_text(json.dumps(about | {"margin": options.margin, "size": [options.width, options.height]}))
    about = json.loads(note.read_text())
    return SecondFiles(name, _files(work, name, about), about["margin"], tuple(about["size"]), about["macs"])


def committed_second(bundle_name: str) -> Any:
    """The second stage of a bundle of the zoo, as it is committed there: nothing has to be made before.

    Args:
        bundle_name: Such as "zoo:small-320".

    Returns:
        Its `SecondFiles`.

    Raises:
        ArtefactError: That bundle has no second stage, or does not say how well it was made.
    """
    from swarmd_recipes.export import Exported, SecondFiles

    bundle = load_bundle(bundle_name)
    said, rule = bundle.provenance, bundle.second
    try:
        made = said["recipe"]["second"]
        float_path = bundle.model_path.parent / Path(said["second_float_file"]).name
        sqnr_db, macs = {"logits": float(said["sqnr_db"]["second"])}, float(said["million_macs"]["second"])
        size = (int(made["width"]), int(made["height"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{bundle_name} does not say how its second stage was made ({error!r})") from error
    if rule is None or not float_path.is_file():
        raise ArtefactError(f"{bundle_name} has no second stage that another recipe could take")
    exported = Exported(float_path, rule.path, rule.onnx_path, sqnr_db, {})
    return SecondFiles(rule.path.stem, exported, rule.margin, size, macs / rule.flips)


def finish(
    recipe: Any,
    exported: Any,
    second: Any,
    paths: Paths,
    say: Say,
    soft: npt.NDArray[np.float32] | None,
    million_macs: dict[str, float],
    share: float = 1.0,
) -> dict[str, Any]:
    """Join the stages, set thresholds, write the bundle and evaluate it."""
    from swarmd_recipes.export import write_bundle

    crops = Crops.load(paths.crops) if paths.crops else None
    students = crops.with_part_held_back() if crops is not None else None
    provenance: dict[str, Any] = {
        "about": ABOUT,
        "recipe": _plain(dataclasses.asdict(recipe)),
        "trained_steps": recipe.train.steps,
        "data_sha256": hashlib.sha256(paths.crops.read_bytes()).hexdigest() if paths.crops else "",
        "float_file": exported.float_path.name,
        "sqnr_db": {name: round(value, 2) for name, value in exported.sqnr_db.items()},
        "correlation": {name: round(value, 5) for name, value in exported.correlation.items()},
    }
    rule: dict[str, Any] = {"score_threshold": 0.5}
    if second is not None:
        provenance["second_float_file"] = second.exported.float_path.name
        provenance["sqnr_db"]["second"] = round(second.exported.sqnr_db["logits"], 2)
        million_macs = million_macs | {"second": round(second.million_macs * recipe.second.flips, 1)}
        view = recipe.scene.width * recipe.scene.height * recipe.scene.pixel_m**2 / _NOMINAL_VIEW_M2
        rule["second"] = {
            "flips": recipe.second.flips,
            "candidate_threshold": 0.005,
            "max_candidates": round(24 * view),
            "budget_ms": round(2.5 * view, 1),
            "score_threshold": 0.5,
        }
    provenance["million_macs"] = million_macs

    def write() -> Bundle:
        return load_bundle(write_bundle(exported, recipe, paths.out, rule, provenance, second))

    bundle = write()
    say(f"{recipe.name}: thresholds")
    if second is not None and students is not None:
        joined, provenance["joined"] = settings.join(bundle, students)
        rule["second"] |= joined
        bundle = write()
        say(f"{recipe.name}: on the crops held back {json.dumps(provenance['joined'])}")
    rule |= settings.thresholds(dataclasses.replace(bundle, second=None), students, share)
    if second is not None:
        rule["second"] |= settings.thresholds(bundle, students, share)
    bundle = write()
    if students is not None:
        provenance["crop_threshold"] = settings.crop_threshold(bundle, students)
    rule["reference"] = settings.reference_of(bundle, students, share)
    provenance["scores"] = scores_of(write(), crops, paths.crops, share)
    if soft is not None and crops is not None:
        provenance["teacher"] = teacher_figures(bundle, crops, soft, paths.crops, share)
    write()
    say(json.dumps({"scores": provenance["scores"], "teacher": provenance.get("teacher")}))
    return provenance


def _plain(table: dict[str, Any]) -> dict[str, Any]:
    """Without what is None, which TOML cannot say."""
    return {k: _plain(v) if isinstance(v, dict) else v for k, v in table.items() if v is not None}


def scores_of(bundle: Bundle, crops: Crops | None, crops_path: Path | None, share: float = 1.0) -> dict[str, Any]:
    """The figures that a bundle's provenance keeps; of real crops, the validation split."""
    scores: dict[str, Any] = {}
    if crops is not None:
        figures = evaluate_crops(bundle, crops, choose_split(crops, None))
        keys = ("n", "auroc", "macro_f1", "int8_minus_float", "false_alarm_share", "ece")
        scores["crops"] = {key: figures[key] for key in keys if figures[key] is not None}
        scores["crops"]["cracking_recall"] = figures["recall"].get("cracking", 0.0)
    source = str(crops_path) if crops_path else ""
    count = max(8, round(_EVALUATION_FRAMES * share))
    for name, prevalence, of in (
        ("frames_2", 0.02, source),
        ("frames_8.5", 0.085, source),
        ("control", 0.0, source),
        ("drawn_2", 0.02, ""),
    ):
        figures = evaluate_frames(bundle, frames_of(FrameSpec(prevalence, count, 5, of), bundle))
        keys = ("modules", "faults", "ap", "precision", "recall", "false_per_1000_normal")
        scores[name] = {key: figures[key] for key in keys if figures[key] is not None}
    return scores


def teacher_figures(
    bundle: Bundle, crops: Crops, soft: npt.NDArray[np.float32], crops_path: Path | None, share: float = 1.0
) -> dict[str, Any]:
    """What the teacher gets: on the bare validation crops, and on the bare crops of the very frames of `scores_of`."""
    names = [*FAULT_LABELS, NORMAL_LABEL]
    judged = choose_split(crops, None)
    truth = np.array([names.index(crops.labels[i]) for i in crops.label_index[judged]])
    faulty = truth < len(names) - 1
    score = 1.0 - soft[:, -1]
    figures: dict[str, Any] = {
        "auroc": round(auroc(score[judged], faulty), 5),
        "macro_f1": round(macro_f1(truth, soft[judged].argmax(axis=1), len(names)), 4),
        "ap": round(average_precision(score[judged], faulty, int(faulty.sum())), 4),
    }
    count = max(8, round(_EVALUATION_FRAMES * share))
    for name, prevalence in (("frames_2_ap", 0.02), ("frames_8.5_ap", 0.085)):
        given, wanted = [], []
        for scene in frames_of(FrameSpec(prevalence, count, 5, str(crops_path)), bundle):
            given.append(score[scene.crop_index])
            wanted.append(scene.label_index >= 0)
        hits = np.concatenate(wanted)
        figures[name] = round(average_precision(np.concatenate(given), hits, int(hits.sum())), 4)
    return figures
