"""Bytes: nothing oversized is ever sent, and the mean stays within the scenario's budget."""

from swarmd_sim.checkers.base import CheckerBase


class TrafficChecker(CheckerBase):
    """See the module."""

    def on_end(self, now_ns: int) -> None:
        """Compare with the budget."""
        run = self.run
        if run.network.counters.oversized:
            run.watch.violate("traffic.oversized", f"{run.network.counters.oversized} frames were too large to send")
        budget = run.scenario.checks.bytes_per_node_s
        mean = sum(run.network.sent_bytes) * 1_000_000_000 // max(1, now_ns) // len(run.hosts)
        if budget and mean > budget:
            run.watch.violate("traffic.budget", f"{mean} B/s a node; the budget is {budget}")
