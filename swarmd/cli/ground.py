"""`swarmd ground`: the ground view, as a member without an eye."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarmd.config.loading import Loaded
    from swarmd.config.sections import Config
    from swarmd.ground.rows import Asset


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    from swarmd.cli.settings import add_settings

    parser = subparsers.add_parser(
        "ground",
        help="the ground view: see the swarm in a browser on this machine",
        description="Joins the swarm as a member without an eye and shows what it knows on loopback; or shows a "
        "recording.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", nargs="?", type=Path, metavar="FILE.mcap", help="show this recording instead")
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default /etc/swarmd/swarmd.toml)"
    )
    parser.add_argument(
        "--page", default="127.0.0.1:7982", metavar="HOST:PORT", help="where the page is served (%(default)s)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in this machine's browser")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Join, or open the recording, and serve until SIGTERM or Ctrl-C."""
    if args.recording is not None:
        from swarmd.ground.shows import show_recording

        show_recording(args.recording, args.page, is_opened=args.open)
        return 0
    import asyncio

    from swarmd.brain.brain import Brain
    from swarmd.brain.compose import state_dir
    from swarmd.cli.settings import flags_of
    from swarmd.config.loading import Loaded, load
    from swarmd.errors import ControlError, DaemonError
    from swarmd.ground.observer import Observer
    from swarmd.logs import Logger

    # An observer: whatever the file says of a camera, and beside a daemon that may hold its own port.
    flags: dict[str, Any] = {"http.listen": "off", **flags_of(args), "eye.enabled": False}

    def read() -> Loaded:
        return _observing(load(args.config, os.environ, flags))

    loaded = read()
    observer = Observer(args.page, _assets(loaded.config), lambda info: state_dir(loaded.config, info), args.open)
    log = Logger(loaded.config.node.name, loaded.config.log.level, loaded.config.log.format)

    async def live() -> int:
        return await Brain(loaded, log, read, beside={"ground": observer.run}).run()

    try:
        status = asyncio.run(live())
    except ControlError as error:
        raise DaemonError(str(error)) from error  # Status 3 is for those who look for a daemon.
    sys.stderr.flush()
    return status


_OBSERVES = {"keep_h": 720, "max_mib": 1024, "fetch_h": 720}
"""Of `[history]` where nothing else is said: an observer fetches and keeps a month of others' past."""


def _observing(loaded: "Loaded") -> "Loaded":
    """The configuration with an observer's defaults."""
    import dataclasses

    unsaid: dict[str, Any] = {
        key: value for key, value in _OBSERVES.items() if loaded.origins.get(("history", key)) == "default"
    }
    history = dataclasses.replace(loaded.config.history, **unsaid)
    return dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, history=history))


def _assets(config: "Config") -> "list[Asset]":
    """The rectangles of the site map, where there is one."""
    from swarmd.ground.rows import Asset
    from swarmd_models.geo.positions import Plane

    if not config.dedup.site_map:
        return []
    from swarmd_models.geo.sitemap import load_site_map

    plane = Plane(*config.node.origin) if config.node.origin else None
    site_map = load_site_map(Path(config.dedup.site_map), plane)
    return [
        Asset(one.asset, round(one.east_m, 3), round(one.north_m, 3), round(one.width_m, 3), round(one.depth_m, 3))
        for one in site_map.assets
    ]
