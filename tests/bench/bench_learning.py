"""Learning in the swarm with hundreds of clients, on Ray; a federated average through an observer beside it.

    python -m tests.bench.bench_learning                                  # 1,000 clients, alpha 0.3, 15 rounds
    python -m tests.bench.bench_learning --clients 100 --bad 0.2          # a fifth of them lies
    python -m tests.bench.bench_learning --workers 0 --clients 16 --scenes 84 --noise 0 1 2   # hidden; without Ray
    python -m tests.bench.bench_learning --ray 10.0.0.7:6379              # a cluster in the place of this machine

Clients train as devices do (`swarmd_models.head_rows`), say what the protocol would say and are merged by its merge
(`swarmd_sim.run.head_shards`); Ray's actors hold them, one a worker, and pass the heads and what is said. Rows are
those of the scenario learning-swarm-20: drawn faulty modules before a camera with 0.45 of the contrast, dealt out by a
Dirichlet distribution. No radio: all hear all. One JSON object a run.
"""

import argparse
import hashlib
import json
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from swarmd_models.head_rows import F64, Rows, accuracy
from swarmd_protocols.learning.form import Session
from swarmd_protocols.learning.privacy import Privacy, epsilon
from swarmd_sim.run.head_shards import Client, Everywhere, Observer, Shard
from swarmd_sim.run.head_training import central
from swarmd_sim.world.learning_rows import base_digest, base_head, dealt, drawn_rows

CONTRAST = 0.45
"""Of the site's camera, as in the scenario."""
SHARE = 0.05
"""Of the head's weights, told in a round, likewise."""
SCENES_EACH = 84
"""Of one task that draws rows: as many as the scenario draws in all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run."""

    clients: int = 1_000
    alpha: float = 0.3
    rounds: int = 15
    scenes: int = 504
    """That clients' rows are taken from, some 46 each."""
    bad: float = 0.0
    """Share of the clients that lie."""
    noise: float = 0.0
    length: float = 0.3
    seed: int = 7
    workers: int = 2


def here(shards: list[Shard]) -> Everywhere:
    """Shards of this process, for what is held against Ray."""
    return lambda name, head, number: [getattr(shard, name)(head, number) for shard in shards]


def on_ray(ray: Any, actors: list[Any]) -> Everywhere:
    """Shards in Ray's actors: a head goes into its store once a round, and to each from there."""

    def everywhere(name: str, head: object, number: int) -> list[object]:
        kept = ray.put(head)
        return list(ray.get([getattr(actor, name).remote(kept, number) for actor in actors]))

    return everywhere


def begin(ray: Any, address: str, workers: int) -> None:
    """Join a cluster, or start one on this machine."""
    where = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    ray.init(**where, log_to_driver=False)


def rows_of(plan: Plan, ray: Any) -> tuple[Rows, Rows, Rows]:
    """What teaches, what judges and what every client draws itself; each part of the first is one task."""
    seeds = [1_000 + at for at in range(-(-plan.scenes // SCENES_EACH))]
    sizes = [min(SCENES_EACH, plan.scenes - at * SCENES_EACH) for at in range(len(seeds))]
    wanted = [*zip(seeds, sizes, strict=True), (12, max(4, min(plan.scenes // 3, 28)))]
    if ray is None:
        parts = [drawn_rows(seed, size, CONTRAST) for seed, size in wanted]
    else:

        def draw(seed: int, size: int) -> Rows:
            return drawn_rows(seed, size, CONTRAST)

        task = ray.remote(draw)
        parts = ray.get([task.remote(seed, size) for seed, size in wanted])
    *teaching, held = parts
    taught = Rows(np.concatenate([one.features for one in teaching]), np.concatenate([one.labels for one in teaching]))
    return taught, held, drawn_rows(13, min(14, plan.scenes), 1.0)


def clients_of(plan: Plan, taught: Rows) -> list[Client]:
    """Those who have labels; of a thousand and these rows some have none."""
    rng = np.random.default_rng([plan.seed, 11])
    parts = dealt(taught, plan.clients, plan.alpha, rng)
    lying = set(rng.permutation(plan.clients)[: round(plan.bad * plan.clients)].tolist())
    return [Client(at, rows, at in lying) for at, rows in enumerate(parts) if len(rows.labels)]


def run(plan: Plan, ray: Any, rows: tuple[Rows, Rows, Rows] | None = None) -> dict[str, Any]:
    """Both ways of learning, and what they are held against.

    Args:
        plan: What.
        ray: The module, joined to a cluster; None: in this process.
        rows: As `rows_of` gives them, where they are drawn already.
    """
    taught, held, replay = rows or rows_of(plan, ray)
    base, clients = base_head(), clients_of(plan, taught)
    session = Session(base_digest(), base.size, max(1, round(SHARE * base.size)), plan.rounds)
    privacy = Privacy(plan.length, plan.noise) if plan.noise else None
    workers = max(1, plan.workers)
    parts = [clients[at::workers] for at in range(workers)]
    if ray is None:
        everywhere = here([Shard(part, base, replay, session, plan.seed, privacy) for part in parts])
    else:
        # What all of them need lies in the store once.
        store = [ray.put(one) for one in (base, replay)]
        actor = ray.remote(num_cpus=1)(Shard)
        everywhere = on_ray(ray, [actor.remote(part, *store, session, plan.seed, privacy) for part in parts])
    observer = Observer(base, session, everywhere)
    began = time.perf_counter()
    learned = observer.swarm()
    between = time.perf_counter()
    average = observer.federated()
    ended = time.perf_counter()
    together = accuracy(central(base, taught, replay), held)
    heads: dict[str, F64] = {"base": base, "ours": learned, "federated": average}
    said = sorted(len(one.rows.labels) for one in clients)
    figures = {name: round(accuracy(head, held), 4) for name, head in heads.items()} | {"central": round(together, 4)}
    return figures | {
        "ours_of_central": round(figures["ours"] / together, 4),
        "rows": len(taught.labels),
        "held": len(held.labels),
        "clients": plan.clients,
        "with_labels": len(clients),
        "rows_each_median": said[len(said) // 2],
        "bad": sum(one.lies for one in clients),
        "alpha": plan.alpha,
        "rounds": plan.rounds,
        "noise": plan.noise,
        "epsilon": round(epsilon(plan.noise, plan.rounds), 1) if plan.noise else None,
        "delta_bytes_mean": round(observer.told_bytes / (len(clients) * plan.rounds), 1),
        "delta_bytes_dense": 4 * base.size,
        "digest": hashlib.sha256(learned.tobytes()).hexdigest()[:16],
        "workers": 0 if ray is None else plan.workers,
        "swarm_s": round(between - began, 1),
        "federated_s": round(ended - between, 1),
    }


def main() -> None:
    """Run."""
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("clients", "rounds", "scenes", "seed", "workers"):
        parser.add_argument(f"--{name}", type=int, default=getattr(plan, name))
    for name in ("alpha", "bad", "length"):
        parser.add_argument(f"--{name}", type=float, default=getattr(plan, name))
    parser.add_argument(
        "--noise", type=float, nargs="+", default=[plan.noise], help="one run for each, of the same rows"
    )
    parser.add_argument("--ray", default="", help="address of a cluster; empty: one on this machine")
    args = vars(parser.parse_args())
    address, noises, ray = args.pop("ray"), args.pop("noise"), None
    if address or args["workers"]:
        try:
            import ray
        except ImportError:
            sys.exit("needs Ray: make setup-extras, or pip install 'swarmd[ray]'; or --workers 0, in this process")
        begin(ray, address, args["workers"])
    try:
        plan = Plan(**args)
        rows = rows_of(plan, ray)
        for noise in noises:
            print(json.dumps(run(replace(plan, noise=noise), ray, rows)), flush=True)
    finally:
        if ray is not None:
            ray.shutdown()


if __name__ == "__main__":
    main()
