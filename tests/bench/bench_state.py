"""Figures of the replicated state, with pycrdt and loro beside ours when they can be imported. Prints one JSON object.

CPU seconds (`process_time`), medians of several runs; every ratio is taken within one run. `make bench-state`.
"""

import argparse
import json
import math
import platform
import random
import statistics
import struct
import time
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from swarmd_protocols.crypto import SIGNATURE_BYTES, NaClCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import (
    BATCH_MAX_BYTES,
    HEAD_BYTES,
    NodeSigner,
    Stream,
    seal_batch,
)
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Sighting, encode_facts
from swarmd_protocols.state.crdt.messages import Batches, encode
from swarmd_protocols.state.crdt.records import encode_counters
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.subprotocol import Peer

KEY_BYTES = 6
PAYLOAD_BYTES = 20
LIFE = 1
NOW_NS = 10**12
WORK = ("state", "work")


class FastSigner:
    """Real sizes without the arithmetic, to tell the cost of merging from that of signatures."""

    def sign(self, message: bytes) -> bytes:
        return bytes(64)

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return True


def world(rng: random.Random, objects: int, reports: int, sigma_cm: int, observers: int) -> list[tuple[int, Sighting]]:
    """(observer, sighting) in the order of time: objects 7 m apart or more on a grid, each seen by a few drones."""
    side = math.isqrt(objects) + 1
    out = []
    for n in range(reports):
        thing = n % objects
        east = (thing % side) * 700 + round(rng.gauss(0, sigma_cm))
        north = (thing // side) * 700 + round(rng.gauss(0, sigma_cm))
        # A drone surveys a strip; neighbours overlap.
        observer = (thing * observers // objects + rng.randrange(3)) % observers
        stamp = (1_000_000 + n * 20) << 16
        place = (east // 50, north // 50)
        variance = sigma_cm**2 + rng.randrange(sigma_cm)
        row = Sighting(
            "hot-spot", LATTICE, place, False, True, east, north, (variance, rng.randrange(9), variance),
            rng.randrange(400, 1000), stamp, stamp + (rng.randrange(900) << 16), rng.randrange(1, 30), b"modelsha", (),
        )  # fmt: skip
        out.append((observer, row))
    return out


def batches_of(
    reports: list[tuple[int, Sighting]], size: int, seeds: list[bytes], signer_of: Callable[[int], Any]
) -> list[bytes]:
    """Signed batches of at most `size` rows, in the order in which the observers fill them."""
    waiting: dict[int, list[Sighting]] = {}
    heads: dict[int, tuple[int, bytes]] = {}
    out = []

    def flush(observer: int) -> None:
        n, previous = heads.get(observer, (0, bytes(16)))
        rows = waiting.pop(observer)
        body = encode_facts(Facts(rows))
        assert len(body) <= BATCH_MAX_BYTES - HEAD_BYTES - SIGNATURE_BYTES
        node = node_of(seeds[observer])
        batch = seal_batch(
            Stream.FACTS, node, (LIFE, n + 1), (0, 0), previous, rows[-1].last, body, signer_of(observer)
        )
        heads[observer] = (n + 1, batch.digest)
        out.append(batch.raw)

    for observer, row in reports:
        rows = waiting.setdefault(observer, [])
        if any(other.key == row.key for other in rows):
            continue
        rows.append(row)
        if len(rows) == size:
            flush(observer)
    for observer in sorted(waiting):
        flush(observer)
    return out


CRYPTO = NaClCrypto()


def node_of(seed: bytes) -> NodeId:
    return node_id_of(CRYPTO.public_key(seed))


class Enrolled:
    """A trust that certifies these keys and learns nothing."""

    revision = 1
    swarm = ""
    chain = SimpleNamespace(current=SimpleNamespace(roles={}))
    revoked: frozenset[bytes] = frozenset()

    def __init__(self, seeds: list[bytes]) -> None:
        self._held = {node_of(seed): SimpleNamespace(public_key=CRYPTO.public_key(seed)) for seed in seeds}

    def certified(self, node: NodeId) -> Any:
        return self._held.get(node)


def replica_for(seeds: list[bytes], signer: Any, config: ReplicaConfig | None = None) -> Replica:
    own, trust = b"\xff" * 32, Enrolled(seeds)
    replica = Replica(
        node_of(own), signer, trust, config or ReplicaConfig(), random.Random(1), {}, 1,
        public_key=CRYPTO.public_key(own),
    )  # fmt: skip
    replica.start(NOW_NS)
    peers = [Peer(node_of(seed), "", CRYPTO.public_key(seed), False) for seed in seeds]
    replica.on_peers(sorted(peers, key=lambda peer: peer.node), NOW_NS)
    return replica


def deliver(replica: Replica, raws: list[bytes], group: int = 8) -> float:
    """CPU seconds for `on_message` of everything, `group` batches a message."""
    sender = NodeId(bytes(16))
    payloads = [encode(Batches(tuple(raws[i : i + group]))) for i in range(0, len(raws), group)]
    now_ns, pause_ns = NOW_NS * 3, ReplicaConfig().slice_pause_ns
    begin = time.process_time()
    for payload in payloads:
        now_ns += pause_ns
        replica.on_message(sender, payload, now_ns)
        while WORK in replica._timers:
            now_ns = max(now_ns, replica._timers[WORK]) + pause_ns
            replica.on_timer(WORK, now_ns)
    return time.process_time() - begin


def median(run: Callable[[], float], times: int = 3) -> float:
    return statistics.median(run() for _ in range(times))


# --- Ours -----------------------------------------------------------------------------------------------------------


def bytes_per_detection(seeds: list[bytes]) -> dict[str, Any]:
    rng = random.Random(2)
    reports = world(rng, 5_000, 5_000, 15, 20)
    floor = KEY_BYTES + PAYLOAD_BYTES
    out: dict[str, Any] = {"floor_bytes": floor}
    for size in (1, 5, 25, 32):
        raws = batches_of(reports, size, seeds, lambda _: FastSigner())
        each = sum(map(len, raws)) / len(reports)
        out[f"batch_{size}"] = {"bytes": round(each, 2), "ratio_to_floor": round(each / floor, 3)}
    return out


def merge_detections(seeds: list[bytes]) -> dict[str, Any]:
    reports = world(random.Random(3), 5_000, 25_000, 15, 20)
    plain = batches_of(reports, 25, seeds, lambda _: FastSigner())
    signed = batches_of(reports, 25, seeds, lambda observer: NodeSigner(CRYPTO, seeds[observer]))
    merged = []

    def store_only() -> float:
        from swarmd_protocols.state.crdt.batch import open_batch
        from swarmd_protocols.state.crdt.facts import decode_facts
        from swarmd_protocols.state.crdt.store import Store

        store = Store(100, 1 << 24)
        registers: dict[Any, Any] = {}
        begin = time.process_time()
        for raw in plain:
            batch = open_batch(raw)
            facts = decode_facts(batch.body)
            store.add(batch)
            origin, dot = batch.origin, batch.dot
            for row in facts.sightings:
                key = (origin, row[0], row[1], row[2])
                held = registers.get(key)
                if held is None or held[0] < dot:
                    registers[key] = (dot, row)
        return time.process_time() - begin

    def whole(raws: list[bytes], signer: Any) -> float:
        replica = replica_for(seeds, signer)
        took = deliver(replica, raws)
        merged.append(len(replica.views.objects()))
        return took

    n = len(reports)
    join_s, view_s = median(store_only), median(lambda: whole(plain, FastSigner()))
    all_s = median(lambda: whole(signed, NodeSigner(NaClCrypto(), b"\xff" * 32)), 1)
    return {
        "reports": n,
        "join_ops_per_s": round(n / join_s),
        "join_and_objects_ops_per_s": round(n / view_s),
        "with_signatures_ops_per_s": round(n / all_s),
        "objects": merged[0],
    }


def merge_counters(seeds: list[bytes]) -> dict[str, Any]:
    names = [f"counter-{i:02d}" for i in range(50)]
    raws, rounds = [], 40
    for n in range(1, rounds + 1):
        for seed in seeds:
            body = encode_counters({name: n * 17 + i for i, name in enumerate(names)})
            node = node_of(seed)
            raws.append(
                seal_batch(Stream.COUNTERS, node, (LIFE, n), (0, 0), bytes(16), n << 16, body, FastSigner()).raw
            )
    took = median(lambda: deliver(replica_for(seeds, FastSigner()), raws))
    replica = replica_for(seeds, FastSigner())
    deliver(replica, raws)
    assert replica.views.counter_sums()["counter-00"] == len(seeds) * rounds * 17
    return {
        "ops_per_s": round(len(raws) * len(names) / took),
        "bytes_per_op": round(sum(map(len, raws)) / len(raws) / 50, 2),
    }


def dedup_cost() -> dict[str, Any]:
    reports = world(random.Random(4), 5_000, 25_000, 150, 20)
    nodes = [NodeId(bytes([n]) * 16) for n in range(20)]
    config = DedupConfig()

    def run() -> float:
        view = DedupView(config)
        begin = time.process_time()
        for count, (observer, row) in enumerate(reports):
            view.put(nodes[observer], row, (1, count))
            view.settle()
        took = time.process_time() - begin
        out["objects"] = len(view.leaders())
        out["entries"] = view.count
        return took

    out: dict[str, Any] = {}
    out["us_per_report"] = round(median(run) / len(reports) * 1e6, 2)
    return out


def state_size(seeds: list[bytes]) -> dict[str, Any]:
    """25,000 reports over 5,000 objects: what an origin that sees a thing again does is improve its register."""
    rng = random.Random(5)
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    reports = []
    for n, (observer, row) in enumerate(world(rng, 5_000, 25_000, 15, 20)):
        place = seen.setdefault((observer, n % 5_000), row.place)  # type: ignore[arg-type]
        reports.append((observer, row._replace(place=place)))
    raws = batches_of(reports, 25, seeds, lambda _: FastSigner())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    replica = replica_for(seeds, FastSigner())
    deliver(replica, raws)
    del raws
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {
        "reports": 25_000,
        "megabytes": round(size / 1e6, 2),
        **_few(replica.views.health(), "sightings", "bytes_held"),
    }


def _few(figures: dict[str, int], *names: str) -> dict[str, int]:
    return {name: figures[name] for name in names}


def heal(seeds: list[bytes]) -> dict[str, Any]:
    """One side of a cut learns 6,000 reports of the other, among 19,000 of its own; wall of one core."""
    reports = world(random.Random(6), 5_000, 25_000, 15, 20)
    near = [report for n, report in enumerate(reports) if n % 25 >= 6]
    far = [report for n, report in enumerate(reports) if n % 25 < 6]
    half = [bytes([n]) * 32 for n in range(100, 120)]
    signer = NodeSigner(NaClCrypto(), b"\xff" * 32)
    there = batches_of(far, 32, half, lambda observer: NodeSigner(CRYPTO, half[observer]))
    here = batches_of(near, 32, seeds, lambda _: FastSigner())

    def run() -> float:
        replica = replica_for([*seeds, *half], FastSigner())
        deliver(replica, here, 64)
        replica._signer = signer
        return deliver(replica, there, 300)

    return {"reports": len(far), "ms": round(median(run) * 1e3, 1)}


def swarm_latency(nodes: int, loss: float, detections: int) -> dict[str, Any]:
    """Virtual time from a detection at one node to the object at all others."""
    from tests.support.state_mesh import Mesh, detection

    mesh = Mesh(nodes, seed=9, loss=loss)
    rng = random.Random(10)
    mesh.run(2)
    took = []
    for n in range(detections):
        index = rng.randrange(nodes)
        member = mesh.members[index]
        mesh.see(index, detection(member.local_ns(mesh.now_ns), n + 1, n * 1000, 0))
        want = n + 1
        took.append(
            mesh.run_until(
                lambda want=want: all(r.views.health()["sightings"] >= want for r in mesh.replicas), 20, 0.01
            )
        )
        mesh.run(0.3)
    took.sort()
    return {
        "nodes": nodes, "loss": loss, "p50_s": took[len(took) // 2], "p99_s": took[int(len(took) * 0.99)],
        "payload_bytes_per_node_s": round(mesh.bytes_sent / nodes / (mesh.now_ns / 1e9)),
    }  # fmt: skip


def claims(settle_s: int, cut: bool) -> dict[str, Any]:
    """20 drones, 400 cells of 10 s and 2 s of way, 30 % loss; the bound is that of a planner who knows everything."""
    from tests.sim.test_claims_swarm import S, Survey

    survey = Survey(20, 20, seed=1, settle_ns=settle_s * S)

    def act(now_s: float) -> None:
        if cut and 60 <= now_s < 60.25:
            survey.mesh.partition(lambda index: index % 2)
        elif cut and 180 <= now_s < 180.25:
            survey.mesh.partition(lambda index: 0)

    makespan_s = survey.fly(900, act)
    bound_s = len(survey.cells) * (10 + 2) / 20
    return {
        "makespan_s": round(makespan_s, 1),
        "to_central_bound": round(makespan_s / bound_s, 3),
        "duplicates": survey.duplicates,
        "double_work_drone_s": survey.both_s,
    }


# --- Others ---------------------------------------------------------------------------------------------------------


def beside(name: str) -> dict[str, Any] | None:
    try:
        module = import_module(name)
    except ImportError:
        return None
    out: dict[str, Any] = {"version": version(name)}
    rng = random.Random(2)
    trace = [(struct.pack("<HI", n % 20, n).decode("latin-1"), rng.randbytes(PAYLOAD_BYTES)) for n in range(5_000)]
    for size in (1, 25):
        updates, full = (_pycrdt if name == "pycrdt" else _loro)(module, trace, size)
        out[f"batch_{size}"] = {
            "bytes": round(sum(map(len, updates)) / len(trace), 2),
            "ratio_to_floor": round(sum(map(len, updates)) / len(trace) / (KEY_BYTES + PAYLOAD_BYTES), 3),
            "full_state_bytes": len(full),
        }
        merge = _pycrdt_merge if name == "pycrdt" else _loro_merge
        out[f"batch_{size}"]["merge_ops_per_s"] = round(
            len(trace) / median(lambda updates=updates, merge=merge: merge(module, updates))
        )
    return out


def _pycrdt(module: Any, trace: list[tuple[str, bytes]], size: int) -> tuple[list[bytes], bytes]:
    doc = module.Doc()
    things = doc.get("things", type=module.Map)
    updates: list[bytes] = []
    doc.observe(lambda event: updates.append(event.update))
    for i in range(0, len(trace), size):
        with doc.transaction():
            for key, value in trace[i : i + size]:
                things[key] = value
    return updates, doc.get_update()


def _pycrdt_merge(module: Any, updates: list[bytes]) -> float:
    doc = module.Doc()
    doc.get("things", type=module.Map)
    begin = time.process_time()
    for update in updates:
        doc.apply_update(update)
    return time.process_time() - begin


def _loro(module: Any, trace: list[tuple[str, bytes]], size: int) -> tuple[list[bytes], bytes]:
    doc = module.LoroDoc()
    things = doc.get_map("things")
    updates = []
    for i in range(0, len(trace), size):
        before = doc.oplog_vv
        for key, value in trace[i : i + size]:
            things.insert(key, value)
        doc.commit()
        updates.append(doc.export(module.ExportMode.Updates(before)))
    return updates, doc.export(module.ExportMode.Snapshot())


def _loro_merge(module: Any, updates: list[bytes]) -> float:
    doc = module.LoroDoc()
    begin = time.process_time()
    for update in updates:
        doc.import_(update)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the swarm runs")
    arguments = parser.parse_args()
    seeds = [bytes([n]) * 32 for n in range(20)]
    figures = {
        "python": platform.python_version(),
        "bytes_per_detection": bytes_per_detection(seeds),
        "merge_detections": merge_detections(seeds),
        "merge_counters": merge_counters(seeds),
        "dedup": dedup_cost(),
        "state": state_size(seeds),
        "heal": heal(seeds),
        "swarm": swarm_latency(20, 0.3, 20 if arguments.quick else 200),
        "claims": {
            "no_settle": claims(0, False),
            "settle_2_s": claims(2, False),
            "settle_2_s_cut_120_s": claims(2, True),
        },
        "pycrdt": beside("pycrdt"),
        "loro": beside("loro"),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
