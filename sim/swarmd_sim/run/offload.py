"""Borrowed inference on simulated devices: the daemon's own `Offload` on every node, with a modelled processor behind.

The first hosts are strong (a fast model and little of their own to do), the next busy (a middling one and an eye that
takes most of it), the rest weak: a slow model, and every third of them none. Strong and busy ones lend, busy and weak
ones ask. A processor runs one inference at a time: its own frames first, then what its own programs ask, then what was
borrowed. Liars lend as the others do and answer in proper form with something else.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.lending import NAME
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.trust.identity import Identity
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario

BUNDLE = sha256(b"the bundle that devices run").digest()
LARGER = sha256(b"a larger one, which strong devices alone have").digest()
FRAME, OWN, LENT = range(3)
"""Kinds of work, the most urgent first."""
_UNIT_NS = {"strong": 4 * MILLION, "busy": 15 * MILLION, "weak": 90 * MILLION, "none": 0}
"""One inference of `BUNDLE`; a Jetson, a Raspberry Pi 5 beside its eye, a Pi Zero."""
_LARGER_TIMES = 3
"""`LARGER` takes so many times as long."""
_FRAME_NS = {"strong": 200 * MILLION, "busy": 20 * MILLION, "weak": 0, "none": 0}
"""Between two frames of the own eye; 0: it has none that runs here."""
_PULSE_NS = NS_PER_S
"""How often the driver says what there is to lend, as the daemon does."""
_WARM_UP_S = 15
"""Nobody asks before the swarm stands."""


def answer_to(digest: bytes, data: bytes) -> bytes:
    """What an honest device answers."""
    return sha256(digest + data).digest() + digest


def is_well_formed(digest: bytes, data: bytes) -> bool:
    """What a borrower can see of an answer without a model."""
    return len(data) == 64 and data[32:] == digest


@dataclass(slots=True)
class Task:
    """One inference."""

    kind: int
    time_ns: int
    at_ns: int
    done: Callable[[], None]
    job: int = 0


class Processor:
    """Runs one inference at a time, the most urgent kind first; what runs is not interrupted.

    Args:
        engine: Virtual time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: tuple[deque[Task], ...] = (deque(), deque(), deque())
        self._running: Task | None = None
        self._life = 0
        self.free_ns = 0
        self.on_start: Callable[[Task, int], None] = lambda task, frames_waiting: None
        """Told what starts, and how many frames wait meanwhile."""

    def clear(self) -> None:
        """The process has gone, with all that waited."""
        self._life += 1
        self._running = None
        for waiting in self._waiting:
            waiting.clear()

    def put(self, task: Task) -> None:
        """Something to run."""
        self._waiting[task.kind].append(task)
        self._start()

    def drop(self, job: int) -> None:
        """Nobody waits for it; what runs already runs to its end."""
        for waiting in self._waiting[OWN:]:
            for task in [one for one in waiting if one.job == job]:
                waiting.remove(task)

    def backlog_ns(self, *kinds: int) -> int:
        """Time of what runs and of what waits of these kinds."""
        left = max(0, self.free_ns - self._engine.now_ns) if self._running is not None else 0
        return left + sum(task.time_ns for kind in kinds for task in self._waiting[kind])

    def next_task(self) -> Task | None:
        """What runs next: the most urgent kind, in the order of arrival."""
        return next((waiting.popleft() for waiting in self._waiting if waiting), None)

    def _start(self) -> None:
        if self._running is not None:
            return
        task = self.next_task()
        if task is None:
            return
        self._running = task
        self.on_start(task, len(self._waiting[FRAME]))
        self.free_ns = self._engine.now_ns + task.time_ns
        self._engine.at(self.free_ns, self._ended, (self._life, task))

    def _ended(self, what: tuple[int, Task]) -> None:
        life, task = what
        if life != self._life:
            return
        self._running = None
        task.done()
        self._start()


@dataclass(slots=True)
class Asked:
    """One request of a host's program."""

    host: int
    life: int
    number: int
    digest: bytes
    data: bytes
    at_ns: int
    deadline_ns: int
    """Virtual."""
    oracle_ns: int
    """What a clairvoyant would have needed; 0: nobody could have answered."""
    settled_ns: int = 0
    data_out: bytes | None = None
    lender: bytes | None = None
    settles: int = 0
    has_own: bool = False


@dataclass(slots=True)
class Device:
    """One host's part."""

    host: Host
    kind: str
    is_liar: bool
    processor: Processor
    protocol: Offload | None = None
    number: int = 0
    open: dict[int, Asked] = field(default_factory=dict)
    wrong: dict[bytes, int] = field(default_factory=dict)
    """Wrong answers by lender that this life has found out."""
    wrong_ns: dict[bytes, int] = field(default_factory=dict)
    """When the last of them was told."""

    def unit_ns(self, digest: bytes) -> int:
        """One inference; 0: it does not have the bundle."""
        unit_ns = _UNIT_NS[self.kind]
        if digest == BUNDLE:
            return unit_ns
        return unit_ns * _LARGER_TIMES if self.kind == "strong" else 0


class Listener:
    """Who is told what happens, so that checkers stand apart; looks at nothing yet."""

    def on_settle(self, device: Device, asked: Asked | None, settle: requests.Settle) -> None:
        """A request is through; `asked` is None where no such request is open."""

    def on_infer(self, device: Device, order: requests.Infer, borrower: Host | None) -> None:
        """A device is told to run something."""

    def on_start(self, device: Device, task: Task, frames_waiting: int) -> None:
        """A processor begins with something."""


class OffloadWorld:
    """Everything about borrowing in one run.

    Args:
        scenario: What was asked for.
        choices: All randomness.
        crypto: The run's arithmetic of trust.
    """

    def __init__(self, scenario: Scenario, choices: Choices, crypto: Crypto) -> None:
        self._scenario = scenario
        self._choices = choices
        self._crypto = crypto
        self._until_ns = 0
        self._engine: Engine | None = None
        self._hosts: list[Host] = []
        self.devices: dict[int, Device] = {}
        self.asked: list[Asked] = []
        self.frames: list[int] = []
        """What each frame of an eye waited until it was through, nanoseconds, on hosts that lend."""
        self.listener = Listener()
        self.ended: dict[str, int] = {}
        """Counts of lives that have ended."""

    # --- Nodes ------------------------------------------------------------------------------------------------------

    def protocol(self, host: Host, identity: Identity, physical_ms: Callable[[int], int], boot: int) -> Offload:
        """The sub-protocol of the life that begins.

        Args:
            host: Whose.
            identity: Its key.
            physical_ms: Swarm time at a moment of its clock.
            boot: Grows with each life.
        """
        section = self._scenario.offload
        device = self.devices.get(host.index)
        if device is None:
            kind = self._kind(host.index)
            device = Device(host, kind, host.index in section.liars, Processor(host.engine))
            device.processor.on_start = lambda task, waiting: self.listener.on_start(device, task, waiting)
            self.devices[host.index] = device
        if device.protocol is not None:
            self._gather(device.protocol)
        config = OffloadConfig(
            lends=section.lending and device.kind in ("strong", "busy"), borrows=device.kind != "strong"
        )
        device.protocol = Offload(
            identity.node, identity.seed, self._crypto, config, boot, self._choices.rng("node.offload"), physical_ms,
            is_well_formed,
        )  # fmt: skip
        return device.protocol

    def _kind(self, index: int) -> str:
        section = self._scenario.offload
        if index < section.strong:
            return "strong"
        if index < section.strong + section.busy:
            return "busy"
        return "none" if index % 3 == 0 else "weak"

    def boot(self, host: Host) -> None:
        """A process begins: nothing runs, no program waits."""
        device = self.devices[host.index]
        device.processor.clear()
        device.open.clear()
        device.wrong.clear()
        device.wrong_ns.clear()
        device.number = 0
        self._pulse((device, host.boots))
        if _FRAME_NS[device.kind]:
            phase_ns = self._choices.choose("offload.phase", _FRAME_NS[device.kind])
            host.engine.at(host.engine.now_ns + phase_ns, self._frame, (device, host.boots))

    def on_crash(self, host: Host) -> None:
        """A process has gone, and with it what its programs asked."""
        device = self.devices.get(host.index)
        if device is not None:
            device.processor.clear()
            device.open.clear()

    # --- Work ---------------------------------------------------------------------------------------------------

    def bind(self, engine: Engine, hosts: list[Host], until_ns: int) -> None:
        """Know the run, and let programs ask until then."""
        self._engine, self._hosts, self._until_ns = engine, hosts, until_ns
        for host in hosts:
            if self._kind(host.index) != "strong":
                self._again(host)

    def _again(self, host: Host) -> None:
        engine = host.engine
        mean_ns = int(NS_PER_S / self._scenario.offload.requests_per_s)
        wait_ns = 1 + self._choices.choose("offload.wait", 2 * mean_ns)
        engine.at(max(engine.now_ns, _WARM_UP_S * NS_PER_S) + wait_ns, self._ask, host)

    def _ask(self, host: Host) -> None:
        now_ns = host.engine.now_ns
        if now_ns >= self._until_ns:
            return
        self._again(host)
        device = self.devices.get(host.index)
        if device is None or not host.process_up or host.stalled or host.hostile or host.life.left:
            return
        section = self._scenario.offload
        device.number += 1
        # A quarter of the requests is for the model that only strong devices have.
        digest = LARGER if self._choices.choose("offload.which", 4) == 3 else BUNDLE
        data = device.number.to_bytes(8, "big") + bytes([host.index, host.boots & 255])
        data += bytes(max(0, section.input_bytes - len(data)))
        deadline_ns = now_ns + int(section.deadline_ms * MILLION)
        local_ns = device.unit_ns(digest)
        asked = Asked(
            host.index, host.boots, device.number, digest, data, now_ns, deadline_ns, self._oracle_ns(device, digest),
            has_own=bool(local_ns),
        )  # fmt: skip
        busy_ns = device.processor.backlog_ns(FRAME, OWN)
        own_ns = local_ns + busy_ns + (local_ns if _FRAME_NS[device.kind] else 0) if local_ns else 0
        local = host.clock.local_ns
        request = requests.Borrow(device.number, digest, data, 1, local(deadline_ns), own_ns)
        device.open[asked.number] = asked
        self.asked.append(asked)
        host.command(NAME, request)

    def _oracle_ns(self, device: Device, digest: bytes) -> int:
        """The soonest answer of anybody honest who is up, by what each processor has to do at this moment.

        The way there and back takes what the radio's does on average; no link fails, and nobody needs a ticket.
        """
        radio, size = self._scenario.radio, self._scenario.offload.input_bytes
        way_ns = round((2 * radio.latency_ms + radio.jitter_ms) * MILLION + size * 8 * 1000 / radio.rate_mbit_s)
        times = []
        for other in self.devices.values():
            unit_ns = other.unit_ns(digest)
            lends = self._scenario.offload.lending and other.kind in ("strong", "busy") and not other.is_liar
            if unit_ns and other.host.process_up and (other is device or lends):
                backlog_ns = other.processor.backlog_ns(FRAME, OWN, LENT)
                times.append(backlog_ns + unit_ns + (0 if other is device else way_ns))
        return min(times, default=0)

    def _frame(self, what: tuple[Device, int]) -> None:
        device, life = what
        host = device.host
        if host.boots != life or not host.process_up:
            return
        now_ns = host.engine.now_ns
        unit_ns = _UNIT_NS[device.kind]
        done = lambda: self.frames.append(host.engine.now_ns - now_ns)  # noqa: E731
        device.processor.put(Task(FRAME, unit_ns, now_ns, done))
        host.engine.at(now_ns + _FRAME_NS[device.kind], self._frame, what)

    def _pulse(self, what: tuple[Device, int]) -> None:
        device, life = what
        host = device.host
        if host.boots != life or not host.process_up:
            return
        units = [(digest, device.unit_ns(digest)) for digest in (BUNDLE, LARGER)]
        held = tuple(requests.Held(digest, unit_ns) for digest, unit_ns in units if unit_ns)
        host.command(NAME, requests.Stock(held, device.processor.backlog_ns(FRAME, OWN), None))
        host.engine.at(host.engine.now_ns + _PULSE_NS, self._pulse, what)

    # --- Orders -------------------------------------------------------------------------------------------------

    def on_order(self, host: Host, order: object) -> None:
        """The protocol asks something of the daemon."""
        device = self.devices[host.index]
        match order:
            case requests.Infer():
                self._infer(device, order)
            case requests.Drop(job):
                device.processor.drop(job)
            case requests.Settle():
                self._settle(device, order)

    def _infer(self, device: Device, order: requests.Infer) -> None:
        host, now_ns = device.host, device.host.engine.now_ns
        borrower = next((one for one in self._hosts if one.node_id == order.borrower), None)
        self.listener.on_infer(device, order, borrower)
        unit_ns = device.unit_ns(order.digest)
        is_lent = order.borrower is not None
        data: bytes | None = answer_to(order.digest, order.data) if unit_ns else None
        if data is not None and is_lent and device.is_liar:
            data = bytes(32) + data[32:]
        life = host.boots

        def done() -> None:
            if host.boots == life:
                host.command(NAME, requests.Ran(order.job, data))

        kind = LENT if is_lent else OWN
        device.processor.put(Task(kind, unit_ns * order.units, now_ns, done, order.job))

    def _settle(self, device: Device, settle: requests.Settle) -> None:
        asked = device.open.pop(settle.number, None)
        self.listener.on_settle(device, asked, settle)
        if asked is None:
            return
        host = device.host
        asked.settles += 1
        asked.settled_ns = host.engine.now_ns
        asked.data_out, asked.lender = settle.data, settle.lender
        if settle.is_check_wanted and settle.lender is not None:
            life, lender = host.boots, settle.lender
            is_right = settle.data == answer_to(asked.digest, asked.data)

            def judge() -> None:
                if host.boots != life:
                    return
                if not is_right:
                    device.wrong[lender] = device.wrong.get(lender, 0) + 1
                    device.wrong_ns[lender] = host.engine.now_ns
                host.command(NAME, requests.Judged(lender, is_right))

            # The own model judges when there is nothing else to do.
            device.processor.put(Task(LENT, device.unit_ns(asked.digest), host.engine.now_ns, judge))

    # --- Figures ------------------------------------------------------------------------------------------------

    def _gather(self, protocol: Offload) -> None:
        for name, number in protocol.counts().items():
            self.ended[name] = self.ended.get(name, 0) + number

    def counts(self) -> dict[str, int]:
        """Of all devices and lives."""
        totals = dict(self.ended)
        for device in self.devices.values():
            for name, number in device.protocol.counts().items() if device.protocol is not None else ():
                totals[name] = totals.get(name, 0) + number
        return dict(sorted(totals.items()))

    def figures(self) -> dict[str, object]:
        """For `swarmd sim run --json`."""
        settled = [one for one in self.asked if one.settles]
        answered = [one for one in settled if one.data_out is not None]
        borrowed = [one for one in answered if one.lender is not None]
        took = sorted(one.settled_ns - one.at_ns for one in answered)
        pairs = [(one.settled_ns - one.at_ns, one.oracle_ns) for one in answered if one.oracle_ns]
        oracle = sorted(oracle_ns for _, oracle_ns in pairs)
        right = sum(one.data_out == answer_to(one.digest, one.data) for one in answered)
        return {
            "asked": len(self.asked),
            "settled": len(settled),
            "answered": len(answered),
            "answered_share": round(len(answered) / max(1, len(settled)), 4),
            "oracle_could_share": round(
                sum(0 < one.oracle_ns <= one.deadline_ns - one.at_ns for one in settled) / max(1, len(settled)), 4
            ),
            "borrowed": len(borrowed),
            "wrong": len(answered) - right,
            "mean_ms": _ms(sum(took) / max(1, len(took))),
            "p50_ms": _ms(_rank(took, 50)),
            "p99_ms": _ms(_rank(took, 99)),
            "oracle_mean_ms": _ms(sum(oracle) / max(1, len(oracle))),
            "oracle_p99_ms": _ms(_rank(oracle, 99)),
            "mean_ratio": round(sum(took for took, _ in pairs) / max(1, sum(oracle)), 3),
            "p99_ratio": round(_rank(took, 99) / max(1, _rank(oracle, 99)), 3),
            "frame_p99_ms": _ms(_rank(sorted(self.frames), 99)),
            "counts": self.counts(),
        }


def _ms(ns: float) -> float:
    return round(ns / MILLION, 2)


def _rank(ordered: list[int], percent: int) -> int:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0
