"""The tracker beside those that others keep: `make bench-tracking [ARGS="--mot FOLDER"]`.

Identities are judged by TrackEval (HOTA and IDF1), and `trackers.eval` must say the same of every clip. The same
detections go to every tracker, at 25 frames a second and fewer. One recording is one draw of luck, a swap in its middle
costs a tenth of IDF1; so each is shown ten times: as it is, and with other first frames, a twentieth of the detections
taken away and the rest shaken by a fiftieth of their size.

- `--mot FOLDER`: `FOLDER/NAME/det.txt` and `gt.txt` in MOTChallenge's form, two clips of walkers unless `--names` says
  otherwise.
- Drawn: things that cross, turn and hide each other, under a camera that stands or sways. Truth is exact.
- Modules: rows of things that stand 1 m apart under a camera that flies over them. Ours has its pose, as in flight;
  the others know pictures only.
"""

import argparse
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from swarmd_models.association import Box
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.geo.geolocate import Intrinsics, enu_to_pixel, offset, ray_to_ground
from swarmd_models.geo.poses import make_pose
from swarmd_models.tracker import Tracker
from swarmd_models.types import Detection, Pose
from tests.bench.judges_tracking import APART, Named, apart, by_trackers, by_trackeval, judge

MOT_RATE = 25.0
"""Frames a second of the clips that are named by default."""
STEPS = (1, 2, 3, 5)
"""Every so manieth frame: 25, 12.5, 8.3 and 5 a second."""
SHAKEN = 9
"""Times that a clip is shown otherwise than it is."""
MEMORY_MS = 1000
"""What a lost thing is remembered for, by every tracker: ByteTrack's 30 frames at 30 a second."""
KEYS = ("idf1", "hota", "switches")
WIDE, HIGH = 640, 512
CAMERA = Intrinsics.from_hfov(60.0, WIDE, HIGH)


@dataclass(frozen=True, slots=True)
class Moment:
    """One frame: what a detector says, and what is true."""

    at_s: float
    detections: list[tuple[Box, float]]
    truth: list[Named]
    pose: Pose | None = None


Clip: TypeAlias = list[Moment]
Follow: TypeAlias = Callable[[Clip, float], list[list[Named]]]
"""A tracker: a clip and its frames a second to identities by frame."""


def ours(clip: Clip, rate: float, rule: TrackRule | None = None) -> list[list[Named]]:
    """The eye's tracker."""
    tracker = Tracker(rule or TrackRule(lost_ms=MEMORY_MS))
    told = []
    for moment in clip:
        detections = [Detection(0, "thing", score, box) for box, score in moment.detections]
        fixes = [
            None if moment.pose is None else ray_to_ground(CAMERA, moment.pose, (b[0] + b[2]) / 2, (b[1] + b[3]) / 2)
            for b, _ in moment.detections
        ]
        events = tracker.update(round(moment.at_s * 1e9), detections, fixes, moment.pose, CAMERA)
        told.append([(e.track_id, *e.box) for e in events if e.kind != "end"])
    return told


def theirs(name: str) -> Follow:
    """A tracker of the package `trackers`, with its own settings and the clip's rate."""
    import supervision
    import trackers

    def follow(clip: Clip, rate: float) -> list[list[Named]]:
        tracker = getattr(trackers, name)(frame_rate=rate)
        told = []
        for moment in clip:
            boxes = np.array([box for box, _ in moment.detections], np.float64).reshape(-1, 4)
            scores = np.array([score for _, score in moment.detections], np.float64)
            kinds = np.zeros(len(boxes), np.int64)
            seen = tracker.update(supervision.Detections(xyxy=boxes, confidence=scores, class_id=kinds))
            pairs = zip(seen.xyxy, seen.tracker_id, strict=True)
            told.append([(int(i), *(float(v) for v in box)) for box, i in pairs if i >= 0])
        return told

    return follow


# --- Clips -----------------------------------------------------------------------------------------------------------


def read_mot(folder: Path) -> Clip:
    """A clip of MOTChallenge's form, at its full rate; people only, where truth names classes."""
    seen: dict[int, list[tuple[Box, float]]] = defaultdict(list)
    true: dict[int, list[Named]] = defaultdict(list)
    for name, is_truth in (("det.txt", False), ("gt.txt", True)):
        for line in (folder / name).read_text().splitlines():
            frame, who, left, top, width, height, score = (float(part) for part in line.split(",")[:7])
            box = (left, top, left + width, top + height)
            if is_truth:
                true[int(frame)].append((int(who), *box))
            else:
                seen[int(frame)].append((box, score))
    return [Moment((n - 1) / MOT_RATE, seen[n], true[n]) for n in range(1, max(true) + 1)]


def drawn(seed: int, is_swaying: bool, rate: float, seconds: float = 20.0, count: int = 8) -> Clip:
    """Things that cross and turn: 40 pixels wide and 90 high, at 0.3 to 2 of their sizes a second.

    A detector finds nine in ten, misses most of what is hidden by two thirds, sees 4 % beside the place and one thing
    in five frames that is none.
    """
    rng = random.Random(seed)
    width, height = 40.0, 90.0
    size = math.sqrt(width * height)
    things = []
    for _ in range(count):
        way, speed = rng.uniform(0, 2 * math.pi), rng.uniform(0.3, 2.0) * size
        place = [rng.uniform(60, WIDE - 60), rng.uniform(90, HIGH - 90)]
        things.append([*place, speed * math.cos(way), speed * math.sin(way), rng.uniform(0.8, 1.2)])
    clip = []
    for index in range(round(seconds * rate)):
        at_s = index / rate
        sway = 1.2 * size * math.sin(2 * math.pi * 0.4 * at_s) if is_swaying else 0.0
        boxes: list[tuple[int, Box]] = []
        for who, thing in enumerate(things):
            thing[0], thing[1] = thing[0] + thing[2] / rate, thing[1] + thing[3] / rate
            if rng.random() < 0.2 / rate:  # It turns every five seconds.
                turn = rng.uniform(-1.5, 1.5)
                east, south = thing[2], thing[3]
                thing[2] = east * math.cos(turn) - south * math.sin(turn)
                thing[3] = east * math.sin(turn) + south * math.cos(turn)
            for axis, far in ((0, WIDE), (1, HIGH)):
                if not 30 < thing[axis] < far - 30:
                    thing[axis + 2] = math.copysign(thing[axis + 2], far / 2 - thing[axis])
            w, h = width * thing[4] / 2, height * thing[4] / 2
            boxes.append((who, (thing[0] - w + sway, thing[1] - h, thing[0] + w + sway, thing[1] + h)))
        boxes.sort(key=lambda one: -one[1][3])  # Who stands lower stands in front.
        seen = []
        for place_in_line, (_, box) in enumerate(boxes):
            hidden = max((_covered(box, other) for _, other in boxes[:place_in_line]), default=0.0)
            if rng.random() < (0.1 if hidden < 2 / 3 else 0.8):
                continue
            shaken = _shaken(box, 0.04, rng)
            seen.append((shaken, rng.uniform(0.65, 0.99)))
        if rng.random() < 0.2:
            x, y = rng.uniform(0, WIDE - 40), rng.uniform(0, HIGH - 90)
            seen.append(((x, y, x + 40, y + 90), rng.uniform(0.5, 0.8)))
        clip.append(Moment(at_s, seen, [(who, *box) for who, box in boxes]))
    return clip


def modules(seed: int, speed_m_s: float, rate: float) -> Clip:
    """Two rows of things 1 m apart, under a camera 25 m above them that flies along and misses one in ten."""
    rng = random.Random(seed)
    clip, length_m = [], 60
    half = CAMERA.fx / 25.0 * 0.45
    for index in range(round(length_m / speed_m_s * rate)):
        north = index / rate * speed_m_s
        tilt = [rng.gauss(0.0, 0.23) for _ in range(2)]
        latitude, longitude = offset(-18.88, -70.11, 0.0, north)
        flown = make_pose(round(index / rate * 1e9), latitude, longitude, 25.0, 0.0, -90.0 + tilt[0], tilt[1])
        believed = make_pose(round(index / rate * 1e9), latitude, longitude, 25.0, 0.0, -90.0, 0.0)
        pose = replace(believed, position_sigma_m=0.1, height_sigma_m=0.1, attitude_sigma_rad=0.004)
        seen, truth = [], []
        for who in range(2 * (length_m + 20)):
            east, place = (-2.0 if who % 2 else 2.0), who // 2 - 10.0
            pixel = enu_to_pixel(CAMERA, flown, east, place - north)
            if pixel is None or not (half < pixel[0] < WIDE - half and half < pixel[1] < HIGH - half):
                continue
            box = (pixel[0] - half, pixel[1] - half, pixel[0] + half, pixel[1] + half)
            truth.append((who, *box))
            if rng.random() > 0.1:
                seen.append((_shaken(box, 0.05, rng), 0.9))
        clip.append(Moment(index / rate, seen, truth, pose))
    return clip


def shaken(clip: Clip, step: int, times: int) -> Iterator[Clip]:
    """Every so manieth frame of a clip: as it is, then with other first frames, holes and noise."""
    yield clip[::step]
    for number in range(1, times + 1):
        rng = random.Random(f"{step} {number}")
        kept = []
        for moment in clip[rng.randrange(step) :: step]:
            found = [(_shaken(box, 0.02, rng), score) for box, score in moment.detections if rng.random() > 0.05]
            kept.append(replace(moment, detections=found))
        yield kept


def _shaken(box: Box, share: float, rng: random.Random) -> Box:
    width, height = share * (box[2] - box[0]), share * (box[3] - box[1])
    return (
        box[0] + rng.gauss(0, width),
        box[1] + rng.gauss(0, height),
        box[2] + rng.gauss(0, width),
        box[3] + rng.gauss(0, height),
    )


def _covered(box: Box, by: Box) -> float:
    width = min(box[2], by[2]) - max(box[0], by[0])
    height = min(box[3], by[3]) - max(box[1], by[1])
    whole = (box[2] - box[0]) * (box[3] - box[1])
    return max(width, 0.0) * max(height, 0.0) / whole


# --- Runs ------------------------------------------------------------------------------------------------------------


def compare(title: str, clips: Sequence[tuple[Clip, float]], followers: dict[str, Follow]) -> dict[str, Any]:
    """Print and return the means over clips of every tracker, and in how many clips ours was behind ByteTrack."""
    found: dict[str, Any] = {"what": title, "clips": len(clips)}
    for name, follow in followers.items():
        rows = [judge([moment.truth for moment in clip], follow(clip, rate)) for clip, rate in clips]
        idf1, hota, switches = (float(np.mean([getattr(row, key) for row in rows])) for key in KEYS)
        found[name] = {"idf1": round(idf1, 3), "hota": round(hota, 3), "switches": round(switches, 1)}
        print(f"{title:34} {name:18} IDF1 {idf1:.3f}  HOTA {hota:.3f}  switches {switches:6.1f}", flush=True)
    return found


def agreement() -> dict[str, Any]:
    """What both judges say of our tracker on a clip of each drawn kind, and on answers that are wrong in plain ways."""
    clips = {f"drawn, sways {is_swaying}": (drawn(3, is_swaying, 8.0), None) for is_swaying in (False, True)}
    clips["modules"] = (modules(1, 5.0, 10.0), TrackRule(lost_ms=700, static=True))
    rows = []
    for name, (clip, rule) in clips.items():
        truth = [moment.truth for moment in clip]
        renamed = [[(1000 * at + who, *box) for who, *box in frame] for at, frame in enumerate(truth)]
        answers = {"ours": ours(clip, 8.0, rule), "right": truth, "nothing": [[] for _ in truth], "renamed": renamed}
        for what, told in answers.items():
            verdict, second = by_trackeval(truth, told), by_trackers(truth, told)
            rows.append({"clip": name, "answer": what, "apart": apart(verdict, second), **asdict(verdict)})
    return {"clips": rows, "apart": max(row["apart"] for row in rows)}


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison; 1 where ours is behind ByteTrack in the mean of clips, drawn things or modules."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mot", type=Path, help="folder of clips in MOTChallenge's form")
    parser.add_argument("--names", nargs="+", default=["TUD-Campus", "TUD-Stadtmitte"])
    parser.add_argument("--trackers", nargs="+", default=["ByteTrackTracker", "OCSORTTracker", "SORTTracker"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--agree", action="store_true", help="only whether both judges say the same of drawn clips")
    args = parser.parse_args(arguments)
    if args.agree:
        found_apart = agreement()
        print(json.dumps(found_apart))
        return int(found_apart["apart"] > APART)
    followers: dict[str, Follow] = {"swarmd": ours} | {name: theirs(name) for name in args.trackers}
    found, pooled = [], []
    for step in STEPS if args.mot else ():
        for name in args.names:
            clip, rate = read_mot(args.mot / name), MOT_RATE / step
            found.append(compare(f"{name}, {rate:.3g} fps, as it is", [(clip[::step], rate)], followers))
            many = [(one, rate) for one in shaken(clip, step, SHAKEN)]
            pooled.append(compare(f"{name}, {rate:.3g} fps, {len(many)} times", many, followers))
    for is_swaying in (False, True):
        for rate in (25.0, 8.0):
            clips = [(drawn(seed, is_swaying, rate), rate) for seed in range(6)]
            title = f"drawn, camera {'sways' if is_swaying else 'stands'}, {rate:g} fps"
            pooled.append(compare(title, clips, followers))
    still: dict[str, Follow] = followers | {
        "swarmd": lambda clip, rate: ours(clip, rate, TrackRule(lost_ms=700, static=True))
    }
    for speed in (5.0, 10.0):
        clips = [(modules(seed, speed, 10.0), 10.0) for seed in range(4)]
        pooled.append(compare(f"modules, {speed:g} m/s, 10 fps", clips, still))
    behind = [row["what"] for row in pooled if row["swarmd"]["idf1"] < row[args.trackers[0]]["idf1"]]
    mean = {name: round(float(np.mean([row[name]["idf1"] for row in pooled])), 3) for name in followers}
    print("mean of IDF1:", mean, "; behind in:", behind or "none")
    if args.json:
        args.json.write_text(json.dumps(found + pooled, indent=1) + "\n")
    return int(mean["swarmd"] < mean[args.trackers[0]])


if __name__ == "__main__":
    sys.exit(main())
