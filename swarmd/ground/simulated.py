"""A simulation as one of its nodes sees it, written down as it runs: the same rows as of a real swarm.

What the node knows comes from its own protocols. Positions are the simulator's, as long as the node holds a member for
heard; after that the last one stays. Nothing here can change the run.
"""

import math
import time
from collections.abc import Callable
from typing import Any

from swarmd import __version__
from swarmd.ground.facts import cell_of, member_of, object_of
from swarmd.ground.picture import Picture
from swarmd.ground.rows import Asset, Change, Event, Mark, Position, Site
from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_sim.run.simulation import Simulation

_HEARD = (MemberState.ALIVE, MemberState.DEGRADED, MemberState.SUSPECT)


class SimulationFeed:
    """Looks at a run once a virtual second.

    Args:
        simulation: Whose.
        seen_by: Number of the host whose knowledge is shown.
    """

    def __init__(self, simulation: Simulation, seen_by: int) -> None:
        self._simulation = simulation
        self._host = simulation.hosts[seen_by]
        self._picture = Picture()
        self._mark: Callable[[Mark], None] = lambda mark: None
        self._began_s = float(int(time.time()))
        """The run is shown as if it had begun when it was computed: virtual time has no date."""
        self._since: dict[NodeId, tuple[MemberState, float]] = {}
        self._told_faults = 0

    def begin(self, on_change: Callable[[Change], None], on_mark: Callable[[Mark], None]) -> None:
        """Tell from now on of each change, in order, and of points for the timeline."""
        self._picture = Picture(on_change)
        self._mark = on_mark

    def site(self) -> Site:
        """What is looked at."""
        simulation = self._simulation
        assets = [
            Asset(one.asset, one.east_m, one.north_m, one.width_m, one.depth_m) for one in simulation.site.map.assets
        ]
        title = f"simulation {simulation.scenario.name} seed {simulation.seed}"
        return Site("recording", title, self._host.name, __version__, None, None, assets)

    def look(self, now_ns: int) -> None:
        """Write down what the node knows at this moment."""
        at_s = self._began_s + now_ns / 1e9
        self._tell_faults(now_ns, at_s)
        if not self._host.process_up or self._host.node is None:
            return
        members = self._host.node.members()
        names = {member.node: member.name for member in members}
        is_mesh = self._host.node.summary().mesh
        for member in members:
            was = self._since.get(member.node)
            if was is None or was[0] is not member.state:
                self._since[member.node] = (member.state, at_s)
                if was is not None:
                    level = "warning" if member.state in (MemberState.FAILED, MemberState.SUSPECT) else "info"
                    text = f"{member.name} {was[0].value} → {member.state.value}"
                    self._mark(Mark(at_s, "members", level, text))
            is_self = member.node == self._host.node_id
            row = member_of(member, self._since[member.node][1], is_self=is_self, is_mesh=is_mesh)
            self._picture.put("member", row, at_s)
        self._look_at_drones({member.node for member in members if member.state in _HEARD}, at_s)
        replica = self._simulation.context.replicas.get(self._host.index)
        if replica is not None:
            self._look_at_state(replica.views, names, at_s)

    def _look_at_state(self, views: Any, names: dict[NodeId, str], at_s: float) -> None:
        gone = dict.fromkeys(self._picture.names("object"))
        for view in views.objects():
            if view.object_id not in gone:
                self._mark(Mark(at_s, "objects", "info", f"{view.label} {view.asset}".rstrip()))
            gone.pop(view.object_id, None)
            self._picture.put_dateless(object_of(view, names), at_s)
        for name in gone:
            self._picture.drop("object", name, at_s)
        for cell in views.cells():
            self._picture.put("cell", cell_of(cell, names), at_s)

    def _look_at_drones(self, heard: set[NodeId], at_s: float) -> None:
        for host in self._simulation.hosts:
            drone = self._simulation.fleet.drones.get(host.index)
            if drone is None or host.node_id not in heard or not host.process_up:
                continue
            east_m, north_m = (value / 100 for value in drone.position_cm)
            name = host.node_id.hex()
            was = self._picture.held("position", name, Position)
            row = Position(
                id=name,
                name=host.name,
                has_fix=True,
                east_m=east_m,
                north_m=north_m,
                latitude_deg=0.0,
                longitude_deg=0.0,
                height_agl_m=0.0,
                yaw_deg=_heading(was, east_m, north_m),
                sigma_m=0.0,
                battery=round(drone.battery_ppm / 1e6, 2),
                at_s=round(at_s, 2),
            )
            self._picture.put("position", row, at_s)

    def _tell_faults(self, now_ns: int, at_s: float) -> None:
        script = sorted(self._simulation.script, key=lambda fault: fault.at_ns)
        while self._told_faults < len(script) and script[self._told_faults].at_ns <= now_ns:
            fault = script[self._told_faults]
            self._told_faults += 1
            who = ", ".join(self._simulation.hosts[number].name for number in fault.nodes[:8])
            reason = f"for {fault.duration_ns / 1e9:.0f} s" if fault.duration_ns else ""
            began_s = self._began_s + fault.at_ns / 1e9
            row = Event(f"fault-{self._told_faults}", began_s, "simulator", fault.kind, "error", who, reason, "")
            self._picture.put("event", row, at_s)
            self._mark(Mark(began_s, "events", "error", f"{fault.kind} {who}"))


def _heading(was: Position | None, east_m: float, north_m: float) -> float | None:
    """Degrees clockwise from north of the way since the last look; kept while it stands."""
    if was is None or was.east_m is None or was.north_m is None:
        return None
    if (was.east_m, was.north_m) == (east_m, north_m):
        return was.yaw_deg
    return round(math.degrees(math.atan2(east_m - was.east_m, north_m - was.north_m)) % 360, 1)
