"""A model in two parts at two lenders: the tensor between them handed on directly, or through the borrower.

    python -m tests.bench.handing [--rounds 60]

The workers, protocols and the CURVE lane are the daemon's, in one process on loopback; the brains' wire is a list and
the parts compute next to nothing, so what is timed is the way of 200 kB of noise. Both ways in turn, milliseconds of
one request: the median and the 95th percentile of each, and what the borrower's worker carried.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from swarmd_protocols.offload.shards import Shards
from tests.support.lending_trio import Trio


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Figures of both ways; raises `AssertionError` where an answer is not the whole's."""
    took: dict[bool, list[float]] = {True: [], False: []}
    carried: dict[bool, list[int]] = {True: [], False: []}
    may_hand_on = Shards.may_hand_on
    with tempfile.TemporaryDirectory() as folder:
        one = Trio(Path(folder))
        try:
            for number in range(2 * rounds + 8):
                is_handed = number % 2 == 0
                Shards.may_hand_on = may_hand_on if is_handed else lambda self, now_ns: False  # type: ignore[method-assign]
                before, handed, began = one.counts["split_bytes"], one.counts["split_handed"], time.perf_counter()
                assert (await one.infer())[0]
                if number < 8:
                    continue  # Tickets and connections of the first.
                assert one.counts["split_handed"] - handed == is_handed
                took[is_handed].append((time.perf_counter() - began) * 1e3)
                carried[is_handed].append(one.counts["split_bytes"] - before)
        finally:
            Shards.may_hand_on = may_hand_on  # type: ignore[method-assign]
            one.close()
    return {
        ("handed" if is_handed else "by the borrower"): {
            "p50_ms": round(statistics.median(took[is_handed]), 1),
            "p95_ms": round(statistics.quantiles(took[is_handed], n=20)[-1], 1),
            "carried_kb": round(statistics.mean(carried[is_handed]) / 1e3, 1),
        }
        for is_handed in (True, False)
    }


def main() -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    sys.stdout.write(json.dumps(asyncio.run(measure(parser.parse_args().rounds))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
