"""`swarmd replay run.mcap`: publish a recording's detections again, to a daemon, at the recorded pace."""

import argparse
import time
from pathlib import Path
from typing import Any

from swarmd.cli.common import add_control, add_json, print_json
from swarmd.control import ControlClient
from swarmd.errors import DaemonError

DETECTIONS = "/swarm/detections"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    parser = subparsers.add_parser("replay", help="publish a recording's detections again")
    parser.add_argument("file", type=Path, metavar="FILE.mcap", help="a recording of profile ros2")
    parser.add_argument("--rate", type=float, default=1.0, help="speed; 0: as fast as possible (default: %(default)s)")
    add_control(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Send each recorded detection to the daemon as an outside detector's."""
    if args.rate < 0:
        raise DaemonError("--rate must not be negative")
    count = refused = 0
    began_s, first_ns = time.monotonic(), 0
    with ControlClient(args.control) as client:
        for log_time_ns, message in read_detections(args.file):
            first_ns = first_ns or log_time_ns
            if args.rate:
                due_s = began_s + (log_time_ns - first_ns) / 1e9 / args.rate
                time.sleep(max(0.0, due_s - time.monotonic()))
            rows = [observation(one) for one in message.detections]
            try:
                count += int(client.call("observe", detections=rows)["taken"])
            except DaemonError:
                refused += len(rows)
    result = {"detections": count, "refused": refused}
    if args.json:
        print_json(result)
    else:
        print(f"{count} detections published again, {refused} refused")
    return 0


def read_detections(path: Path) -> Any:
    """(log time in UNIX nanoseconds, decoded Detection3DArray) of each detection message, in order.

    Raises:
        DaemonError: The file is missing, no MCAP, damaged, or of the other profile.
    """
    try:
        from mcap.exceptions import McapError
        from mcap.reader import make_reader
        from mcap_ros2.decoder import DecoderFactory
    except ImportError as error:
        raise DaemonError(f"replay needs mcap ({error}); run: pip install 'swarmd[record]'") from error
    try:
        with path.open("rb") as file:
            reader = make_reader(file, decoder_factories=[DecoderFactory()])
            if reader.get_header().profile != "ros2":
                raise DaemonError(f"{path} is not of profile ros2; only those can be replayed")
            for _, _, message, decoded in reader.iter_decoded_messages(topics=[DETECTIONS]):
                yield message.log_time, decoded
    except OSError as error:
        raise DaemonError(f"cannot read {path}: {error.strerror}") from error
    except (McapError, ValueError, KeyError, EOFError) as error:
        raise DaemonError(f"{path} is no complete MCAP recording ({error}); recover it with: mcap recover") from error


def observation(one: Any) -> dict[str, object]:
    """One recorded vision_msgs/Detection3D as the control verb `observe` takes it."""
    best = one.results[0]
    covariance = best.pose.covariance
    return {
        "label": best.hypothesis.class_id,
        "score": best.hypothesis.score,
        "east_m": one.bbox.center.position.x,
        "north_m": one.bbox.center.position.y,
        "covariance_m2": [covariance[0], covariance[1], covariance[7]],
        "track": one.id,
    }
