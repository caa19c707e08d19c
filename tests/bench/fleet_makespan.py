"""A batch over three real daemons of different speed: how near its makespan comes to what their speeds allow.

python -m tests.bench.fleet_makespan [--frames 240] [--runs 3] [--shares 0.12 0.06 0.03]

One daemon has the frames and borrows, two lend; the thread that infers in each worker has so much of a core (a cgroup
of version 1; needs root), as a slower accelerator would; reading and handing out have what is left. Speeds are
measured before each batch: what each device does of its own frames, alone, and while the two others do so too, since
all share this machine's cores. One JSON row a run: makespan over max(frames / sum of speeds, longest frame), with both
kinds of speed. Raw frames of 320 x 256 go from worker to worker.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from swarmd.worker.asking import PICTURE, Wish, infer
from swarmd_models.bundle import ZOO
from tests.bench.bench_offload import CGROUP, LARGE, LENT
from tests.support.daemons import Daemon, wait_for
from tests.support.exclusive import own_name

IN_FLIGHT = 32
"""Frames that the program shows at once."""
ALONE = 60
"""Frames by which a device's speed is measured."""


def ask(address: str, frames: Sequence[np.ndarray], borrow: str, in_flight: int) -> tuple[float, float, Counter[str]]:
    """Seconds for all, of the longest, and who has answered how many."""

    def one(frame: np.ndarray) -> tuple[float, str]:
        began_s = time.monotonic()
        head, _ = infer(address, f"{LARGE.name}.detect", frame, Wish(deadline_ms=60_000, borrow=borrow), PICTURE)
        return time.monotonic() - began_s, str(head["lender"])

    began_s = time.monotonic()
    with ThreadPoolExecutor(in_flight) as pool:
        rows = list(pool.map(one, frames))
    took_s = time.monotonic() - began_s
    return took_s, max(row[0] for row in rows), Counter(row[1] or "own" for row in rows)


def speed_of(address: str, frames: Sequence[np.ndarray]) -> float:
    """Frames a second that a device does of its own."""
    return len(frames) / ask(address, frames, "", 4)[0]


def speeds_at_once(addresses: Sequence[str], frames: Sequence[np.ndarray]) -> list[float]:
    """The same of several, each kept busy until the slowest is through; only what it did until then counts."""
    done, is_over, lock = [0] * len(addresses), threading.Event(), threading.Lock()

    def keep_busy(index: int) -> None:
        while not is_over.is_set():
            ask(addresses[index], frames[:1], "", 1)
            with lock:
                done[index] += not is_over.is_set()

    began_s = time.monotonic()
    threads = [threading.Thread(target=keep_busy, args=(index,)) for index in range(len(addresses)) for _ in range(4)]
    for thread in threads:
        thread.start()
    while min(done) < len(frames) // 2:
        time.sleep(0.01)
    is_over.set()
    took_s = time.monotonic() - began_s
    for thread in threads:
        thread.join()
    return [count / took_s for count in done]


def inferring(pid: int, address: str, frames: Sequence[np.ndarray]) -> int:
    """The thread of a worker that computes most while it infers, its loop aside; before that others may have more."""

    def cpu_ticks() -> dict[int, int]:
        found = {}
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            found[int(task.name)] = int(fields[11]) + int(fields[12])
        return found

    before = cpu_ticks()
    ask(address, frames, "", 1)
    spent = {tid: ticks - before.get(tid, 0) for tid, ticks in cpu_ticks().items() if tid != pid}
    return max(spent, key=spent.__getitem__)


@contextlib.contextmanager
def throttled_thread(tid: int, share: float, label: str) -> Iterator[str]:
    """One thread has so much of a core; says how."""
    group, text = CGROUP / "cpu" / f"{own_name('swarmd-bench')}-{label}", f"{round(share * 100_000)}"
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text(text)
        (group / "tasks").write_text(str(tid))
        yield f"thread, cgroup cpu.cfs_quota_us {text}"
    finally:
        with contextlib.suppress(OSError):  # It may have ended.
            (CGROUP / "cpu" / "tasks").write_text(str(tid))
        group.rmdir()


def main() -> int:
    """Print a row a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=240)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shares", nargs=3, type=float, default=[0.12, 0.06, 0.03])
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("fleet_makespan needs root, to give each worker its share of a core", file=sys.stderr)
        return 2
    grey = np.load(ZOO / "small-320.golden.npz")["image"][..., None]
    frames = [np.roll(grey, number, axis=1) for number in range(args.frames)]
    with tempfile.TemporaryDirectory(prefix="swarmd-bench-") as folder, contextlib.ExitStack() as stack:
        daemons: list[Daemon] = []
        for name, lending in (("own", "borrow = true"), ("b", "lend = true"), ("c", "lend = true")):
            path = Path(folder) / f"{name}.toml"
            path.write_text(
                f'[inference]\nmodels = ["{LENT}"]\ndeadline_ms = 60000\n[lending]\n{lending}\n'
                'tensors = "127.0.0.1:0"\n'
            )
            join = daemons[0].status()["address"] if daemons else ""
            flags = ("--no-eye", "--inference", "127.0.0.1:0", "--config", str(path))
            daemon = Daemon(Path(folder), name, *flags, join=join)
            stack.callback(daemon.close)
            daemons.append(daemon.up())
        own = daemons[0]
        wait_for(lambda: len((own.status().get("lending") or {}).get("lenders", {})) == 2, "both offers")
        wait_for(lambda: all((one.status()["inference"] or {}).get("models") for one in daemons), "each worker")
        status = [daemon.status()["inference"] for daemon in daemons]
        # Small batches until both lenders have tickets, times and frames.
        seen: Counter[str] = Counter()

        def is_known() -> bool:
            seen.update(ask(own.status()["inference"]["address"], frames[:24], "fleet", IN_FLIGHT)[2])
            return {"b", "c"} <= set(seen)

        wait_for(is_known, "frames that both lenders answer", seen=lambda: seen)
        how = [
            stack.enter_context(
                throttled_thread(inferring(one["pid"], one["address"], frames[:ALONE]), share, daemon.name)
            )
            for daemon, one, share in zip(daemons, status, args.shares, strict=True)
        ]
        for run in range(args.runs):
            addresses = [one["address"] for one in status]
            alone = [speed_of(address, frames[:ALONE]) for address in addresses]
            together = speeds_at_once(addresses, frames[:ALONE])
            took_s, _, by = ask(addresses[0], frames, "fleet", IN_FLIGHT)
            bounds_s = [max(len(frames) / sum(speeds), 1 / max(speeds)) for speeds in (alone, together)]
            print(
                json.dumps({
                    "run": run, "throttled": how, "frames": len(frames), "by": dict(by),
                    "frames_per_s_alone": [round(speed, 2) for speed in alone],
                    "frames_per_s_together": [round(speed, 2) for speed in together], "makespan_s": round(took_s, 2),
                    "ratio_alone": round(took_s / bounds_s[0], 3), "ratio": round(took_s / bounds_s[1], 3),
                    "load": round(os.getloadavg()[0], 1), "cpus": os.cpu_count(),
                }),
                flush=True,
            )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
