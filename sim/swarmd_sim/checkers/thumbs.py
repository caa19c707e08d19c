"""What must hold of thumbnails, whatever happens to the devices that made them."""

from collections import Counter

from swarmd_protocols.thumbs.fetching import TRIES
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.run.host import Host
from swarmd_sim.run.thumbs import ThumbsWorld


class ThumbsChecker(CheckerBase):
    """Nothing but the picture of a name is shown under it, and what is held is not asked for again.

    Args:
        run: The run.
        world: Its pictures.
    """

    def __init__(self, run: RunContext, world: ThumbsWorld) -> None:
        super().__init__(run)
        self._world = world

    def on_detail(self, host: Host, detail: object) -> None:
        """A picture came, or will not."""
        self._world.on_detail(host, detail)

    def on_end(self, now_ns: int) -> None:
        """After the quiet time."""
        watch = self.run.watch
        for text in self._world.wrong:
            watch.violate("thumbs.other", text)
        for host in self.run.live():
            counts = self._world.protocols[host.index].counts()
            wanted = self._world.wanted.get((host.index, host.boots), Counter())
            if counts["fetched"] > len(wanted):
                watch.violate("thumbs.twice", f"{host.name} fetched {counts['fetched']} of {len(wanted)} pictures")
            if counts["asked"] > TRIES * sum(wanted.values()):
                watch.violate("thumbs.asked", f"{host.name} asked {counts['asked']} times for {len(wanted)} pictures")
