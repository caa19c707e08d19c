"""One round's training on this device: labels to rows, rows to a change of the head.

Rules this file keeps: labels are what people said, in sets that `swarmd frames import` made or by reviews of things
that the kept frames show; what cannot be used is said and left out, and never ends the rest; what is held back judges
and does not teach; before each picture the eye goes first.
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from swarmd.eye.gate import PAUSE_MAX_NS, EyeGate, pause_ns
from swarmd.learner import words
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.frame_ring import export_coco
from swarmd_models.head_rows import HeadNet, Rows, accuracy, drawn_scenes, one_hot, trained
from swarmd_models.labelling.scenes import scene_of
from swarmd_models.labelling.training_set import Picture, TrainingSet, import_labels, load_set
from swarmd_models.synthetic.scenes import Scene

DRAWN_SCENES, DRAWN_SEED = 14, 13
"""Drawn beside the labels, so that what the model knew stays known; as many as the figures were measured with."""
UNIT = 1 << 24
"""Weights are counted in its parts. Source: `swarmd_protocols.learning.form.UNIT_BITS`."""
_CACHE = "rows.npz"
_PARTS = ("taught", "held", "drawn")
_CACHE_VERSION = 1
_REVIEWS, _DRAFT = "reviews-", "draft-"
"""What begins the names of the set made of reviews, and of what is there while it is made."""


def describe(model: str) -> words.Described:
    """What head a bundle has; raises `ModelError` where it has none that can be taught."""
    bundle = load_bundle(model)
    return words.Described(bundle.name, bundle.digest, HeadNet(bundle).head.size)


def teach(task: words.Teach, gate: EyeGate | None = None) -> words.Taught:
    """Train one round.

    Args:
        task: What and from where.
        gate: Where the eye shows when it works.

    Raises:
        ModelError: The bundle is another one, or has no head that can be taught.
    """
    bundle = load_bundle(task.model)
    if bundle.digest != task.digest:
        raise ArtefactError(f"{task.model} is another bundle by now")
    net = HeadNet(bundle)
    if len(task.moved) != net.head.size:
        raise ArtefactError(f"{len(task.moved)} weights for a head of {net.head.size}")
    problems: list[str] = []
    sets = sets_below(Path(task.folder), problems) if task.folder else []
    sets += _reviewed(task, problems)
    taught, held, drawn = _rows(net, sets, Path(task.cache), problems, _polite(gate))
    start = net.head
    head = start + np.array(task.moved, np.float64).reshape(start.shape) / UNIT
    change: tuple[float, ...] = ()
    if len(taught.labels):
        new = trained(head, taught, one_hot(taught.labels, len(head)), drawn)
        change = tuple((new - head).ravel().tolist())
    judged = [accuracy(one, held) if len(held.labels) else None for one in (start, head)]
    shown = tuple(text[: words.PROBLEM_CHARS] for text in problems[: words.PROBLEMS_MAX])
    digests = tuple(one.digest for one in sets)
    return words.Taught(change, len(taught.labels), len(held.labels), judged[0], judged[1], digests, shown)


def _polite(gate: EyeGate | None) -> Callable[[], None]:
    """Wait for the eye, but not for ever."""

    def wait() -> None:
        until_ns = time.monotonic_ns() + PAUSE_MAX_NS
        while gate is not None and (now_ns := time.monotonic_ns()) < until_ns:
            pause = pause_ns(now_ns, *gate.look(), PAUSE_MAX_NS // 4)
            if not pause:
                return
            time.sleep(min(pause, until_ns - now_ns) / 1e9)

    return wait


# --- Labels ---


def sets_below(folder: Path, problems: list[str]) -> list[TrainingSet]:
    """The sets below a folder, the last by name first, or the folder itself where it is one.

    Args:
        folder: `learning.labels`.
        problems: Takes a sentence about each that cannot be used.
    """
    try:
        names = [folder] if (folder / "set.json").exists() else sorted(folder.iterdir(), reverse=True)
    except OSError as error:
        problems.append(f"{folder} cannot be read: {error.strerror}")
        return []
    found = []
    for path in [path for path in names if _may_be_set(path, problems)][: words.SETS_MAX]:
        try:
            found.append(load_set(path))
        except ModelError as error:
            problems.append(str(error))
    return found


def _may_be_set(path: Path, problems: list[str]) -> bool:
    try:
        return (path / "set.json").is_file()
    except OSError as error:  # A folder that this user may not enter ends none of the others.
        problems.append(f"{path} cannot be read: {error.strerror}")
        return False


def _reviewed(task: words.Teach, problems: list[str]) -> list[TrainingSet]:
    """A set of what operators said of things in the kept frames; made anew when they have said something new."""
    cache = Path(task.cache)
    said = sorted([str(one.get("id")), *_said(one)] for one in task.reviews)
    place = cache / f"{_REVIEWS}{sha256(json.dumps(said).encode()).hexdigest()[:32]}"
    for other in cache.glob(f"{_REVIEWS}*"):
        if other != place:
            shutil.rmtree(other, ignore_errors=True)
    if not (task.frames and task.reviews and Path(task.frames).is_dir()):
        return []
    try:
        if place.exists():
            return [load_set(place)]
        with tempfile.TemporaryDirectory(dir=cache, prefix=_DRAFT) as name:
            export_coco(Path(task.frames), Path(name) / "export")
            labels = Path(name) / "objects.geojson"
            labels.write_text(json.dumps({"type": "FeatureCollection", "features": list(task.reviews)}))
            return [import_labels(Path(name) / "export", labels, place)[0]]
    except (ModelError, OSError) as error:  # A full disk too: the sets that are there teach.
        problems.append(f"reviews teach nothing here: {error}")
        return []


def _said(feature: Mapping[str, Any]) -> list[str]:
    """What a person said: places and times of a thing change with each sighting, and are no news."""
    properties = feature.get("properties", {})
    return [str(properties.get(name)) for name in ("review", "label")]


def _chosen(sets: Sequence[TrainingSet]) -> list[tuple[TrainingSet, Picture, bool]]:
    """(set, picture, held back), the newest; a picture held back in one set teaches in none, and counts once."""
    held = {picture.sha256 for one in sets for picture in one.pictures if picture.is_held}
    known: set[str] = set()
    found = []
    for one in sets:
        for picture in one.pictures:
            if picture.boxes and picture.sha256 not in known:
                known.add(picture.sha256)
                found.append((one, picture, picture.sha256 in held))
    found.sort(key=lambda entry: (entry[1].captured_ns, entry[1].sha256))
    return found[-words.PICTURES_MAX :]


def _rows(
    net: HeadNet, sets: Sequence[TrainingSet], cache: Path, problems: list[str], before_each: Callable[[], None]
) -> list[Rows]:
    """Rows that teach, rows held back, and drawn ones; from the last round where nothing has changed."""
    chosen = _chosen(sets)
    named = [
        net.bundle.digest,
        *(f"{picture.sha256}{held}{picture.boxes}{_stamp(one.folder / picture.file)}" for one, picture, held in chosen),
    ]
    key = sha256(json.dumps([_CACHE_VERSION, DRAWN_SCENES, DRAWN_SEED, named]).encode()).hexdigest()
    if (known := _recalled(cache / _CACHE, key, net.head.shape[1])) is not None:
        problems += known[1]
        return known[0]
    scenes: tuple[list[Scene], list[Scene]] = ([], [])
    unread: list[str] = []
    for one, picture, held in chosen:
        try:
            scenes[held].append(scene_of(net.bundle, one, picture).scene)
        except ModelError as error:
            unread.append(str(error)[: words.PROBLEM_CHARS])
    problems += unread
    drawn = drawn_scenes(net.bundle, DRAWN_SEED, DRAWN_SCENES) if scenes[0] else ()
    found = [net.rows(some, before_each) for some in (*scenes, drawn)]
    _remember(cache / _CACHE, key, found, unread[: words.PROBLEMS_MAX])
    return found


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of a file: a picture that was still being copied is looked at again when it is whole."""
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _recalled(path: Path, key: str, width: int) -> tuple[list[Rows], list[str]] | None:
    """What an earlier round read, and could not; None where it was something else, or the file is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["key"]) != key:
                return None
            found = [Rows(arrays[f"{name}_x"], arrays[f"{name}_y"]) for name in _PARTS]
            unread = [str(text) for text in arrays["unread"]]
    except (OSError, ValueError, KeyError, BadZipFile, EOFError, RuntimeError):
        return None  # One flipped bit makes an archive "encrypted", or of a form that is not implemented.
    fits = all(one.features.shape == (len(one.labels), width) for one in found)
    return (found, unread) if fits else None


def _remember(path: Path, key: str, rows: Sequence[Rows], unread: Sequence[str]) -> None:
    """Keep them beside the place and rename: who is ended in between leaves the old ones."""
    arrays: dict[str, Any] = {f"{name}_x": one.features for name, one in zip(_PARTS, rows, strict=True)}
    arrays |= {f"{name}_y": one.labels for name, one in zip(_PARTS, rows, strict=True)}
    arrays |= {"key": np.array(key), "unread": np.array(unread, dtype=np.str_)}
    draft = path.with_name("rows.draft.npz")
    with contextlib.suppress(OSError):  # A full disk costs time in each round, and nothing else.
        np.savez(draft, **arrays)
        os.replace(draft, path)


def sweep(cache: Path) -> None:
    """Take away what a learner left that was ended."""
    for path in cache.glob(f"{_DRAFT}*"):
        shutil.rmtree(path, ignore_errors=True)
