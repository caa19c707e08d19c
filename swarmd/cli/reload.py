"""`swarmd reload`: let the running daemon read its configuration again, and hear whether it took it."""

import argparse
import contextlib
import os
from pathlib import Path

from swarmd.cli.common import add_read_flags, ask, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "reload",
        help="let the daemon read its configuration again",
        description="What `systemctl reload swarmd` runs: status 1 and every problem where the daemon refuses.",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="of the daemon: names its control socket")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and say what was applied."""
    from swarmd.config.loading import load
    from swarmd.errors import DaemonError

    if args.control is None and args.config is not None:
        # A configuration with a slip names no socket; the daemon itself says what the slip is.
        with contextlib.suppress(DaemonError):
            named = load(args.config, os.environ).config.node.control
            args.control = Path(named) if named else None
    folder = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if args.control is None and folder:  # Run by systemd: of several instances, this unit's own.
        sockets = list(Path(folder).glob("*.sock"))
        args.control = sockets[0] if len(sockets) == 1 else None
    answer = ask(args, "reload")
    if args.json:
        print_json(answer)
        return 0
    print(f"applied: {', '.join(answer['applied']) or 'nothing'}")
    if answer["needs_restart"]:
        print(f"needs a restart: {', '.join(answer['needs_restart'])}")
    return 0
