"""Borrowing: each request is through once and in time, by the bundle that was asked for; own work first; liars go.

- `offload.twice`, `offload.open`: a request gets exactly one end while its process lives, by its deadline.
- `offload.other_bundle`: an answer, or what a lender is told to run, is of the bundle that was asked for.
- `offload.own_first`: nothing borrowed starts while a frame of the own eye waits.
- `offload.liar_kept`: who has told a borrower so many wrong answers is asked no more by it.
"""

from swarmd_protocols.offload import requests
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload import LENT, Asked, Device, Listener, OffloadWorld, Task

GRACE_NS = 200_000_000
"""After a deadline: a timer fires late where the processor is slow or a disk makes it wait."""
LIES_MAX = 8
"""Wrong answers that were found out, after which a lender is asked no more: `ReputationConfig` ejects at four."""
ON_ITS_WAY_NS = 2_000_000_000
"""A request to a liar may have left before the last verdict."""


class OffloadChecker(CheckerBase, Listener):
    """See the module.

    Args:
        run: The run.
        world: Its borrowing.
    """

    def __init__(self, run: RunContext, world: OffloadWorld) -> None:
        super().__init__(run)
        self._world = world
        world.listener = self

    def on_settle(self, device: Device, asked: Asked | None, settle: requests.Settle) -> None:
        """A request is through."""
        watch, name = self.run.watch, device.host.name
        if asked is None:
            watch.violate("offload.twice", f"request {settle.number} of {name} is through, and is not open")
            return
        if settle.digest != asked.digest or (settle.data is not None and settle.data[32:] != asked.digest):
            watch.violate("offload.other_bundle", f"request {settle.number} of {name} was answered by another bundle")

    def on_infer(self, device: Device, order: requests.Infer, borrower: Host | None) -> None:
        """A device is told to run something."""
        if borrower is None:
            return
        watch, name, now_ns = self.run.watch, device.host.name, self.run.engine.now_ns
        if not device.unit_ns(order.digest):
            watch.violate("offload.other_bundle", f"{name} was told to run a bundle that it does not have")
        asking = self._world.devices[borrower.index]
        node = device.host.node_id
        if asking.wrong.get(node, 0) >= LIES_MAX and now_ns - asking.wrong_ns[node] > ON_ITS_WAY_NS:
            watch.violate("offload.liar_kept", f"{borrower.name} asks {name} after {asking.wrong[node]} wrong answers")

    def on_start(self, device: Device, task: Task, frames_waiting: int) -> None:
        """A processor begins with something."""
        if task.kind == LENT and frames_waiting:
            self.run.watch.violate(
                "offload.own_first", f"{device.host.name} runs for others while {frames_waiting} own frames wait"
            )

    def on_step(self, now_ns: int) -> None:
        """Nothing is open past its deadline."""
        for device in self._world.devices.values():
            host = device.host
            if not host.process_up or host.stalled or now_ns - host.last_ran_ns > 0 or host.hostile:
                continue
            for asked in device.open.values():
                since_ns = max(asked.deadline_ns, host.cpu.busy_until_ns)
                if now_ns > since_ns + GRACE_NS:
                    late_ms = (now_ns - asked.deadline_ns) // 1_000_000
                    self.run.watch.violate("offload.open", f"request {asked.number} of {host.name}: {late_ms} ms late")

    def on_end(self, now_ns: int) -> None:
        """Everything that was asked in a life that goes on is through."""
        for device in self._world.devices.values():
            if device.host.process_up and not device.host.stalled and device.open:
                text = f"{len(device.open)} requests of {device.host.name} have no end"
                self.run.watch.violate("offload.open", text)
