"""Who can know of a death, and since when: by path to somebody who could hear the one that died."""

from collections.abc import Mapping

from swarmd_protocols.swim.members import REACHABLE
from swarmd_sim.checkers.base import RunContext
from swarmd_sim.checkers.paths import Paths
from swarmd_sim.run.host import Host

SILENT_NS = 1_000_000_000
"""A process that stands still for so long is heard by nobody meanwhile, nanoseconds; others are busy at most."""
MISSED_MIN = 2
"""Who misses fewer has no reason to doubt itself, and owes a death also where it hears nobody."""


class Deaths:
    """From when on each host can know of each death.

    Where radios reach everybody, those can that fair links join, each since it last missed several and heard nobody at
    all: whether all others are gone or it is deaf itself looks the same. Where they do not, a host learns of a death
    from somebody who heard the dead one, by way of others: it can since a path to one of those stands, itself among
    them where it has anybody to ask. A path that breaks counts anew.

    Args:
        run: The run.
        paths: Who reaches whom.
    """

    def __init__(self, run: RunContext, paths: Paths) -> None:
        self._run = run
        self._paths = paths
        self._witnesses: dict[tuple[int, int], list[int]] = {}
        self._since_ns: dict[tuple[int, int], dict[int, int]] = {}
        self._alone_ns: dict[int, int] = {}
        """By host: at the last look at which it missed several and could hear nobody."""

    def on_step(self) -> None:
        """About once a second, after the paths have looked: note who can know from now on."""
        if not self._run.radio.has_geometry:
            self._note_alone()
            return
        for victim, crashed_ns in sorted(self._run.watch.crashes.items()):
            death = victim, crashed_ns
            first = death not in self._since_ns
            if first:
                self._witnesses[death] = self._heard_by(victim)
            known, now_ns = self._since_ns.get(death, {}), crashed_ns if first else self._run.engine.now_ns
            told = self._paths.joined_with(self._witnesses[death])
            self._since_ns[death] = {host: known.get(host, now_ns) for host in told}

    def could_know(self, victim: int, crashed_ns: int, asked_ns: Mapping[int, int], span: tuple[int, int]) -> list[int]:
        """Who can know of a death since a time within a span.

        Args:
            victim: Who died.
            crashed_ns: When.
            asked_ns: By host, before when it does not look for it: it had announced an absence, or was cut off.
            span: After when, and before when.

        Returns:
            Hosts, in order.
        """
        if self._run.radio.has_geometry:
            since = self._since_ns.get((victim, crashed_ns), {})
            return [host for host, at_ns in since.items() if span[0] < max(at_ns, asked_ns[host]) < span[1]]
        alone = self._alone_ns
        joined = (host.index for host in self._run.component())
        return [host for host in joined if span[0] < max(asked_ns[host], alone.get(host, 0)) < span[1]]

    def _note_alone(self) -> None:
        now_ns = self._run.engine.now_ns
        for host in self._run.live():
            if any(self._can_hear(host, other) for other in self._run.hosts if other is not host):
                continue
            if self._missed(host) >= MISSED_MIN:
                self._alone_ns[host.index] = now_ns

    def _missed(self, host: Host) -> int:
        """How many others a host that hears nobody has not given up."""
        return sum(view.state in REACHABLE and view.node != host.node_id for view in host.node.members())

    def _can_hear(self, host: Host, other: Host) -> bool:
        """Whether a host may hear another, which need not hear it, nor be honest."""
        runs = other.process_up and not other.life.left
        stands_still = self._run.engine.now_ns - other.last_ran_ns >= SILENT_NS
        return runs and not stands_still and self._run.carried(other.index, host.index)

    def _heard_by(self, victim: int) -> list[int]:
        """Who was within reach of the dead one, whatever links faults had cut."""
        radio, now_ns = self._run.radio, self._run.engine.now_ns
        near = (host.index for host in self._run.live() if host.index != victim)
        return [index for index in near if radio.hears(victim, index, now_ns)]
