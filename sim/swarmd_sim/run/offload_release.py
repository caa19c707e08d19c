"""A new version of a traffic fleet's models, rolled out: lenders hold both, a camera changes when it can ask.

Each lender loads the new version beside the old one in the first half of the time, and unloads the old one when all are
through. A camera that has the new small model changes its plan as soon as two lenders offer each bundle of it; until
then it asks for the old ones. `offload.release_swap` does what servers with one place for each model do: unload, load,
go on, and cameras that change when their turn comes.
"""

from collections.abc import Callable, Mapping

from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload_device import Device
from swarmd_sim.run.offload_fleet import KINDS, TRAFFIC, kind_of
from swarmd_sim.run.offload_looks import Looks
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import OffloadSection

_LENDERS = 2
"""That must offer each bundle of a plan before a camera asks for them: one may die."""
_LOOK_NS = 500 * MILLION
"""How often a camera looks."""
_LOAD_NS = 2 * NS_PER_S
"""Between unloading and having loaded, for who has room for one."""
AFTER_S = 8.0
"""The old version stays so long after the last camera's turn."""


class Rollout:
    """See the module.

    Args:
        devices: By host.
        looks: The cameras.
        restock: Tells a device's protocol what there is to lend.
        section: What was asked for.
        choices: All randomness.
    """

    def __init__(
        self,
        devices: Mapping[int, Device],
        looks: Looks,
        restock: Callable[[Device], None],
        section: OffloadSection,
        choices: Choices,
    ) -> None:
        self._devices = devices
        self._looks = looks
        self._restock = restock
        self._section = section
        self._choices = choices
        self.begin_ns = int(self._section.release_at_s * NS_PER_S)
        self.end_ns = self.begin_ns + int((self._section.release_over_s + AFTER_S) * NS_PER_S)
        self.changed = 0

    def plan(self, engine: Engine, hosts: list[Host]) -> None:
        """Say when each device's turn comes."""
        over_ns = int(self._section.release_over_s * NS_PER_S)
        for host in hosts:
            kind = KINDS[kind_of(self._section, host.index)]
            at_ns = self.begin_ns + self._choices.choose("offload.turn", over_ns // 2)
            if kind.lends:
                engine.at(at_ns, self._load, host.index)
            if kind.asks:
                engine.at(at_ns + over_ns // 2, self._change, host)

    def _load(self, index: int) -> None:
        device = self._devices[index]
        engine = device.host.engine
        if self._section.release_swap:
            device.resident = []
            engine.at(engine.now_ns + _LOAD_NS, self._hold, (index, [1]))
        else:
            self._hold((index, [0, 1]))
            engine.at(self.end_ns, self._hold, (index, [1]))

    def _hold(self, what: tuple[int, list[int]]) -> None:
        index, versions = what
        device = self._devices[index]
        device.resident = versions
        if device.host.process_up:
            self._restock(device)

    def _change(self, host: Host) -> None:
        device = self._devices[host.index]
        wanted = {digest.hex() for digest in TRAFFIC[1][1:]}
        offered: dict[str, int] = {}
        for digests in device.protocol.lenders().values() if device.protocol is not None else ():
            for digest in digests:
                offered[digest] = offered.get(digest, 0) + 1
        if self._section.release_swap or all(offered.get(digest, 0) >= _LENDERS for digest in wanted):
            self.changed += 1
            self._looks.version[host.index] = 1
            return
        host.engine.at(host.engine.now_ns + _LOOK_NS, self._change, host)
