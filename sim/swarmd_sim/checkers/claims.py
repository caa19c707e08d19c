"""Work: no cell is missing at the end, cells flown twice stay within the bound, and no lease is ignored.

A drone that is sent to a cell while another one has been at it for `NEWS_NS`, or has finished it `DONE_NS` ago, is
excused only by a fault or by air between the two.
"""

from collections.abc import Iterator

from swarmd_protocols.state.observations import CellAssigned
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Fact

MARGIN_NS = 15_000_000_000
"""A host counts when no fault has touched it for so long."""
NEWS_NS = 6_000_000_000
"""Within this a healthy, linked node has heard of a claim; longer where news takes several rounds."""
DONE_NS = 12_000_000_000
_PEERS = 8


class ClaimsChecker(CheckerBase):
    """See the module."""

    def __init__(self, run: RunContext) -> None:
        super().__init__(run)
        self._at_work: dict[str, dict[int, tuple[int, int]]] = {}
        """(since, life) by cell and host."""

    def on_detail(self, host: Host, detail: object) -> None:
        """Safety, as a drone is sent to a cell."""
        if not isinstance(detail, CellAssigned):
            return
        now_ns = self.run.engine.now_ns
        at_work = self._at_work.setdefault(detail.cell_id, {})
        if self.run.injector.healthy(host.index, MARGIN_NS):
            self._check(host, detail.cell_id, at_work)
        at_work[host.index] = (now_ns, host.boots)

    def _check(self, host: Host, cell: str, at_work: dict[int, tuple[int, int]]) -> None:
        run = self.run
        now_ns = run.engine.now_ns
        slow = max(1, len(run.hosts) // _PEERS)
        for other in self._healthy_others(host):
            since_ns, life = at_work.get(other.index, (now_ns, 0))
            drone = run.watch.fleet.drones.get(other.index) if run.watch.fleet is not None else None
            flies = drone is not None and any(one.cell_id == cell for one in drone.queue)
            if (
                flies
                and life == other.boots
                and now_ns - since_ns > NEWS_NS * slow
                and run.linked(host.index, other.index)
            ):
                run.watch.violate(
                    "claims.overlap",
                    f"{host.name} is sent to {cell}, where {other.name} has been at work for "
                    f"{(now_ns - since_ns) / 1e9:.1f} s; both are up and hear each other",
                )
        for done in run.ledger.cells_done.get(cell, ()):
            if done.excused or now_ns - done.at_ns <= DONE_NS * slow or not self._could_tell(host, done):
                continue
            run.watch.violate(
                "claims.done_again",
                f"{host.name} is sent to {cell}, which {run.hosts[done.host].name} finished "
                f"{(now_ns - done.at_ns) / 1e9:.1f} s ago; both are up and hear each other",
            )
            return

    def _could_tell(self, host: Host, done: Fact) -> bool:
        """Whether nothing has kept the author of a finished cell from telling this host."""
        run, author = self.run, self.run.hosts[done.host]
        return (
            author is not host
            and author.life.started_ns < done.at_ns
            and run.injector.healthy(author.index, MARGIN_NS)
            and run.linked(host.index, author.index)
        )

    def _healthy_others(self, host: Host) -> Iterator[Host]:
        for other in self.run.hosts:
            if other is not host and self.run.injector.healthy(other.index, MARGIN_NS):
                yield other

    def on_end(self, now_ns: int) -> None:
        """Count what was flown."""
        run = self.run
        if run.scenario.drones.work != "claims" or not run.site.cells:
            return
        flown: dict[str, int] = {}
        for _at_ns, _host, cell in run.ledger.cells_flown:
            flown[cell] = flown.get(cell, 0) + 1
        missing = sorted(cell.cell_id for cell in run.site.cells if cell.cell_id not in flown)
        if missing and run.scenario.checks.cells_done:
            run.watch.violate(
                "claims.missing", f"{len(missing)} of {len(run.site.cells)} cells never flown: {missing[:6]}"
            )
        doubled = sum(count - 1 for count in flown.values())
        if doubled > run.scenario.checks.duplicate_work * len(run.site.cells):
            run.watch.violate("claims.duplicates", f"{doubled} extra flights over {len(run.site.cells)} cells")
