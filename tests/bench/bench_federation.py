"""Many gateways below one region through two brokers or routers: messages, CPU, memory, losses; kills and cuts.

    python -m tests.bench.bench_federation --gateways 1000 --pipe zenoh
    python -m tests.bench.bench_federation --gateways 1000 --pipe mqtt --kill 10 --cut 15:10
    python -m tests.bench.bench_federation --gateways 100 --pipe zenoh --freeze 10:8

Every gateway is real from its outbox on disk to its sealed frames, with a swarm, a root and keys of its own (NaCl); a
thing it says is a sighting that its node signed a moment before. Gateways live in worker processes; those of one worker
share its connection to each pipe, so connections are not what is counted here (`--sessions` counts them alone). The
region and the pipes are processes as in the field. What they use is CPU time of their own; waiting times belong to this
machine and its load. `--kill S` kills the first pipe S seconds after the start, `--freeze S:T` stops it for T seconds
(SIGSTOP, its connections stay; without T until everything is above), `--cut S:T` stops the region. In the end every
worker waits until the region has everything. With `--signed-before` workers sign what the swarms' nodes see before the
start: in the field that is no gateway's work. `said_done_s` is when the last object was said. One JSON object.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from swarmd.config.bridges import MqttConfig
from swarmd.federation.outbox import FILE_NAME, Outbox, Waiting
from swarmd.federation.pipes import pipe_maker
from swarmd.federation.sending import Sending
from swarmd.federation.store import FILE_NAME as REGION_FILE
from swarmd.federation.uplink import PREFIX, Place, Uplink
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.federation.objects import Member, ObjectRow, encode_object
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import Pair, RowKind, TrustRow, Way, encode_row
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Sighting, encode_facts
from swarmd_protocols.state.dedup.entry import entry_of
from swarmd_protocols.trust.identity import dev_root, make_dev_identity

CRYPTO = NaClCrypto()
REGION_SEED = b"R" * 32
MINUTE = 60_000 << 16
PUMP_S = 0.5
"""Seconds between two looks at what has to leave again; a new word leaves at once."""
WAIT_S = 240.0
"""Seconds until everything that waits must be above."""


def secret_of(number: int) -> bytes:
    return f"the secret of the bench's swarm {number}".encode()


class Gateway:
    """The sending half of one gateway, with its swarm's one node that sees."""

    def __init__(self, number: int, folder: Path, outbox_bytes: int = 1 << 26) -> None:
        self.clock_ns = time.monotonic_ns
        self.name, secret = f"s{number}", secret_of(number)
        self.identity = make_dev_identity(secret, self.name, "gw", CRYPTO, roles=[ROLE])
        self.author = make_dev_identity(secret, self.name, "eye", CRYPTO)
        self.signer = NodeSigner(CRYPTO, self.author.seed)
        self.outbox = Outbox(folder / self.name / FILE_NAME, outbox_bytes, 1e9)
        self.key = Pin(self.name, self.name, dev_root(secret, CRYPTO)).key
        pair = Pair(CRYPTO, self.identity.seed, CRYPTO.public_key(REGION_SEED))
        self.sending = Sending(self.outbox, pair, Place(self.key, Way.UP, self.identity.node), 2, self._on_down)
        self.serial = 0
        self.seen = deque[tuple[bytes, Member, bytes]]()
        """What was signed beforehand and has not been said."""
        self.said_s: dict[bytes, float] = {}
        self.delays_s: list[float] = []
        self.refused: list[str] = []
        self._introduce()

    def _introduce(self) -> None:
        rows = [
            Waiting(RowKind.TRUST, one.certificate[-64:], encode_row(TrustRow("node", one.certificate)))
            for one in (self.identity, self.author)
        ]
        self.outbox.put(rows, round(time.time() * 1000))

    def see(self) -> tuple[bytes, Member, bytes]:
        """What the swarm's node does: a thing seen and signed; its id, its member and the batch."""
        serial = self.serial + len(self.seen) + 1
        seen = Sighting(
            "hot-spot", LATTICE, (serial % 1_000, serial // 1_000), False, True, serial * 50, 0,
            (400, 0, 400), 900, MINUTE, 2 * MINUTE, serial, b"modelsha", (),
        )  # fmt: skip
        batch = seal_batch(
            Stream.FACTS, self.author.node, (1, serial), (1, 1), bytes(16) if serial == 1 else b"p" * 16,
            MINUTE, encode_facts(Facts([seen])), self.signer,
        )  # fmt: skip
        key = bytes.fromhex(entry_of(self.author.node, seen, batch.dot, "hot-spot").object_id)
        return key, Member(0, *seen.key), batch.raw

    def say(self) -> None:
        stamp = round(time.time() * 1000)
        key, member, raw = self.seen.popleft() if self.seen else self.see()
        self.serial += 1
        row = ObjectRow(stamp, key, "hot-spot", (member,))
        self.outbox.put([Waiting(RowKind.OBJECT, key, encode_object(row), (raw,))], stamp)
        self.said_s[key] = time.monotonic()
        self.sending.pump(self.clock_ns())

    def _on_down(self, down: Any, done: Any) -> None:
        self.refused += [why for _, why in down.refused]
        if down.wanted:
            self._introduce()
        for row in done:
            at_s = self.said_s.pop(row.key, None)
            if at_s is not None:
                self.delays_s.append(time.monotonic() - at_s)


async def work(args: argparse.Namespace) -> dict[str, Any]:
    """One worker: so many gateways, from a first number on."""
    first, count = map(int, args.worker.split(":"))
    folder = Path(args.folder) / f"w{first}"
    gateways = [Gateway(number, folder) for number in range(first, first + count)]
    by_place = {(one.key, one.identity.node): one for one in gateways}

    def hearer(path: int) -> Any:
        def hear(place: Place, frame: bytes) -> None:
            one = by_place.get((place.swarm, NodeId(place.gateway)))
            if one is not None and one.sending.on_frame(path, frame, time.monotonic_ns()) and len(one.outbox):
                one.sending.pump(time.monotonic_ns())

        return hear

    if args.signed_before:
        for one in gateways:
            for _ in range(int(args.seconds / args.every)):
                one.seen.append(one.see())
    make = pipe_maker(MqttConfig(), PREFIX)
    listens = [Place(one.key, Way.DOWN, one.identity.node).path(PREFIX) for one in gateways]
    uplinks: list[Uplink] = [make(path, listens, hearer(at)) for at, path in enumerate(args.paths.split(","))]
    for one in gateways:
        one.sending.uplinks = uplinks
    tasks = [asyncio.create_task(uplink.run()) for uplink in uplinks]
    while not all(uplink.connected for uplink in uplinks):
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    begin_s = float(await asyncio.to_thread(sys.stdin.readline))
    cpu_s = time.process_time()
    late_s = 0.0

    async def pump() -> None:
        while True:
            for at, one in enumerate(gateways):
                if len(one.outbox):
                    one.sending.pump(time.monotonic_ns())
                if at % 20 == 19:
                    await asyncio.sleep(0)
            await asyncio.sleep(PUMP_S)

    tasks.append(asyncio.create_task(pump()))
    for turn in range(int(args.seconds / args.every)):
        for at, one in enumerate(gateways):
            due_s = begin_s + (turn + at / count) * args.every
            if due_s > time.time():
                await asyncio.sleep(due_s - time.time())
            elif at % 20 == 0:
                await asyncio.sleep(0)
            late_s = max(late_s, time.time() - due_s)
            one.say()
    cpu_said_s = time.process_time() - cpu_s
    said_done_s = time.time() - begin_s
    deadline = time.monotonic() + WAIT_S
    while any(len(one.outbox) for one in gateways) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    delays = [delay for one in gateways for delay in one.delays_s]
    return {
        "said": sum(one.serial for one in gateways),
        "left": sum(len(one.outbox) for one in gateways),
        "dropped": sum(one.outbox.dropped_rows for one in gateways),
        "refused": sum(len(one.refused) for one in gateways),
        "frames": sum(one.sending.counts["frames"] for one in gateways),
        "bytes": sum(one.sending.counts["bytes"] for one in gateways),
        "switches": sum(one.sending.flow.switches for one in gateways),
        "waiting_most_bytes": max(one.outbox.size_bytes for one in gateways),
        "cpu_s": cpu_said_s,
        "late_s": late_s,
        "ended_s": time.time() - begin_s,
        "said_done_s": said_done_s,
        "delays_s": delays,
    }


class Process:
    """A child and what it used."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def used(self) -> tuple[float, float]:
        """(CPU seconds, resident MB); zeros of one that is gone."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0.0, 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), pages * 4096 / 1e6

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start_pipe(kind: str, port: int, folder: Path) -> Process:
    """A broker or a router on a port of loopback."""
    if kind == "zenoh":
        words = (sys.executable, "-m", "swarmd", "region", "router", f"zenoh://?listen=127.0.0.1:{port}")
    else:
        mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if mosquitto is None:
            raise SystemExit("mosquitto is not installed: apt install mosquitto")
        file = folder / f"broker-{port}.conf"
        file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        words = (mosquitto, "-c", str(file))  # type: ignore[assignment]
    return Process(*words)


def make_region(folder: Path, gateways: int) -> None:
    """A region's folder that lets so many swarms in."""
    (folder / "roots").mkdir(parents=True)
    key = folder / "region.key"
    key.write_bytes(REGION_SEED)
    key.chmod(0o600)
    rows = []
    for number in range(gateways):
        name = f"s{number}"
        (folder / "roots" / f"{name}.root").write_bytes(dev_root(secret_of(number), CRYPTO))
        rows.append(f'[[swarm]]\nname = "{name}"\nswarm = "{name}"\nconfirm_observers = 1\n')
    (folder / "region.toml").write_text("\n".join(rows))


def acts(kill: float, freeze: str, cut: str) -> list[tuple[float, str, signal.Signals]]:
    """What is done to whom, the earliest first: (seconds after the start, "pipe" or "region", signal)."""
    found = [(kill, "pipe", signal.SIGKILL)] if kill else []
    for who, told in (("pipe", freeze), ("region", cut)):
        at_s, _, for_s = told.partition(":")
        if at_s:
            found.append((float(at_s), who, signal.SIGSTOP))
        if for_s:
            found.append((float(at_s) + float(for_s), who, signal.SIGCONT))
    return sorted(found)


def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All processes; returns the figures."""
    ports = [free_port(), free_port()]
    scheme = "zenoh" if args.pipe == "zenoh" else "mqtt"
    paths = [f"{scheme}://127.0.0.1:{port}" for port in ports]
    make_region(folder / "region", args.gateways)
    pipes = [start_pipe(args.pipe, port, folder) for port in ports]
    named = [word for path in paths for word in ("--path", path)]
    region = Process(sys.executable, "-m", "swarmd", "region", "run", str(folder / "region"), *named)
    assert region.process.stdout is not None
    region.process.stdout.readline()
    each = -(-args.gateways // args.workers)
    workers = []
    for first in range(0, args.gateways, each):
        words = ("--worker", f"{first}:{min(each, args.gateways - first)}", "--folder", str(folder))
        rest = ["--paths", ",".join(paths), "--seconds", str(args.seconds), "--every", str(args.every)]
        rest += ["--signed-before"] if args.signed_before else []
        workers.append(Process(sys.executable, "-m", "tests.bench.bench_federation", *words, *rest))
    processes = [*pipes, region, *workers]
    try:
        for one in workers:
            assert one.process.stdout is not None
            assert one.process.stdout.readline().strip() == "ready", "a worker did not come up"
        began = [one.used()[0] for one in (*pipes, region)]
        begin_s = time.time() + 1.0
        for one in workers:
            assert one.process.stdin is not None
            one.process.stdin.write(f"{begin_s}\n")
            one.process.stdin.flush()
        for at_s, who, what in acts(args.kill, args.freeze, args.cut):
            time.sleep(max(0.0, begin_s + at_s - time.time()))
            (region if who == "region" else pipes[0]).process.send_signal(what)
        told = []
        for one in workers:
            assert one.process.stdout is not None
            told.append(json.loads(one.process.stdout.readline()))
        used = [one.used() for one in (*pipes, region)]
    finally:
        for one in processes:
            one.end()
    with contextlib.closing(sqlite3.connect(f"file:{folder / 'region' / REGION_FILE}?mode=ro", uri=True)) as store:
        [[readable]] = store.execute("SELECT count(*) FROM objects").fetchall()
    said = sum(one["said"] for one in told)
    took_s = max(one["ended_s"] for one in told)
    delays = sorted(delay for one in told for delay in one["delays_s"])
    cpu_s = [round(now[0] - then, 2) for now, then in zip(used, began, strict=True)]
    return {
        "said": said,
        "readable": readable,
        "lost": said - readable,
        **{name: sum(one[name] for one in told) for name in ("left", "dropped", "refused", "frames", "switches")},
        "said_done_s": round(max(one["said_done_s"] for one in told), 1),
        "took_s": round(took_s, 1),
        "late_most_s": round(max(one["late_s"] for one in told), 2),
        "messages_s": round(2 * sum(one["frames"] for one in told) / took_s),
        "up_kb_s": round(sum(one["bytes"] for one in told) / took_s / 1e3, 1),
        "ack_s": {
            "p50": round(statistics.median(delays), 3),
            "p99": round(delays[int(0.99 * (len(delays) - 1))], 3),
            "max": round(delays[-1], 3),
        },
        "cpu_ms_an_object": {
            "pipes": round(1e3 * sum(cpu_s[:2]) / said, 3),
            "region": round(1e3 * cpu_s[2] / said, 3),
            "gateways": round(1e3 * sum(one["cpu_s"] for one in told) / said, 3),
        },
        "resident_mb": {"pipes": [round(one[1], 1) for one in used[:2]], "region": round(used[2][1], 1)},
        "outbox_most_bytes": max(one["waiting_most_bytes"] for one in told),
    }


def sessions(kind: str, count: int, folder: Path) -> dict[str, Any]:
    """What so many connections of gateways cost one broker or router, each listening at its place."""
    port = free_port()
    pipe = start_pipe(kind, port, folder)

    async def live() -> dict[str, Any]:
        make = pipe_maker(MqttConfig(), PREFIX)
        address = f"{'zenoh' if kind == 'zenoh' else 'mqtt'}://127.0.0.1:{port}"
        uplinks: list[Uplink] = []
        tasks = []
        figures: dict[str, Any] = {"sessions": count}

        async def open_(more: int) -> None:
            for _ in range(more):
                place = Place(os.urandom(16), Way.DOWN, NodeId(os.urandom(16)))
                uplinks.append(make(address, [place.path()], lambda place, frame: None))
                tasks.append(asyncio.create_task(uplinks[-1].run()))
                if len(uplinks) % 16 == 0:
                    while not all(one.connected for one in uplinks):
                        await asyncio.sleep(0.02)

        await open_(1)
        while not uplinks[0].connected:
            await asyncio.sleep(0.02)
        _, before_mb = pipe.used()
        began = time.monotonic()
        await open_(count - 1)
        while not all(one.connected for one in uplinks):
            await asyncio.sleep(0.02)
        figures["opened_s"] = round(time.monotonic() - began, 1)
        cpu_s, mb = pipe.used()
        await asyncio.sleep(10.0)
        figures["idle_cpu_percent"] = round((pipe.used()[0] - cpu_s) * 10, 2)
        figures["kb_a_session"] = round((mb - before_mb) * 1e3 / (count - 1), 1)
        figures["resident_mb"] = round(mb, 1)
        os.write(1, (json.dumps(figures) + "\n").encode())
        pipe.end()
        os._exit(0)

    return asyncio.run(live())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=30, help="so long objects are said")
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="each says one object every S seconds")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pipe", choices=["mqtt", "zenoh"], default="zenoh")
    parser.add_argument("--signed-before", action="store_true", help="what nodes sign is signed before the start")
    parser.add_argument("--kill", type=float, default=0.0, metavar="S")
    parser.add_argument("--freeze", default="", metavar="S[:T]")
    parser.add_argument("--cut", default="", metavar="S:T")
    parser.add_argument("--sessions", type=int, default=0, metavar="N", help="only connections, so many")
    for hidden in ("--worker", "--folder", "--paths"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(asyncio.run(work(args))), flush=True)
        os._exit(0)
    with tempfile.TemporaryDirectory() as text:
        if args.sessions:
            sessions(args.pipe, args.sessions, Path(text))
        asked = {
            name: getattr(args, name)
            for name in ("pipe", "gateways", "seconds", "every", "signed_before", "workers", "kill", "freeze", "cut")
        }
        print(json.dumps({**asked, **run(args, Path(text)), "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
