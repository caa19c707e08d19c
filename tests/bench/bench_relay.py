"""Frames between far members of a simulated mesh: how many arrive, and when.

    python -m tests.bench.bench_relay mesh-mobile-50 --speed 5 --seed 1

From 20 s on somebody drawn sends 104 bytes, reliably, to somebody drawn that it does not hear. Nobody fails.
"""

import argparse
import random
from typing import NamedTuple

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Command
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.mesh.relay import Relay
from swarmd_protocols.swim.messages import Sub
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation

S, MS = 1_000_000_000, 1_000_000
_FROM_S, _REST_S = 20, 5
_MARK = b"\x01MARK"


class Relayed(NamedTuple):
    """What one run gave."""

    sent: int
    took_ms: list[int]
    """Of those that arrived, in order."""
    bytes_node_s: float


def relayed(name: str, speed_m_s: float, seed: int, seconds: int, gap_ms: int) -> Relayed:
    """One run.

    Args:
        name: Of the scenario.
        speed_m_s: Of its nodes; 0: as it says.
        seed: Decides everything.
        seconds: Of the run, the last five without new frames.
        gap_ms: Between two frames of all nodes together.
    """
    sound = Relay.__init__, Relay.on_command
    try:
        return _run(name, speed_m_s, seed, seconds, gap_ms)
    finally:
        Relay.__init__, Relay.on_command = sound  # type: ignore[method-assign]


def _run(name: str, speed_m_s: float, seed: int, seconds: int, gap_ms: int) -> Relayed:
    moves = {"mobility.speed_m_s": speed_m_s} if speed_m_s else {}
    run = Simulation(
        load_scenario(name, {"swarm.seconds": seconds, "checks.settle_s": float(_REST_S), "fault": [], **moves}), seed
    )
    sent: list[int] = []
    took_ns: dict[int, int] = {}
    rng = random.Random(seed)
    opens = Relay.__init__

    def begins(self: Relay, core: object, seals: object, deliver: object) -> None:
        def arrives(member: Member, body: bytes) -> None:
            at = body.find(_MARK)
            if at < 0:
                deliver(member, body)  # type: ignore[operator]
                return
            number = int.from_bytes(body[at + len(_MARK) :][:4], "big")
            took_ns.setdefault(number, run.engine.now_ns - sent[number])

        opens(self, core, seals, arrives)  # type: ignore[arg-type]

    def asked(self: Relay, request: tuple[NodeId, bytes], now_ns: int) -> list[SubEffect]:
        return self.carry(self._core.table.by_node[request[0]], encode(Sub("bench", request[1])), sure=True)

    Relay.__init__, Relay.on_command = begins, asked  # type: ignore[method-assign, assignment]

    def say(_: object = None) -> None:
        host = rng.choice([one for one in run.hosts if one.process_up])
        far = [one for one in host.node._core.table.by_node.values() if one.where < 0 and one.state in REACHABLE]
        if far:
            sent.append(run.engine.now_ns)
            payload = _MARK + (len(sent) - 1).to_bytes(4, "big") + bytes(95)
            host.handle(Command("relay", (rng.choice(far).node, payload)))
        if run.engine.now_ns < (seconds - _REST_S) * S:
            run.engine.at(run.engine.now_ns + gap_ms * MS, say)

    run.engine.at(_FROM_S * S, say)
    figures = run.run().figures
    return Relayed(len(sent), sorted(one // MS for one in took_ns.values()), float(str(figures["bytes_per_node_s"])))


def measure(name: str, speed_m_s: float, seed: int, seconds: int, gap_ms: int) -> str:
    """One run as `relayed` makes it, in words."""
    sent, took_ms, bytes_node_s = relayed(name, speed_m_s, seed, seconds, gap_ms)
    return (
        f"{name} seed {seed}: {len(took_ms)} of {sent} arrive, {100 * len(took_ms) / sent:.2f} %; "
        f"p50 {took_ms[len(took_ms) // 2]} ms, p99 {took_ms[len(took_ms) * 99 // 100]} ms; "
        f"{bytes_node_s} B/s a node"
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario")
    parser.add_argument("--speed", type=float, default=0.0, metavar="M_S")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--gap-ms", type=int, default=40)
    args = parser.parse_args()
    print(measure(args.scenario, args.speed, args.seed, args.seconds, args.gap_ms))


if __name__ == "__main__":
    main()
