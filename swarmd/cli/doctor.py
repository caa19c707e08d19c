"""`swarmd doctor`: check this device for what a member needs, each with its remedy."""

import argparse
import os
from pathlib import Path

from swarmd.cli.common import add_json, print_json
from swarmd.cli.settings import add_settings, flags_of


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "doctor", help="check this device for what a member needs, each with its remedy", allow_abbrev=False
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default /etc/swarmd/swarmd.toml)"
    )
    add_json(parser)
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Check everything; 1 when something would keep the daemon from working."""
    from swarmd.cli.diagnosis import diagnose
    from swarmd.config.loading import load

    findings = list(diagnose(load(args.config, os.environ, flags_of(args)).config))
    failed = any(finding.verdict == "fail" for finding in findings)
    if args.json:
        rows = [
            {"check": f.check, "verdict": f.verdict, "found": f.found, "remedy": f.remedy or None} for f in findings
        ]
        print_json({"healthy": not failed, "findings": rows})
        return int(failed)
    for finding in findings:
        print(f"{finding.verdict:4}  {finding.check:14}  {finding.found}")
        if finding.remedy:
            print(f"{'':22}remedy: {finding.remedy}")
    return int(failed)
