"""Carries a fault script out, undoes it, and knows at each moment which hosts no fault excuses."""

from collections.abc import Callable

from swarmd_protocols.effects import GoAway, Leave
from swarmd_sim.faults.faults import FAULTS, HOSTILE_KINDS, OFFICER_KINDS, Fault
from swarmd_sim.faults.hostile import Hostile
from swarmd_sim.faults.links import LinkFault
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
        self._coverage = coverage
        self._rotations = rotations
        self._number = 0
        self._ended: list[Fault] = []
        self._active: dict[int, Fault] = {}
        self._touched_until_ns = [0] * len(hosts)
        officers = rotations.officers if rotations is not None else None
        self.hostile = Hostile(engine, choices, hosts, network, ledger, reboot, releases, officers)
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
            and not it.left
            and now_ns - it.started_ns >= margin_ns
            and now_ns - self._touched_until_ns[host] >= margin_ns
        )

    def untouched_since(self, host: int, since_ns: int) -> bool:
        """Whether no fault has touched a host that runs since a time."""
        it = self._hosts[host]
        return it.process_up and it.started_ns <= since_ns and self._touched_until_ns[host] < since_ns

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
            self._coverage.hit(fault.kind, self._hosts[node], self._watch, bool(self._network.faults.groups))
        family = FAULTS[fault.kind].family
        if family == "link":
            self._begin_link(number, fault)
        elif family == "hostile":
            self.hostile.begin(number, fault)
        elif family == "officer":
            if self._rotations is not None:
                self._rotations.begin(fault)
        else:
            getattr(self, f"_{fault.kind}")(fault)
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
            host.slowdown_milli = 1_000
            host.cpu_ns = host.base_cpu_ns
        elif kind == "disk_full":
            host.disk.full = False
        elif kind == "slow_fsync":
            host.disk.fsync_ns = host.base_fsync_ns
        elif kind == "send_error":
            host.forbidden = False
        elif kind == "clock_drift":
            host.clock.set_drift(self._engine.now_ns, host.base_drift_ppb)
        elif kind == "away":
            self._network.faults.active.pop(-1 - host.index, None)
        restartable = FAULTS[kind].family in ("process", "people") or kind == "clock_step"
        still_down = any(host.index in other.nodes and _keeps_down(other) for other in self._active.values())
        if restartable and not host.process_up and not still_down:
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

    # --- Processes ---

    def _each(self, fault: Fault) -> list[Host]:
        return [self._hosts[node] for node in fault.nodes]

    def _kill(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash("killed", power=False)

    def _power_loss(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash("power lost", power=True)
            host.machine_up = False

    def _lost_disk(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash("killed, disk lost", power=False)
            self._ledger.disk_lost(host)
            host.disk.lose()

    def _torn_disk(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash_within(1 + self._choices.choose("fault.boundary", 40), "torn")

    def _corrupt_disk(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash("killed, disk corrupt", power=False)
            self._ledger.disk_lost(host)
            key = host.disk.corrupt(self._choices)
            self._watch.say(host.index, f"journal record {key!r} has a flipped bit")

    def _crash_at_effect(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash_within(max(1, fault.amount), "killed between two effects")

    def _oom_kill(self, fault: Fault) -> None:
        times = max(1, fault.amount)
        for host in self._each(fault):
            for turn in range(times):
                self._engine.at(fault.at_ns + turn * fault.duration_ns // times, self._kill_and_start, host)

    def _kill_and_start(self, host: Host) -> None:
        if host.process_up:
            host.crash("out of memory", power=False)
            self._engine.at(self._engine.now_ns + 500 * _MS, self._start_again, host)

    def _start_again(self, host: Host) -> None:
        if not host.process_up and not any(host.index in f.nodes and _keeps_down(f) for f in self._active.values()):
            self._reboot(host)

    # --- CPU, disk, clock ---

    def _freeze(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.stall(fault.duration_ns)

    def _gc_pause(self, fault: Fault) -> None:
        pause_ns = fault.amount * _MS
        for host in self._each(fault):
            for at_ns in range(fault.at_ns, fault.end_ns, 3 * pause_ns):
                self._engine.at(at_ns, self._pause, (host, pause_ns))

    def _pause(self, what: tuple[Host, int]) -> None:
        what[0].stall(what[1])

    def _throttle(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.cpu_ns = max(host.base_cpu_ns, 200_000)
            host.slowdown_milli = 1_000 * max(1, fault.amount)

    def _disk_full(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.disk.full = True
            self._ledger.disk_lost(host)

    def _slow_fsync(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.disk.fsync_ns = fault.amount * _MS

    def _clock_drift(self, fault: Fault) -> None:
        for host in self._each(fault):
            sign = 1 - 2 * self._choices.choose("fault.sign", 2)
            host.clock.set_drift(self._engine.now_ns, sign * fault.amount * 1_000)

    def _clock_step(self, fault: Fault) -> None:
        for host in self._each(fault):
            sign = 1 - 2 * self._choices.choose("fault.sign", 2)
            host.crash("restarted on a wrong clock", power=False)
            host.wall_step_ns += sign * fault.amount * 1_000_000_000

    # --- People ---

    def _send_error(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.forbidden = True

    def _leave(self, fault: Fault) -> None:
        for host in self._each(fault):
            if host.process_up:
                host.handle(Leave())
                host.left = True
                self._engine.at(self._engine.now_ns + _LEAVE_GRACE_NS, self._stop_left, (host, host.boots))

    def _stop_left(self, what: tuple[Host, int]) -> None:
        host, boot = what
        if host.boots == boot and host.process_up:
            host.crash("left", power=False)
            if not any(host.index in fault.nodes and _keeps_down(fault) for fault in self._active.values()):
                self._engine.at(self._engine.now_ns + 500 * _MS, self._start_again, host)

    def _away(self, fault: Fault) -> None:
        for host in self._each(fault):
            if host.process_up and fault.duration_ns:
                host.handle(GoAway(fault.duration_ns))
                self._engine.at(self._engine.now_ns + _LEAVE_GRACE_NS, self._silence, (host, fault))

    def _silence(self, what: tuple[Host, Fault]) -> None:
        host, fault = what
        if fault in self._active.values():
            only = frozenset((host.index,))
            self._network.faults.active[-1 - host.index] = LinkFault(only, frozenset(), both_ways=True, blocked=True)

    def _readdress(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash("moves to another address", power=False)
            old = host.address
            host.address = f"{old.split(':')[0]}:{int(old.split(':')[1]) + 1}"
            self._network.rename(old, host)


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
