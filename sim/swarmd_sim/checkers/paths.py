"""Who reaches whom over hops: what a verdict of failure is judged by."""

from collections import Counter, deque
from collections.abc import Collection

from swarmd_sim.checkers.base import RunContext

PATH_S = 5
"""A path must have stood for so many seconds before a verdict against who is at its other end is called false: what
would change the verdict travels by hops, each of which asks once a second at least."""
CALM_NS = 5_000_000_000
"""Who is on a path, but at its ends, has been left alone by faults for so long, nanoseconds."""

Groups = dict[int, int]
"""By host that frames may go through, the first host of its group."""


class Paths:
    """Paths of fair links through hosts that run and that no fault touches, of late.

    A verdict is judged by path and not by the link between the two: where radios reach a few neighbours only, most of
    the swarm is out of each one's own reach, and that excuses nobody who calls it dead.

    Args:
        run: The run.
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._seconds: deque[Groups] = deque(maxlen=PATH_S)

    def on_step(self) -> None:
        """About once a second: note who reaches whom."""
        if self._run.radio.has_geometry:
            self._seconds.append(self._grouped())

    def stand(self, a: int, b: int) -> bool:
        """Whether a path between two hosts has stood; they themselves may ail, who is between them may not."""
        if not self._run.radio.has_geometry:
            # Nobody moves out of reach: what is between two hosts now has been there since the last fault.
            return self._are_joined(a, b, self._grouped())
        if len(self._seconds) < PATH_S:
            return False
        return all(self._are_joined(a, b, groups) for groups in (*self._seconds, self._grouped()))

    def joined_with(self, hosts: Collection[int]) -> list[int]:
        """Who has a path to one of some hosts, or is one of them with anybody beside it, at the last look."""
        groups = self._seconds[-1] if self._seconds else {}
        sizes = Counter(groups.values())
        wanted = {groups[host] for host in hosts if host in groups and sizes[groups[host]] > 1}
        return [host for host, group in sorted(groups.items()) if group in wanted]

    def _grouped(self) -> Groups:
        run = self._run
        now_ns = run.engine.now_ns
        runs = (host.index for host in run.live() if host.last_ran_ns == now_ns)
        calm = (index for index in runs if run.injector.healthy(index, CALM_NS))
        left, groups = dict.fromkeys(calm), {}
        while left:
            first = next(iter(left))
            del left[first]
            todo = [first]
            while todo:
                index = todo.pop()
                groups[index] = first
                near = [other for other in left if run.linked(index, other)]
                for other in near:
                    del left[other]
                todo += near
        return groups

    def _are_joined(self, a: int, b: int, groups: Groups) -> bool:
        return not self._touched(a, groups).isdisjoint(self._touched(b, groups))

    def _touched(self, host: int, groups: Groups) -> set[int]:
        if host in groups:
            return {groups[host]}
        return {group for other, group in groups.items() if self._run.linked(host, other)}
