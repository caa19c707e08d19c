"""One tree's side of the regression gate: a batch of work for each line read, and what it cost.

Run by `tests.bench.gate` with the tree's packages on its path, one process for each tree. The work is the same each
time and in both trees: frames rendered once and seen by the eye, and a small swarm whose virtual seconds pass with real
signatures and sealed datagrams. A cost is CPU time of this process and the number of times that it waited.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

FRAMES = 12
SWARM, SETTLED_S, BATCH_S = 5, 40.0, 20.0


def eye() -> Callable[[], int]:
    """A batch of frames through the whole eye; gives how many."""
    from swarmd_models.bundle import load_bundle
    from swarmd_models.eye import Eye
    from swarmd_models.types import Frame
    from swarmd_sim.world.source import open_source

    source = open_source("sim://farm?drone=1&of=1&seed=7&faults=0.05&fly=lanes")
    seen = [source.read() for _ in range(FRAMES)]
    frames = [frame for frame in seen if isinstance(frame, Frame)]
    whole = Eye.open(load_bundle("zoo:small-320"))
    turn = 0

    def batch() -> int:
        nonlocal turn
        for frame in frames:
            turn += 1
            whole.see(Frame(turn, turn * 100_000_000, frame.image, frame.pose))
        return len(frames)

    return batch


def datagram() -> Callable[[], int]:
    """Virtual seconds of a small swarm; gives how many datagrams were sealed, sent, opened and answered."""
    from swarmd_protocols.crypto import NaClCrypto
    from tests.support.swim_net import Net

    net = Net(SWARM, crypto=NaClCrypto())
    net.run(SETTLED_S)

    def sent() -> int:
        return sum(host.packets_out for host in net.hosts)

    def batch() -> int:
        before = sent()
        net.run(BATCH_S)
        net.log.clear()
        return sent() - before

    return batch


def main() -> int:
    """Answer each line that names a kind of work with a JSON line."""
    kinds: dict[str, Callable[[], Callable[[], int]]] = {"eye": eye, "datagram": datagram}
    batches: dict[str, Callable[[], int]] = {}
    for line in sys.stdin:
        kind = line.strip()
        if kind not in batches:
            batches[kind] = kinds[kind]()
            batches[kind]()
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        began_ns = time.process_time_ns()
        units = batches[kind]()
        cost_ns = time.process_time_ns() - began_ns
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - waits
        told: dict[str, Any] = {"units": units, "cpu_ns": cost_ns, "waits": waits}
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
