"""`swarmd doctor`: check this device for what a member needs, each with its remedy."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_json, print_json
from swarmd.cli.settings import add_settings, flags_of

if TYPE_CHECKING:
    from swarmd.cli.diagnosis import Finding
    from swarmd.config.sections import Config

_CONTROL = "node.control"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "doctor",
        help="check this device for what a member needs, each with its remedy",
        description="Judges what the running daemon was started with: the one that --control names, or the only one "
        "here where the configuration names no node. With -c, or with flags as for `run`: what these say.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default /etc/swarmd/swarmd.toml)"
    )
    add_json(parser)
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Check everything; 1 when something would keep the daemon from working."""
    findings = list(_findings(args))
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


def _findings(args: argparse.Namespace) -> "Iterator[Finding]":
    from swarmd.cli.diagnosis import Finding, diagnose
    from swarmd.config.loading import load
    from swarmd.errors import ControlError, DaemonError

    flags = flags_of(args)
    config = load(args.config, os.environ, flags).config
    if args.config is None and flags.keys() <= {_CONTROL} and (_CONTROL in flags or not _names_a_node(config)):
        try:
            config, status = _running(flags.get(_CONTROL))
        except DaemonError as error:
            # Without --control, that nobody runs here is no finding: the device may be looked at before its daemon.
            if _CONTROL in flags or not isinstance(error, ControlError):
                remedy = "start it; or leave --control out, and give the flags it is to run with"
                yield Finding("daemon", "fail", f"{error}; what follows judges the default configuration", remedy)
        else:
            name, control = status["node"], config.node.control
            yield Finding("daemon", "ok", f"{name} runs and answers on {control}; what follows is its configuration")
            yield from diagnose(config, runs=True)
            return
    yield from diagnose(config)


def _names_a_node(config: "Config") -> bool:
    """Whether the configuration says which node this is to be."""
    from swarmd.cli import installed

    if config.swarm.dev_fleet or config.swarm.identity or config.node.control:
        return True
    try:
        return installed.identity_of(config) is not None
    except OSError:  # There is one, which only root reads.
        return True


def _running(control: str | None) -> "tuple[Config, dict[str, Any]]":
    """What the daemon at a control socket was started with, and its status; its folder becomes this program's.

    Raises:
        ControlError: Nobody answers, or several could be meant.
        DaemonError: It runs elsewhere, or is of a version that does not say.
    """
    from dataclasses import replace

    import msgspec

    from swarmd.api.control import ControlClient
    from swarmd.api.remote import Remote, place
    from swarmd.config.sections import Config
    from swarmd.errors import DaemonError

    where = None if control is None else place(control)
    if isinstance(where, Remote):
        raise DaemonError(f"{control} is another device, and `doctor` looks at the one it runs on")
    with ControlClient(where) as client:
        status, told = client.call("status"), client.call("settings")
    try:
        config = msgspec.convert(told["config"], Config)
    except msgspec.ValidationError as error:
        raise DaemonError(f"the daemon is swarmd {status['version']}, whose settings differ: {error}") from error
    socket = str(Path(str(client.path)).absolute())
    os.chdir(told["directory"])  # What its paths are relative to.
    node, state = replace(config.node, name=status["node"], control=socket), replace(config.state, dir=told["state"])
    return replace(config, node=node, state=state), status
