"""Borrowing: each request is through once and in time, by the bundle that was asked for; own work first; liars go.

- `offload.twice`, `offload.open`: a request gets exactly one end while its process lives, by its deadline.
- `offload.other_bundle`: an answer, or what a lender is told to run, is of the bundle that was asked for.
- `offload.own_first`: nothing borrowed starts while a frame of the own eye waits.
- `offload.liar_kept`: who has told a borrower so many wrong answers is asked no more by it.
- `offload.garbage`: no program gets an answer that has no form.
- `offload.jobs`: a lender has no more of others' work in hand than it may, of all and of each.
- `offload.outside`: where owners lend among their own alone, nobody runs anything for another's device.
- `offload.silent_kept`: a lender that answers nothing is asked little by each borrower.
- `offload.stale`: an answer that was kept is the one to this very question, and younger than the program allowed.
- `offload.copy_lost`: a request that two lenders had taken has its answer, though one of them died, if the other had
  it ready in time; and no lender that lives still holds it then. Judged where only deaths happen, since a frame that
  the air loses is lost to any protocol.

Of looks (traffic, where the plan decides; a device that is killed, frozen or slowed meanwhile is excused):

- `offload.worse`: whose own model has spoken by the deadline has an answer by the deadline, once; and the answers
  together are right at least as often as the own models alone.
- `offload.late`: of 1,000 looks 999 are answered in time.
- `offload.mixed`: no answer holds bundles of two releases.
- `offload.service`: while a release rolls, no second passes in which a version is asked for and nobody answers.
"""

from collections import deque

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.under_way import split_number
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.faults.faults import FAULTS
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload import Listener, OffloadWorld
from swarmd_sim.run.offload_device import Asked, Device, answer_to, is_well_formed
from swarmd_sim.run.offload_figures import is_mixed
from swarmd_sim.run.offload_looks import Seen
from swarmd_sim.run.processor import LENT, Task
from swarmd_sim.run.scenario import NS_PER_S

GRACE_NS = 200_000_000
"""After a deadline: a timer fires late where the processor is slow or a disk makes it wait."""
LIES_MAX = 8
"""Wrong answers that were found out, after which a lender is asked no more: `ReputationConfig` ejects at four."""
ON_ITS_WAY_NS = 2_000_000_000
"""A request to a liar may have left before the last verdict."""
SILENT_NS = 10_000_000_000
SILENT_MAX = 12
"""Of the forty that a borrower asks in ten seconds: one each time that what it knows of the lender has faded, those
that were on their way, and hedges."""
BACK_NS = 20_000_000
"""An answer is back after this: twice the slowest way of the scenarios that want copies."""
IN_TIME = 0.999
"""Of looks."""
LOOKS_LEAST = 500
"""Fewer say nothing about shares."""
_OWN_FAULTS = frozenset(kind for kind, about in FAULTS.items() if about.family in ("process", "cpu", "clock", "disk"))
"""What happens to the device itself: nobody else can answer for it."""


def _holds(lender: Device, borrower: Device, number: int) -> bool:
    """Whether a device that lives has been given a request, and has not begun with it."""
    protocol = lender.protocol if lender.host.process_up else None
    held = protocol.held_for(NodeId(borrower.host.node_id)) if protocol is not None else []
    return any(split_number(wire)[0] == number for wire in held)


class OffloadChecker(CheckerBase, Listener):
    """See the module.

    Args:
        run: The run.
        world: Its borrowing.
    """

    def __init__(self, run: RunContext, world: OffloadWorld) -> None:
        super().__init__(run)
        self._world = world
        self._fresh_ns: dict[tuple[int, int, bytes, bytes], int] = {}
        """When each device was last answered each question by somebody."""
        self._silent: dict[tuple[int, int, int], deque[int]] = {}
        """When each life of a borrower asked a lender that answers nothing, in the last ten seconds."""
        self._section = run.scenario.offload
        world.listener = self
        if world.looks is not None:
            world.looks.on_end = self.on_look

    def on_settle(self, device: Device, asked: Asked | None, settle: requests.Settle) -> None:
        """A request is through."""
        watch, name = self.run.watch, device.host.name
        if asked is None:
            watch.violate("offload.twice", f"request {settle.number} of {name} is through, and is not open")
            return
        if settle.digest != asked.digest or (settle.data is not None and settle.data[32:64] != asked.digest):
            watch.violate("offload.other_bundle", f"request {settle.number} of {name} was answered by another bundle")
        if settle.data is not None and not is_well_formed(settle.digest, settle.data):
            watch.violate("offload.garbage", f"request {settle.number} of {name} was settled with garbage")
        if settle.data is not None and asked.keep_ns:
            self._on_kept(device, asked, settle)
        if settle.data is None and asked.copies > 1 and self._only_deaths:
            there_ns = asked.deadline_ns - BACK_NS
            ran = [index for index, life, at_ns in asked.ran if at_ns < there_ns and self._world.lives(index, life)]
            if not any(not self._world.lives(*lender) for lender in asked.taken):
                return
            if ran:
                text = f"request {settle.number} of {name} is lost with a lender, and node {ran[0]} had its answer"
                watch.violate("offload.copy_lost", text)
            holders = [one.host.name for one in self._world.devices.values() if _holds(one, device, settle.number)]
            if holders:
                text = (
                    f"request {settle.number} of {name} is lost with a lender, and {holders[0]} has not begun with it"
                )
                watch.violate("offload.copy_lost", text)

    @property
    def _only_deaths(self) -> bool:
        script = self.run.injector.script
        is_quiet = not self.run.scenario.radio.loss
        return is_quiet and all(FAULTS[fault.kind].family == "process" for fault in script)

    def _on_kept(self, device: Device, asked: Asked, settle: requests.Settle) -> None:
        """An answer that may be kept, or was."""
        now_ns = self.run.engine.now_ns
        question = (asked.host, asked.life, asked.digest, asked.data)
        if not settle.is_kept:
            self._fresh_ns[question] = now_ns
            return
        since_ns = now_ns - self._fresh_ns.get(question, -(1 << 62))
        # The device's oscillator may be slow by a part in a hundred.
        if since_ns > asked.keep_ns * 1.02:
            text = f"request {settle.number} of {device.host.name} got an answer that is {since_ns / 1e9:.1f} s old"
            self.run.watch.violate("offload.stale", text)
        is_liars = settle.lender is not None and self._is_liars(settle.lender)
        if not is_liars and settle.data != answer_to(asked.digest, asked.data):
            self.run.watch.violate("offload.stale", f"request {settle.number} got the answer to another question")

    def _is_liars(self, lender: bytes) -> bool:
        return any(one.is_liar for one in self._world.devices.values() if one.host.node_id == lender)

    def on_look(self, device: Device, seen: Seen) -> None:
        """A look is through."""
        if seen.ends > 1:
            self.run.watch.violate("offload.twice", f"look {seen.number} of {device.host.name} is through again")
        if is_mixed(seen):
            text = f"look {seen.number} of {device.host.name} mixes the answers of two releases"
            self.run.watch.violate("offload.mixed", text)

    def on_infer(self, device: Device, order: requests.Infer, borrower: Host | None) -> None:
        """A device is told to run something."""
        if borrower is None:
            return
        watch, name, now_ns = self.run.watch, device.host.name, self.run.engine.now_ns
        if not device.unit_ns(order.digest):
            watch.violate("offload.other_bundle", f"{name} was told to run a bundle that it does not have")
        if self._section.owners and self._world.roles_of(borrower) != self._world.roles_of(device.host):
            watch.violate("offload.outside", f"{name} runs something for {borrower.name}, which is another owner's")
        asking = self._world.devices[borrower.index]
        node = device.host.node_id
        if self._world.manner_of(device.host) == "lend_nothing" and not borrower.hostile:
            self._on_silent(device.host, borrower)
        if asking.wrong.get(node, 0) >= LIES_MAX and now_ns - asking.wrong_ns[node] > ON_ITS_WAY_NS:
            watch.violate("offload.liar_kept", f"{borrower.name} asks {name} after {asking.wrong[node]} wrong answers")

    def _on_silent(self, lender: Host, borrower: Host) -> None:
        now_ns = self.run.engine.now_ns
        times = self._silent.setdefault((borrower.index, borrower.boots, lender.index), deque())
        times.append(now_ns)
        while times[0] < now_ns - SILENT_NS:
            times.popleft()
        if len(times) > SILENT_MAX:
            text = f"{borrower.name} has asked {lender.name} {len(times)} times in 10 s, which answers nothing"
            self.run.watch.violate("offload.silent_kept", text)

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
            self._check_jobs(device)
            for asked in device.open.values():
                since_ns = max(asked.deadline_ns, host.cpu.busy_until_ns)
                if now_ns > since_ns + GRACE_NS:
                    late_ms = (now_ns - asked.deadline_ns) // 1_000_000
                    self.run.watch.violate("offload.open", f"request {asked.number} of {host.name}: {late_ms} ms late")

    def _check_jobs(self, device: Device) -> None:
        lending, protocol = device.about.lending, device.protocol
        jobs = protocol.jobs_by_borrower() if protocol is not None else {}
        most = max(jobs.values(), default=0)
        if sum(jobs.values()) > lending.jobs_max or most > lending.jobs_each:
            text = f"{device.host.name} has {sum(jobs.values())} jobs of others, of one {most}"
            self.run.watch.violate("offload.jobs", text)

    def on_end(self, now_ns: int) -> None:
        """Everything that was asked in a life that goes on is through."""
        for device in self._world.devices.values():
            if device.host.process_up and not device.host.stalled and device.open:
                text = f"{len(device.open)} requests of {device.host.name} have no end"
                self.run.watch.violate("offload.open", text)
        if self._section.rule == "ours" and self._world.looks is not None:
            self._judge_looks(self._world.looks.seen)

    def _judge_looks(self, looks: list[Seen]) -> None:
        watch, world = self.run.watch, self._world
        spared = [seen for seen in looks if not self._is_excused(seen)]
        for seen in spared:
            is_in_time = seen.said is not None and seen.ended_ns <= seen.deadline_ns
            if 0 < seen.own_ns <= seen.deadline_ns and not is_in_time:
                late_ms = (seen.ended_ns - seen.deadline_ns) / 1e6
                how = f"{late_ms:.1f} ms late" if seen.ends else "never"
                watch.violate("offload.worse", f"look {seen.number} of node {seen.host} was through {how}")
                break
        if len(spared) < LOOKS_LEAST:
            return
        figures = world.figures()
        in_time = sum(seen.said is not None and seen.ended_ns <= seen.deadline_ns for seen in spared)
        if in_time < IN_TIME * len(spared):
            watch.violate("offload.late", f"{in_time} of {len(spared)} looks were answered in time")
        for what in ("accuracy", "mean_ap"):
            ours, local = float(str(figures[what])), float(str(figures[f"local_{what}"]))
            if ours < local:
                watch.violate("offload.worse", f"the {what} is {ours}, and alone {local}")
        if world.rollout is not None and not self._section.release_swap and figures["seconds_without_service"]:
            text = f"{figures['seconds_without_service']} s in which a version was asked for and nobody answered"
            watch.violate("offload.service", text)

    def _is_excused(self, seen: Seen) -> bool:
        if not self._world.lives(seen.host, seen.life):
            return True
        return any(
            fault.kind in _OWN_FAULTS
            and seen.host in fault.nodes
            and fault.at_ns - NS_PER_S <= seen.at_ns <= fault.end_ns + NS_PER_S
            for fault in self.run.injector.script
        )
