"""A small deterministic network for protocol tests: virtual time, loss, delay, cuts, frozen and dead hosts."""

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from swarmd_protocols.crypto import Crypto, ModelCrypto
from swarmd_protocols.effects import (
    REFUSED,
    CancelTimer,
    DatagramReceived,
    Effect,
    Event,
    HostAnswer,
    HostProbed,
    MemberChanged,
    MemberState,
    Persist,
    ProbeHost,
    SendDatagram,
    SendFailed,
    SendStream,
    SetTimer,
    Started,
    StreamReceived,
    TimerFired,
    TimerKey,
    UserEventDelivered,
)
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.reader import NEXT_NS
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.trust.identity import make_dev_identity

MS = 1_000_000
S = 1_000_000_000
TICK: TimerKey = ("swim", "tick")
SECRET = b"a fleet for tests only"


def read_whole(node: Node, event: Event, now_ns: int) -> list[Effect]:
    """The effects of a frame, all slices of it read at once."""
    effects = node.handle(event, now_ns)
    while node._reader.waiting_bytes:
        now_ns += NEXT_NS
        effects += node.handle(TimerFired(TICK), now_ns)
    return effects


class Host:
    """One node's place in the network."""

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.node = node
        self.up = True
        self.frozen = False
        self.dark = False
        self.life = 0
        self.due: dict[TimerKey, tuple[int, int]] = {}
        self.waiting: list[Event] = []
        self.journal: dict[bytes, bytes] = {}
        self.bytes_out = 0
        self.packets_out = 0


class Net:
    """N nodes and what lies between them."""

    def __init__(
        self,
        count: int,
        seed: int = 1,
        *,
        swim: SwimConfig | None = None,
        crypto: Crypto | None = None,
        loss: float = 0.0,
        delay_ns: int = MS,
        start: bool = True,
        subs: Callable[[int], list[Any]] | None = None,
        host_answers: bool = True,
        icmp: bool = True,
    ) -> None:
        self.rng = Random(seed)
        self.now = 10 * S
        self.loss = loss
        self.delay_ns = delay_ns
        self.swim = swim or SwimConfig()
        self.crypto = crypto or ModelCrypto()
        self.host_answers = host_answers
        self.icmp = icmp
        self.subs = subs or (lambda index: [])
        self.blocked: set[tuple[int, int]] = set()
        self.slow_ns: dict[tuple[int, int], int] = {}
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.log: list[tuple[int, int, Effect]] = []
        self.frames: list[tuple[int, int, bytes]] = []
        self.keep_frames = False
        self.events = 0
        self.kinds: Counter[str] = Counter()
        self.hosts = [Host(index, self.make(index, {})) for index in range(count)]
        if start:
            for index in range(count):
                self.feed(index, Started())

    def make(self, index: int, journal: dict[bytes, bytes]) -> Node:
        identity = make_dev_identity(SECRET, "test", f"n{index:03d}", self.crypto)
        seeds = () if index == 0 else (self.address(0),)
        config = NodeConfig(seeds=seeds, version="1", capability="eye", swim=self.swim)
        rng = Random(self.rng.getrandbits(64))
        return Node(identity, config, self.crypto, rng, journal, self.subs(index), self.address(index))

    @staticmethod
    def address(index: int) -> str:
        return f"10.0.{index // 250}.{index % 250 + 1}:7946"

    @staticmethod
    def index(address: str) -> int:
        parts = address.split(":")[0].split(".")
        return int(parts[2]) * 250 + int(parts[3]) - 1

    # --- time ------------------------------------------------------------------------------------------------------

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.heap, (due_ns, self.order, call))

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * S)
        while self.heap and self.heap[0][0] <= end:
            self.now, _, call = heapq.heappop(self.heap)
            call()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds: float, step: float = 0.01) -> float | None:
        begin = self.now
        while self.now < begin + int(seconds * S):
            if condition():
                return (self.now - begin) / S
            self.run(step)
        return (self.now - begin) / S if condition() else None

    # --- nodes -----------------------------------------------------------------------------------------------------

    def feed(self, index: int, event: Event) -> None:
        host = self.hosts[index]
        if not host.up:
            return
        if host.frozen:
            host.waiting.append(event)
            return
        self.events += 1
        self.perform(host, host.node.handle(event, self.now))

    def perform(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendDatagram):
                assert len(effect.data) <= 1200
                host.bytes_out += len(effect.data) + 42
                host.packets_out += 1
                if self.keep_frames:
                    self.frames.append((host.index, self.index(effect.destination), effect.data))
                self.carry(host, effect.destination, DatagramReceived(self.address(host.index), effect.data), self.loss)
            elif isinstance(effect, SendStream):
                self.kinds["streams"] += 1
                self.carry(host, effect.destination, StreamReceived(self.address(host.index), effect.data), 0.0)
            elif isinstance(effect, SetTimer):
                self.set_timer(host, effect)
            elif isinstance(effect, CancelTimer):
                host.due.pop(effect.key, None)
            elif isinstance(effect, Persist):
                if effect.value is None:
                    host.journal.pop(effect.key, None)
                else:
                    host.journal[effect.key] = effect.value
            elif isinstance(effect, ProbeHost):
                self.probe_host(host, effect)
            else:
                self.log.append((self.now, host.index, effect))

    def set_timer(self, host: Host, effect: SetTimer) -> None:
        self.order += 1
        mark = (effect.at_ns, self.order)
        host.due[effect.key] = mark
        life = host.life

        def fire() -> None:
            if host.life == life and host.due.get(effect.key) == mark:
                if not host.frozen:
                    del host.due[effect.key]
                self.feed(host.index, TimerFired(effect.key))

        self.at(max(self.now, effect.at_ns), fire)

    def carry(self, host: Host, destination: str, event: Event, loss: float) -> None:
        target = self.index(destination)
        if target >= len(self.hosts):
            return
        other = self.hosts[target]
        if host.dark or other.dark or (host.index, target) in self.blocked or self.rng.random() < loss:
            return
        delay = self.delay_ns + int(self.rng.random() * self.delay_ns / 4)
        delay += self.slow_ns.get((host.index, target), 0)
        if not other.up:
            if self.icmp and isinstance(event, DatagramReceived) and self.rng.random() >= loss:
                self.at(self.now + 2 * delay, lambda: self.feed(host.index, SendFailed(destination, REFUSED)))
            return
        self.at(self.now + delay, lambda: self.feed(target, event))

    def probe_host(self, host: Host, effect: ProbeHost) -> None:
        if not self.host_answers:
            return
        target = self.index(effect.destination)
        if target >= len(self.hosts):
            return
        other = self.hosts[target]
        cut = host.dark or other.dark or (host.index, target) in self.blocked or (target, host.index) in self.blocked
        lost = self.rng.random() < 1 - (1 - self.loss) ** 2
        if cut or lost:
            answer, after = HostAnswer.SILENT, effect.timeout_ns
        else:
            answer, after = (HostAnswer.OPEN if other.up else HostAnswer.REFUSED), 2 * self.delay_ns
        self.at(self.now + after, lambda: self.feed(host.index, HostProbed(effect.destination, answer)))

    def kill(self, index: int) -> None:
        host = self.hosts[index]
        host.up = False
        host.life += 1
        host.due.clear()
        host.waiting.clear()

    def restart(self, index: int, *, keep_journal: bool = True) -> None:
        host = self.hosts[index]
        if not keep_journal:
            host.journal.clear()
        host.life += 1
        host.due.clear()
        host.waiting.clear()
        host.node = self.make(index, dict(host.journal))
        host.up = True
        host.frozen = False
        self.feed(index, Started())

    def freeze(self, index: int) -> None:
        self.hosts[index].frozen = True

    def thaw(self, index: int) -> None:
        host = self.hosts[index]
        host.frozen = False
        waiting, host.waiting = host.waiting, []
        # A socket buffer holds so much and no more.
        for event in waiting[:400]:
            # A stale firing takes nothing away: the timer that is armed still comes.
            if isinstance(event, TimerFired) and host.due.get(event.key, (self.now + 1, 0))[0] <= self.now:
                del host.due[event.key]
            self.feed(index, event)

    def cut(self, left: list[int], right: list[int], *, one_way: bool = False) -> None:
        for a in left:
            for b in right:
                self.blocked.add((a, b))
                if not one_way:
                    self.blocked.add((b, a))

    # --- questions -------------------------------------------------------------------------------------------------

    def states(self, index: int) -> dict[str, MemberState]:
        return dict(self.hosts[index].node.summary().members)

    def all_see(self, state: MemberState, subject: int, observers: list[int] | None = None) -> bool:
        name = f"n{subject:03d}"
        chosen = observers if observers is not None else [h.index for h in self.hosts if h.up and h.index != subject]
        return all(self.states(index).get(name) is state for index in chosen)

    def formed(self) -> bool:
        up = [host.index for host in self.hosts if host.up]
        for index in up:
            states = self.states(index)
            if any(states.get(f"n{other:03d}") is not MemberState.ALIVE for other in up):
                return False
        return True

    def agreed(self) -> bool:
        return len({host.node.view_digest() for host in self.hosts if host.up}) == 1

    def changes(self, state: MemberState, since_ns: int = 0) -> list[tuple[int, int, MemberChanged]]:
        return [
            (at, index, effect)
            for at, index, effect in self.log
            if at >= since_ns and isinstance(effect, MemberChanged) and effect.new is state
        ]

    def delivered(self) -> list[tuple[int, int, UserEventDelivered]]:
        return [(at, index, e) for at, index, e in self.log if isinstance(e, UserEventDelivered)]
