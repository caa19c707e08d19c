"""What small swarms keep of things that are over and of notes that were replaced; prints JSON.

    python -m tests.bench.over_kept            # half a CPU minute

Twelve nodes see 300 things one after the other, each node each, and four write 300 notes under three names. Things are
shown for a minute, logs have ten dead rows each beside as many as live, and three minutes pass in the end. What counts
are facts in the logs that would be said again, entries in the tables of things, and the batches that each node holds.
"""

import json

import msgspec

from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.state.replica import ReplicaConfig
from tests.support.state_mesh import Mesh, detection

ROUNDS = 300
DEFAULT = ReplicaConfig()
CONFIG = msgspec.structs.replace(DEFAULT, slack_rows=10, dedup=msgspec.structs.replace(DEFAULT.dedup, ttl_ms=60_000))


def kept(mesh: Mesh) -> dict[str, list[int] | int]:
    """What is left in the end."""
    mesh.run(200)
    authors = [replica._author for replica in mesh.replicas]
    return {
        "living_facts": [len(author.log._live) - len(author.log._spent) for author in authors],
        "rows_of_own_logs": [author.log._total for author in authors],
        "table_of_things": [len(replica._projection.own.registers) for replica in mesh.replicas],
        "batches_held": mesh.replicas[0].views.health()["batches_held"],
    }


def things(nodes: int) -> dict[str, list[int] | int]:
    """All see each thing, within a few centimetres."""
    mesh = Mesh(nodes, config=CONFIG)
    mesh.run(30)
    for number in range(ROUNDS):
        for index, member in enumerate(mesh.members):
            at_ns = member.local_ns(mesh.now_ns)
            mesh.see(index, detection(at_ns, number, 1_000 * number + index % 5, 2_000 - index % 3))
            mesh.run(0.3)
        mesh.run(4)
    return kept(mesh)


def notes(nodes: int) -> dict[str, list[int] | int]:
    """Each in turn writes the next."""
    mesh = Mesh(nodes, config=CONFIG)
    mesh.run(30)
    for number in range(ROUNDS):
        mesh.command(number % nodes, SetNote(f"k{number % 3}", b"v%d" % number))
        mesh.run(4)
    return kept(mesh)


if __name__ == "__main__":
    print(json.dumps({"things": things(12), "notes": notes(4)}, indent=1))
