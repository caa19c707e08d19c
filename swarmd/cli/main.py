"""The table of verbs and what every verb shares: exit status, errors in one sentence, quiet death by a closed pipe.

Only the chosen verb's module is imported, so `swarmd --help` costs no more than argparse. Exit status: 0 ok, 1 failed,
2 usage, 3 the daemon is not reachable.
"""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

VERBS: dict[str, tuple[str, str]] = {
    "run": ("swarmd.cli.run", "run the daemon on this device"),
    "ground": ("swarmd.cli.ground", "the ground view: see the swarm in a browser on this machine"),
    "gateway": ("swarmd.cli.gateway", "speak for this swarm to a region above many swarms"),
    "region": ("swarmd.cli.region", "hear the gateways of many swarms: init, pin, run, send, export"),
    "fleet": ("swarmd.cli.fleet", "ask a region for all its swarms; sign missions, notes, agreements"),
    "top": ("swarmd.cli.top", "the swarm in a terminal, drawn again every few seconds"),
    "demo": ("swarmd.cli.demo", "real daemons on loopback survey a rendered solar farm"),
    "detect": ("swarmd.cli.detect", "the eye alone: frames in, detections out"),
    "infer": ("swarmd.cli.infer", "ask the inference API of this device: a picture or a tensor in, answers out"),
    "frames": ("swarmd.cli.frames", "frames kept for labelling: export them as COCO"),
    "bundle": ("swarmd.cli.bundle", "make the bundle of a model file: read, tried, written"),
    "bench": ("swarmd.cli.bench", "measure this device: a model on every runtime"),
    "status": ("swarmd.cli.status", "what the daemon does right now"),
    "members": ("swarmd.cli.members", "who is in the swarm, as this node sees it"),
    "events": ("swarmd.cli.events", "what happened: joins, failures, halts, alerts, commands"),
    "acknowledge": ("swarmd.cli.acknowledge", "say that a person has seen an alert"),
    "forget": ("swarmd.cli.forget", "dismiss a failed member until it returns"),
    "detections": ("swarmd.cli.detections", "what every node has seen"),
    "objects": ("swarmd.cli.objects", "the deduplicated picture of the swarm"),
    "review": ("swarmd.cli.review", "say of an object what you know of it, signed with your key"),
    "cells": ("swarmd.cli.cells", "the survey area: list cells, ask for the next one"),
    "learning": ("swarmd.cli.learning", "what labels taught the head of the model; its candidate for a release"),
    "neighbours": ("swarmd.cli.neighbours", "swarms of other owners beside this one: what they share, agreements"),
    "counters": ("swarmd.cli.counters", "counters summed over the swarm"),
    "eye": ("swarmd.cli.eye", "start or stop this node's eye"),
    "topics": ("swarmd.cli.topics", "what the daemon publishes and serves, and where"),
    "sim": ("swarmd.cli.sim", "simulate a swarm: run, fuzz, replay, sweep, report"),
    "asyncapi": ("swarmd.cli.asyncapi", "print the AsyncAPI 3 document of the MQTT topics"),
    "doctor": ("swarmd.cli.doctor", "check this device for what a member needs, each with its remedy"),
    "keys": ("swarmd.cli.keys", "the fleet's root and roles; enrol, rotate, revoke"),
    "enrol": ("swarmd.cli.enrol", "on a device: make its key, and join a fleet by a token or a signed request"),
    "quickstart": ("swarmd.cli.quickstart", "a first configuration by a few questions, and the next command"),
    "install": ("swarmd.cli.install", "write configuration, identity and systemd unit on this device"),
    "check-config": ("swarmd.cli.check_config", "print the merged configuration and where each value came from"),
    "reload": ("swarmd.cli.reload", "let the daemon read its configuration again"),
    "record": ("swarmd.cli.record", "record to MCAP until Ctrl-C"),
    "replay": ("swarmd.cli.replay", "publish a recording's detections again"),
    "model": ("swarmd.cli.model", "releases: build, sign, publish, status, take back"),
    "audit": ("swarmd.cli.audit", "check the audit log of releases"),
    "version": ("swarmd.cli.version", "versions of swarmd and of what it runs on"),
}
"""Verb to (module with `add_parser` and `run`, one line for `--help`)."""
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a disk says, which names no file where one is being written."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run one verb.

    Args:
        argv: Arguments after the program's name; None: those of the process.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments)
    args = parser.parse_args(arguments)
    if getattr(args, "verb", None) is None:
        parser.print_help()
        return 2
    del parser  # A daemon lives for months, and its parser takes 0.2 MB.
    from swarmd.errors import ControlError, DaemonError
    from swarmd_models.errors import ModelError
    from swarmd_protocols.errors import ProtocolError

    module = import_module(VERBS[args.verb][0])
    try:
        status: int = module.run(args)
        sys.stdout.flush()
        return status
    except ControlError as error:
        _complain(args.verb, str(error))
        return 3
    except (DaemonError, ModelError, ProtocolError) as error:
        _complain(args.verb, str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone.
        _say_no_more()
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in _DISK:
            raise
        _complain(args.verb, f"{error.filename or 'what was to be written'}: {error.strerror}")
        if error.filename is None:
            _say_no_more()
        return 1


def _say_no_more() -> None:
    """What standard output did not take is not tried again, not even at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(verb: str, text: str) -> None:
    """Say what is wrong; names in it come from files and other nodes, and steer no terminal."""
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    print(f"swarmd {verb}: {shown}", file=sys.stderr)


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="swarmd",
        description="The daemon on each robot of a swarm: it captures, infers, gossips and agrees.",
        epilog="Exit status: 0 ok, 1 failed, 2 usage, 3 the daemon is not reachable.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    chosen = next((word for word in arguments if not word.startswith("-")), "")
    is_first = bool(arguments) and arguments[0] == chosen and chosen in VERBS
    for verb, (module, help_) in VERBS.items():
        if verb == chosen:
            import_module(module).add_parser(subparsers)
        elif not is_first:  # Behind a verb nothing lists the others, and each costs 0.1 ms.
            subparsers.add_parser(verb, help=help_, add_help=False)
    return parser


def _version() -> str:
    from swarmd import __version__

    return f"swarmd {__version__}"
