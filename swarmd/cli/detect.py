"""`swarmd detect`: the eye alone, frames in, detections out. One JSON object a line with `--json`.

Exit status: 0 the source was seen to its end, 1 something could not be used (said in one sentence), 2 usage.
"""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.errors import EyeError

if TYPE_CHECKING:
    from swarmd.eye.ipc import TerrainWords
    from swarmd_models.eye import Eye
    from swarmd_models.geo.geolocate import Intrinsics
    from swarmd_models.types import EyeResult, Frame, TrackEvent

_SIGMA_MAX_DEG = 45.0
"""As `pose.attitude_sigma_deg`: what is known worse tells no place."""
_SIGMA_M = 4.0
"""Metres; as `pose.terrain_sigma_m`, and from where that has it: SRTM's."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb's flags."""
    parser = subparsers.add_parser("detect", help="the eye alone: frames in, detections out")
    parser.add_argument(
        "--source", required=True, metavar="S", help="picture, folder, video, camera:0, rtsp://, sim://"
    )
    parser.add_argument("--model", default="", metavar="M", help="bundle (.toml), bare .tflite or .onnx, or zoo:NAME")
    parser.add_argument("--labels", default="", metavar="FILE", help="labels, one a line, instead of the model's own")
    parser.add_argument("--json", action="store_true", help="one JSON object a frame")
    parser.add_argument("--max-frames", type=_count, default=0, metavar="N", help="stop after so many frames")
    parser.add_argument("--pose", default="", help="fixed:LAT,LON,AGL[,YAW[,PITCH[,ROLL]]], csv:FILE or dataflash:FILE")
    parser.add_argument("--hfov", type=float, default=0.0, metavar="DEG", help="horizontal field of view of the camera")
    parser.add_argument("--calibration", default="", metavar="FILE", help="the camera's, as OpenCV's or ROS's YAML")
    parser.add_argument(
        "--attitude-sigma", type=float, default=0.0, metavar="DEG", help="how well it is known where the camera looks"
    )
    parser.add_argument("--boresight", default="", metavar="Y,P,R", help="degrees by which the camera is turned")
    parser.add_argument(
        "--terrain", default="", metavar="FILE", help="height model: .hgt, a folder of them, or GeoTIFF"
    )
    parser.add_argument(
        "--terrain-sigma", type=float, default=_SIGMA_M, metavar="M", help="metres its heights may be off (4)"
    )
    parser.add_argument("--terrain-home", default="", metavar="LAT,LON", help="above whose ground poses give heights")
    parser.add_argument(
        "--terrain-unknown",
        default="none",
        choices=("none", "level"),
        help="where it says nothing: no place, or level's",
    )
    parser.add_argument("--threshold", type=_share, default=0.0, help="least score, instead of the model's own")
    parser.add_argument(
        "--false-per-1000", type=float, default=0.0, metavar="R", help="false alarms that thresholds may let through"
    )
    parser.add_argument(
        "--reject",
        action="store_true",
        help="what the model was not made for (covered lens, patterns) counts for nothing",
    )
    parser.add_argument("--backend", default="litert", metavar="LIST", help="runtimes to try, comma-separated")
    parser.add_argument("--threads", type=_threads, default=1, metavar="N", help="threads for inference")
    parser.add_argument("--tracks", action="store_true", help="add track events to each line")


def run(args: argparse.Namespace) -> int:
    """Show what the eye sees.

    Raises:
        EyeError: Source, model, labels or pose cannot be used.
    """
    from swarmd_models.errors import ModelError

    try:
        return _run(args)
    except ModelError as error:
        sys.stdout.flush()
        raise EyeError(str(error)) from error


def _run(args: argparse.Namespace) -> int:
    import cv2

    from swarmd.eye.ground import open_terrain
    from swarmd.eye.ipc import Configure
    from swarmd.eye.sources import open_eye_source
    from swarmd_models.bundle import DEFAULT_MODEL, load_bundle
    from swarmd_models.detector import DetectorOptions
    from swarmd_models.errors import FrameError
    from swarmd_models.eye import Eye, EyeOptions
    from swarmd_models.geo.calibration import read_calibration
    from swarmd_models.geo.poses import open_poses

    terrain = _terrain(args)
    cv2.setNumThreads(args.threads)
    bundle = load_bundle(args.model or DEFAULT_MODEL, args.labels or None)
    options = DetectorOptions(tuple(args.backend.split(",")), args.threads, args.threshold, args.false_per_1000)
    poses = open_poses(args.pose)
    calibrated = read_calibration(Path(args.calibration)) if args.calibration else None
    eye = Eye.open(bundle, EyeOptions(options, reject=args.reject), None, _note)
    if not 0.0 <= args.attitude_sigma <= _SIGMA_MAX_DEG:
        raise EyeError(f"--attitude-sigma {args.attitude_sigma:g}: 0 to {_SIGMA_MAX_DEG:g} degrees are possible")
    eye.set_boresight(_boresight(args.boresight), args.attitude_sigma)
    eye.set_terrain(open_terrain(terrain))
    source = open_eye_source(Configure(args.source, args.model, paced=False), _note_source, is_patient=False)
    seen = failed = 0
    try:
        while not args.max_frames or seen < args.max_frames:
            try:
                frame = source.read()
                if frame is None:
                    break
                if poses is not None and frame.pose is None:
                    frame = replace(frame, pose=poses.at(frame.captured_ns))
                if seen == 0:
                    if getattr(source, "gives", ""):
                        _note(str(source.gives))  # type: ignore[attr-defined]
                    _set_camera(eye, calibrated or getattr(source, "intrinsics", None), frame, args.hfov)
                _show(eye.see(frame), args)
                seen += 1
                if eye.terrain is not None and (news := eye.terrain.news()):
                    _note(news)
            except FrameError as error:
                # One bad picture of a folder is told and passed over.
                failed += 1
                _note(str(error))
    finally:
        source.close()
        eye.close()
    return 1 if failed else 0


def _terrain(args: argparse.Namespace) -> "TerrainWords":
    """What the flags say of the ground; raises `EyeError` where they speak of a height model that none names."""
    from swarmd.eye.ipc import TerrainWords

    level = args.terrain_unknown == "level"
    if not args.terrain and (args.terrain_home or level or args.terrain_sigma != _SIGMA_M):
        raise EyeError("--terrain-home, --terrain-sigma and --terrain-unknown are about a height model: give --terrain")
    return TerrainWords(args.terrain, args.terrain_sigma, args.terrain_home, level)


def _boresight(text: str) -> tuple[float, ...]:
    """Yaw, pitch and roll; raises `EyeError` for anything else."""
    try:
        angles = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        angles = (math.nan,)
    if len(angles) not in (0, 3) or not all(-360.0 <= angle <= 360.0 for angle in angles):
        raise EyeError(f"--boresight {text}: give yaw, pitch and roll in degrees, as 0,-1.5,0.3")
    return angles


def _set_camera(eye: "Eye", intrinsics: "Intrinsics | None", frame: "Frame", hfov_deg: float) -> None:
    from swarmd_models.geo.calibration import misfit
    from swarmd_models.geo.geolocate import Intrinsics

    height, width = frame.image.shape[:2]
    if intrinsics is not None and misfit(intrinsics, width, height):
        _note(misfit(intrinsics, width, height))
    if intrinsics is None and hfov_deg:
        try:
            intrinsics = Intrinsics.from_hfov(hfov_deg, width, height)
        except ValueError as error:
            raise EyeError(str(error)) from error
    eye.set_intrinsics(intrinsics)


def _show(result: "EyeResult", args: argparse.Namespace) -> None:
    if args.json:
        line: dict[str, object] = {
            "frame": result.frame_index,
            "t_ns": result.captured_ns,
            "detections": [
                {
                    "class": d.class_index,
                    "label": d.label,
                    "score": round(d.score, 4),
                    "box": [round(side, 2) for side in d.box],
                }
                for d in result.detections
            ],
        }
        if result.rejected:
            line["rejected"] = result.rejected
        if args.tracks:
            line["tracks"] = [_track(event) for event in result.events]
        print(json.dumps(line, separators=(",", ":")))
        return
    found = ", ".join(
        f"{d.label} {d.score:.2f} [{' '.join(f'{side:.0f}' for side in d.box)}]" for d in result.detections
    )
    print(f"frame {result.frame_index}: {found or 'nothing'}")


def _track(event: "TrackEvent") -> dict[str, object]:
    shown: dict[str, object] = {
        "event": event.kind,
        "track": event.track_id,
        "label": event.label,
        "score": round(event.score, 4),
        "hits": event.hits,
    }
    if event.position is not None:
        place = event.position
        shown["latitude_deg"], shown["longitude_deg"] = round(place.latitude_deg, 8), round(place.longitude_deg, 8)
        shown["covariance_m2"] = [round(value, 4) for value in place.covariance_m2]
    return shown


def _note_source(problem: str) -> None:
    _note(problem or "frames come again")


def _note(text: str) -> None:
    print(f"swarmd detect: {text}", file=sys.stderr)


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _threads(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError("must be 1 to 64")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError("must lie between 0 and 1")
    return value
