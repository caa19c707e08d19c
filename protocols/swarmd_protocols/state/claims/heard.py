"""Another node's claim, and whether anything comes of it.

A holder at work says so by a beat of progress. What it has claimed ahead waits for that work. A claim that stands
through many renewals (`ClaimConfig.squat_renewals`) without either is ignored: a drone that has landed, or whose pilot
hangs, goes on renewing what it holds, and nobody else would ever do the cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swarmd_protocols.state.crdt.records import Lease


@dataclass(slots=True)
class Heard:
    """Another node's claim as this node knows it."""

    lease: Lease
    renewed_ns: int
    """When this node first learned of the present renewal; own monotonic clock."""
    idle_renewals: int
    took: bool = False
    """Whether it took the cell from another, and still has it."""


def idle_renewals(lease: Lease, old: Lease, renewals: int) -> int:
    """Through how many renewals a claim has brought nothing.

    Args:
        lease: As it is said now.
        old: As it was said before.
        renewals: Until then.
    """
    if lease.working and lease.progress > old.progress:
        return 0
    return renewals + max(0, lease.renewal - old.renewal)


def wait_for_work(claims: Sequence[Heard], squat_renewals: int) -> None:
    """What one author has claimed ahead is worth what its work is: it waits for that."""
    works = [heard.idle_renewals for heard in claims if heard.lease.working]
    for heard in claims if works else ():
        if not heard.lease.working:
            heard.idle_renewals = max(works) if max(works) >= squat_renewals else 0
