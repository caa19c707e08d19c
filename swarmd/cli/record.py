"""`swarmd record -o run.mcap`: the running daemon records what it knows until Ctrl-C."""

import argparse
import sys
import time
from pathlib import Path

from swarmd.api.control import ControlClient
from swarmd.cli.common import add_control, add_json, print_json
from swarmd.errors import DaemonError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    parser = subparsers.add_parser("record", help="record to MCAP until Ctrl-C")
    parser.add_argument(
        "--recover", type=Path, metavar="TORN.mcap", help="write what a torn recording holds into a complete one"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.mcap", help="file to create")
    parser.add_argument("--profile", choices=("ros2", "foxglove"), default="ros2", help="default: %(default)s")
    parser.add_argument(
        "--images", type=float, default=None, metavar="HZ",
        help="pictures of the eye too, so many a second at most, 0 to 10, people made unreadable "
        "(default: record.images_hz, which is none unless configured)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long (default: at Ctrl-C)")
    add_control(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Start, wait, stop; the file is complete when this returns."""
    path = args.output.absolute()
    if args.recover is not None:
        return _recover(args, path)
    with ControlClient(args.control) as client:
        wish = {} if args.images is None else {"images_hz": args.images}
        client.call("record_start", path=str(path), profile=args.profile, **wish)
        end_s = time.monotonic() + args.seconds if args.seconds > 0 else float("inf")
        try:
            while time.monotonic() < end_s:
                time.sleep(min(0.2, max(0.0, end_s - time.monotonic())))
                status = client.call("record_status")
                if status["problem"]:
                    raise DaemonError(f"the recording ended: {status['problem']}")
        except KeyboardInterrupt:
            sys.stderr.write("\n")
        result = client.call("record_stop")
    if args.json:
        print_json(result)
    else:
        print(f"{result['path']}: {result.get('messages', 0)} messages")
    return 0


def _recover(args: argparse.Namespace, path: Path) -> int:
    from swarmd.bridges.record.reading import recover

    count = recover(args.recover, path)
    if args.json:
        print_json({"path": str(path), "messages": count})
    else:
        print(f"{path}: {count} messages")
    return 0
