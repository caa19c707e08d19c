"""Hostile nodes: what a member with a stolen key, or a radio without any key, can try.

A hostile host is a real node of the swarm whose driver misbehaves beside it. Everything it sends passes the same air
as everything else; the checkers ask that the others are not harmed.
"""

from collections import deque
from collections.abc import Callable

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.state.observations import Count, LocalDetection, Observed, StatusReport
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.attacks import ATTACKS
from swarmd_sim.faults.attacks.lending import LENDING_MANNERS
from swarmd_sim.faults.attacks.thief import Thief
from swarmd_sim.faults.byzantine import Forger, accuse_everybody, say
from swarmd_sim.faults.faults import Fault
from swarmd_sim.radio.network import Network
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.releases import ReleaseWorld

_NS_PER_S = 1_000_000_000
_CAPTURE = 4_096


class Hostile:
    """The misbehaviour of all hostile hosts of a run.

    Args:
        engine: Virtual time.
        choices: All randomness.
        hosts: All hosts.
        network: Where frames are captured and sent.
        ledger: Told which facts count no more.
        reboot: Starts a host's next life.
        releases: What there is to forge; None where no models are published.
        officers: Whose keys may be stolen; None where the run has none.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Choices,
        hosts: list[Host],
        network: Network,
        ledger: Ledger,
        reboot: Callable[[Host], None],
        releases: ReleaseWorld | None = None,
        officers: Officers | None = None,
    ) -> None:
        self._engine = engine
        self._choices = choices
        self._hosts = hosts
        self._network = network
        self._ledger = ledger
        self._reboot = reboot
        self._running: dict[int, Fault] = {}
        self._snapshots: dict[int, dict[bytes, bytes]] = {}
        self._lies = 0
        self._releases = releases
        self._officers = officers
        self._crypto = ModelCrypto()
        self._thieves: dict[tuple[int, int], Thief] = {}
        self.acted: dict[str, int] = {}
        """Strokes of each kind of attack that left a hostile host."""
        self._forger = Forger(releases, choices) if releases is not None else None

    def listen(self) -> None:
        """Keep what is on the air, for later replay."""
        self._network.captured = deque(maxlen=_CAPTURE)

    def begin(self, number: int, fault: Fault) -> None:
        """A host turns hostile."""
        self._running[number] = fault
        for node in fault.nodes:
            host = self._hosts[node]
            host.hostile = True
            self._ledger.excuse(host)
            if fault.kind == "equivocate":
                self._snapshots[node] = host.disk.records()
            elif fault.kind in ATTACKS:
                host.forked = host.forked or ATTACK_KINDS[fault.kind].stays
                self._thieves[number, node] = self._thief(fault, host)
                self._engine.at(self._engine.now_ns, self._act, (number, fault, host))
            else:
                self._poison(host, fault.kind == "poison_delta")
                self._engine.at(self._engine.now_ns, self._act, (number, fault, host))

    def end(self, number: int) -> None:
        """A host stops it; one that equivocates now does so, by a second life on an old copy of its disk."""
        fault = self._running.pop(number)
        for node in fault.nodes:
            host = self._hosts[node]
            self._thieves.pop((number, node), None)
            if fault.kind == "equivocate":
                self._fork(host)
            elif not any(node in other.nodes for other in self._running.values()):
                host.hostile = host.forked
                self._poison(host, on=False)

    def _fork(self, host: Host) -> None:
        """Wake up on an old copy of the disk, so that numbers that were used already are used for other things."""
        host.forked = True
        snapshot = self._snapshots.pop(host.index, None)
        # Two such faults may overlap; the copy serves one of them.
        if host.process_up and snapshot is not None:
            host.crash("set back to an old copy of its disk", power=False)
            host.disk.restore(snapshot)
            self._reboot(host)

    def _act(self, what: tuple[int, Fault, Host]) -> None:
        number, fault, host = what
        if number not in self._running:
            return
        thief = self._thieves.get((number, host.index))
        is_slow = thief is None and fault.kind not in ("flood", "accuse")
        rate = {"replay_attack": 20}.get(fault.kind, 2) if is_slow else fault.amount
        if host.process_up and not host.stalled:
            if thief is not None:
                ATTACKS[fault.kind](thief)
            else:
                getattr(self, f"_{fault.kind}")(host)
        self._engine.at(self._engine.now_ns + _NS_PER_S // max(1, rate), self._act, what)

    def manner(self, host: Host) -> str:
        """How a hostile host's worker answers what it is lent for; "": as it should."""
        kinds = [fault.kind for fault in self._running.values() if host.index in fault.nodes]
        return next((kind for kind in LENDING_MANNERS if kind in kinds), "")

    def _thief(self, fault: Fault, host: Host) -> Thief:
        return Thief(
            host,
            fault.amount,
            self._hosts,
            self._network,
            self._choices,
            self._crypto,
            self._releases,
            self._officers,
            self.acted,
            fault.kind,
        )

    def _poison(self, host: Host, on: bool) -> None:
        device = self._releases.devices.get(host.index) if self._releases is not None else None
        if device is not None:
            device.store.poisoned = on or (device.store.poisoned and self._is_poisoner(host))

    def _is_poisoner(self, host: Host) -> bool:
        return any(fault.kind == "poison_delta" and host.index in fault.nodes for fault in self._running.values())

    def _victim(self) -> Host:
        return self._hosts[self._choices.choose("hostile.victim", len(self._hosts))]

    def _replay_attack(self, host: Host) -> None:
        captured = self._network.captured
        if captured:
            _source, _target, data = captured[self._choices.choose("hostile.frame", len(captured))]
            self._network.raw_datagram(host, self._victim().address, data)

    def _flood(self, host: Host) -> None:
        kind = self._choices.choose("hostile.flood", 3)
        if kind == 0:
            self._replay_attack(host)
            return
        size = 1 + self._choices.choose("hostile.size", 1_200)
        noise = self._choices.rng("hostile.noise").randbytes(size)
        captured = self._network.captured
        if kind == 2 and captured:
            # Noise behind a real header reaches further into the decoders than noise alone.
            _source, _target, data = captured[self._choices.choose("hostile.frame", len(captured))]
            cut = self._choices.choose("hostile.cut", len(data) + 1)
            noise = (data[:cut] + noise)[:1_200]
        self._network.raw_datagram(host, self._victim().address, noise)

    def _lie_position(self, host: Host) -> None:
        self._lies += 1
        draw = self._choices.stream("hostile.place")
        lie = LocalDetection(
            kind="new",
            track_id=1_000_000 + self._lies,
            label="hot-spot",
            score_milli=999,
            east_cm=draw(100_000) - 30_000,
            north_cm=draw(100_000) - 30_000,
            covariance_cm2=(1, 0, 1),
            asset="",
            moving=False,
            captured_ns=host.clock.local_ns(self._engine.now_ns),
            model_digest=b"liar\0\0\0\0",
        )
        host.command("state", Observed((lie,)))

    def _lie_health(self, host: Host) -> None:
        self._lies += 1
        host.command("state", Count((("frames_inferred", 1_000_000_007),)))
        host.command("state", StatusReport(b"battery 100 %%, %d" % self._lies))

    def _accuse(self, host: Host) -> None:
        level = self._choices.choose("hostile.accuse", 3)
        accuse_everybody(host, self._victim().node_id, level)

    def _poison_delta(self, host: Host) -> None:
        if self._forger is not None:
            say(host, self._victim().node_id, "releases", self._forger.delta(host))

    def _forge_release(self, host: Host) -> None:
        if self._forger is not None:
            say(host, self._victim().node_id, "releases", self._forger.anything(host))
