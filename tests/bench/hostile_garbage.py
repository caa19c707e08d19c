"""How long Python's garbage collections stop a member that holds much while one author writes all it can.

    python -m tests.bench.hostile_garbage          prints one JSON object

A member with the daemon's modules restores `SIGHTINGS` of five honest authors from its journal; then a sixth fills its
share with `hostile_state`'s attacks and takes it back. `python`: the collector as it is by default, modules frozen;
`slices`: as `swarmd run` has it (`swarmd/brain/garbage.py`). Of each the longest collection of a run, in milliseconds
of process time, after the start; `whole_ms`: one collection of all there is by then, modules too; `author_objects`:
how many the one author adds. `swarm`: instead of the attacks, the five authors say `SEEN` sightings more; of it the
longest turn of the collector, and how often all that is held was looked at. Median of `RUNS` runs, each in a process of
its own.
"""

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

import swarmd.brain.brain
import swarmd.brain.compose  # noqa: F401  # Modules are objects too.
from swarmd.brain.garbage import Slices
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.facts import Facts
from swarmd_protocols.state.crdt.journal_keys import journal_key
from swarmd_protocols.state.crdt.messages import Batches
from tests.bench.hostile_state import (
    CRYPTO,
    EVERY_MS,
    LIFE,
    Pen,
    Victim,
    churn,
    dear_rows,
    decoded_rows,
    dedup_stall,
    sighting,
    stamp_of,
)
from tests.support.state_mesh import Mesh, S

SIGHTINGS = 48_000
AUTHORS = 5
SECONDS = 8
"""Virtual, for each attack."""
RUNS = 3
SEEN = 32_000
THIEF = AUTHORS + 1


def restored() -> Mesh:
    """A swarm of which one member is up, with a journal of much that others have seen."""
    mesh = Mesh(THIEF + 1, seed=3, crypto=CRYPTO, wall=True)
    mesh.run(5)
    now, member = stamp_of(mesh), mesh.members[0]
    for index in range(THIEF + 1):
        mesh.crash(index)
    for author in range(1, THIEF):
        pen = Pen(bytes([author, 0]) + bytes(30))
        assert pen.node == mesh.members[author].node
        each = SIGHTINGS // AUTHORS
        for start in range(0, each, 40):
            rows = [
                sighting(author * 100_000 + k, (k % 300 * 900, k // 300 * 900 + author * 10_000_000), k + 1, now, 1)
                for k in range(start, start + 40)
            ]
            batch = pen.write(Facts(rows), now)
            member.disk[journal_key(batch, member.node)] = batch.raw
    mesh.boot(0)
    return mesh


def measure(policy: str) -> dict[str, float]:
    """One run."""
    slices = Slices()
    if policy == "slices":
        slices.begin()
    else:
        gc.collect()
        gc.freeze()
    mesh = restored()
    if policy == "slices":
        slices.run_all()
    begun_s, longest_s = 0.0, {0: 0.0, 1: 0.0, 2: 0.0}

    def look(phase: str, info: Mapping[str, int]) -> None:
        nonlocal begun_s
        if phase == "start":
            begun_s = time.process_time()
        else:
            longest_s[info["generation"]] = max(longest_s[info["generation"]], time.process_time() - begun_s)

    gc.callbacks.append(look)
    victim, thief = Victim(mesh, mesh.members[0]), mesh.members[THIEF]
    pen = Pen(bytes([THIEF, 0]) + bytes(30))
    before, most = len(gc.get_objects()) + gc.get_freeze_count(), 0
    for attack in (dear_rows, dedup_stall, decoded_rows, churn):
        said, until = attack(mesh, pen), mesh.now_ns + SECONDS * S
        while mesh.now_ns < until:
            victim.feed(thief.node, next(said))
            mesh.run(EVERY_MS / 1000)
            if slices.is_due:
                slices.run()
        most = max(most, len(gc.get_objects()) + gc.get_freeze_count() - before)
    if policy == "python":
        gc.collect()  # As it comes whenever a quarter more is held.
    gc.callbacks.remove(look)
    gc.unfreeze()
    begun_s = time.process_time()
    gc.collect()
    whole_s = time.process_time() - begun_s
    return {"longest_ms": max(longest_s.values()) * 1e3, "whole_ms": whole_s * 1e3, "author_objects": most}


def measure_swarm() -> dict[str, float]:
    """One run in which nobody is hostile and much is seen."""
    slices = Slices()
    slices.begin()
    mesh = restored()
    victim = Victim(mesh, mesh.members[0])
    slices.held = lambda: victim.replica.views.health()["sightings"]
    slices.run_all()
    looks, longest_s, run_all = list[int](), 0.0, Slices.run_all
    Slices.run_all = lambda self: (looks.append(1), run_all(self))[1]  # type: ignore[method-assign]
    pens = [Pen(bytes([author, 0]) + bytes(30), life=LIFE + 1) for author in range(1, THIEF)]
    for start in range(0, SEEN // AUTHORS, 40):
        now = stamp_of(mesh)
        for author, pen in enumerate(pens, 1):
            rows = [
                sighting(
                    author * 1_000_000 + k, (k % 300 * 900, k // 300 * 900 + author * 10_000_000 + 5_000_000), k, now, 1
                )
                for k in range(start, start + 40)
            ]
            victim.feed(pen.node, messages.encode(Batches((pen.write(Facts(rows), now).raw,))))
        mesh.run(2)
        while slices.is_due:
            begun_s = time.process_time()
            slices.run()
            longest_s = max(longest_s, time.process_time() - begun_s)
    assert slices.held() == SIGHTINGS + SEEN, slices.held()
    return {"longest_ms": longest_s * 1e3, "looks_at_all": len(looks)}


def main() -> None:
    if sys.argv[1:]:
        print(json.dumps(measure_swarm() if sys.argv[1] == "swarm" else measure(sys.argv[1])))
        return
    found: dict[str, object] = {"sightings": SIGHTINGS, "runs": RUNS}
    for policy in ("python", "slices", "swarm"):
        run = [sys.executable, "-m", "tests.bench.hostile_garbage", policy]
        rows = [json.loads(subprocess.run(run, check=True, capture_output=True).stdout) for _ in range(RUNS)]
        found[policy] = {key: round(statistics.median(row[key] for row in rows), 1) for key in rows[0]}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
