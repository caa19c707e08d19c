"""Who saw the objects of a region, and which of them nobody is left to vouch for.

A swarm takes what a revoked member said out of its own view, and its gateways say anew what others have seen too. Of
what that member alone had seen they say nothing more: so the region hides it, as long as all that saw it are out.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b

from swarmd_protocols.ids import NodeId

SLICE = 1_000
"""Sets of seers that are judged in one go, some 15 ms where all of them change; more than most swarms have. The
200,000 that one may have are through in a minute."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS seers (swarm TEXT, seen_by TEXT, nodes TEXT, is_out INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (swarm, seen_by)) WITHOUT ROWID;
"""
_JOINED = " LEFT JOIN seers s ON s.swarm = o.swarm AND s.seen_by = o.seen_by AND s.is_out"
_VOUCHED = " AND s.seen_by IS NULL"


def note(database: sqlite3.Connection, swarm: str, observers: Sequence[NodeId]) -> str:
    """Remember who saw an object; the name of all of them together. Inside a transaction."""
    seen_by = blake2b(b"".join(observers), digest_size=8).hexdigest()
    database.execute(
        "INSERT OR IGNORE INTO seers (swarm, seen_by, nodes) VALUES (?, ?, ?)",
        (swarm, seen_by, " ".join(node.hex() for node in observers)),
    )
    return seen_by


class Judging:
    """Whose sets of seers are to be judged after what was revoked last: some at a time, for a swarm may have as many
    sets as objects, and revoke without end.

    Args:
        swarms: All of these, to begin with: an earlier run may have ended in between.
    """

    def __init__(self, swarms: Iterable[str]) -> None:
        self._after = dict.fromkeys(swarms, "")
        """Swarm to the set up to which its sets are judged."""
        self._again: dict[str, None] = {}
        """Swarms of which something was revoked meanwhile: once they are through, all of them come once more."""

    def __len__(self) -> int:
        return len(self._after)

    def begin(self, swarm: str) -> None:
        """Something of it was revoked, or holds anew."""
        if self._after.setdefault(swarm, ""):
            self._again[swarm] = None

    def restart(self, swarms: Iterable[str]) -> None:
        """What was judged was not written down: these and all that were not through begin anew."""
        self._after |= dict.fromkeys((*self._after, *swarms), "")

    def step(self, database: sqlite3.Connection, revoked_of: Callable[[str], Collection[bytes]]) -> None:
        """Judge the next `SLICE` sets. Inside a transaction."""
        left = SLICE
        for swarm in list(self._after):
            if left <= 0:
                return
            last, count = shut_out(database, swarm, revoked_of(swarm), self._after.pop(swarm), left)
            left -= count
            if last or swarm in self._again:
                self._after[swarm] = last  # Behind the others.
            if not last:
                self._again.pop(swarm, None)


def shut_out(
    database: sqlite3.Connection, swarm: str, revoked: Collection[bytes], after: str, most: int
) -> tuple[str, int]:
    """These nodes of a swarm are out, and no others; (the last set that was judged, "" after all; how many were)."""
    out = {node.hex() for node in revoked}
    rows = database.execute(
        "SELECT seen_by, nodes, is_out FROM seers WHERE swarm = ? AND seen_by > ? ORDER BY seen_by LIMIT ?",
        (swarm, after, most),
    ).fetchall()
    judged = [(bool(nodes) and out.issuperset(nodes.split()), seen_by, was_out) for seen_by, nodes, was_out in rows]
    database.executemany(
        "UPDATE seers SET is_out = ? WHERE swarm = ? AND seen_by = ?",
        [(is_out, swarm, seen_by) for is_out, seen_by, was_out in judged if is_out != bool(was_out)],
    )
    return (rows[-1][0] if len(rows) == most else "", len(rows))


def tidy(database: sqlite3.Connection, swarm: str) -> None:
    """Forget who saw what is not held any more. Inside a transaction."""
    database.execute(
        "DELETE FROM seers WHERE swarm = ? AND NOT EXISTS "
        "(SELECT 1 FROM objects o WHERE o.swarm = seers.swarm AND o.seen_by = seers.seen_by)",
        (swarm,),
    )


def vouched(database: sqlite3.Connection) -> tuple[str, str]:
    """How a question about objects `o` leaves out whom nobody vouches for: a join and a condition.

    Both are empty where the file is of a region that kept no seers.
    """
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'seers'").fetchone()
    return (_JOINED, _VOUCHED) if found else ("", "")
