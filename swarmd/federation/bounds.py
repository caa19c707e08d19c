"""How much a region keeps of one swarm, and of one node of it; what goes first where there is more.

Rows of a node count for it. Objects count for the nodes that saw them, all of them together (`seen_by`): what one node
alone says counts for it alone, and it cannot say that another saw the same; what others saw with it is as much as they
saw. Were an object its first observer's, who says of everything that it saw it first would have all of it.
"""

import sqlite3
from collections.abc import Iterable, Mapping

EVENTS_KEPT = 100_000
"""Events of one swarm, some 20 MB; the oldest go."""
OBJECTS_KEPT = 200_000
"""Objects of one swarm, some 120 MB, and as many that became part of others. Beyond, those of whom most were seen go,
those said longest ago first. A gateway knows as many."""
HISTORY_KEPT = 1_000_000
"""Words on objects that wait to be exported, some 400 MB; beyond, the oldest go of the swarms that have most, and there
of those by whom most were seen."""
COUNTERS_KEPT, REPORTS_KEPT, NODES_KEPT, SITES_KEPT = 100_000, 10_000, 10_000, 256
"""Rows of one swarm, some 20 MB together. Beyond, those of the nodes that have most go, the oldest first: no node's
lives, models or events push another's out. Nodes and gateways are certified; of too many those heard longest ago go."""
_BY_NODE = (
    ("events", "node", "life, number", "at_ms", "EVENTS_KEPT"),
    ("counters", "node", "life, name", "life", "COUNTERS_KEPT"),
    ("reports", "node", "model", "sequence", "REPORTS_KEPT"),
    ("objects", "seen_by", "object", "stamp", "OBJECTS_KEPT"),
    ("merged", "seen_by", "object", "stamp", "OBJECTS_KEPT"),
)
"""Tables whose rows are a node's, or several nodes': the column that says whose, the rest of the key, what orders their
rows, and how many a swarm may have."""
_BY_SWARM = (
    ("nodes", "node", "said_ms", "NODES_KEPT"),
    ("sites", "gateway", "heard_ms", "SITES_KEPT"),
)


def tidy_swarm(database: sqlite3.Connection, swarm: str) -> None:
    """Drop what is too much of one swarm. Inside a transaction."""
    for table, whose, key, order, most in _BY_NODE:
        found = database.execute(f"SELECT {whose}, count(*) FROM {table} WHERE swarm = ? GROUP BY {whose}", (swarm,))
        for owner, over in _too_many(dict(found), int(globals()[most])):
            _drop_oldest(database, table, key, order, f"swarm = ? AND {whose} = ?", (swarm, owner), over)
    for table, key, order, most in _BY_SWARM:
        [(count,)] = database.execute(f"SELECT count(*) FROM {table} WHERE swarm = ?", (swarm,))
        over = count - int(globals()[most])
        if over > 0:
            _drop_oldest(database, table, key, order, "swarm = ?", (swarm,), over)


def tidy_history(database: sqlite3.Connection) -> int:
    """Drop the words on objects that are too many; returns how many. Inside a transaction."""
    gone = 0
    counts = dict(database.execute("SELECT swarm, count(*) FROM history GROUP BY swarm"))
    for swarm, over in _too_many(counts, HISTORY_KEPT):
        of_swarm = "SELECT seen_by, count(*) FROM history WHERE swarm = ? GROUP BY seen_by"
        for seen_by, count in _too_many(dict(database.execute(of_swarm, (swarm,))), counts[swarm] - over):
            gone += database.execute(
                "DELETE FROM history WHERE number IN "
                "(SELECT number FROM history WHERE swarm = ? AND seen_by = ? ORDER BY number LIMIT ?)",
                (swarm, seen_by, count),
            ).rowcount
    return gone


def _too_many(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Who has more than its share where all together have more than `most`, and by how much."""
    share = fair_share(counts.values(), most)
    return [(owner, count - share) for owner, count in counts.items() if count > share]


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
