"""Batches of `swarmd infer`: every picture of a folder, or every frame of a video, a line of JSON each.

So many frames are under way at once that each device of the fleet has the next one when it is through; a frame whose
request is refused for now, or not answered in time, is asked for again.
"""

import argparse
import contextlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from swarmd.errors import WorkerError
from swarmd.worker.asking import DEADLINE_MAX_MS, PICTURE, Wish, infer

if TYPE_CHECKING:
    from swarmd_models.backends.base import Array

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
VIDEOS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".mjpeg")
UNDER_WAY = 32
"""Frames at once: four at each of eight devices. The API holds 64 clients."""
_TRIES = 5
"""Times that one frame is asked for."""
_PAUSE_S = 0.5
"""Before a frame is asked for again."""


def is_batch(path: Path) -> bool:
    """Whether an input is many pictures."""
    return path.is_dir() or path.suffix.lower() in VIDEOS


def rows_of(outputs: "Mapping[str, Array]") -> list[dict[str, Any]]:
    """Detections for people and programs, of the outputs of `MODEL.detect`."""
    return [
        {"label": label, "score": round(float(score), 4), "box": [round(float(side), 2) for side in box]}
        for label, score, box in zip(outputs["labels"], outputs["scores"], outputs["boxes"], strict=True)
    ]


def run_batch(address: str, model: str, wish: Wish, args: argparse.Namespace) -> int:
    """Ask for every frame; 0 where all were answered, else 1.

    Raises:
        ControlError: No API is reachable.
        WorkerError: There is no frame, or the output cannot be opened.
        OSError: What was answered cannot be written.
    """
    name = model if model.endswith(".detect") else f"{model}.detect"
    wish = replace(wish, deadline_ms=wish.deadline_ms or DEADLINE_MAX_MS)
    try:
        out = open(args.out, "w", encoding="utf-8") if args.out else sys.stdout  # noqa: SIM115
    except OSError as error:
        raise WorkerError(f"{args.out} cannot be written: {error.strerror}") from error
    try:
        batch = _Batch(address, name, wish, out)
        took_s = batch.run(frames_of(Path(args.input)))
        out.flush()
    finally:
        if out is not sys.stdout:
            with contextlib.suppress(OSError):  # What was not taken is said already.
                out.close()
    if not batch.answered.total() and not batch.failed:
        raise WorkerError(f"{args.input} holds no picture ({', '.join(PICTURES)}) that could be read")
    by = ", ".join(f"{device or 'this device'} {count}" for device, count in batch.answered.most_common())
    unread = f", {batch.unread} unreadable" if batch.unread else ""
    print(
        f"{batch.answered.total()} frames answered in {took_s:.1f} s, {batch.failed} not{unread}: {by or 'none'}",
        file=sys.stderr,
    )
    return 1 if batch.failed or batch.unread else 0


class _Batch:
    def __init__(self, address: str, name: str, wish: Wish, out: TextIO) -> None:
        self._address = address
        self._name = name
        self._wish = wish
        self._out = out
        self._lock = threading.Lock()
        self.answered: Counter[str] = Counter()
        """By who answered."""
        self.failed = 0
        self.unread = 0
        self._problem: BaseException | None = None

    def run(self, frames: "Iterator[tuple[str, Array | None]]") -> float:
        """Seconds that it took.

        Raises:
            ControlError: The API has gone.
            OSError: What was answered cannot be written.
        """
        began_s = time.monotonic()
        # Ctrl-C waits for none of them.
        threads = [threading.Thread(target=self._work, args=(frames,), daemon=True) for _ in range(UNDER_WAY)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt as end:
            with self._lock:  # Nothing is half written.
                self._problem = end
        if self._problem is not None:
            raise self._problem
        return time.monotonic() - began_s

    def _work(self, frames: "Iterator[tuple[str, Array | None]]") -> None:
        try:
            self._ask_for(frames)
        except Exception as error:  # Who comes to its end in a thread of its own is missed by nobody.
            self._problem = self._problem or error

    def _ask_for(self, frames: "Iterator[tuple[str, Array | None]]") -> None:
        while self._problem is None:
            with self._lock:
                frame = next(frames, None)
            if frame is None:
                return
            name, image = frame
            if image is None:
                self._write({"frame": name, "error": "no picture that OpenCV reads"})
                self.unread += 1
                continue
            self._write({"frame": name, **self._ask(image)})

    def _ask(self, image: "Array") -> dict[str, Any]:
        for turn in range(_TRIES):
            try:
                head, outputs = infer(self._address, self._name, image, self._wish, PICTURE)
            except WorkerError as error:
                problem = str(error)
                if "(503)" not in problem and "(504)" not in problem:
                    break
                time.sleep(_PAUSE_S * (turn + 1))
                continue
            with self._lock:
                self.answered[str(head["lender"])] += 1
            told = {"version": head["model_version"], "lender": head["lender"]}
            return {**told, "detections": rows_of(outputs)}
        with self._lock:
            self.failed += 1
        return {"error": problem}

    def _write(self, row: dict[str, Any]) -> None:
        with self._lock:
            if self._problem is None:
                self._out.write(json.dumps(row) + "\n")


def frames_of(path: Path) -> "Iterator[tuple[str, Array | None]]":
    """Name and picture of each frame, in order; None: it cannot be read."""
    import cv2

    from swarmd_models.errors import SourceError
    from swarmd_models.picture_file import read_pixels

    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix.lower() in PICTURES and file.is_file():
                try:
                    image: Any = read_pixels(file)
                except SourceError as error:
                    print(f"swarmd infer: {error}", file=sys.stderr)
                    image = None
                yield file.name, image[..., None] if image is not None and image.ndim == 2 else image
        return
    video = cv2.VideoCapture(str(path))
    try:
        number = 0
        while True:
            is_there, frame = video.read()
            if not is_there:
                return
            yield f"{path.name}#{number}", frame
            number += 1
    finally:
        video.release()
