"""Who saw the objects of a region, and which of them nobody is left to vouch for.

A swarm takes what a revoked member said out of its own view, and its gateways say anew what others have seen too. Of
what that member alone had seen they say nothing more: so the region hides it, as long as all that saw it are out.
"""

import sqlite3
from collections.abc import Collection, Sequence
from hashlib import blake2b

from swarmd_protocols.ids import NodeId

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


def shut_out(database: sqlite3.Connection, swarm: str, revoked: Collection[bytes]) -> None:
    """These nodes of a swarm are out, and no others. Inside a transaction."""
    out = {node.hex() for node in revoked}
    rows = database.execute("SELECT seen_by, nodes, is_out FROM seers WHERE swarm = ?", (swarm,)).fetchall()
    judged = [(bool(nodes) and out.issuperset(nodes.split()), seen_by, was_out) for seen_by, nodes, was_out in rows]
    database.executemany(
        "UPDATE seers SET is_out = ? WHERE swarm = ? AND seen_by = ?",
        [(is_out, swarm, seen_by) for is_out, seen_by, was_out in judged if is_out != bool(was_out)],
    )


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
