"""What one member that answers two others only costs a swarm of one hop: one stolen key, or one bad radio.

    python -m tests.bench.bench_mesh_silence --nodes 10,30 --seeds 3

Virtual time, 2 % loss, `gossip.mesh` at `auto`, casts. From 15 s on the last node is heard by two and hears two; 60 s
later two others go dark one after the other, and then all hear all again. Bytes are of the others, with headers of 42
bytes, and beacons are those cast by all; what it and those in the dark say of others does not count; a detection is one
node's verdict, from the moment at which the victim went dark. One JSON object a swarm.
"""

import argparse
import json
import statistics

from swarmd_protocols.effects import MemberState
from tests.property.test_mesh_onset import HearsAlarms
from tests.support.mesh_net import everybody
from tests.support.swim_net import S

VICTIMS = (4, 5)


def detections_s(net: HearsAlarms) -> list[float]:
    """When each other node has called each of two failed that went dark, seconds."""
    found = []
    for victim in VICTIMS:
        since_ns, first_ns = net.now, dict[int, int]()
        net.hosts[victim].dark = True
        net.run(12)
        for at_ns, index, change in net.changes(MemberState.FAILED, since_ns):
            if change.name == f"n{victim:03d}":
                first_ns.setdefault(index, at_ns)
        found += [(at_ns - since_ns) / S for at_ns in first_ns.values()]
        net.hosts[victim].dark = False
        net.run(25)
    return found


def run(count: int, seed: int, *, silent: bool) -> dict[str, object]:
    """The figures of one swarm."""
    net = HearsAlarms(count, everybody(count), seed, loss=0.02)
    net.run(15)
    if silent:
        net.relink(everybody(count - 1) | {(0, count - 1), (1, count - 1)})
    begun_ns, bytes_s, meshed_s = net.now, [], None
    for _ in range(6):
        before = [host.bytes_out for host in net.hosts[:-1]]
        for _ in range(20):
            net.run(0.5)
            if meshed_s is None and net.meshes() == count:
                meshed_s = (net.now - begun_ns) / S
        sent = [host.bytes_out - at for host, at in zip(net.hosts[:-1], before, strict=True)]
        bytes_s.append(round(statistics.mean(sent) / 10))
    cast, at_ns = net.cast, net.now
    found = sorted(detections_s(net))
    beacons_s = round((net.cast - cast) * S / (net.now - at_ns), 2)
    wrong = {name for index, name in net.failures() if index not in (*VICTIMS, count - 1)} - {
        f"n{index:03d}" for index in (*VICTIMS, count - 1)
    }
    ended_s = None
    if silent:
        net.relink(everybody(count))
        ended_s = net.run_until(lambda: net.meshes() == 0, 180, 0.5)
    return {
        "nodes": count,
        "seed": seed,
        "silent": silent,
        "mesh_after_s": meshed_s,
        "bytes_a_node_s_by_ten_s": bytes_s,
        "beacons_s": beacons_s,
        "detection_s": {"p50": round(found[len(found) // 2], 2), "max": round(found[-1], 2), "verdicts": len(found)},
        "others_called_failed": len(wrong),
        "full_again_after_s": ended_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="10,30", metavar="N,N")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for count in map(int, args.nodes.split(",")):
        for silent in (False, True):
            for seed in range(1, args.seeds + 1):
                print(json.dumps(run(count, seed, silent=silent)), flush=True)


if __name__ == "__main__":
    main()
