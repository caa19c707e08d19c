"""The brain's parts, once they stand: what `view.py` shows of them and `node_metrics.py` counts in them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swarmd.api.bus import Bus
from swarmd.api.metrics import Metrics
from swarmd.api.operators import OperatorDoor
from swarmd.api.verbs import Verbs
from swarmd.brain.armed import ArmedWord
from swarmd.brain.driver import Driver
from swarmd.brain.ground import Grounds
from swarmd.brain.journal import Journal
from swarmd.brain.supervise import Supervisor
from swarmd.bridges.base import Bridge
from swarmd.config.sections import Config
from swarmd.logs import Logger
from swarmd.release.service import ReleaseService
from swarmd.transports.base import Transport
from swarmd_models.geo.sightings import SightingFilter
from swarmd_protocols.ids import Address
from swarmd_protocols.neighbours.neighbours import NAME as NEIGHBOURS
from swarmd_protocols.neighbours.neighbours import Neighbours
from swarmd_protocols.node import Node
from swarmd_protocols.state.observations import LocalDetection
from swarmd_protocols.state.positions import Positions
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.trust.identity import Identity

if TYPE_CHECKING:
    from swarmd.brain.eyelink import EyeLink
    from swarmd.brain.workerlink import WorkerLink


class Parts(msgspec.Struct):
    """One running brain; the last fields come once the daemon serves."""

    config: Config
    log: Logger
    metrics: Metrics
    bus: Bus
    verbs: Verbs
    supervisor: Supervisor
    started_ns: int
    """Monotonic."""
    identity: Identity
    journal: Journal
    driver: Driver
    transport: Transport
    sightings: SightingFilter[LocalDetection]
    node: Node
    replica: Replica
    positions: Positions
    releases: ReleaseService
    grounds: Grounds
    seeds: Mapping[str, Address]
    """The configured addresses to join, and what each is resolved to; "" where it cannot be."""
    eye: "EyeLink | None" = None
    worker: "WorkerLink | None" = None
    bridges: list[Bridge] = msgspec.field(default_factory=list)
    control_path: Path = Path()
    http_address: str = ""
    door: OperatorDoor | None = None
    is_armed: ArmedWord = msgspec.field(default_factory=ArmedWord)
    """What the autopilot says; a model that asks for "disarmed" waits for False."""

    @property
    def neighbours(self) -> Neighbours:
        """What this node knows of the swarms beside its own."""
        found = self.node.subprotocol(NEIGHBOURS)
        assert isinstance(found, Neighbours)
        return found

    def battery_milli(self) -> int | None:
        """Thousandths of the charge, by the own position; None where there is no battery or it is not known."""
        own = self.positions.located().get(self.identity.node)
        return None if own is None else own.place.battery_milli
