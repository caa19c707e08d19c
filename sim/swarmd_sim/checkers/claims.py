"""Work: no cell is missing at the end, cells flown twice stay within the bound, and no lease is ignored.

A cell counts as flown twice where the second drone was in reach, for `NEWS_NS`, of somebody who could know of the
first flight. Exactly once is impossible without: each side of a partition flies what it has not heard of, a node whose
disk was set back flies alone what it forgot, and what a node did that was shut out is done again. Their number follows
from the faults, not from the claims.

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
        self._together: list[tuple[int, dict[int, int]]] = []
        """(since, group by host): who was in whose reach, of the last `NEWS_NS`."""
        self._knowers: dict[tuple[str, int], dict[int, int]] = {}
        """Since when hosts can know of a finished cell, by cell and the place of the fact in the ledger."""
        self._flights_seen = 0
        self._doubled = 0

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

    def on_step(self, now_ns: int) -> None:
        """News of finished cells spreads, as far as it can."""
        run = self.run
        if run.scenario.drones.work != "claims" or not run.site.cells:
            return
        news_ns = NEWS_NS * max(1, len(run.hosts) // _PEERS)
        groups = {
            host.index: number
            for number, group in enumerate(run.components())
            for host in group
            if run.injector.healthy(host.index, 1)
        }
        if not self._together or self._together[-1][1] != groups:
            self._together.append((now_ns, groups))
        while len(self._together) > 1 and self._together[1][0] <= now_ns - news_ns:
            del self._together[0]
        self._spread(now_ns, settled=self._together[0][0] <= now_ns - news_ns)
        for at_ns, index, cell in run.ledger.cells_flown[self._flights_seen :]:
            self._doubled += self._could_know(at_ns, index, cell)
        self._flights_seen = len(run.ledger.cells_flown)

    def _spread(self, now_ns: int, *, settled: bool) -> None:
        """Whoever was together with a knower for the whole of `NEWS_NS` knows too."""
        run = self.run
        side: dict[int, tuple[int, ...]] = {}
        if settled:
            for index in self._together[-1][1]:
                way = tuple(groups.get(index, -1) for _since_ns, groups in self._together)
                if -1 not in way:
                    side[index] = way
        for cell, facts in run.ledger.cells_done.items():
            for place, fact in enumerate(facts):
                knowers = self._knowers.setdefault((cell, place), {fact.host: fact.at_ns})
                if fact.excused or len(knowers) == len(run.hosts):
                    continue
                for index in [one for one, at_ns in knowers.items() if run.ledger.disk_lost_ns.get(one, -1) > at_ns]:
                    del knowers[index]
                sides = {side[index] for index in knowers if index in side}
                for index, way in side.items():
                    if way in sides:
                        knowers.setdefault(index, now_ns)

    def _could_know(self, at_ns: int, index: int, cell: str) -> bool:
        """Whether a drone that finished a cell could have known that another flight had."""
        run = self.run
        facts = run.ledger.cells_done.get(cell, ())
        return not run.hosts[index].hostile and any(
            index in self._knowers[cell, place]
            for place, fact in enumerate(facts)
            if not fact.excused and fact.at_ns < at_ns and (cell, place) in self._knowers
        )

    def on_end(self, now_ns: int) -> None:
        """Count what was flown."""
        run = self.run
        if run.scenario.drones.work != "claims" or not run.site.cells:
            return
        self.on_step(now_ns)
        flown: dict[str, int] = {}
        for _at_ns, _host, cell in run.ledger.cells_flown:
            flown[cell] = flown.get(cell, 0) + 1
        missing = sorted(cell.cell_id for cell in run.site.cells if cell.cell_id not in flown)
        if missing and run.scenario.checks.cells_done:
            run.watch.violate(
                "claims.missing", f"{len(missing)} of {len(run.site.cells)} cells never flown: {missing[:6]}"
            )
        doubled = self._doubled
        if doubled > run.scenario.checks.duplicate_work * len(run.site.cells):
            run.watch.violate(
                "claims.duplicates",
                f"{doubled} extra flights over {len(run.site.cells)} cells by drones that could know",
            )
