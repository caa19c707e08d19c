"""Borrowed inference on simulated devices: the daemon's own `Offload` on every node, with a modelled processor behind.

`offload_fleet.py` says what the devices are, `offload_looks.py` drives the cameras of a traffic fleet. A processor runs
one inference at a time: its own frames first, then what its own programs ask, then what was borrowed. Liars lend as the
others do and answer in proper form with something else.
"""

from collections.abc import Callable
from functools import partial

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.lending import NAME
from swarmd_protocols.offload.offload import Offload
from swarmd_protocols.offload.whom import OWNER
from swarmd_protocols.trust.identity import Identity
from swarmd_protocols.trust.view import TrustView
from swarmd_sim.radio.network import BURST_BYTES, Network
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload_batch import Batch
from swarmd_sim.run.offload_device import Asked, Device, answer_to, is_well_formed
from swarmd_sim.run.offload_figures import Borrowed, figures_of
from swarmd_sim.run.offload_fleet import BUNDLE, KINDS, LARGER_BUNDLE, config_of, kind_of
from swarmd_sim.run.offload_looks import Looks
from swarmd_sim.run.offload_overheard import Overheard, Turned
from swarmd_sim.run.offload_release import Rollout
from swarmd_sim.run.offload_splits import Splits
from swarmd_sim.run.processor import FRAME, LENT, OWN, Processor, Task
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario

_PULSE_NS = NS_PER_S
"""How often the driver says what there is to lend, as the daemon does."""
WARM_UP_S = 15
"""Nobody asks before the swarm stands."""
DOUBT = 70
"""The naive rule asks below so many hundredths of confidence, ..."""
NAIVE_MBIT_S = 20.0
"""... above this bandwidth, ..."""
NAIVE_NS = 45 * MILLION
"""... and where so long fits the budget."""


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
        self.until_ns = 0
        self._hosts: list[Host] = []
        self.devices: dict[int, Device] = {}
        self.asked: list[Asked] = []
        self.frames: list[int] = []
        """What each frame of an eye waited until it was through, nanoseconds, on hosts that lend."""
        self.listener = Listener()
        self.overheard: Callable[[Device, Turned], None] = lambda device, turned: None
        """Told what each lender was told, and what it made of that."""
        self.manner_of: Callable[[Host], str] = lambda host: ""
        """How a hostile host's worker answers just now: a kind of attack, or as it should."""
        self.ended: dict[str, int] = {}
        """Counts of lives that have ended."""
        section = scenario.offload
        self.looks = Looks(self, scenario, choices) if section.fleet == "traffic" else None
        self.splits = Splits(self, scenario) if section.fleet == "parts" else None
        self.batch = Batch(self, scenario) if section.fleet == "batch" else None
        self.rollout: Rollout | None = None
        if self.looks is not None and section.release_at_s:
            self.rollout = Rollout(self.devices, self.looks, self.restock, section, choices)

    # --- Nodes ------------------------------------------------------------------------------------------------------

    def roles_of(self, host: Host) -> tuple[str, ...]:
        """What a host's certificate says of its owner."""
        owners = self._scenario.offload.owners
        return (f"{OWNER}{host.index % owners}",) if owners else ()

    def protocol(
        self, host: Host, identity: Identity, trust: TrustView, physical_ms: Callable[[int], int], boot: int
    ) -> Offload:
        """The sub-protocol of the life that begins.

        Args:
            host: Whose.
            identity: Its key.
            trust: What is signed of everybody.
            physical_ms: Swarm time at a moment of its clock.
            boot: Grows with each life.
        """
        section = self._scenario.offload
        device = self.devices.get(host.index)
        if device is None:
            kind = kind_of(section, host.index)
            if section.fleet == "batch" and host.index == self._scenario.swarm.nodes - 1:
                kind = "home"
            device = Device(host, kind, host.index in section.liars, Processor(host.engine))
            device.processor.on_start = lambda task, waiting: self.listener.on_start(device, task, waiting)
            self.devices[host.index] = device
        if device.protocol is not None:
            self._gather(device.protocol)
        config = config_of(section, device.kind)
        protocol = Overheard(
            identity.node, identity.seed, self._crypto, config, boot, self._choices.rng("node.offload"), physical_ms,
            is_well_formed, trust.certified,
        )  # fmt: skip
        protocol.heard = partial(self._hears, device)
        device.protocol = protocol
        return protocol

    def _hears(self, device: Device, turned: Turned) -> None:
        self.overheard(device, turned)

    def boot(self, host: Host) -> None:
        """A process begins: nothing runs, no program waits."""
        device = self.devices[host.index]
        device.processor.clear()
        device.open.clear()
        device.wrong.clear()
        device.wrong_ns.clear()
        device.number = 0
        self._pulse((device, host.boots))
        if device.about.frame_ns:
            phase_ns = self._choices.choose("offload.phase", device.about.frame_ns)
            host.engine.at(host.engine.now_ns + phase_ns, self._frame, (device, host.boots))

    def on_crash(self, host: Host) -> None:
        """A process has gone, and with it what its programs asked."""
        device = self.devices.get(host.index)
        if device is not None:
            device.processor.clear()
            device.open.clear()

    # --- Work ---------------------------------------------------------------------------------------------------

    def bind(self, engine: Engine, hosts: list[Host], network: Network, until_ns: int) -> None:
        """Know the run, and let programs ask until then."""
        self._hosts, self.until_ns = hosts, until_ns
        kinds = {host.index: KINDS[kind_of(self._scenario.offload, host.index)] for host in hosts}
        network.away_ns = {index: kind.away_ns // 2 for index, kind in kinds.items() if kind.away_ns}
        if self.rollout is not None:
            self.rollout.plan(engine, hosts)
        for host in hosts:
            if self.batch is not None:
                self.batch.plan(engine, hosts)
                return
            if self.looks is None and KINDS[kind_of(self._scenario.offload, host.index)].asks:
                self._again(host)

    def lives(self, index: int, life: int) -> bool:
        """Whether a process goes on."""
        host = self.devices[index].host
        return host.process_up and host.boots == life

    def is_asking(self, host: Host) -> bool:
        """Whether its programs can ask now."""
        return not (not host.process_up or host.stalled or host.hostile or host.life.left)

    def _again(self, host: Host) -> None:
        engine = host.engine
        mean_ns = int(NS_PER_S / self._scenario.offload.requests_per_s)
        wait_ns = 1 + self._choices.choose("offload.wait", 2 * mean_ns)
        engine.at(max(engine.now_ns, WARM_UP_S * NS_PER_S) + wait_ns, self._ask, host)

    def _ask(self, host: Host) -> None:
        now_ns = host.engine.now_ns
        if now_ns >= self.until_ns:
            return
        self._again(host)
        device = self.devices.get(host.index)
        if device is None or not self.is_asking(host):
            return
        section = self._scenario.offload
        if self.splits is not None:
            self.splits.begin(device)
            return
        # A quarter of the requests is for the model that only strong devices have.
        digest = LARGER_BUNDLE if self._choices.choose("offload.which", 4) == 3 else BUNDLE
        data = (device.number + 1).to_bytes(8, "big") + bytes([host.index, host.boots & 255])
        data += bytes(max(0, section.input_bytes - len(data)))
        local_ns = device.unit_ns(digest)
        busy_ns = device.processor.backlog_ns(FRAME, OWN)
        own_ns = local_ns + busy_ns + (local_ns if device.about.frame_ns else 0) if local_ns else 0
        may_leave = True
        if section.rule == "always":
            own_ns = 0
        elif section.rule == "if" and local_ns:
            doubts = self._choices.choose("offload.confidence", 100) < DOUBT
            fits = section.deadline_ms * MILLION >= NAIVE_NS and self._scenario.radio.rate_mbit_s > NAIVE_MBIT_S
            may_leave = doubts and fits
            own_ns = 0 if may_leave else own_ns
        copies = 2 if self._choices.chance("offload.copies", int(section.copies_share * MILLION)) else 1
        asked = Asked(
            host.index, host.boots, 0, digest, data, now_ns, now_ns + int(section.deadline_ms * MILLION), 0,
            has_own=bool(local_ns), copies=copies,
        )  # fmt: skip
        self.ask(device, asked, own_ns, may_leave=may_leave)

    first_ns = WARM_UP_S * NS_PER_S
    """When programs begin to ask."""

    def ask(self, device: Device, asked: Asked, local_ns: int, *, may_leave: bool = True) -> None:
        """A program asks.

        Args:
            device: Whose.
            asked: What; its number and what a clairvoyant would need are filled in.
            local_ns: What the own model takes; 0: it is not to answer.
            may_leave: Whether others may be asked.
        """
        device.number += 1
        asked.number, asked.oracle_ns = device.number, self._oracle_ns(device, asked.digest)
        deadline_ns = device.host.clock.local_ns(asked.deadline_ns)
        request = requests.Borrow(
            asked.number, asked.digest, asked.data, 1, deadline_ns, local_ns, may_leave, copies=asked.copies,
            keep_ns=asked.keep_ns, only=asked.only,
        )  # fmt: skip
        device.open[asked.number] = asked
        self.asked.append(asked)
        device.host.command(NAME, request)

    def _oracle_ns(self, device: Device, digest: bytes) -> int:
        """The soonest answer of anybody honest who is up, by what each processor has to do at this moment.

        The way there and back takes what the radio's does on average; no link fails, and nobody needs a ticket.
        """
        way_ns = self.way_ns(self._scenario.offload.input_bytes)
        times = []
        for other in self.devices.values():
            if other is not device and not other.about.lends:
                continue
            unit_ns = other.unit_ns(digest)
            lends = self._scenario.offload.lending and not other.is_liar
            if unit_ns and other.host.process_up and (other is device or lends):
                backlog_ns = other.processor.backlog_ns(FRAME, OWN, LENT)
                times.append(backlog_ns + unit_ns + (0 if other is device else way_ns + other.about.away_ns))
        return min(times, default=0)

    def way_ns(self, size_bytes: int, back_bytes: int = 0) -> int:
        """The way there of so many bytes, and of others back, as the radio takes it on average: burst by burst."""
        radio = self._scenario.radio
        bursts = max(1, -(-size_bytes // BURST_BYTES)) + max(1, -(-back_bytes // BURST_BYTES))
        latency_ns = bursts * (radio.latency_ms + radio.jitter_ms / 2) * MILLION
        return round(latency_ns + (size_bytes + back_bytes) * 8 * 1000 / radio.rate_mbit_s)

    def _frame(self, what: tuple[Device, int]) -> None:
        device, life = what
        host = device.host
        if host.boots != life or not host.process_up:
            return
        now_ns = host.engine.now_ns
        unit_ns = next(iter(device.about.units.values()))
        then = self.looks.begin(device) if self.looks is not None else None

        def done() -> None:
            self.frames.append(host.engine.now_ns - now_ns)
            if then is not None:
                then()

        device.processor.put(Task(FRAME, unit_ns, now_ns, done))
        host.engine.at(now_ns + device.about.frame_ns, self._frame, what)

    def _pulse(self, what: tuple[Device, int]) -> None:
        device, life = what
        if device.host.boots == life and device.host.process_up:
            self.restock(device)
            device.host.engine.at(device.host.engine.now_ns + _PULSE_NS, self._pulse, what)

    def restock(self, device: Device) -> None:
        """The driver says what there is to lend."""
        held = tuple(requests.Held(digest, unit_ns) for digest, unit_ns in device.held())
        asks = () if self.looks is None or not device.about.asks else self.looks.asks(device)
        device.queues_ns = device.queues_ns[1], device.processor.backlog_ns(FRAME, OWN)
        device.host.command(NAME, requests.Stock(held, device.queues_ns[1], None, asks=asks))

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
        manner = self.manner_of(host) if is_lent else ""
        if manner == "lend_nothing":
            return
        if data is not None and (manner == "lend_lies" or (is_lent and device.is_liar)):
            data = bytes(32) + data[32:]
        if manner == "lend_garbage":
            data = bytes(self._choices.choose("offload.garbage", 200))
        life = host.boots
        asked = None
        if borrower is not None:
            opened = self.devices[borrower.index].open.values()
            asked = next((one for one in opened if one.data == order.data and one.digest == order.digest), None)
        if asked is not None:
            asked.taken.append((host.index, life))

        def answer() -> None:
            if host.boots == life and host.process_up:
                host.command(NAME, requests.Ran(order.job, data))

        def done() -> None:
            if asked is not None:
                asked.ran.append((host.index, life, host.engine.now_ns))
            answer()

        kind = LENT if is_lent else OWN
        device.processor.put(Task(kind, unit_ns * order.units, now_ns, done, order.job, order.turn_ns))

    def _settle(self, device: Device, settle: requests.Settle) -> None:
        asked = device.open.pop(settle.number, None)
        self.listener.on_settle(device, asked, settle)
        if asked is None:
            return
        host = device.host
        asked.settles += 1
        asked.dead = sum(not self.lives(*lender) for lender in asked.taken)
        asked.settled_ns = host.engine.now_ns
        asked.data_out, asked.lender, asked.is_kept = settle.data, settle.lender, settle.is_kept
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
        if asked.then is not None:
            asked.then(asked, settle)

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
        borrowed = Borrowed(self.asked, self.frames, self.counts(), self.looks, self.rollout)
        figures = figures_of(borrowed, self._scenario.offload)
        figures |= {} if self.splits is None else self.splits.figures()
        return figures | ({} if self.batch is None else self.batch.figures())
