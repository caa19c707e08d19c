"""What a node that starts takes for new.

state.event_old  a node that starts delivers what was said 5 s and more before it came, though one member at most is in
                 other hands, all others knew of it as it came, and nothing else went wrong meanwhile

One member alone brings back nothing old: a node begins where the higher of two answers says. So the rule asks for a
swarm in which an honest answer is to be had: three honest members at least that had all delivered the event before the
node came, its author among the living ever since it said it, and no fault of links, processors, clocks or people from
ten seconds before to the delivery. Where a cut or loss leaves a node with one answer, or a member that restarted knows
less itself, the node may rightly hear as news what others have heard before it came.
"""

from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.faults import FAULTS
from swarmd_sim.run.host import Host

OLD_NS = 5_000_000_000
"""Said so long before a node came, an event has reached everybody."""
CALM_NS = 10_000_000_000
"""So long before it came nothing was wrong: what a fault had held back has come."""
WITNESSES = 3
"""Honest members that could tell it; in a swarm of three one that has less is believed alone."""
_EXCUSING = ("link", "cpu", "clock", "people", "officer", "disk")


class BeginsChecker(CheckerBase):
    """See the module."""

    def __init__(self, run: RunContext) -> None:
        super().__init__(run)
        self._seen: dict[int, dict[bytes, int]] = {}
        """By host that ran at the last look: how far it had delivered each origin."""
        self._boots: dict[int, int] = {}
        self._before: dict[int, dict[int, dict[bytes, int]]] = {}
        """By host: the last look before its present life."""
        self._told: list[tuple[Host, int, str, int]] = []
        """Deliveries since the last look: at whom, in which life, of what, when."""

    @property
    def _is_attacked(self) -> bool:
        return any(fault.kind in ATTACK_KINDS for fault in self.run.injector.script)

    def on_user_event(self, host: Host, name: str) -> None:
        """A host delivers an event."""
        if name in self.run.ledger.event_numbers:
            self._told.append((host, host.boots, name, self.run.engine.now_ns))

    def on_step(self, now_ns: int) -> None:
        """About once a virtual second."""
        if not self._is_attacked:
            self._told.clear()
            return
        for host in self.run.hosts:
            if self._boots.get(host.index) != host.boots:
                self._boots[host.index] = host.boots
                self._before[host.index] = self._seen
        for host, boots, name, at_ns in self._told:
            if host.boots == boots and host.process_up:
                self._judge(host, name, at_ns)
        self._told.clear()
        live = [host for host in self.run.live() if hasattr(host.node, "_swim")]
        self._seen = {
            host.index: {origin: log.delivered for origin, log in host.node._swim.events.logs.items()} for host in live
        }

    def _judge(self, host: Host, name: str, at_ns: int) -> None:
        run = self.run
        origin, said_ns, number = run.ledger.event_numbers[name]
        tainted = run.injector.tainted()
        author = run.hosts[origin]
        started_ns = host.life.started_ns
        if said_ns > started_ns - OLD_NS or len(tainted) > 1 or {host.index, origin} & tainted or host is author:
            return
        if not author.process_up or author.life.left or author.life.started_ns > said_ns:
            return
        knew = {index: log.get(author.node_id, 0) for index, log in self._before[host.index].items()}
        honest = [one for one in run.hosts if one.index not in tainted | {host.index}]
        if len(honest) < WITNESSES or any(knew.get(one.index, 0) < number for one in honest):
            return
        for fault in run.injector.script:
            is_meanwhile = fault.at_ns <= at_ns and fault.end_ns >= started_ns - CALM_NS
            is_elsewhere = FAULTS[fault.kind].family == "process" and set(fault.nodes) != {host.index}
            if is_meanwhile and (is_elsewhere or FAULTS[fault.kind].family in _EXCUSING):
                return
        run.watch.violate(
            "state.event_old",
            f"{host.name} started at {started_ns / 1e9:.1f} s and took for new, {(at_ns - started_ns) / 1e9:.1f} s "
            f"later, what {author.name} had said at {said_ns / 1e9:.1f} s ({name}), which all others knew",
        )
