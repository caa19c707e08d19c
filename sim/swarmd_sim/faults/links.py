"""Faults on the way between two hosts: what of a frame's fate is not the radio's doing."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from swarmd_sim.run.choices import MILLION, Choices


@dataclass(frozen=True, slots=True)
class LinkFault:
    """One fault on links while it lasts.

    Attributes:
        sources: Senders that it touches; empty means all.
        destinations: Receivers that it touches; empty means all.
        both_ways: Also from destinations to sources.
        blocked: Nothing passes.
        clogged: Frames wait until the fault ends, then all arrive.
        loss_ppm: Share of frames lost.
        duplicate_ppm: Share of datagrams that arrive twice.
        reorder_ppm: Share of datagrams that are held back by up to `delay_ns`.
        corrupt_ppm: Share of datagrams with a flipped bit.
        delay_ns: Added to each frame, or the most that a reordered one is held.
    """

    sources: frozenset[int] = frozenset()
    destinations: frozenset[int] = frozenset()
    both_ways: bool = False
    blocked: bool = False
    clogged: bool = False
    loss_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    corrupt_ppm: int = 0
    delay_ns: int = 0

    def touches(self, source: int, destination: int) -> bool:
        """Whether frames from source to destination meet this fault."""
        if _matches(self.sources, source) and _matches(self.destinations, destination):
            return True
        return self.both_ways and _matches(self.sources, destination) and _matches(self.destinations, source)


def _matches(hosts: frozenset[int], host: int) -> bool:
    return not hosts or host in hosts


@dataclass(slots=True)
class LinkFate:
    """What the active faults do to one frame."""

    blocked: bool = False
    lost: bool = False
    clogged: bool = False
    copies: int = 1
    corrupt: bool = False
    delay_ns: int = 0


@dataclass(slots=True)
class LinkFaults:
    """The faults that are active now.

    Attributes:
        choices: All randomness.
        active: Fault by its number.
        groups: Partition group of each host, by the partition's number.
    """

    choices: Choices
    active: dict[int, LinkFault] = field(default_factory=dict)
    groups: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def quiet(self) -> bool:
        """Whether no fault touches any link."""
        return not self.active and not self.groups

    def cut(self, source: int, destination: int) -> bool:
        """Whether a partition or a block stands between the two, in this direction."""
        if any(group.get(source, -1) != group.get(destination, -1) for group in self.groups.values()):
            return True
        return any(fault.blocked and fault.touches(source, destination) for fault in self.active.values())

    def added_loss_ppm(self, source: int, destination: int) -> int:
        """The share of frames that faults lose on this link, for checkers."""
        if self.cut(source, destination):
            return MILLION
        kept = MILLION
        for fault in self.active.values():
            if fault.touches(source, destination):
                kept = kept * (MILLION - fault.loss_ppm) // MILLION
                if fault.clogged:
                    return MILLION
        return MILLION - kept

    def judge(self, source: int, destination: int) -> LinkFate:
        """Draw the fate of one frame.

        Args:
            source: Host that sends.
            destination: Host that should hear it.

        Returns:
            What happens to the frame.
        """
        fate = LinkFate()
        if self.cut(source, destination):
            fate.blocked = True
            return fate
        chance = self.choices.chance
        for fault in self.active.values():
            if not fault.touches(source, destination):
                continue
            fate.clogged = fate.clogged or fault.clogged
            if fault.loss_ppm and chance("link.loss", fault.loss_ppm):
                fate.lost = True
            if fault.duplicate_ppm and chance("link.duplicate", fault.duplicate_ppm):
                fate.copies += 1
            if fault.corrupt_ppm and chance("link.corrupt", fault.corrupt_ppm):
                fate.corrupt = True
            if fault.reorder_ppm:
                if chance("link.reorder", fault.reorder_ppm):
                    fate.delay_ns += self.choices.choose("link.hold", fault.delay_ns + 1)
            else:
                fate.delay_ns += fault.delay_ns
        return fate


def group_of(groups: Iterable[Iterable[int]]) -> dict[int, int]:
    """Partition group numbers by host.

    Args:
        groups: Hosts of each group; a host in none of them is cut off from all that are in one.

    Returns:
        Group number by host.
    """
    return {host: number for number, group in enumerate(groups) for host in group}
