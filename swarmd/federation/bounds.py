"""How much a region keeps of one swarm, and of one node of it; what goes first where there is more."""

import sqlite3
from collections.abc import Iterable

EVENTS_KEPT = 100_000
"""Events of one swarm, some 20 MB; the oldest go."""
OBJECTS_KEPT = 200_000
"""Objects of one swarm, some 120 MB, and as many that became part of others; those said longest ago go. A gateway knows
as many."""
COUNTERS_KEPT, REPORTS_KEPT, NODES_KEPT, SITES_KEPT = 100_000, 10_000, 10_000, 256
"""Rows of one swarm, some 20 MB together. Beyond, those of the nodes that have most go, the oldest first: no node's
lives, models or events push another's out. Nodes and gateways are certified; of too many those heard longest ago go."""
_BY_NODE = (
    ("events", "life, number", "at_ms", "EVENTS_KEPT"),
    ("counters", "life, name", "life", "COUNTERS_KEPT"),
    ("reports", "model", "sequence", "REPORTS_KEPT"),
)
"""Tables by (swarm, node): the rest of their key, what orders a node's rows, and how many a swarm may have."""
_BY_SWARM = (
    ("objects", "object", "stamp", "OBJECTS_KEPT"),
    ("merged", "object", "stamp", "OBJECTS_KEPT"),
    ("nodes", "node", "said_ms", "NODES_KEPT"),
    ("sites", "gateway", "heard_ms", "SITES_KEPT"),
)


def tidy_swarm(database: sqlite3.Connection, swarm: str) -> None:
    """Drop what is too much of one swarm. Inside a transaction."""
    for table, key, order, most in _BY_NODE:
        counts = dict(database.execute(f"SELECT node, count(*) FROM {table} WHERE swarm = ? GROUP BY node", (swarm,)))
        kept = int(globals()[most])
        if sum(counts.values()) <= kept:
            continue
        share = fair_share(counts.values(), kept)
        for node in [node for node, count in counts.items() if count > share]:
            _drop_oldest(database, table, key, order, "swarm = ? AND node = ?", (swarm, node), counts[node] - share)
    for table, key, order, most in _BY_SWARM:
        [(count,)] = database.execute(f"SELECT count(*) FROM {table} WHERE swarm = ?", (swarm,))
        over = count - int(globals()[most])
        if over > 0:
            _drop_oldest(database, table, key, order, "swarm = ?", (swarm,), over)


def _drop_oldest(
    database: sqlite3.Connection, table: str, key: str, order: str, where: str, values: tuple[str, ...], count: int
) -> None:
    database.execute(
        f"DELETE FROM {table} WHERE {where} AND ({key}) IN "
        f"(SELECT {key} FROM {table} WHERE {where} ORDER BY {order}, {key} LIMIT ?)",
        (*values, *values, count),
    )


def fair_share(counts: Iterable[int], most: int) -> int:
    """How many each may keep so that all together are no more than `most`, and who has few keeps all.

    >>> fair_share([10, 2, 10], 12), fair_share([1, 2], 12)
    (5, 12)
    """
    rising, left = sorted(counts), most
    for at, count in enumerate(rising):
        share = left // (len(rising) - at)
        if count > share:
            return share
        left -= count
    return most
