"""`swarmd run`: the daemon in the foreground."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarmd.config.loading import Loaded


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    _import_lean()  # Here, because the flags below are declared in modules that hash.
    from swarmd.cli.settings import add_settings

    parser = subparsers.add_parser("run", help="run the daemon on this device", allow_abbrev=False)
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default /etc/swarmd/swarmd.toml)"
    )
    parser.add_argument(
        "--events", choices=("json",), help="print what happens on standard output, read commands on standard input"
    )
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Load the configuration and live until SIGTERM."""
    import asyncio

    from swarmd.brain.brain import Brain
    from swarmd.brain.garbage import sliced
    from swarmd.cli.settings import flags_of
    from swarmd.config.loading import load
    from swarmd.errors import ControlError, DaemonError
    from swarmd.logs import Logger

    def read() -> "Loaded":
        return load(args.config, os.environ, flags_of(args))

    loaded = read()
    log = Logger(loaded.config.node.name, loaded.config.log.level, loaded.config.log.format)
    if loaded.config.federation.paths or loaded.config.federation.neighbours:
        log.warning(
            "no_gateway", text="[federation] is for swarmd gateway: swarmd run speaks to no region or neighbour"
        )

    async def live() -> int:
        with sliced(asyncio.get_running_loop()):  # What is imported stays; the collector need not walk it ever again.
            return await Brain(loaded, log, read).run(events=args.events == "json")

    try:
        status = asyncio.run(live())
    except ControlError as error:
        raise DaemonError(str(error)) from error  # Status 3 is for those who look for a daemon, not for one that fails.
    sys.stderr.flush()
    return status


def _import_lean() -> None:
    """Import asyncio, hashlib and hmac as on a Python built without OpenSSL: that is 7 of the brain's 40 MB.

    The brain opens no TLS stream and hashes with the interpreter's own BLAKE2 and SHA-2. A bridge that does need TLS
    (MQTT) imports `ssl` itself, later and for its own use. And msgspec without `typing_extensions`: for 0.3 MB it takes
    from there what `typing` has.
    """
    import importlib

    for module, heavy in (("asyncio", "ssl"), ("hmac", "_hashlib"), ("msgspec", "typing_extensions")):
        if module in sys.modules or heavy in sys.modules:
            continue
        sys.modules[heavy] = None  # type: ignore[assignment]
        importlib.import_module(module)
        del sys.modules[heavy]
