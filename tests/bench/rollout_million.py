"""A million requests while releases roll: does any answer hold two of them, is anybody without service?

    python -m tests.bench.rollout_million [--requests 1000000] [--rollouts 8] [--first-seed 1]

Fleets of eight lenders and sixteen borrowers (`tests/support/rollout.py`), a seed each, some rollouts each, until so
many requests have been made; one JSON row a fleet, and the sum. About five minutes of one core; ends with 1 where
something is wrong.
"""

import argparse
import json
import sys
import time
from collections import Counter

from tests.support.rollout import Fleet


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=1)
    args = parser.parse_args()
    total: Counter[str] = Counter()
    seed = args.first_seed - 1
    while total["requests"] < args.requests:
        seed += 1
        began_s = time.process_time()
        fleet = Fleet(seed)
        fleet.run(args.rollouts)
        found = fleet.figures()
        total.update(found)
        print(json.dumps({"seed": seed, **found, "cpu_s": round(time.process_time() - began_s, 1)}), flush=True)
        for line in fleet.wrong:
            print(line, file=sys.stderr)
    print(json.dumps({"seeds": [args.first_seed, seed], **total}))
    return int(bool(total["wrong"] or total["mixed"] or total["seconds_without_service"]))


if __name__ == "__main__":
    sys.exit(main())
