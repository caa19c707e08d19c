"""`swarmd install`: configuration, identity and systemd unit on this device."""

import argparse
from pathlib import Path

from swarmd.cli.common import add_json, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("install", help="write configuration, identity and systemd unit on this device")
    parser.add_argument("--identity", type=Path, metavar="DIR", help="from `swarmd enrol`: copied as a credential")
    parser.add_argument("--root", type=Path, default=Path("/"), help="write below this directory (default /)")
    parser.add_argument("--program", type=Path, help="the command that the unit starts (default: this one)")
    parser.add_argument("--start", action="store_true", help="enable and start the service")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Install and say what was done."""
    import json

    from swarmd.cli.installer import Installer, program_path
    from swarmd.cli.settings import flags_of
    from swarmd.config.loading import load

    flags = flags_of(argparse.Namespace(settings=args.settings))
    load(None, {}, flags)  # Every problem of the settings, before anything is written.
    settings = {name: json.dumps(value, ensure_ascii=False) for name, value in flags.items()}
    installer = Installer(args.root, args.program or program_path(), args.dry_run)
    installer.configuration(settings)
    if args.identity is not None:
        installer.identity(args.identity)
    installer.units()
    installer.activate(args.start)
    if args.json:
        print_json({"done": installer.done, "dry_run": args.dry_run})
    else:
        print("\n".join(("would have: " if args.dry_run else "") + line for line in installer.done))
    return 0
