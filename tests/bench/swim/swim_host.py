"""The bench's own network: a private namespace, packet rules in it, and counters of processes and of loopback.

Every agent has a loopback address of its own and runs under a group id of its own. Group ids tell senders apart: on
loopback the kernel gives TCP the source 127.0.0.1 whatever the agent is bound to. Packets are dropped where they
arrive; dropped where they leave, the sender would be told.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass

GOSSIP_PORT = 7946
CONTROL_PORT = 7373
_MARKER = "SWARMD_SWIM_BENCH_NAMESPACE"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_TABLE = "swim_bench"


def enter_namespace() -> None:
    """Continue in a private network namespace, where drops and counters touch nothing else."""
    if os.environ.get(_MARKER) != "1":
        if os.geteuid() != 0:
            sys.exit("bench-swim: needs root, for a network namespace of its own; run it with sudo")
        os.environ[_MARKER] = "1"
        os.execvp(
            "unshare", ["unshare", "--net", "--", sys.executable, "-m", "tests.bench.swim.swim_bench", *sys.argv[1:]]
        )
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def address(index: int) -> str:
    """Agent `index`'s loopback address."""
    return f"127.0.{1 + index // 200}.{1 + index % 200}"


def group_id(index: int) -> int:
    """Agent `index`'s group id."""
    return 30_000 + index


class Rules:
    """Packet rules, replaced as a whole; none while `set([])`."""

    def set(self, drops: list[str], agents: int = 0) -> None:
        """Drop what matches any of `drops` (nft expressions on arriving packets).

        Args:
            drops: Empty removes everything.
            agents: How many agents' packets are marked with their sender's group id.
        """
        subprocess.run(["nft", "delete", "table", "ip", _TABLE], capture_output=True, check=False)
        if not drops:
            return
        marks = ", ".join(f"{group_id(i)} : {group_id(i)}" for i in range(agents))
        mark = f"meta mark set meta skgid map {{ {marks} }}" if marks else ""
        text = (
            f"table ip {_TABLE} {{\n"
            f"chain leaving {{ type filter hook output priority 0; {mark}\n}}\n"
            "chain arriving { type filter hook input priority 0;\n"
            + "\n".join(f"{drop} drop" for drop in drops)
            + "\n}\n}"
        )
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)

    def lose(self, percent: int) -> None:
        """Lose this share of all gossip packets, each on its own; the control port is spared."""
        spared = f"tcp dport != {CONTROL_PORT} tcp sport != {CONTROL_PORT}"
        chance = f"numgen random mod 100 < {percent}"
        self.set([f"meta l4proto udp {chance}", f"meta l4proto tcp {spared} {chance}"])

    def black_out(self, victim: int, agents: int) -> None:
        """Nothing reaches one agent, and nothing of it reaches anybody; nobody is told."""
        self.set([f"ip daddr {address(victim)}", f"meta mark {group_id(victim)}"], agents)

    def cut(self, left: list[int], right: list[int], agents: int) -> None:
        """Two halves that cannot hear each other."""
        self.set([_between(left, right), _between(right, left)], agents)


def _between(senders: list[int], receivers: list[int]) -> str:
    marks = ", ".join(str(group_id(i)) for i in senders)
    return f"meta mark {{ {marks} }} ip daddr {{ {', '.join(address(i) for i in receivers)} }}"


@dataclass(frozen=True)
class Sample:
    """Counters at one moment."""

    at_s: float
    loopback_bytes: int
    loopback_packets: int
    machine_s: float
    own_s: float
    cpu_s: dict[int, float]


def sample(pids: list[int]) -> Sample:
    """Read all counters."""
    sent_bytes, sent_packets = _loopback()
    return Sample(
        time.monotonic(), sent_bytes, sent_packets, machine_busy_s(), time.process_time(), {p: _cpu_s(p) for p in pids}
    )


def usage(before: Sample, pids: list[int]) -> dict[str, float]:
    """What agents and machine used since `before`, an agent and a second."""
    after = sample(pids)
    seconds, count = after.at_s - before.at_s, len(pids)
    cpu = sum(after.cpu_s[pid] - before.cpu_s[pid] for pid in pids)
    others = after.machine_s - before.machine_s - cpu - (after.own_s - before.own_s)
    resident = sorted(_resident_mb(pid) for pid in pids)
    return {
        "seconds": round(seconds, 1),
        "bytes_per_s": round((after.loopback_bytes - before.loopback_bytes) / seconds / count, 1),
        "packets_per_s": round((after.loopback_packets - before.loopback_packets) / seconds / count, 2),
        "cpu_s_per_minute": round(cpu / count / seconds * 60, 3),
        "rss_mb_median": round(resident[count // 2], 1),
        "rss_mb_max": round(resident[-1], 1),
        "other_cpu_cores": round(others / seconds, 2),
    }


def machine_busy_s() -> float:
    """CPU seconds that anything on the machine has used since boot."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields[:3]) + sum(fields[5:])) / _TICKS_PER_S


def _loopback() -> tuple[int, int]:
    with open("/proc/net/dev", encoding="ascii") as file:
        row = next(line for line in file if line.strip().startswith("lo:"))
    fields = row.partition(":")[2].split()
    return int(fields[8]), int(fields[9])


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
