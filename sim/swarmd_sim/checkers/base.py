"""What checkers look at: a whole run, known from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swarmd_protocols.effects import MemberChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.replica import ReplicaConfig
from swarmd_sim.faults.injector import Injector
from swarmd_sim.radio.network import Network
from swarmd_sim.radio.radio import Radio
from swarmd_sim.run.choices import MILLION
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.releases import ReleaseWorld
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.thumbs import ThumbsWorld
from swarmd_sim.run.watch import Watch
from swarmd_sim.world.site import Site


@dataclass(slots=True)
class RunContext:
    """Everything there is to know about a run.

    Attributes:
        scenario: What was asked for.
        seed: What decided everything.
        engine: Virtual time.
        hosts: All hosts.
        network: All links.
        radio: The air.
        injector: Which faults go on.
        ledger: What was acknowledged.
        watch: Where violations go.
        site: The ground truth.
        replicas: The replicated state of each host.
        state_config: How that state is configured.
        releases: What is known about models; None where none are published.
        sent_before: What the state of lives that have ended sent, by kind.
        thumbs: What is known about pictures; None where there are none.
    """

    scenario: Scenario
    seed: int
    engine: Engine
    hosts: list[Host]
    network: Network
    radio: Radio
    injector: Injector
    ledger: Ledger
    watch: Watch
    site: Site
    replicas: dict[int, Any]
    state_config: ReplicaConfig
    releases: ReleaseWorld | None = None
    sent_before: Mapping[str, int] = field(default_factory=dict)
    thumbs: ThumbsWorld | None = None

    def replica(self, host: Host) -> Any:
        """The host's replicated state; None when it has none."""
        return self.replicas.get(host.index)

    def digest_of(self, host: Host) -> bytes:
        """A host's digest of everything that lasts; empty when it has no replicated state."""
        replica = self.replicas.get(host.index)
        return bytes(replica.views.digest()) if replica is not None else b""

    def live(self) -> list[Host]:
        """Hosts whose process is up, that have not left and are not hostile."""
        return [host for host in self.hosts if host.process_up and not host.life.left and not host.hostile]

    def tainted_ids(self) -> list[NodeId]:
        """Every identity of hosts that are or were in other hands: with a stolen enrol key one takes on another."""
        tainted = self.injector.tainted()
        return sorted(NodeId(node) for node, host in self.watch.by_id.items() if host.index in tainted)

    def linked(self, a: int, b: int) -> bool:
        """Whether frames have a fair chance in both directions now."""
        return self.carried(a, b) and self.carried(b, a)

    def carried(self, source: int, destination: int) -> bool:
        """Whether frames from one host to another have a fair chance now."""
        if self.network.faults.added_loss_ppm(source, destination) >= MILLION // 2:
            return False
        return self.radio.hears(source, destination, self.engine.now_ns)

    def component(self) -> list[Host]:
        """The largest set of live hosts that reach each other over fair links."""
        largest: list[Host] = max(self.components(), key=len, default=[])
        return sorted(largest, key=lambda host: host.index)

    def components(self) -> list[list[Host]]:
        """The sets of live hosts that reach each other over fair links; who is found first comes first."""
        left = {host.index: host for host in self.live()}
        if self.network.faults.quiet and self.radio.everybody_hears:
            return [list(left.values())]
        groups: list[list[Host]] = []
        while left:
            _index, first = next(iter(left.items()))
            group, todo = [], [first]
            del left[first.index]
            while todo:
                host = todo.pop()
                group.append(host)
                near = [other for other in left.values() if self.linked(host.index, other.index)]
                for other in near:
                    del left[other.index]
                todo += near
            groups.append(group)
        return groups


class CheckerBase:
    """A checker that looks at nothing yet.

    Args:
        run: The run.
    """

    def __init__(self, run: RunContext) -> None:
        self.run = run

    def on_member(self, host: Host, change: MemberChanged) -> None:
        """A node's opinion of a member changed."""

    def on_detail(self, host: Host, detail: object) -> None:
        """A node's replicated state told its driver something, or its thumbnails did."""

    def on_user_event(self, host: Host, name: str) -> None:
        """A node delivered a user event."""

    def on_step(self, now_ns: int) -> None:
        """About once a virtual second."""

    def on_end(self, now_ns: int) -> None:
        """After the quiet time."""
