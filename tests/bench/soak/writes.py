"""What hours of a soak write into the files of one node, written at once: how large is each of them, and its log?

    python -m tests.bench.soak.writes [--minutes 120]

Each minute 36 events of 19 other nodes, one by one, a page of the past, and 120 batches that replace earlier ones in
the journal, which is looked at once a second as the daemon does. One JSON object a line, the last when all are closed.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

from swarmd.brain.brain import WAL_BYTES
from swarmd.brain.journal import Journal
from swarmd.events.pages import FILE_NAME, PageBounds, PageFile
from swarmd.events.record import EventRecord
from swarmd.events.store import Bounds, EventStore, Query
from tests.support.past_world import BEGIN_MS, event, identity, page

OTHERS, EVENTS_A_MINUTE, BATCHES_A_S, KEYS = 19, 36, 2, 50
SHOWN = (5, 15, 30, 60, 90)
"""Minutes after which the sizes are shown, and at the end."""
KINDS = ("failed", "returned", "started", "link-trouble", "link-restored", "joined")
REASON = "no answer to pings by 3 members within 5 s"


def sizes(folder: Path) -> dict[str, int]:
    """KiB of each file."""
    return {path.name: path.stat().st_size >> 10 for path in sorted(folder.iterdir()) if path.stat().st_size}


async def write(folder: Path, minutes: int) -> None:
    """Write and show."""
    rng, own, folds = random.Random(1), identity("own"), 0
    others = [rng.randbytes(16) for _ in range(OTHERS)]
    events, journal = EventStore(folder, Bounds(), lambda text: print(text, file=sys.stderr)), Journal(folder)
    pages = PageFile(folder / FILE_NAME, own.node, PageBounds())
    await events.open()
    pages.open()
    for minute in range(minutes):
        for number in range(EVENTS_A_MINUTE):
            at, who = minute * EVENTS_A_MINUTE + number, rng.randrange(OTHERS)
            words = (rng.choice(KINDS), f"n{who}", REASON, "alive to failed")
            events.put(EventRecord(BEGIN_MS + at, f"n{who}", others[who].hex(), 7, at + 1, *words), others[who].hex())
            await events.find(Query(limit=1))  # Which writes what waits, in a transaction of its own.
        begin_ms = BEGIN_MS + minute * 60_000
        happened = [event(1_000 * at, minute * 20 + at + 1, REASON) for at in range(20)]
        pages.add([page(own, minute + 1, (begin_ms, begin_ms + 60_000), happened)], begin_ms)
        for _ in range(60):
            keys = [b"state/" + rng.choice(others) + bytes([rng.randrange(KEYS)]) for _ in range(BATCHES_A_S)]
            journal.commit([(key, rng.randbytes(220)) for key in keys])
            if journal.wal_bytes() > WAL_BYTES:
                journal.checkpoint()
                folds += 1
        if minute + 1 in (*SHOWN, minutes):
            kib = sizes(folder)
            print(json.dumps({"minute": minute + 1, "sum_kib": sum(kib.values()), "folds": folds, **kib}))
    events.close()
    pages.close()
    journal.close()
    print(json.dumps({"closed": True, **sizes(folder)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=120)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="swarmd-writes-") as folder:
        asyncio.run(write(Path(folder), minutes))


if __name__ == "__main__":
    main()
