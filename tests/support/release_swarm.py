"""The real `BlobSwarm` of every node, on one heap: serial uplinks, a small delay on messages, and losses if wanted.

A word (`tell`, `ask`, `refuse`) is a datagram: with `loss` it may get lost, and what arrives comes in any order within
half a chunk's time. A chunk arrives always, but with `stall` some wait for a connection that says lost packets again,
which takes `STALL_NS` and no uplink.
"""

import heapq
import math
import random
from dataclasses import dataclass
from hashlib import sha256

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.swarm_actions import Ask, Give, Refuse, SwarmAction, Tell
from swarmd_protocols.releases.swarming import BlobSwarm, SwarmingConfig

CHUNK_NS = 1_000_000_000
"""Virtual time that one chunk takes on an uplink of nominal speed."""
STALL_NS = 30 * CHUNK_NS
"""As a second beside chunks of 33 ms: TCP says a packet again after 0.2 s, and after 0.4 and 0.8 more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times over the broadcast floor (Mundinger, Weber, Weiss 2008), bytes over the blob."""

    p50: float
    last: float
    seeder: float
    duplicates: float
    blamed: int


class SwarmWorld:
    """One seeder (node 0), `nodes` receivers, a random graph of the given degree."""

    def __init__(
        self,
        nodes: int,
        chunks: int,
        degree: int,
        seed: int,
        liars: int = 0,
        spread: float = 0.1,
        loss: float = 0.0,
        stall: float = 0.0,
        mutes: int = 0,
    ) -> None:
        self.loss, self.stall = loss, stall
        self.rng = random.Random(seed)
        self.count, self.chunks = nodes, chunks
        self.data = [index.to_bytes(4, "big") for index in range(chunks)]
        hashes = tuple(sha256(one).digest() for one in self.data)
        blob = Blob(4 * chunks, b"", 4, b"")
        config = SwarmingConfig(
            neighbours=degree,
            ask_repeat_ns=8 * CHUNK_NS,
            reorder_ns=6 * CHUNK_NS,
            request_timeout_ns=(120 if stall else 40) * CHUNK_NS,
            upload_timeout_ns=(45 if stall else 20) * CHUNK_NS,
            reoffer_ns=15 * CHUNK_NS,
            backoff_ns=CHUNK_NS,
            retry_ns=300 * CHUNK_NS,
        )
        self.ids = [NodeId(index.to_bytes(16, "big")) for index in range(nodes + 1)]
        self.speed = [1 + self.rng.uniform(-spread, spread) for _ in range(nodes + 1)]
        self.nodes = [
            BlobSwarm(
                blob,
                hashes,
                ((1 << chunks) - 1) if not index else 0,
                random.Random(seed * 7919 + index),
                config,
                super_seed=not index,
            )
            for index in range(nodes + 1)
        ]
        self.liars = set(range(nodes + 1 - liars, nodes + 1))
        self.mutes = set(range(nodes + 1 - liars - mutes, nodes + 1 - liars))
        """They show all there is and answer no request."""
        self.degree = degree
        self.heap: list[tuple[int, int, int, str, int, int]] = []
        self.order = 0
        self.free_at = [0] * (nodes + 1)
        self.sent = [0] * (nodes + 1)
        self.got = 0
        self.blamed = 0
        self.done_at: dict[int, int] = {}

    def push(self, at: int, to: int, what: str, sender: int, value: int) -> None:
        self.order += 1
        heapq.heappush(self.heap, (at, self.order, to, what, sender, value))

    def say(self, now: int, to: int, what: str, sender: int, value: int) -> None:
        """One datagram."""
        delay = CHUNK_NS // 40
        if self.loss:
            if self.rng.random() < self.loss:
                return
            delay = self.rng.randint(CHUNK_NS // 40, CHUNK_NS // 2)
        self.push(now + delay, to, what, sender, value)

    def perform(self, node: int, actions: list[SwarmAction], now: int) -> None:
        for action in actions:
            match action:
                case Tell(to, mask):
                    self.say(now, int.from_bytes(to, "big"), "tell", node, mask)
                case Ask(to, index):
                    self.say(now, int.from_bytes(to, "big"), "ask", node, index)
                case Refuse(to, index):
                    self.say(now, int.from_bytes(to, "big"), "refuse", node, index)
                    self.push(now + CHUNK_NS // 40 + CHUNK_NS, int.from_bytes(to, "big"), "due", node, 0)
                case Give(to, index):
                    start = max(now, self.free_at[node])
                    self.free_at[node] = start + int(CHUNK_NS * self.speed[node])
                    self.sent[node] += 1
                    at = self.free_at[node] + CHUNK_NS // 40
                    if self.stall and self.rng.random() < self.stall:
                        at += STALL_NS
                    self.push(at, int.from_bytes(to, "big"), "chunk", node, index)
                case _:
                    self.blamed += 1

    def run(self, *, with_liars: bool = False) -> Outcome:
        """Until every honest node has the blob; `with_liars`: and those that gave bad chunks as well."""
        exempt = self.mutes if with_liars else self.mutes | self.liars
        edges: set[tuple[int, int]] = set()
        for one in range(self.count + 1):
            degree = sum(one in edge for edge in edges) if self.count < 300 else 0
            while degree < min(self.degree, self.count):
                other = self.rng.randrange(self.count + 1)
                if other != one and (min(one, other), max(one, other)) not in edges:
                    edges.add((min(one, other), max(one, other)))
                    degree += 1
        for one, other in sorted(edges):
            self.perform(one, self.nodes[one].on_neighbour(self.ids[other], 0), 0)
            self.perform(other, self.nodes[other].on_neighbour(self.ids[one], 0), 0)
        self.push(CHUNK_NS, -1, "tick", 0, 0)
        while self.heap and len(self.done_at) < self.count - len(exempt):
            now, _, to, what, sender, value = heapq.heappop(self.heap)
            if now > 20 * (self.chunks + 100) * CHUNK_NS:
                break
            if what == "tick":
                for index, node in enumerate(self.nodes):
                    self.perform(index, node.on_tick(now), now)
                self.push(now + 2 * CHUNK_NS, -1, "tick", 0, 0)
                continue
            node = self.nodes[to]
            if to in self.mutes:
                if what == "tell" and value:
                    self.say(now, sender, "tell", to, node.everything)
            elif what == "tell":
                self.perform(to, node.on_tell(self.ids[sender], value, now), now)
            elif what == "ask":
                self.perform(to, node.on_ask(self.ids[sender], value, now), now)
            elif what == "refuse":
                self.perform(to, node.on_refuse(self.ids[sender], value, now), now)
            elif what == "due":
                self.perform(to, node.on_due(now), now)
            else:
                data = self.data[value] if sender not in self.liars else b"evil"
                self.got += 1
                _, actions = node.on_chunk(self.ids[sender], value, data, now)
                self.perform(to, actions, now)
                if node.complete and to not in self.done_at and to not in exempt:
                    self.done_at[to] = now
        return self.outcome(self.count - len(exempt))

    def outcome(self, expected: int) -> Outcome:
        # The seeder's own uplink bounds everybody (Kumar and Ross 2006), so a slow one raises the floor.
        floor = CHUNK_NS * (max(1.0, self.speed[0]) * self.chunks + math.floor(math.log2(self.count)))
        times = sorted(self.done_at.values())
        assert len(times) == expected, "some node never finished"
        wasted = sum(account.wasted for node in self.nodes for account in node.accounts.values())
        received = sum(account.received for node in self.nodes for account in node.accounts.values())
        return Outcome(
            times[len(times) // 2] / floor,
            times[-1] / floor,
            self.sent[0] / self.chunks,
            wasted / max(1, received),
            self.blamed,
        )
