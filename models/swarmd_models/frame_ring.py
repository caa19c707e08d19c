"""Frames that the model was unsure of, kept on this device for people to label. Off unless a folder is named.

Nothing here sends anything. What the model takes for people, faces or number plates, and what is found by a detector
that looks for nothing else (`redaction.py`), is made unreadable before the picture touches the disk. The ring has a
size; the oldest frames go first; a full disk stops it and nothing else.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from swarmd_models.decoders.base import logit
from swarmd_models.errors import SourceError
from swarmd_models.opencv import cv2
from swarmd_models.reviewed import Reviewed, ReviewIndex, is_placed, overlap, review_of
from swarmd_models.types import Detection, Frame, Image, TrackEvent

PRIVATE_LABELS = ("person", "face", "license plate", "licence plate", "number plate")
INTERVAL_NS = 2_000_000_000
"""Nanoseconds between two kept frames: neighbours in time show the same."""
UNSURE_LOGITS = 1.0
"""A detection is a guess when it is surer than its threshold by less than this: of a score of 0.5, up to 0.73."""
MAX_FILES = 100_000
"""Frames of a ring, whatever their size: a folder with more is slow to list."""
MAX_SIDECAR_BYTES = 1 << 20
"""Of the description beside a frame."""
SAME_BOX_IOU = 0.5
"""Overlap from which a detection's box and a track's, which is smoothed, are of one thing. Source: PASCAL VOC."""
_PLACE_KEYS = ("latitude_deg", "longitude_deg", "covariance_m2")
Clean: TypeAlias = Callable[[Image, Sequence[Detection]], Image | None]
"""Makes a copy in which nobody can be known; None where it cannot be looked for them."""
_COARSE = 6
"""Side of the thumbnail that two frames are compared by, cells."""


class FrameRing:
    """A bounded folder of pictures, each with a JSON beside it."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open or make the folder, for this user only; raises `SourceError`."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Names count from the device's start, so those of an earlier one may come behind.
            known = sorted((path.stat().st_mtime_ns, path, path.stat().st_size) for path in folder.glob("*.png"))
        except OSError as error:
            raise SourceError(f"frames cannot be kept in {folder}: {error.strerror}") from error
        self._folder = folder
        self._max_bytes = max_bytes
        self._files = [(path, size) for _, path, size in known]
        self._bytes = sum(size for _, _, size in known)
        self._last_ns = -INTERVAL_NS
        self.kept = 0
        """Frames that were written."""
        self.problem = ""
        """Why the ring has stopped, or ""."""

    def consider(
        self,
        frame: Frame,
        detections: Sequence[Detection],
        threshold_of: Callable[[str], float],
        ood: float,
        model: str,
        events: Sequence[TrackEvent] = (),
        clean: Clean | None = None,
    ) -> bool:
        """Keep the frame if the model was unsure of it; whether it was kept.

        Args:
            frame: As captured.
            detections: What the model saw in it.
            threshold_of: The model's own, by label.
            ood: How unlike the reference the frame is; over 3 is kept too.
            model: Digest of the model.
            events: What the tracker made of them: where on the ground they lie, by which a review is found for them.
            clean: How it is made fit to be kept; by default only what the model itself took for private is covered.
        """
        if not self.wants(frame, detections, threshold_of, ood):
            return False
        return self.keep(frame, detections, ood, model, events, clean)

    def wants(
        self, frame: Frame, detections: Sequence[Detection], threshold_of: Callable[[str], float], ood: float
    ) -> bool:
        """Whether the model was unsure of this frame and it is time for one; then it counts as the newest."""
        is_unsure = any(_is_guess(d.score, threshold_of(d.label)) for d in detections) or ood > 3.0
        if self.problem or not is_unsure or frame.captured_ns - self._last_ns < INTERVAL_NS:
            return False
        self._last_ns = frame.captured_ns
        return True

    def keep(
        self,
        frame: Frame,
        detections: Sequence[Detection],
        ood: float,
        model: str,
        events: Sequence[TrackEvent] = (),
        clean: Clean | None = None,
    ) -> bool:
        """Write the frame down, made fit to be kept; whether it was. May run in another thread than `wants`."""
        try:
            picture = (clean or without_private_parts)(frame.image, detections)
            if picture is None:
                return False
            self._write(frame, picture, _described(frame, detections, ood, model, events))
        except (OSError, cv2.error) as error:
            self.problem = f"frames are no longer kept in {self._folder}: {error}"
            return False
        self.kept += 1
        return True

    def _write(self, frame: Frame, picture: Image, described: dict[str, Any]) -> None:
        name = f"{frame.captured_ns:020d}-{frame.index:08d}"
        data = cv2.imencode(".png", picture)[1].tobytes()
        path = self._folder / f"{name}.png"
        _write_private(self._folder / f"{name}.json", json.dumps(described).encode())
        _write_private(path, data)
        self._files.append((path, len(data)))
        self._bytes += len(data)
        while self._files and (self._bytes > self._max_bytes or len(self._files) > MAX_FILES):
            oldest, size = self._files.pop(0)
            oldest.unlink(missing_ok=True)
            oldest.with_suffix(".json").unlink(missing_ok=True)
            self._bytes -= size


def _is_guess(score: float, threshold: float) -> bool:
    return logit(score) < logit(threshold) + UNSURE_LOGITS


def without_private_parts(image: Image, detections: Sequence[Detection]) -> Image:
    """A copy in which people, faces and number plates are a few flat squares."""
    copy = image.copy()
    for detection in detections:
        if not any(word in detection.label.lower() for word in PRIVATE_LABELS):
            continue
        x1, y1 = (max(int(side), 0) for side in detection.box[:2])
        x2, y2 = int(np.ceil(detection.box[2])), int(np.ceil(detection.box[3]))
        part = copy[y1:y2, x1:x2]
        if part.size == 0:
            continue
        small = cv2.resize(part, (_COARSE, _COARSE), interpolation=cv2.INTER_AREA)
        big = cv2.resize(small, (part.shape[1], part.shape[0]), interpolation=cv2.INTER_NEAREST)
        copy[y1:y2, x1:x2] = big.reshape(part.shape)
    return copy


def export_coco(folder: Path, out: Path, reviewed: Sequence[Reviewed] = ()) -> tuple[int, int]:
    """Write the kept frames as a COCO data set: `out/annotations.json` and `out/images/`.

    Annotations are the model's own guesses, for people to correct; but for those of things that operators have
    reviewed, which bear the operators' label, and are left out where it is none.

    Args:
        folder: Of a `FrameRing`.
        out: Made where it is not there.
        reviewed: Things that operators agree on.

    Returns:
        (pictures, annotations).

    Raises:
        SourceError: There is nothing to export, or it cannot be written.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    categories: dict[str, int] = {}
    index = ReviewIndex(reviewed)
    try:
        (out / "images").mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.png"))[:MAX_FILES]:
            described = _read_sidecar(path.with_suffix(".json"))
            if described is None:
                continue
            (out / "images" / path.name).write_bytes(path.read_bytes())
            images.append(
                {
                    "id": len(images) + 1,
                    "file_name": f"images/{path.name}",
                    "width": described["width"],
                    "height": described["height"],
                    "captured_ns": described["captured_ns"],
                    "model": described["model"],
                    **({"level": described["level"]} if "level" in described else {}),
                }
            )
            for found in described["detections"]:
                review = review_of(found, index)
                if review is None or not review.is_rejected:
                    number = len(annotations) + 1
                    annotations.append(_annotation(found, number, len(images), categories, review))
        if not images:
            raise SourceError(f"no kept frames in {folder}; name a folder in the configuration (eye.keep_frames)")
        document = {
            "info": {"description": "frames that the model was unsure of; annotations are its own guesses"},
            "images": images,
            "annotations": annotations,
            "categories": [{"id": number, "name": name} for name, number in categories.items()],
        }
        (out / "annotations.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise SourceError(f"cannot export to {out}: {error.strerror}") from error
    return len(images), len(annotations)


def _annotation(
    found: dict[str, Any], number: int, image: int, categories: dict[str, int], review: Reviewed | None
) -> dict[str, Any]:
    label = found["label"] if review is None else review.label
    category = categories.setdefault(label, len(categories) + 1)
    x1, y1, x2, y2 = found["box"]
    box = [x1, y1, x2 - x1, y2 - y1]
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": box,
        "area": box[2] * box[3],
        "iscrowd": 0,
        "score": found["score"],
        "detected": found["label"],
        **{key: found[key] for key in _PLACE_KEYS if key in found},
        **({} if review is None else {"reviewed_by": list(review.operators), "object": review.id}),
    }


def _described(
    frame: Frame, detections: Sequence[Detection], ood: float, model: str, events: Sequence[TrackEvent]
) -> dict[str, Any]:
    height, width = frame.image.shape[:2]
    return {
        "captured_ns": frame.captured_ns,
        "width": width,
        "height": height,
        "model": model,
        "ood": round(ood, 3),
        **({} if frame.level is None else {"level": {"zero": frame.level.zero, "step": frame.level.step}}),
        "detections": [
            {
                "label": d.label,
                "score": round(d.score, 4),
                "box": [round(side, 2) for side in d.box],
                **_place(d, events),
            }
            for d in detections
        ],
    }


def _place(detection: Detection, events: Sequence[TrackEvent]) -> dict[str, Any]:
    """Where on the ground a detection lies, by the track that it is part of; nothing where that is not known."""
    near = [(overlap(detection.box, event.box), event) for event in events if event.label == detection.label]
    best, event = max(near, key=lambda pair: pair[0], default=(0.0, None))
    if event is None or event.position is None or best < SAME_BOX_IOU:
        return {}
    where = event.position
    return {
        "latitude_deg": round(where.latitude_deg, 8),
        "longitude_deg": round(where.longitude_deg, 8),
        "covariance_m2": [round(value, 4) for value in where.covariance_m2],
    }


def _read_sidecar(path: Path) -> dict[str, Any] | None:
    """The description beside a picture; None when it is torn or of no use."""
    try:
        if path.stat().st_size > MAX_SIDECAR_BYTES:
            return None
        described = json.loads(path.read_bytes())
        found = described["detections"]
        if not all(len(d["box"]) == 4 and isinstance(d["label"], str) and float(d["score"]) >= 0 for d in found):
            return None
        if not all(is_placed(d) for d in found if "latitude_deg" in d):
            return None
        if not all(key in described for key in ("captured_ns", "width", "height", "model")):
            return None
        return {**described, "detections": [{**d, "box": [float(side) for side in d["box"]]} for d in found]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
