"""What faults do to one host: its process, CPU, disk, clock, and what the people around it do."""

from collections.abc import Callable

from swarmd_protocols.effects import GoAway, Leave
from swarmd_sim.faults.faults import Fault
from swarmd_sim.faults.links import LinkFault
from swarmd_sim.radio.network import Network
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.watch import Watch

_MS = 1_000_000
_LEAVE_GRACE_NS = 1_500_000_000
"""What the daemon gives a leaving node to say good-bye."""


class NodeFaults:
    """The faults that touch hosts one by one; `begin` finds the method of the fault's kind.

    Args:
        engine: Virtual time.
        choices: All randomness.
        hosts: All hosts.
        network: Told of silence and of new addresses.
        watch: Told what happens.
        ledger: Told of lost disks.
        reboot: Starts a host's next life.
        held_down: Whether a fault that goes on keeps a host down.
        goes_on: Whether a fault goes on.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Choices,
        hosts: list[Host],
        network: Network,
        watch: Watch,
        ledger: Ledger,
        reboot: Callable[[Host], None],
        held_down: Callable[[Host], bool],
        goes_on: Callable[[Fault], bool],
    ) -> None:
        self._engine = engine
        self._choices = choices
        self._hosts = hosts
        self._network = network
        self._watch = watch
        self._ledger = ledger
        self._reboot = reboot
        self._held_down = held_down
        self._goes_on = goes_on

    def begin(self, fault: Fault) -> None:
        """The fault begins at all its hosts."""
        getattr(self, f"_{fault.kind}")(fault)

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
        if not host.process_up and not self._held_down(host):
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
            host.cpu.slow_down(max(1, fault.amount), 200_000)

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
            host.oscillator.wall_step_ns += sign * fault.amount * 1_000_000_000

    # --- People ---

    def _send_error(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.forbidden = True

    def _leave(self, fault: Fault) -> None:
        for host in self._each(fault):
            if host.process_up:
                host.handle(Leave())
                host.life.left = True
                self._engine.at(self._engine.now_ns + _LEAVE_GRACE_NS, self._stop_left, (host, host.boots))

    def _stop_left(self, what: tuple[Host, int]) -> None:
        host, boot = what
        if host.boots == boot and host.process_up:
            host.crash("left", power=False)
            if not self._held_down(host):
                self._engine.at(self._engine.now_ns + 500 * _MS, self._start_again, host)

    def _away(self, fault: Fault) -> None:
        for host in self._each(fault):
            if host.process_up and fault.duration_ns:
                host.handle(GoAway(fault.duration_ns))
                self._engine.at(self._engine.now_ns + _LEAVE_GRACE_NS, self._silence, (host, fault))

    def _silence(self, what: tuple[Host, Fault]) -> None:
        host, fault = what
        if self._goes_on(fault):
            only = frozenset((host.index,))
            self._network.faults.active[-1 - host.index] = LinkFault(only, frozenset(), both_ways=True, blocked=True)

    def _readdress(self, fault: Fault) -> None:
        for host in self._each(fault):
            host.crash("moves to another address", power=False)
            old = host.address
            host.address = f"{old.split(':')[0]}:{int(old.split(':')[1]) + 1}"
            self._network.rename(old, host)
