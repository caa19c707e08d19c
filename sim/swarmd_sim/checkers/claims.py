"""Work: no cell is missing at the end, and cells flown twice stay within the bound."""

from swarmd_sim.checkers.base import CheckerBase


class ClaimsChecker(CheckerBase):
    """See the module."""

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
