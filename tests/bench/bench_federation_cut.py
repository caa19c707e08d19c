"""A region cut off for an hour, in virtual time: what gateways keep and drop meanwhile, and how long it takes after.

    python -m tests.bench.bench_federation_cut --gateways 4 --cut 3600
    python -m tests.bench.bench_federation_cut --gateways 4 --cut 3600 --outbox-kib 512

The gateways of `bench_federation` (outbox on disk, seals, a thing that a node signed each second) and the region's own
object with its file, in one process; pipes are lists, and the clock is a number that rises by a tenth of a second, so
the region answers within two of them however slow this machine is. Quotas are those of a region by default. While it is
cut off nothing that is sent arrives. The end is when every outbox is empty, or `--most` seconds after the return. One
JSON object; exits with 1 where something is lost that no outbox says it has dropped.
"""

import argparse
import contextlib
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from swarmd.federation import region as region_module
from swarmd.federation.region import Region
from swarmd.federation.store import FILE_NAME as REGION_FILE
from swarmd.federation.store import Store
from swarmd.federation.uplink import PREFIX, Place
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.identity import dev_root
from tests.bench.bench_federation import CRYPTO, REGION_SEED, Gateway, secret_of

TICK_NS = 100_000_000
BEFORE_S = 10
"""Seconds before the cut."""


class Pipe:
    """One end of a path: a list."""

    name, problem, connected = "list", "", True

    def __init__(self, frames: list[tuple[Place, bytes]]) -> None:
        self.frames = frames

    def send(self, place: Place, frame: bytes) -> bool:
        self.frames.append((place, frame))
        return True

    async def run(self) -> None:
        raise AssertionError("frames are moved here")


def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The story; returns its figures."""
    began_s, now_ns = time.time(), 10**12
    clock = SimpleNamespace(
        monotonic_ns=lambda: now_ns, monotonic=lambda: now_ns / 1e9, time=lambda: began_s + (now_ns - 10**12) / 1e9
    )
    vars(region_module)["time"] = clock
    up: list[tuple[Place, bytes]] = []
    down: list[tuple[Place, bytes]] = []
    gateways = [Gateway(number, folder, args.outbox_kib << 10) for number in range(args.gateways)]
    for one in gateways:
        one.clock_ns = clock.monotonic_ns
        one.sending.uplinks = [Pipe(up), Pipe(up)]
    by_place = {(one.key, one.identity.node): one for one in gateways}
    pins = [
        Pin(one.name, one.name, dev_root(secret_of(at), CRYPTO), confirm_observers=1) for at, one in enumerate(gateways)
    ]
    store = Store(folder / REGION_FILE)
    region = Region(pins, REGION_SEED, CRYPTO, store, ["0", "1"], PREFIX, lambda *_: Pipe(down), lambda _: None)
    return_s, end_s = BEFORE_S + args.cut, BEFORE_S + args.cut + args.most
    figures: dict[str, Any] = {"kept_most_rows": 0, "kept_most_bytes": 0}
    first_s: dict[str, float] = {}
    cut_bytes, ends_s = 0, 0.0
    for tick in range(end_s * 10):
        now_ns += TICK_NS
        at_s = tick / 10
        is_cut = BEFORE_S <= at_s < return_s
        for at, one in enumerate(gateways):
            if at_s < return_s and (tick + at) % 10 == 0:
                one.say()
            elif (tick + at) % 5 == 0:
                one.sending.pump(now_ns)
        if is_cut:
            cut_bytes += sum(len(frame) for _, frame in up)
            up.clear()
            continue
        frames, up[:] = up[:], []
        for place, frame in frames:
            region.on_frame(0, place, frame)
        if frames:
            region.write()
        answers, down[:] = down[:], []
        for place, frame in answers:
            one = by_place[place.swarm, NodeId(place.gateway)]
            if one.sending.on_frame(0, frame, now_ns) and len(one.outbox):
                one.sending.pump(now_ns)
            if at_s >= return_s:
                first_s.setdefault(one.name, round(at_s - return_s, 1))
        if at_s < return_s:
            figures["kept_most_rows"] = 0
        elif not any(len(one.outbox) for one in gateways):
            ends_s = at_s - return_s
            break
        else:
            figures["kept_most_rows"] = max(figures["kept_most_rows"], *(len(one.outbox) for one in gateways))
            figures["kept_most_bytes"] = max(figures["kept_most_bytes"], *(one.outbox.size_bytes for one in gateways))
    store.close()
    with contextlib.closing(sqlite3.connect(folder / REGION_FILE)) as file:
        [[readable]] = file.execute("SELECT count(*) FROM objects").fetchall()
    said, dropped = sum(one.serial for one in gateways), sum(one.outbox.dropped_rows for one in gateways)
    return {
        "said": said,
        "readable": readable,
        "said_to_be_dropped": dropped,
        "lost": said - readable - dropped,
        "left": sum(len(one.outbox) for one in gateways),
        **figures,
        "heard_again_s": max(first_s.values(), default=None),
        "caught_up_s": round(ends_s, 1),
        "bytes_a_gateway_and_s_while_cut": round(cut_bytes / args.gateways / args.cut),
        "frames": sum(one.sending.counts["frames"] for one in gateways),
        "wall_s": round(time.time() - began_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=4)
    parser.add_argument("--cut", type=int, default=3_600, metavar="S")
    parser.add_argument("--most", type=int, default=600, metavar="S", help="so long after the return at most")
    parser.add_argument("--outbox-kib", type=int, default=65_536)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        figures = {**vars(args), **run(args, Path(text))}
    print(json.dumps(figures))
    sys.exit(figures["lost"] != 0)


if __name__ == "__main__":
    main()
