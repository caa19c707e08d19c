"""See the package."""

import sys
import time
from collections.abc import Callable, Mapping

from tests.bench.attacks import daemons, members, officers
from tests.bench.attacks.seen import Seen

ATTACKS: Mapping[str, Callable[[], Seen]] = {
    "merge_unsigns": officers.merge_unsigns,
    "unrevoke": officers.unrevoke,
    "rogue_after_enrol_rotation": officers.rogue_after_enrol_rotation,
    "invented_origins": members.invented_origins,
    "decoded_rows_memory": members.decoded_rows_memory,
    "dedup_stall": members.dedup_stall,
    "prune_before_count": officers.prune_before_count,
    "one_fail_vote": officers.one_fail_vote,
    "vote_table_full": officers.vote_table_full,
    "quarantine_storm": members.quarantine_storm,
    "accuse_again": members.accuse_again,
    "audit_flood": members.audit_flood,
    "hello_flood": members.hello_flood,
    "junk_flood_real": daemons.junk_flood_real,
    "reenrol": officers.reenrol,
    "mqtt_response_topic": members.mqtt_response_topic,
}
"""In the order of the review's table."""


def main(wanted: list[str]) -> int:
    """Run them; the number of attacks that have their effect, at most 1."""
    unknown = sorted(set(wanted) - set(ATTACKS))
    if unknown:
        sys.exit(f"no attack is called {unknown[0]}; there are {', '.join(ATTACKS)}")
    worked = 0
    for name in wanted or ATTACKS:
        begun = time.process_time()
        seen = ATTACKS[name]()
        worked += seen.worked
        verdict = "HAS ITS EFFECT" if seen.worked else "no effect"
        print(f"{name}: {verdict} ({time.process_time() - begun:.0f} CPU s)", flush=True)
        print(f"    had: {seen.had}\n    now: {seen.text}", flush=True)
    print(f"{len(wanted or ATTACKS)} attacks, {worked} have their effect")
    return int(worked > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
