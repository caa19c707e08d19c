"""Releases that roll through lenders and borrowers under load, one after the other: as many requests as are wanted.

The daemon's own `Offload` on every device and its own `Walk` through the plan of a release; around them a radio that
delays and loses, processors that run one inference at a time, and nothing else, so that a million requests take
minutes. Lenders hold the old version beside the new one while it rolls, and one of them is killed in each rollout and
comes back. A borrower asks for the new version once two lenders offer all of it. Each request asks for two judges of
its release, and everything is judged: whose bundle made each answer, to which question, and whether anybody answered.

Nothing here looks at a digest for the borrower: what a lender runs is what its protocol orders, and an answer says
which bundle made it.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import count

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import CancelTimer, Order, SetTimer, TimerKey
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.cascade import Plan, Step, Walk
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.offload.tickets import GrantsConfig
from swarmd_protocols.subprotocol import Peer, Send, SubEffect

MS = 1_000_000
S = 1_000 * MS
UNITS_NS = (2 * MS, 3 * MS)
"""One inference of each judge."""
DEADLINE_NS = 300 * MS
"""Of a step of a request."""
ROLL_NS = 12 * S
"""Of one rollout: lenders load in its first third, borrowers change when they can, the old version goes at its end."""
KEEP_NS = 2 * S
LOSS = 0.003
"""Of the frames; what is lost is not sent again."""
_QUESTIONS = 400
"""Different inputs that are asked about, so that kept answers take part."""
_KILLED_NS = 3 * S
_SEEN_NS = 800 * MS
"""After so long the others know of a death or a return."""


@lru_cache
def digests_of(version: int) -> tuple[bytes, bytes, bytes]:
    """The own model and the two judges of a release."""
    own, larger, largest = (sha256(f"{name} {version}".encode()).digest() for name in ("own", "larger", "largest"))
    return own, larger, largest


def plan_of(version: int) -> Plan:
    """Of a release: both judges are asked, whatever is known."""
    own, larger, largest = digests_of(version)
    return Plan(Step(own), (Step(larger, keep=0.5), Step(largest, keep=0.5)))


def answer_of(digest: bytes, question: bytes) -> bytes:
    """What a bundle says: by whom, and to what."""
    return digest + question[:8]


@dataclass(slots=True)
class Device:
    """A lender or a borrower."""

    node: NodeId
    seed: bytes
    offload: Offload
    is_lender: bool
    version: int = 0
    """Of the plan, or the newest that is loaded."""
    held: tuple[int, ...] = (0,)
    timers: dict[TimerKey, int] = field(default_factory=dict)
    free_ns: int = 0
    """When its processor has nothing to do."""
    is_up: bool = True
    life: int = 1
    dropped: set[int] = field(default_factory=set)
    number: int = 0
    open: dict[int, "Asked"] = field(default_factory=dict)


@dataclass(slots=True)
class Asked:
    """A program's request on its way through a plan."""

    version: int
    question: bytes
    walk: Walk
    digest: bytes = b""
    made_by: list[bytes] = field(default_factory=list)
    """The bundles that made the answers which count."""


class Fleet:
    """Lenders and borrowers.

    Args:
        seed: Decides everything.
        lenders, borrowers: How many.
        rate: Requests a second of each borrower.
    """

    def __init__(self, seed: int, lenders: int = 8, borrowers: int = 16, rate: float = 40.0) -> None:
        self.rng = random.Random(seed)
        self.now_ns = S
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        """What no answer may be, in words; the first few."""
        self.seconds: dict[tuple[int, int], list[int]] = {}
        """Of a second and a version: steps asked, steps answered."""
        self._crypto = ModelCrypto()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._rate = rate
        self.devices: dict[NodeId, Device] = {}
        for index in range(lenders + borrowers):
            key = sha256(f"{seed} {index}".encode()).digest()
            node = node_id_of(self._crypto.public_key(key))
            self.devices[node] = Device(node, key, self._offload(node, key, index < lenders, 1), index < lenders)
        self._questions = [
            number.to_bytes(8, "big") + bytes(self.rng.randrange(200)) for number in range(_QUESTIONS)
        ]  # fmt: skip
        for device in self.devices.values():
            self._meet(device)
        for device in self.devices.values():
            if device.is_lender:
                self._stock(device)
            else:
                self._at(2 * S + self.rng.randrange(S), lambda device=device: self._ask(device))  # type: ignore[misc]

    def _offload(self, node: NodeId, key: bytes, is_lender: bool, boot: int) -> Offload:
        grants = GrantsConfig(tickets_max=8, request_bytes_max=1 << 16)
        config = OffloadConfig(
            lends=is_lender, borrows=not is_lender, messages_per_s=64,
            lending=LendingConfig(jobs_max=64, jobs_each=16, grants=grants),
        )  # fmt: skip
        return Offload(
            node, key, self._crypto, config, boot, random.Random(self.rng.random()), lambda now_ns: now_ns // MS,
            lambda digest, data: len(data) == 40,
        )  # fmt: skip

    # --- time ---------------------------------------------------------------------------------------------------------

    def _at(self, at_ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at_ns, next(self._order), what))

    def run(self, rollouts: int) -> None:
        """So many releases, one after the other, under load all the time."""
        begin_ns = self.now_ns + 3 * S
        for version in range(1, rollouts + 1):
            self._roll(version, begin_ns + (version - 1) * ROLL_NS)
        until_ns = begin_ns + rollouts * ROLL_NS
        self._until_ns = until_ns - DEADLINE_NS * 3
        while self._heap and self._heap[0][0] <= until_ns:
            self.now_ns, _, what = heapq.heappop(self._heap)
            what()
        self.counts["open"] = sum(len(device.open) for device in self.devices.values())

    # --- a rollout ----------------------------------------------------------------------------------------------------

    def _roll(self, version: int, begin_ns: int) -> None:
        lenders = [device for device in self.devices.values() if device.is_lender]
        for device in self.devices.values():
            turn_ns = begin_ns + self.rng.randrange(ROLL_NS // 3)
            if device.is_lender:
                self._at(turn_ns, lambda device=device: self._hold(device, (version - 1, version)))  # type: ignore[misc]
                self._at(begin_ns + ROLL_NS - S, lambda device=device: self._hold(device, (version,)))  # type: ignore[misc]
            else:
                self._at(turn_ns, lambda device=device: self._change(device, version))  # type: ignore[misc]
        self._at(begin_ns + self.rng.randrange(ROLL_NS // 2), lambda: self._kill(self.rng.choice(lenders)))

    def _hold(self, device: Device, versions: tuple[int, ...]) -> None:
        device.held = versions
        if device.is_up:
            self._stock(device)

    def _change(self, device: Device, version: int) -> None:
        wanted = {digest.hex() for digest in digests_of(version)[1:]}
        offers = [wanted <= set(said) for said in device.offload.lenders().values()]
        if sum(offers) >= 2:
            device.version = version
            self.counts["changed"] += 1
        else:
            self._at(self.now_ns + S // 4, lambda: self._change(device, version))

    def _stock(self, device: Device) -> None:
        held = tuple(
            requests.Held(digest, unit_ns)
            for version in device.held
            for digest, unit_ns in zip(digests_of(version)[1:], UNITS_NS, strict=True)
        )
        queue_ns = max(0, device.free_ns - self.now_ns)
        self._do(device, device.offload.on_command(requests.Stock(held, queue_ns, None), self.now_ns))

    # --- deaths -------------------------------------------------------------------------------------------------------

    def _kill(self, device: Device) -> None:
        if not device.is_up:
            return
        self.counts["killed"] += 1
        device.is_up = False
        device.timers.clear()
        self._at(self.now_ns + _SEEN_NS, self._meet_all)
        self._at(self.now_ns + _KILLED_NS, lambda: self._come_back(device))

    def _come_back(self, device: Device) -> None:
        device.is_up, device.life, device.free_ns = True, device.life + 1, self.now_ns
        device.offload = self._offload(device.node, device.seed, device.is_lender, device.life)
        self._meet_all()
        self._stock(device)

    def _meet_all(self) -> None:
        for device in self.devices.values():
            if device.is_up:
                self._meet(device)

    def _meet(self, device: Device) -> None:
        peers = [
            Peer(one.node, one.node.hex(), self._crypto.public_key(one.seed), one.is_up)
            for one in self.devices.values()
            if one is not device
        ]
        self._do(device, device.offload.on_peers(peers, self.now_ns))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, device: Device) -> None:
        if self.now_ns > self._until_ns:
            return
        self._at(self.now_ns + 1 + int(self.rng.expovariate(self._rate) * S), lambda: self._ask(device))
        walk = Walk(plan_of(device.version))
        walk.add(digests_of(device.version)[0], self.rng.random())
        self.counts["programs"] += 1
        self._go_on(device, Asked(device.version, self.rng.choice(self._questions), walk))

    def _go_on(self, device: Device, asked: Asked) -> None:
        step = asked.walk.next_step(DEADLINE_NS)
        if step is None:
            self._through(device, asked)
            return
        device.number += 1
        device.open[device.number] = asked
        asked.digest = step.digest
        self.counts["requests"] += 1
        self._second(asked)[0] += 1
        keep_ns = KEEP_NS if asked.question[7] & 1 else 0
        borrow = requests.Borrow(
            device.number, step.digest, asked.question, 1, self.now_ns + DEADLINE_NS, keep_ns=keep_ns
        )  # fmt: skip
        self._do(device, device.offload.on_command(borrow, self.now_ns))

    def _second(self, asked: Asked) -> list[int]:
        return self.seconds.setdefault((self.now_ns // S, asked.version), [0, 0])

    def _settle(self, device: Device, settle: requests.Settle) -> None:
        asked = device.open.pop(settle.number, None)
        if asked is None:
            self._complain(f"request {settle.number} is through, and is not open")
            return
        if settle.data is not None:
            self.counts["answered"] += 1
            self.counts["kept"] += settle.is_kept
            self._second(asked)[1] += 1
            if settle.data[32:] != asked.question[:8]:
                self._complain(f"request {settle.number} got the answer to another question")
            # The score that a program reads; a hash of both stands for it.
            if asked.walk.add(settle.digest, int.from_bytes(sha256(settle.data).digest()[:2], "big") / 65_536):
                asked.made_by.append(settle.data[:32])
        self._go_on(device, asked)

    def _through(self, device: Device, asked: Asked) -> None:
        self.counts["through"] += 1
        self.counts["whole"] += len(asked.made_by) == 2
        _, *judges = digests_of(asked.version)
        if any(digest not in judges for digest in asked.made_by):
            self.counts["mixed"] += 1
            self._complain(f"a request of release {asked.version} holds another's answer")

    def _complain(self, text: str) -> None:
        self.counts["wrong"] += 1
        if len(self.wrong) < 5:
            self.wrong.append(f"{self.now_ns / S:.3f} s: {text}")

    # --- effects ------------------------------------------------------------------------------------------------------

    def _do(self, device: Device, effects: list[SubEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, payload):
                    if self.rng.random() >= LOSS:
                        arrives_ns = self.now_ns + MS + self.rng.randrange(2 * MS)
                        self._at(arrives_ns, lambda to=to, payload=payload: self._hear(device.node, to, payload))  # type: ignore[misc]
                case SetTimer(key, at_ns):
                    device.timers[key] = at_ns
                    self._at(at_ns, lambda key=key, at_ns=at_ns: self._fire(device, key, at_ns))  # type: ignore[misc]
                case CancelTimer(key):
                    device.timers.pop(key, None)
                case Order(_, requests.Infer() as infer):
                    self._infer(device, infer)
                case Order(_, requests.Settle() as settle):
                    self._settle(device, settle)
                case Order(_, requests.Drop(job)):
                    device.dropped.add(job)

    def _hear(self, sender: NodeId, to: NodeId, payload: bytes) -> None:
        device = self.devices[to]
        if device.is_up and self.devices[sender].is_up:
            self._do(device, device.offload.on_message(sender, payload, self.now_ns))

    def _fire(self, device: Device, key: TimerKey, at_ns: int) -> None:
        if device.is_up and device.timers.get(key) == at_ns:
            del device.timers[key]
            self._do(device, device.offload.on_timer(key, self.now_ns))

    def _infer(self, device: Device, infer: requests.Infer) -> None:
        names = {digest: at for version in device.held for at, digest in enumerate(digests_of(version)[1:])}
        if infer.digest not in names:
            self._ran(device, device.life, infer.job, None)
            return
        device.free_ns = max(device.free_ns, self.now_ns) + UNITS_NS[names[infer.digest]]
        data, life = answer_of(infer.digest, infer.data), device.life
        self._at(device.free_ns, lambda: self._ran(device, life, infer.job, data))

    def _ran(self, device: Device, life: int, job: int, data: bytes | None) -> None:
        if device.is_up and device.life == life and job not in device.dropped:
            self._do(device, device.offload.on_command(requests.Ran(job, data), self.now_ns))
        device.dropped.discard(job)

    def figures(self) -> dict[str, int]:
        """Counts, and the seconds in which a version was asked for by five or more and nobody answered."""
        silent = sum(asked >= 5 and not answered for asked, answered in self.seconds.values())
        names = ("programs", "requests", "answered", "kept", "whole", "killed", "changed", "open", "mixed", "wrong")
        return {name: self.counts[name] for name in names} | {"seconds_without_service": silent}
