"""The ground view of a running daemon: its picture is kept, written down and served until the daemon ends."""

import asyncio
import contextlib
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from swarmd.api.daemon import NodeInfo, Operations
from swarmd.ground.audit import FOLDER as AUDIT_FOLDER
from swarmd.ground.audit import Audit
from swarmd.ground.fetched import FetchedPast
from swarmd.ground.live import LiveFeed
from swarmd.ground.operators import Desk
from swarmd.ground.past import FILE_NAME
from swarmd.ground.releases import ReleaseFeed
from swarmd.ground.rows import Asset, Site
from swarmd.ground.server import GroundServer, bound_socket
from swarmd.ground.story import Story
from swarmd.ground.thumbs import Thumbs
from swarmd.ground.view import Ground

TICK_S = 1.0
"""Seconds between two words to the history that the server still runs."""


class Observer:
    """Runs beside one daemon.

    Args:
        listen: Loopback address of the page.
        assets: Of the site map.
        folder: Gives the folder of the history.
        is_opened: Whether this machine's browser is told to show the page.

    Raises:
        TransportError: The address is not loopback, or taken.
    """

    def __init__(
        self, listen: str, assets: Sequence[Asset], folder: Callable[[NodeInfo], Path], is_opened: bool
    ) -> None:
        self._listen = listen
        self._assets = list(assets)
        self._folder = folder
        self._is_opened = is_opened
        # Here, so that an address that is taken ends the command before it joins anything.
        self._sockets = [bound_socket(listen)]

    async def run(self, daemon: Operations) -> None:
        """Until cancelled."""
        info = daemon.info()
        site = Site(
            mode="live",
            title=info.swarm,
            seen_by=info.name,
            version=info.version,
            latitude_deg=info.origin_latitude_deg if info.has_origin else None,
            longitude_deg=info.origin_longitude_deg if info.has_origin else None,
            assets=self._assets,
        )
        ground, audit = await asyncio.to_thread(_opened, site, self._folder(info))
        with contextlib.ExitStack() as closing:
            closing.callback(ground.past.close)
            feed = LiveFeed(daemon, ground.picture, ground.mark)
            ground.evidence = feed.evidence
            others = FetchedPast(daemon.past.pages, feed.plane, feed.unheard, feed.grown, daemon.in_parts.names)
            ground.story = Story(ground.past, others)
            ground.desk = Desk(daemon, audit)
            releases = ReleaseFeed(daemon, ground.picture, ground.mark)
            ground.prepare = releases.prepare
            thumbs = Thumbs(daemon)
            closing.callback(thumbs.end)
            ground.thumb = thumbs.get
            server = GroundServer(ground, self._sockets.pop() if self._sockets else bound_socket(self._listen))
            sys.stdout.write(f"swarmd ground: {server.address}\n")
            sys.stdout.flush()
            if self._is_opened:
                self._is_opened = False
                await asyncio.to_thread(webbrowser.open, server.address)
            ground.past.begin(time.time())
            async with asyncio.TaskGroup() as tasks:
                for part in (_tell_time(ground), feed.run(), releases.run(), ground.desk.run(), server.run()):
                    tasks.create_task(part)


def _opened(site: Site, folder: Path) -> tuple[Ground, Audit]:
    """The history and the audit: both are read through, a gigabyte and 72 MB at most. The daemon's loop never waits."""
    audit = Audit(folder / AUDIT_FOLDER)
    return Ground(site, folder / FILE_NAME), audit


async def _tell_time(ground: Ground) -> None:
    told = ""
    while True:
        await asyncio.sleep(TICK_S)
        ground.past.tick(time.time())
        problem = ground.past.problem
        if problem and problem != told:
            sys.stderr.write(f"swarmd ground: the history is not written: {problem}; make room on that disk\n")
            sys.stderr.flush()
        told = problem
