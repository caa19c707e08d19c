"""What officers do while things go wrong: revocations, replaced keys, new group keys, and the reboots that follow.

Each kind is a short story of a thief and the officers, told in the time of one fault; the checker of decisions asks at
its end whether the swarm believes what the right hands have signed, and nothing else.
"""

from collections.abc import Callable

from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.officers import Officers

_NS_PER_S = 1_000_000_000
_AGAIN_NS = 6 * _NS_PER_S
"""Officers hand over at a second node after this: the first may have died with what it was told."""
_DOWN_NS = 400_000_000
_APART_NS = 1_500_000_000
"""Between two nodes of a rolling reboot."""


class Rotations:
    """The officers' part of a run's script.

    Args:
        engine: Virtual time.
        choices: All randomness.
        hosts: All hosts.
        ledger: Told whose facts count no more.
        reboot: Starts a host's next life.
        officers: The fleet's keys.
        become: Gives a host the identity that a thief made.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Choices,
        hosts: list[Host],
        ledger: Ledger,
        reboot: Callable[[Host], None],
        officers: Officers,
        become: Callable[[Host], None],
    ) -> None:
        self._engine = engine
        self._choices = choices
        self._hosts = hosts
        self._ledger = ledger
        self._reboot = reboot
        self._become = become
        self.officers = officers
        self.last_push_ns = -1

    def begin(self, fault: Fault) -> None:
        """The story begins."""
        thieves = [self._hosts[node] for node in fault.nodes if fault.kind != "replace_models"]
        for host in thieves:
            host.hostile = host.forked = True
            self._ledger.excuse(host)
        getattr(self, f"_{fault.kind}")(fault, thieves)

    # --- Stories ------------------------------------------------------------------------------------------------------

    def _revoke_thief(self, fault: Fault, thieves: list[Host]) -> None:
        """The documented command: revoke, new group key, hand both over."""
        self.officers.revoke([host.node_id for host in thieves], self._engine.now_ns)
        self.officers.rotate_group()
        self._hand_over()

    def _two_desks(self, fault: Fault, thieves: list[Host]) -> None:
        """Two officers revoke one thief each under the same counter, at the same time, at different nodes.

        Whoever sees both revocations draws a new group key.
        """
        counter = len(self.officers.revoked_ns) + 1
        for host in thieves:
            self.officers.revoke([host.node_id], self._engine.now_ns, counter)
        self._hand_over()
        self._at(fault.duration_ns, self._rotate_group)

    def _replace_revoke(self, fault: Fault, thieves: list[Host]) -> None:
        """A thief is revoked; then the revoke keys are replaced, everybody reboots, and the thief comes back."""
        self._revoke_thief(fault, thieves)
        third_ns = fault.duration_ns // 3
        self._at(third_ns, lambda: self._replace("revoke", stolen=False))
        self._at(2 * third_ns, lambda: self._reboot_all(thieves))
        self._at(fault.duration_ns, lambda: self._come_back(thieves))

    def _replace_enrol(self, fault: Fault, thieves: list[Host]) -> None:
        """With a stolen enrol key a thief enrols itself anew; then the enrol keys are replaced."""
        for host in thieves:
            self._become_rogue(host)
        self._at(fault.duration_ns // 2, lambda: self._replace("enrol", stolen=True))
        self._at(fault.duration_ns, lambda: self._come_back(thieves))

    def _replace_models(self, fault: Fault, thieves: list[Host]) -> None:
        """The keys of releases and of floors were stolen and are replaced, one after the other."""
        self._replace("release", stolen=True)
        self._at(fault.duration_ns // 2, lambda: self._replace("floor", stolen=True))

    def _replace_root(self, fault: Fault, thieves: list[Host]) -> None:
        """The root keys themselves are replaced, and a thief is revoked right after."""
        self._replace("root", stolen=False)
        self._at(fault.duration_ns // 2, lambda: self._revoke_thief(fault, thieves))

    # --- Steps --------------------------------------------------------------------------------------------------------

    def _at(self, after_ns: int, step: Callable[[], None]) -> None:
        self._engine.at(self._engine.now_ns + after_ns, _run_step, step)

    def _rotate_group(self) -> None:
        self.officers.rotate_group()
        self._hand_over()

    def _replace(self, role: str, *, stolen: bool) -> None:
        self.officers.replace(role, stolen=stolen)
        self._hand_over()

    def _hand_over(self) -> None:
        self._push_once()
        self._at(_AGAIN_NS, self._push_once)

    def _push_once(self) -> None:
        live = [host for host in self._hosts if host.process_up and not host.life.left and not host.hostile]
        if live:
            self.last_push_ns = self._engine.now_ns
            self.officers.push(live[self._choices.choose("officers.desk", len(live))])

    def _reboot_all(self, but: list[Host]) -> None:
        """A rolling reboot of everybody else."""
        for turn, host in enumerate(host for host in self._hosts if host not in but):
            self._engine.at(self._engine.now_ns + turn * _APART_NS, self._kill_and_start, host)

    def _come_back(self, thieves: list[Host]) -> None:
        for host in thieves:
            self._kill_and_start(host)

    def _kill_and_start(self, host: Host) -> None:
        if host.process_up:
            host.crash("rebooted", power=False)
            self._engine.at(self._engine.now_ns + _DOWN_NS, self._start, (host, host.boots))

    def _start(self, what: tuple[Host, int]) -> None:
        host, boots = what
        if host.boots == boots and not host.process_up:
            self._reboot(host)

    def _become_rogue(self, host: Host) -> None:
        if host.process_up:
            host.crash("enrolled anew by a thief", power=False)
        host.disk.lose()
        self._become(host)
        self._engine.at(self._engine.now_ns + _DOWN_NS, self._start, (host, host.boots))


def _run_step(step: object) -> None:
    assert callable(step)
    step()
