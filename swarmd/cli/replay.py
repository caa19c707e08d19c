"""`swarmd replay run.mcap`: publish a recording again at its pace, its detections to a daemon or all of it in ROS 2."""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.cli.common import add_control, add_json, print_json
from swarmd.errors import DaemonError

DETECTIONS = "/swarm/detections"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    parser = subparsers.add_parser("replay", help="publish a recording again")
    parser.add_argument("file", type=Path, metavar="FILE.mcap", help="a recording of profile ros2")
    parser.add_argument("--rate", type=float, default=1.0, help="speed; 0: as fast as possible (default: %(default)s)")
    parser.add_argument(
        "--dds", action="store_true", help="all of it, pictures too, on its ROS 2 topics; needs no daemon"
    )
    parser.add_argument("--domain", type=int, default=-1, help="of --dds (default: ROS_DOMAIN_ID, else 0)")
    parser.add_argument("--interface", default="auto", help="of --dds, without CYCLONEDDS_URI (default: %(default)s)")
    add_control(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Send each recorded detection to the daemon as an outside detector's, or everything to ROS 2."""
    if args.rate < 0:
        raise DaemonError("--rate must not be negative")
    if args.dds:
        return _to_ros2(args)
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


def _to_ros2(args: argparse.Namespace) -> int:
    try:
        from swarmd.bridges.ros2.replay import replay
    except ImportError as error:
        raise DaemonError(f"replay --dds needs cyclonedds ({error}); see docs/operations.md") from error
    done = replay(args.file, args.rate, args.domain, args.interface)
    if args.json:
        print_json({"messages": dict(done.messages), "skipped": dict(done.skipped), "torn": done.torn})
        return 0
    for topic, count in sorted(done.messages.items()):
        print(f"{count:6} {topic}")
    for name, count in sorted(done.skipped.items()):
        print(f"{count:6} skipped: of type {name}")
    if done.torn:
        print("the recording is torn: what came after its last whole chunk is lost")
    return 0


def read_detections(path: Path) -> Iterator[tuple[int, Any]]:
    """(log time in UNIX nanoseconds, decoded Detection3DArray) of each detection message, in order.

    A torn recording gives what its whole chunks hold.

    Raises:
        DaemonError: The file is missing, no MCAP, or of the other profile.
    """
    from swarmd.bridges.record.reading import Recording

    recording = Recording(path)
    if recording.profile != "ros2":
        raise DaemonError(f"{path} is not of profile ros2; only those can be replayed")
    from mcap_ros2.decoder import DecoderFactory

    decoders = DecoderFactory()
    for schema, channel, message in recording.messages():
        if channel.topic != DETECTIONS:
            continue
        decode = decoders.decoder_for(channel.message_encoding, schema)
        try:
            found = None if decode is None else decode(message.data)
        except Exception as error:  # bytes of a recording that is not ours make the codec raise anything
            raise DaemonError(f"{path} holds detections that cannot be read ({error})") from error
        if found is not None:
            yield message.log_time, found


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
