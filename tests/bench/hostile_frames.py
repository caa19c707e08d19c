"""How long one event of a member is while another fills a frame with each message there is; a JSON object.

Real cryptography; processor time, the least of three readings of a frame. Part of `make bench-hostile`.
"""

import argparse
import json
import time

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import Event, TimerFired
from swarmd_protocols.reader import NEXT_NS
from tests.support.frame_kinds import KINDS
from tests.support.swim_net import TICK
from tests.support.whole_net import FILLER, READER, WholeNet, sealed

COUNT = 4_000


def read(kind: str) -> dict[str, float]:
    """The longest event and all the time that a frame of this kind takes, and in how many events it is read."""
    net = WholeNet(FILLER + 1, 3, crypto=NaClCrypto())
    net.run_until(net.formed, 15)
    net.run(3)
    reader, now_ns, longest_s, all_s, events = net.hosts[READER].node, net.now, 0.0, 0.0, 0
    event: Event | None = sealed(net, KINDS[kind](net, COUNT))
    while event is not None:
        began_s = time.process_time()
        reader.handle(event, now_ns)
        took_s = time.process_time() - began_s
        longest_s, all_s, events, now_ns = max(longest_s, took_s), all_s + took_s, events + 1, now_ns + NEXT_NS
        event = TimerFired(TICK) if reader._reader.waiting_bytes else None
    return {"longest_ms": round(longest_s * 1e3, 1), "all_ms": round(all_s * 1e3, 1), "events": events}


def main() -> None:
    """Read each kind and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="the output is JSON in any case")
    parser.parse_args()
    frames = {}
    for kind in sorted(KINDS):
        frames[kind] = min((read(kind) for _ in range(3)), key=lambda found: found["longest_ms"])
    print(json.dumps({"frames": frames}, indent=1))


if __name__ == "__main__":
    main()
