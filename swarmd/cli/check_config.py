"""`swarmd check-config`: the merged configuration and where each value came from."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from swarmd.cli.common import add_json, print_json
from swarmd.cli.settings import add_settings, flags_of


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("check-config", help="print the merged configuration", allow_abbrev=False)
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default /etc/swarmd/swarmd.toml)"
    )
    parser.add_argument(
        "--syntax-only", action="store_true", help="do not try files, addresses and models: they are another device's"
    )
    parser.add_argument("--reference", action="store_true", help="print the reference page of all keys (Markdown)")
    add_json(parser)
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Print it, and every problem that this device has with it."""
    if args.reference:
        from swarmd.config.reference import reference

        print(reference(), end="")
        return 0
    from swarmd.config.loading import load

    loaded = load(args.config, os.environ, flags_of(args))
    problems = []
    if not args.syntax_only:
        from swarmd.cli.trials import try_out

        problems = try_out(loaded.config)
    rows = {
        section.name: {
            field.name: (
                getattr(getattr(loaded.config, section.name), field.name),
                loaded.origins[section.name, field.name],
            )
            for field in dataclasses.fields(getattr(loaded.config, section.name))
        }
        for section in dataclasses.fields(loaded.config)
    }
    for name, problem in problems:
        section, _, key = name.partition(".")
        print(f"{loaded.origins[section, key]}: {name}: {problem}", file=sys.stderr)
    if args.json:
        print_json(
            {
                section: {key: {"value": v, "from": origin} for key, (v, origin) in keys.items()}
                for section, keys in rows.items()
            }
        )
        return int(bool(problems))
    for section, keys in rows.items():
        print(f"[{section}]")
        for key, (value, origin) in keys.items():
            text = json.dumps(list(value) if isinstance(value, tuple) else value)
            print(f"{key} = {text}".ljust(44) + f"  # {origin}")
        print()
    return int(bool(problems))
