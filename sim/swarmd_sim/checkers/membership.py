"""Membership: the dead stay dead, the healthy are not called dead, refutation wins, and views agree after quiet."""

import msgspec

from swarmd_protocols.effects import MemberChanged, MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.messages import STATUS_AWAY, AliveBody
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.checkers.deaths import Deaths
from swarmd_sim.checkers.paths import Paths
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.host import Host

RESURRECT_NS = 30_000_000_000
"""News about a dead member that is older than this must not revive it."""
MARGIN_NS = 15_000_000_000
"""A fault excuses a host for this long after it is over."""
CALM_NS = 5_000_000_000
"""Who is to notice a death was left alone from so long before it; it is asked only of nodes that knew the dead one."""
DEAF_NS = 5_000_000_000
"""Who is deaf pings few others, and each that hears it speaks for it so long after its last frame (`prober.py`)."""
ABSENCE_NS = 3_000_000_000
"""Peers count an announced absence in whole seconds, and 2 s longer: who comes back needs time to start."""
STORM_NS = 131_000_000_000
"""So long after a storm of metadata relays of a mesh still owe it, nanoseconds: their account of its author is spent,
and gives half a budget (500 B/s of `swim/relays.py`) for 64 KiB, all that a member may have."""
FREEZE_NS = 10_000_000_000
"""A process frozen for less than this is degraded, never failed."""
_GONE = (MemberState.FAILED, MemberState.LEFT)
_HERE = (MemberState.ALIVE, MemberState.DEGRADED)
_UNDECIDED = (*_HERE, MemberState.SUSPECT)


class MembershipChecker(CheckerBase):
    """See the module."""

    def __init__(self, run: RunContext) -> None:
        super().__init__(run)
        self._paths = Paths(run)
        self._deaths = Deaths(run, self._paths)
        self._incarnations: dict[tuple[int, NodeId], int] = {}
        self._late_reported: set[int] = set()
        self._told_ns: dict[tuple[int, int], int] = {}
        """When each host took back last that another is cut off."""
        self._absences: dict[int, tuple[int, int]] = {}
        """From when to when each host said last that it is away, virtual time."""

    def on_member(self, host: Host, change: MemberChanged) -> None:
        """Safety, at each change of opinion."""
        subject = self.run.watch.by_id.get(change.node)
        if subject is None or host.hostile:
            return
        if change.old is MemberState.UNREACHABLE:
            self._told_ns[host.index, subject.index] = self.run.engine.now_ns
        if change.new is MemberState.FAILED:
            self._on_failed(host, subject, change)
        elif change.new is MemberState.UNREACHABLE:
            self._on_unreachable(host, subject, change)
        elif change.new is MemberState.ALIVE and change.old in _GONE:
            self._on_revived(host, subject)

    def _on_failed(self, host: Host, subject: Host, change: MemberChanged) -> None:
        run = self.run
        if change.node in host.node._core.trust.revoked:
            return  # It was not found to fail but shut out: `trust.invented` judges by whose word.
        if change.old is MemberState.LEFT and subject.life.left:
            run.watch.violate("membership.left_failed", f"{host.name} calls {subject.name} failed; it said good-bye")
        if self._has_announced(host, subject):
            run.watch.violate(
                "membership.announced_failed",
                f"{host.name} calls {subject.name} failed ({change.reason}); it has said that it goes",
            )
        if self._is_only_frozen(host, subject) and run.injector.healthy(host.index, MARGIN_NS):
            run.watch.violate(
                "membership.frozen_failed",
                f"{host.name} calls {subject.name} failed ({change.reason}); it has been frozen for less than 10 s",
            )
        healthy = run.injector.healthy(host.index, MARGIN_NS) and run.injector.healthy(subject.index, MARGIN_NS)
        if not healthy or subject is host or not self._paths.stand(host.index, subject.index):
            return
        run.watch.false_positives += 1
        if run.watch.false_positives > run.scenario.checks.false_failed:
            run.watch.violate(
                "membership.false_failed",
                f"{host.name} calls {subject.name} failed ({change.reason}); it is up and no fault has touched either "
                f"for {MARGIN_NS // 1_000_000_000} s",
            )

    def _on_unreachable(self, host: Host, subject: Host, change: MemberChanged) -> None:
        """Nobody is cut off to whom a path stands."""
        run = self.run
        healthy = all(run.injector.healthy(one.index, MARGIN_NS) for one in (host, subject))
        if healthy and subject is not host and self._paths.stand(host.index, subject.index):
            run.watch.violate(
                "membership.false_unreachable",
                f"{host.name} calls {subject.name} unreachable ({change.reason}); a path to it stands",
            )

    def _is_only_frozen(self, host: Host, subject: Host) -> bool:
        """Whether a short freeze is all that ails a host: its kernel answers, so it is degraded at worst."""
        now_ns = self.run.engine.now_ns
        faults = [fault for fault in self.run.injector.recent if subject.index in fault.nodes or _is_global(fault)]
        return (
            subject.process_up
            and subject.stalled
            and [fault.kind for fault in faults] == ["freeze"]
            and now_ns - faults[0].at_ns < FREEZE_NS
            and now_ns - subject.life.started_ns > MARGIN_NS
            and self._paths.stand(host.index, subject.index)
        )

    def _has_announced(self, host: Host, subject: Host) -> bool:
        """Whether a good-bye or an announced absence is all that ails a host, and it could be heard."""
        run = self.run
        now_ns = run.engine.now_ns
        faults = [fault for fault in run.injector.recent if subject.index in fault.nodes or _is_global(fault)]
        return (
            [fault.kind for fault in faults] in (["leave"], ["away"])
            and now_ns < faults[0].end_ns
            and faults[0].at_ns - subject.life.started_ns > MARGIN_NS
            and (subject.life.left or faults[0].kind == "away")
            and run.injector.healthy(host.index, MARGIN_NS)
            and self._paths.stand(host.index, subject.index)
        )

    def _on_revived(self, host: Host, subject: Host) -> None:
        run = self.run
        if not subject.process_up and run.engine.now_ns - subject.crashed_ns > RESURRECT_NS:
            run.watch.violate(
                "membership.resurrected",
                f"{host.name} calls {subject.name} alive; it died at {subject.crashed_ns / 1e9:.1f} s",
            )

    def on_step(self, now_ns: int) -> None:
        """Safety once a second: a death must be known in time wherever it can be."""
        run = self.run
        self._paths.on_step()
        self._deaths.on_step()
        self._note_absences(now_ns)
        for victim, crashed_ns in sorted(run.watch.crashes.items()):
            if victim in self._late_reported or run.hosts[victim].life.left:
                continue
            late = self._late(victim, crashed_ns, now_ns)
            if late:
                limit_ns = self._limit_ns(victim, crashed_ns) + self._absence_ns(run.hosts[victim])[1]
                self._late_reported.add(victim)
                run.watch.violate(
                    "membership.undetected",
                    f"{run.hosts[victim].name} died {(now_ns - crashed_ns) / 1e9:.1f} s ago; {late[0].name} and "
                    f"{len(late) - 1} others of {len(run.live())} do not know (bound {limit_ns / 1e9:g} s)",
                )

    def _late(self, victim: int, crashed_ns: int, now_ns: int) -> list[Host]:
        """Who could know of a death for longer than it may take, and does not.

        Of one that held two parts together both told, rightly, that it is cut off; where they meet, what each said last
        of it makes it live until the other's newer word is there. So that counts from when it was taken back.
        """
        run, subject = self.run, self.run.hosts[victim]
        announced_ns, absent_ns = self._absence_ns(subject)
        limit_ns = self._limit_ns(victim, crashed_ns)
        undecided = (*_UNDECIDED, MemberState.AWAY) if announced_ns else _UNDECIDED
        seen = run.watch.failed_seen.get(victim, {})
        margin_ns = now_ns - crashed_ns + announced_ns + CALM_NS
        span = now_ns - 2 * limit_ns, now_ns - limit_ns
        told, absent_until_ns = self._told_ns, crashed_ns + absent_ns
        asked = {host: max(absent_until_ns, told.get((host, victim), 0)) for host in range(len(run.hosts))}
        could = self._deaths.could_know(victim, crashed_ns, asked, span)
        left_alone = [run.hosts[index] for index in could if run.injector.healthy(index, margin_ns)]
        return [host for host in left_alone if host.index not in seen and self._holds_for(host, subject, undecided)]

    def _limit_ns(self, victim: int, crashed_ns: int) -> int:
        """How long a death may stay unknown: longer where the victim was deaf when it died.

        Others have told then that they hear it though it does not hear them, and each takes that back by itself. Who
        has said in its last life that it is at another's address is as deaf: nothing that is sent to it arrives.
        """
        limit_ns = int(self.run.scenario.checks.detect_s * 1e9)
        started_ns = self.run.hosts[victim].life.started_ns
        deaf = any(
            victim in fault.nodes
            and fault.at_ns <= crashed_ns
            and (
                (fault.kind in ("deaf", "one_way") and crashed_ns <= fault.end_ns)
                or (fault.kind == "borrow_address" and started_ns <= fault.end_ns)
            )
            for fault in self.run.injector.script
        )
        return limit_ns + DEAF_NS if deaf else limit_ns

    def _absence_ns(self, subject: Host) -> tuple[int, int]:
        """What the absence in which a host died has to do with when its death is known.

        Until an announced absence is over nobody asks: silence is what was announced, and a death in it looks the same.
        Each counts the absence from when it heard of it, so who was not there from the announcement on counts longer.

        Returns:
            How long before its death the host announced the absence, and how long after its death that was over for
            those who heard it; 0 and 0 where it died in none.
        """
        own = subject.node._core.own
        if own.status != STATUS_AWAY:
            if subject.life.known_ns >= 0 or subject.index not in self._absences:
                return 0, 0
            # Nobody has met this life: the word of the one before stands.
            begun_ns, until_ns = self._absences[subject.index]
            return max(0, subject.crashed_ns - begun_ns), max(0, until_ns + ABSENCE_NS - subject.crashed_ns)
        crashed_ns = subject.clock.local_ns(subject.crashed_ns)
        length_ns = msgspec.msgpack.decode(own.body, type=AliveBody).away_s * 1_000_000_000
        begun_ns = own.away_until_ns - length_ns
        return max(0, crashed_ns - begun_ns), max(0, own.away_until_ns + ABSENCE_NS - crashed_ns)

    def _note_absences(self, now_ns: int) -> None:
        for host in self.run.live():
            own = host.node._core.own
            if own.status == STATUS_AWAY:
                until_ns = now_ns + own.away_until_ns - host.clock.local_ns(now_ns)
                length_ns = msgspec.msgpack.decode(own.body, type=AliveBody).away_s * 1_000_000_000
                self._absences[host.index] = until_ns - length_ns, until_ns
            elif host.life.known_ns >= 0:
                self._absences.pop(host.index, None)

    def _holds_for(self, host: Host, subject: Host, states: tuple[MemberState, ...]) -> bool:
        """Whether a host has not come to a verdict; a suspicion is none, nor an absence that is over."""
        return any(view.node == subject.node_id and view.state in states for view in host.node.members())

    def on_end(self, now_ns: int) -> None:
        """Liveness: every live host of the component sees exactly the live hosts as here."""
        run = self.run
        component = run.component()
        truth = {host.node_id for host in component}
        wrong = 0
        if run.scenario.workload.meta_per_min:
            self._check_meta(component)
        for host in component:
            views = {view.node: view for view in host.node.members()}
            partial = host.node.summary().partial
            missing = [] if partial else sorted(truth - {n for n, view in views.items() if view.state in _HERE})
            ghosts = [view.name for node, view in sorted(views.items()) if view.state in _HERE and self._is_ghost(node)]
            if missing or ghosts:
                wrong += 1
                if wrong <= 3:
                    names = [self._describe(views.get(NodeId(node)), node) for node in missing[:4]]
                    run.watch.violate(
                        "membership.views_differ",
                        f"{host.name} misses {len(missing)} of {len(truth)} {names} "
                        f"and believes in {len(ghosts)} dead {ghosts[:4]}",
                    )

    def _check_meta(self, component: list[Host]) -> None:
        """What a node says of itself arrives everywhere: metadata is equal in every view that holds the node.

        But for what a storm left, where the stormer itself cannot be asked for it.
        """
        own = {host.node_id: next(v.meta for v in host.node.members() if v.quality == "self") for host in component}
        for host in component:
            for view in host.node.members():
                if view.node not in own or view.state not in _HERE or self._owes(host, view.node):
                    continue
                held, said = dict(view.meta), dict(own[view.node])
                differs = sorted(key for key in held.keys() | said.keys() if held.get(key) != said.get(key))
                if differs:
                    self.run.watch.violate(
                        "membership.meta_differs",
                        f"{host.name} holds other metadata of {view.name} than it says: {len(differs)} of {len(said)} "
                        f"keys, {', '.join(differs[:8])}",
                    )
                    return

    def _owes(self, host: Host, subject: NodeId) -> bool:
        """Whether others still owe a host what a storm of a member out of its reach has left."""
        core = host.node._core
        member = core.table.by_node.get(subject)
        if not core.view.weighs_links or member is None or member.where >= 0:
            return False
        index, now_ns = self.run.watch.by_id[subject].index, self.run.engine.now_ns
        return any(
            fault.kind == "meta_storm" and index in fault.nodes and fault.at_ns <= now_ns < fault.end_ns + STORM_NS
            for fault in self.run.injector.script
        )

    def _describe(self, view: object, node: bytes) -> str:
        name = self.run.watch.by_id[node].name
        return f"{name}:{view.state.value}" if view is not None else f"{name}:unknown"  # type: ignore[attr-defined]

    def _is_ghost(self, node: bytes) -> bool:
        host = self.run.watch.by_id.get(node)
        dead_ns = self.run.engine.now_ns - host.crashed_ns if host is not None else 0
        return host is not None and not host.process_up and dead_ns > int(self.run.scenario.checks.detect_s * 1e9)


def _is_global(fault: Fault) -> bool:
    return fault.kind in ("partition", "clog", "jam")
