"""`swarmd record -o run.mcap`: the running daemon records what it knows until Ctrl-C."""

import argparse
import sys
import time
from pathlib import Path

from swarmd.cli.common import add_control, add_json, print_json
from swarmd.control import ControlClient
from swarmd.errors import DaemonError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    parser = subparsers.add_parser("record", help="record to MCAP until Ctrl-C")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.mcap", help="file to create")
    parser.add_argument("--profile", choices=("ros2", "foxglove"), default="ros2", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long (default: at Ctrl-C)")
    add_control(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Start, wait, stop; the file is complete when this returns."""
    path = args.output.absolute()
    with ControlClient(args.control) as client:
        client.call("record_start", path=str(path), profile=args.profile)
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
