"""Carries a fault script out, undoes it, and knows at each moment which hosts no fault excuses."""

from collections.abc import Callable

from swarmd_sim.faults.faults import FAULTS, HOSTILE_KINDS, OFFICER_KINDS, Fault
from swarmd_sim.faults.hostile import Hostile
from swarmd_sim.faults.links import LinkFault
from swarmd_sim.faults.node_faults import NodeFaults
from swarmd_sim.faults.rotations import Rotations
from swarmd_sim.radio.network import Network
from swarmd_sim.radio.radio import JammingDisc, Radio
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.coverage import Coverage
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.releases import ReleaseWorld
from swarmd_sim.run.watch import Watch

_MS = 1_000_000
_RECENT_NS = 15_000_000_000
_LEAVE_GRACE_NS = 1_500_000_000
"""What the daemon gives a leaving node to say good-bye."""


class Injector:
    """The faults of one run.

    Args:
        engine: Virtual time.
        choices: All randomness.
        hosts: All hosts.
        network: Where link faults go.
        radio: Where jammers go.
        watch: Told what happens.
        ledger: Told of lost disks.
        reboot: Starts a host's next life.
        coverage: Told which fault met which protocol state.
        releases: What hostile nodes attack; None where none are published.
        rotations: What officers do; None where the maker of nodes has none.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Choices,
        hosts: list[Host],
        network: Network,
        radio: Radio,
        watch: Watch,
        ledger: Ledger,
        reboot: Callable[[Host], None],
        coverage: Coverage,
        releases: ReleaseWorld | None = None,
        rotations: Rotations | None = None,
    ) -> None:
        self._engine = engine
        self._choices = choices
        self._hosts = hosts
        self._network = network
        self._radio = radio
        self._watch = watch
        self._ledger = ledger
        self._reboot = reboot
        self.coverage = coverage
        self._rotations = rotations
        self._number = 0
        self._ended: list[Fault] = []
        self._active: dict[int, Fault] = {}
        self._touched_until_ns = [0] * len(hosts)
        officers = rotations.officers if rotations is not None else None
        self.hostile = Hostile(engine, choices, hosts, network, ledger, reboot, releases, officers)
        self._nodes = NodeFaults(engine, choices, hosts, network, watch, ledger, reboot, self._held_down, self._goes_on)
        self.last_end_ns = 0
        self.script: list[Fault] = []

    def schedule(self, script: list[Fault]) -> None:
        """Put the whole script on the heap."""
        self.script = script
        if any(fault.kind in HOSTILE_KINDS for fault in script):
            self.hostile.listen()
        for fault in script:
            self._engine.at(fault.at_ns, self._begin, fault)

    def healthy(self, host: int, margin_ns: int) -> bool:
        """Whether a host is up and no fault has touched it for a while.

        Args:
            host: Its index.
            margin_ns: How long it must have been left alone.

        Returns:
            True when nothing excuses it.
        """
        it = self._hosts[host]
        now_ns = self._engine.now_ns
        return (
            it.process_up
            and not it.hostile
            and not it.life.left
            and now_ns - it.life.started_ns >= margin_ns
            and now_ns - self._touched_until_ns[host] >= margin_ns
        )

    def untouched_since(self, host: int, since_ns: int) -> bool:
        """Whether no fault has touched a host that runs since a time."""
        it = self._hosts[host]
        return it.process_up and it.life.started_ns <= since_ns and self._touched_until_ns[host] < since_ns

    def tainted(self) -> set[int]:
        """Hosts that are or were in other hands at some time of the script."""
        return {node for fault in self.script if fault.kind in HOSTILE_KINDS | OFFICER_KINDS for node in fault.nodes}

    @property
    def last_push_ns(self) -> int:
        """When officers last handed something over; -1 when never."""
        return self._rotations.last_push_ns if self._rotations is not None else -1

    @property
    def recent(self) -> list[Fault]:
        """Faults that go on now or ended within the last 15 s."""
        now_ns = self._engine.now_ns
        ended = [fault for fault in self._ended if now_ns - fault.end_ns < _RECENT_NS]
        return [*ended, *self.active]

    @property
    def active(self) -> list[Fault]:
        """Faults that go on now, by number."""
        return [self._active[number] for number in sorted(self._active)]

    def _begin(self, fault: Fault) -> None:
        self._number += 1
        number = self._number
        self._active[number] = fault
        self._watch.say(-1, f"fault {number}: {fault.describe()}")
        self._engine.trace(b"F%x,%b;" % (self._engine.now_ns, fault.kind.encode()))
        touched = range(len(self._hosts)) if fault.kind in ("partition", "clog", "jam") else fault.nodes
        for node in touched:
            self._touched_until_ns[node] = max(self._touched_until_ns[node], fault.end_ns)
        for node in fault.nodes:
            self.coverage.hit(fault.kind, self._hosts[node], self._watch, bool(self._network.faults.groups))
        family = FAULTS[fault.kind].family
        if family == "link":
            self._begin_link(number, fault)
        elif family == "hostile":
            self.hostile.begin(number, fault)
        elif family == "officer":
            if self._rotations is not None:
                self._rotations.begin(fault)
        else:
            self._nodes.begin(fault)
        self._engine.at(fault.end_ns, self._end, number)

    def _end(self, number: int) -> None:
        fault = self._active.pop(number)
        self._ended.append(fault)
        self._watch.say(-1, f"fault {number} ends: {fault.kind}")
        self.last_end_ns = self._engine.now_ns
        family = FAULTS[fault.kind].family
        if family == "link":
            self._network.faults.active.pop(number, None)
            self._network.faults.groups.pop(number, None)
            self._radio.jammers.pop(number, None)
            if fault.kind == "clog":
                self._network.unclog()
        elif family == "hostile":
            self.hostile.end(number)
        for node in fault.nodes:
            self._end_at(fault, self._hosts[node])

    def _end_at(self, fault: Fault, host: Host) -> None:
        """Undo what a fault did to one host, and start it again when it is down."""
        kind = fault.kind
        host.crash_within(0, "")
        if kind == "throttle":
            host.cpu.full_speed()
        elif kind == "disk_full":
            host.disk.full = False
        elif kind == "slow_fsync":
            host.disk.fsync_ns = host.disk.usual_fsync_ns
        elif kind == "send_error":
            host.forbidden = False
        elif kind == "clock_drift":
            host.clock.set_drift(self._engine.now_ns, host.oscillator.drift_ppb)
        elif kind == "away":
            self._network.faults.active.pop(-1 - host.index, None)
        restartable = FAULTS[kind].family in ("process", "people") or kind == "clock_step"
        if restartable and not host.process_up and not self._held_down(host):
            self._reboot(host)

    # --- Links ---

    def _begin_link(self, number: int, fault: Fault) -> None:
        nodes = frozenset(fault.nodes)
        faults = self._network.faults
        if fault.kind == "partition":
            faults.groups[number] = {host.index: int(host.index in nodes) for host in self._hosts}
        elif fault.kind == "jam":
            centre = self._radio.position_cm(fault.nodes[0])
            self._radio.jammers[number] = JammingDisc(centre, fault.amount * 100)
        else:
            faults.active[number] = _link_fault(fault, nodes)

    def _held_down(self, host: Host) -> bool:
        return any(host.index in fault.nodes and _keeps_down(fault) for fault in self._active.values())

    def _goes_on(self, fault: Fault) -> bool:
        return fault in self._active.values()


def _keeps_down(fault: Fault) -> bool:
    return FAULTS[fault.kind].family == "process" or fault.kind in ("leave", "readdress", "clock_step")


def _link_fault(fault: Fault, nodes: frozenset[int]) -> LinkFault:
    amount = fault.amount
    match fault.kind:
        case "loss":
            return LinkFault(nodes, both_ways=True, loss_ppm=amount)
        case "duplicate":
            return LinkFault(nodes, both_ways=True, duplicate_ppm=amount)
        case "corrupt":
            return LinkFault(nodes, both_ways=True, corrupt_ppm=amount)
        case "reorder":
            return LinkFault(nodes, both_ways=True, reorder_ppm=300_000, delay_ns=amount * _MS)
        case "delay":
            return LinkFault(nodes, both_ways=True, delay_ns=amount * _MS)
        case "deaf":
            return LinkFault(frozenset(), nodes, blocked=True)
        case "mute":
            return LinkFault(nodes, frozenset(), blocked=True)
        case "one_way":
            return LinkFault(frozenset(fault.nodes[:1]), frozenset(fault.nodes[1:]), blocked=True)
        case _:
            return LinkFault(nodes, both_ways=True, clogged=True)
