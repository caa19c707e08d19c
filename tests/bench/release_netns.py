"""A blob through real daemons in network namespaces with slow uplinks (root needed; nothing outside is touched).

    sudo .venv/bin/python -m tests.bench.release_netns [--nodes 8] [--mib 3] [--mbit 8] [--loss 0] [--runs 1]
                                                       [--transport dds [--cast 700]]

One seeder and `nodes` receivers, each `swarmd run` without an eye in a namespace of its own, all on one bridge; egress
is limited with `tc tbf`, loss is `nft` dropping at random on input. Prints times over the broadcast floor
(S/u)(1 + floor(log2 N)/K), the seeder's share, duplicate bytes and suspicions, as one JSON object a run. `channel` is
what all interfaces together sent while it spread, over the file: on one radio channel that is what counts.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from swarmd.api.control import ControlClient
from swarmd.errors import DaemonError
from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import create_fleet
from swarmd.release.author import STATEMENT, sign_file
from swarmd_protocols.releases.statements import BundleFile, Release
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.trust.envelopes import Envelope


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True, capture_output=True)


class Lab:
    """Namespaces and daemons; `close` takes everything away again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tag = f"rl{os.getpid() % 10_000}"
        self.folder = Path(tempfile.mkdtemp(prefix="swarmd-netns-"))
        self.names = [f"{self.tag}n{index}" for index in range(options.nodes + 1)]
        self.processes: list[subprocess.Popen] = []
        self.logs: list[Path] = []

    def build(self) -> None:
        hub = f"{self.tag}hub"
        sh(f"ip netns add {hub} && ip -n {hub} link add br0 type bridge && ip -n {hub} link set br0 up")
        rate = int(self.options.mbit * 1000)
        for index, name in enumerate(self.names):
            veth = f"{self.tag}v{index}"
            sh(
                f"ip netns add {name} && ip link add {veth} type veth peer name eth0 netns {name} && "
                f"ip link set {veth} netns {self.tag}hub && ip -n {self.tag}hub link set {veth} master br0 up && "
                f"ip -n {name} addr add 10.78.0.{index + 1}/24 dev eth0 && ip -n {name} link set eth0 up && "
                f"ip -n {name} link set lo up && "
                f"tc -n {name} qdisc add dev eth0 root tbf rate {rate}kbit burst 16kb latency 80ms"
            )
            if self.options.loss:
                sh(
                    f"ip netns exec {name} nft add table inet t && ip netns exec {name} nft add chain inet t i "
                    f"'{{ type filter hook input priority 0; }}' && ip netns exec {name} nft add rule inet t i "
                    f"iifname eth0 numgen random mod 100 '<' {self.options.loss} drop"
                )

    def start(self) -> None:
        fleet = create_fleet(self.folder / "fleet", "lab")
        config = self.folder / "swarmd.toml"
        config.write_text(
            '[log]\nlevel = "warning"\n[http]\nlisten = "off"\n[models]\nmodel = "lab"\ncache = true\n'
            f'cast_kib_s = {self.options.cast}\n[transport]\ngossip = "{self.options.transport}"\n'
        )
        for index, name in enumerate(self.names):
            home = self.folder / f"id{index}"
            home.mkdir(mode=0o700)
            write_secret_file(home / IDENTITY_FILE, fleet.enrol(f"node-{index}", "lab").to_bytes())
            log = self.folder / f"{index}.log"
            self.logs.append(log)
            command = [
                *("ip", "netns", "exec", name, sys.executable, "-m", "swarmd", "run", "-c", str(config), "--no-eye"),
                *("--identity", str(home), "--listen", f"10.78.0.{index + 1}:7946", "--events", "json"),
                *("--state", str(self.folder / f"s{index}"), "--control", str(self.control(index))),
                *(("--join", "10.78.0.1:7946") if index else ()),
            ]
            with log.open("wb") as out:
                self.processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
                )

    def control(self, index: int) -> Path:
        return self.folder / f"c{index}"

    def ask(self, index: int, verb: str, **arguments: object) -> dict:
        with ControlClient(self.control(index)) as client:
            return client.call(verb, **arguments)

    def channel_bytes(self) -> int:
        """What all interfaces have sent so far, headers included."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        read = [["ip", "netns", "exec", name, "cat", path] for name in self.names]
        return sum(int(subprocess.run(one, capture_output=True, text=True, check=True).stdout) for one in read)

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(6)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for name in [*self.names, f"{self.tag}hub"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


async def wait_until(done, deadline_s: float, what: str) -> None:
    end = time.monotonic() + deadline_s
    while True:
        with contextlib.suppress(DaemonError):
            if done():
                return
        if time.monotonic() > end:
            raise SystemExit(f"waited {deadline_s:.0f} s for {what}")
        await asyncio.sleep(0.2)


async def measure(options: argparse.Namespace) -> dict:
    lab = Lab(options)
    try:
        lab.build()
        lab.start()
        everybody = range(options.nodes + 1)
        alive = lambda: all(  # noqa: E731
            sum(state == "alive" for state in lab.ask(index, "status")["members"].values()) == options.nodes + 1
            for index in everybody
        )
        await wait_until(alive, 60, "all members")
        suspicions = count(lab)
        data = random.Random(7).randbytes(int(options.mib * (1 << 20)))
        blob, _ = describe(data, options.chunk << 10)
        release = Release("lab", 1, 1, b"", (BundleFile("model.bin", "model", blob),))
        path = lab.folder / STATEMENT
        path.write_bytes(Envelope("release", release.payload()).encode())
        keys = sorted((lab.folder / "fleet" / "keys").glob("release-*.key"))
        seeds = [bytes.fromhex(key.read_text().split("seed ")[1].strip()) for key in keys[:2]]
        envelope = sign_file(path, seeds)
        put(lab, data, options.chunk << 10)
        before = lab.channel_bytes()
        began = time.monotonic()
        lab.ask(0, "model_publish", envelopes=[envelope.encode().hex()])
        done: dict[int, float] = {}
        floor = len(data) * 8 / (options.mbit * 1e6) * (1 + math.floor(math.log2(options.nodes)) / blob.chunk_count)
        while len(done) < options.nodes and time.monotonic() - began < 12 * floor + 20:
            await asyncio.sleep(0.05)
            for index in range(1, options.nodes + 1):
                if index not in done:
                    found = lab.ask(index, "model_status")["models"].get("lab", {}).get("releases", [])
                    if found and found[0]["chunks"][0] == blob.chunk_count:
                        done[index] = time.monotonic() - began
        channel = lab.channel_bytes() - before
        await asyncio.sleep(1.0)
        traffic = [lab.ask(index, "model_status")["traffic"] for index in everybody]
        times = sorted(done.values())
        received = sum(one["received"] for one in traffic)
        return {
            "nodes": options.nodes, "mib": options.mib, "mbit": options.mbit, "chunks": blob.chunk_count,
            "loss_percent": options.loss, "done": len(done), "floor_s": round(floor, 3),
            "p50": round(times[len(times) // 2] / floor, 3) if times else None,
            "last": round(times[-1] / floor, 3) if times else None,
            "seeder": round(traffic[0]["sent"] / len(data), 3),
            "duplicates": round(sum(one["wasted"] for one in traffic) / max(1, received), 4),
            "transport": options.transport, "channel": round(channel / len(data), 2),
            "cast_pieces": traffic[0]["cast_pieces_out"],
            "suspicions": count(lab) - suspicions, "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
    finally:
        lab.close()


def put(lab: Lab, data: bytes, chunk_bytes: int) -> None:
    import base64

    for offset in range(0, len(data), 32_768):
        piece = base64.b64encode(data[offset : offset + 32_768]).decode()
        lab.ask(0, "model_put", name="lab", offset=offset, size=len(data), data=piece, chunk=chunk_bytes)
    while not lab.ask(0, "model_put", name="lab", offset=len(data), size=len(data), data="")["done"]:
        time.sleep(0.02)


def count(lab: Lab) -> int:
    lines = [line for log in lab.logs for line in log.read_text("utf-8", "replace").splitlines() if line[:1] == "{"]
    return sum(json.loads(line).get("event") in ("suspect", "failed") for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--mib", type=float, default=3)
    parser.add_argument("--mbit", type=float, default=8)
    parser.add_argument("--chunk", type=int, default=32, help="KiB")
    parser.add_argument("--loss", type=int, default=0, help="per cent of packets dropped on input")
    parser.add_argument("--transport", default="udp", choices=["udp", "zmq", "dds"])
    parser.add_argument("--cast", type=int, default=700, help="KiB/s where the transport casts; 0: never")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the namespaces go, whoever ends us.
    for _ in range(options.runs):
        print(json.dumps(asyncio.run(measure(options))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
