"""What a region's past takes and what a question to it costs: a generated month, DuckDB beside pyarrow.

    python -m tests.bench.bench_history                       # 10 swarms, 30 days, 1,000 words a swarm and day
    python -m tests.bench.bench_history --files-a-day 24      # the same words, exported each hour
    python -m tests.bench.bench_history --store 's3://past?endpoint_override=127.0.0.1:9000&scheme=http'
    python -m tests.bench.bench_history --ray 2               # a sweep of all swarms by Ray's tasks, one swarm each

With `--store` the same month also goes into an object store and is asked there; a bucket and credentials
(AWS_ACCESS_KEY_ID and so on) are for whoever runs this to have.

Words are as the region writes them: of each object some words, ids and evidence random (they do not compress), places
of one site, labels of a few kinds. Each question runs in a process of its own, for its memory. One JSON object.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swarmd.federation.asking import ask_duckdb
from swarmd.federation.history import ask as ask_arrow
from swarmd.federation.history import files_of, write_words
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.stored import ask_stored, stored, stored_files, write_stored

BEGIN_MS = 1_793_491_200_000
"""2026-11-01, UTC."""
DAY_MS = 86_400_000
WORDS_AN_OBJECT = 5
"""An object is said when it is confirmed, and again as more nodes see it."""
LABELS = ("hot-spot", "hot-spot", "hot-spot", "crack", "person", "bird", "soiling", "broken-glass")
SPARSE_SWARMS, SPARSE_DAYS = 100, 365
"""Of the tree of empty files on which choosing files is measured."""


def words(rng: random.Random, swarm: str, day: int, count: int) -> list[dict[str, Any]]:
    """One swarm's words of one day."""
    found = []
    for number in range(count):
        if number % WORDS_AN_OBJECT == 0:
            object_id, label = rng.randbytes(8).hex(), rng.choice(LABELS)
            east, north = rng.uniform(-500, 500), rng.uniform(-500, 500)
        at_ms = BEGIN_MS + day * DAY_MS + number * DAY_MS // count
        found.append({
            "swarm": swarm, "object": object_id, "stamp": at_ms, "digest": rng.randbytes(8).hex(), "label": label,
            "detected": label, "score": round(rng.uniform(0.3, 1), 3), "tier": "confirmed", "review": "",
            "east_m": round(east, 2), "north_m": round(north, 2), "sigma_m": round(rng.uniform(0.05, 0.5), 3),
            "latitude_deg": 47.39 + north / 111_000, "longitude_deg": 8.54 + east / 75_000, "asset": "",
            "observers": 2 + number % WORDS_AN_OBJECT, "reports": 3 + number % 7, "first_ms": at_ms - 60_000,
            "last_ms": at_ms, "models": "6d6f64656c736861", "picture": "",
            "evidence": " ".join(rng.randbytes(8).hex() for _ in range(2 + number % WORDS_AN_OBJECT)),
            "gateway": f"{int(swarm, 16) * 2 + number % 2:032x}", "learned_ms": at_ms + 150,
        })  # fmt: skip
    return found


def make(folder: Path, swarms: int, days: int, count: int, files_a_day: int) -> dict[str, float]:
    """Write the month; returns its figures."""
    rng, rows, cpu_s = random.Random(7), 0, 0.0
    for at in range(swarms):
        for day in range(days):
            said = words(rng, f"{at:032x}", day, count)
            rows += len(said)
            step = -(-len(said) // files_a_day)
            began = time.process_time()
            for part in range(files_a_day):
                write_words(folder, said[part * step : (part + 1) * step], part)
            cpu_s += time.process_time() - began
    files = list(folder.rglob("*.parquet"))
    size = sum(path.stat().st_size for path in files)
    return {
        "words": rows,
        "files": len(files),
        "mb": round(size / 1e6, 2),
        "bytes_a_word": round(size / rows, 1),
        "write_us_a_word": round(cpu_s / rows * 1e6, 1),
    }


QUESTIONS = {
    "label, last day": (ObjectQuery(label="hot-spot", since_ms=BEGIN_MS + 29 * DAY_MS), 0),
    "label, last week": (ObjectQuery(label="hot-spot", since_ms=BEGIN_MS + 23 * DAY_MS), 0),
    "label, month": (ObjectQuery(label="hot-spot"), 0),
    "all, month": (ObjectQuery(), 0),
    "label, month, one swarm": (ObjectQuery(label="hot-spot"), 1),
}
"""Question and of how many swarms; 0: all."""


def one_question(folder: Path, engine: str, name: str) -> dict[str, float]:
    """In a process of its own: warm files, cold engine."""
    query, swarms = QUESTIONS[name]
    keys = tuple(f"{at:032x}" for at in range(swarms))
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu_s, began = time.process_time(), time.perf_counter()
    found = (ask_duckdb if engine == "duckdb" else ask_arrow)(folder, query, keys)
    return {
        "wall_s": round(time.perf_counter() - began, 3),
        "cpu_s": round(time.process_time() - cpu_s, 3),
        "added_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb, 1),
        "files": len(files_of(folder, query, keys)),
        "rows": len(found),
    }


def in_store(address: str, swarms: int, days: int, count: int) -> dict[str, Any]:
    """The month in an object store: writing, and each question once in this process."""
    place, rng, wall_s = stored(address), random.Random(7), 0.0
    for at in range(swarms):
        for day in range(days):
            said = words(rng, f"{at:032x}", day, count)
            began = time.perf_counter()
            write_stored(place, said, 0)
            wall_s += time.perf_counter() - began
    found: dict[str, Any] = {"write_ms_a_file": round(1e3 * wall_s / (swarms * days), 1)}
    for name, (query, only) in QUESTIONS.items():
        keys = tuple(f"{at:032x}" for at in range(only))
        cpu_s, began = time.process_time(), time.perf_counter()
        rows = ask_stored(place, query, keys)
        found[name] = {
            "wall_s": round(time.perf_counter() - began, 2),
            "cpu_s": round(time.process_time() - cpu_s, 2),
            "files": len(stored_files(place, query, keys)),
            "rows": len(rows),
        }
    return found


def by_ray(folder: Path, swarms: int, workers: int) -> dict[str, Any]:
    """All of the month, one task a swarm: how many objects of a label each has, and what it took."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)

    def one(key: str) -> tuple[str, int]:
        return key, len(ask_duckdb(folder, ObjectQuery(label="hot-spot", limit=1_000_000), (key,)))

    task = ray.remote(one)
    keys = [f"{at:032x}" for at in range(swarms)]
    ray.get([task.remote(key) for key in keys[:workers]])  # Workers that are up and have loaded the engine.
    began = time.perf_counter()
    found = dict(ray.get([task.remote(key) for key in keys]))
    took_s = time.perf_counter() - began
    ray.shutdown()
    began = time.perf_counter()
    alone = {key: len(ask_duckdb(folder, ObjectQuery(label="hot-spot", limit=1_000_000), (key,))) for key in keys}
    assert alone == found
    return {"tasks": len(keys), "rows": sum(found.values()), "wall_s": round(took_s, 2),
            "one_process_s": round(time.perf_counter() - began, 2)}  # fmt: skip


def choosing(folder: Path) -> dict[str, float]:
    """What it costs to choose the files of one day, and of all, where many days are kept."""
    for swarm in range(SPARSE_SWARMS):
        for day in range(SPARSE_DAYS):
            place = folder / "objects" / f"swarm={swarm:032x}" / f"day=2026-{day // 31 + 1:02}-{day % 31 + 1:02}"
            place.mkdir(parents=True)
            (place / "0.parquet").touch()
    found = {}
    for name, query in (("one_day", ObjectQuery(since_ms=BEGIN_MS + 53 * DAY_MS)), ("all_days", ObjectQuery())):
        began = time.perf_counter()
        files = files_of(folder, query)
        found[f"{name}_files"] = float(len(files))
        found[f"{name}_us_a_partition"] = round((time.perf_counter() - began) / (SPARSE_SWARMS * SPARSE_DAYS) * 1e6, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swarms", type=int, default=10)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--words", type=int, default=1_000, help="a swarm and day")
    parser.add_argument("--files-a-day", type=int, default=1)
    parser.add_argument("--store", default="", metavar="ADDRESS", help="an object store to ask too")
    parser.add_argument("--ray", type=int, default=0, metavar="N", help="a sweep by so many workers of Ray")
    parser.add_argument("--ask", nargs=3, metavar=("FOLDER", "ENGINE", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        print(json.dumps(one_question(Path(args.ask[0]), args.ask[1], args.ask[2])))
        return
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text) / "month"
        made = make(folder, args.swarms, args.days, args.words, args.files_a_day)
        asked: dict[str, dict[str, Any]] = {}
        for name in QUESTIONS:
            for engine in ("duckdb", "arrow"):
                words_ = ("-m", "tests.bench.bench_history", "--ask", str(folder), engine, name)
                done = subprocess.run([sys.executable, *words_], capture_output=True, text=True, check=True)
                asked.setdefault(name, {})[engine] = json.loads(done.stdout)
        chosen = choosing(Path(text) / "sparse")
        more = {"ray_sweep": by_ray(folder, args.swarms, args.ray)} if args.ray else {}
    if args.store:
        more["stored"] = in_store(args.store, args.swarms, args.days, args.words)
    load = round(os.getloadavg()[0], 1)
    print(
        json.dumps({**vars(args), "ask": None, "made": made, "asked": asked, "choosing": chosen, **more, "load": load})
    )


if __name__ == "__main__":
    main()
