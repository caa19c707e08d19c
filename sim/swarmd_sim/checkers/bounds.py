"""What an attack may cost: one author, one accuser, one stranger, measured while they go on and after.

cost.author          one author's facts take more rows or bytes at a node than one author may
cost.waiting         batches wait for what will never come
cost.journal         one author's facts take more than their share of the disk
cost.traffic         honest nodes send more than `checks.attacked_bytes_s` each because of an attack, or 10 s after it
membership.accused   more than `checks.doubted_ppm` of healthy pairs are SUSPECT or DEGRADED while one member accuses
membership.kept_out  a node that starts under a flood is unknown to a healthy member after 5 s
"""

from collections import deque

from swarmd_protocols.effects import MemberChanged, MemberState
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.checkers.decisions import origins
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.run.host import Host

NS_PER_S = 1_000_000_000
WINDOW_S = 10
AUTHOR_BYTES = 4 * 1_024 * 1_024
"""Bytes of one author's batches at one node: its quota."""
AUTHOR_BATCHES = 32_768
WAITING_MAX = 256
PAIRS_MIN = 400
"""Fewer samples of pairs say nothing about one in a hundred."""
JOIN_NS = 5 * NS_PER_S
"""A newcomer is known everywhere within this, under 10,000 junk datagrams a second at every member."""
MARGIN_NS = 15 * NS_PER_S
_ACCUSERS = ("accuse", "accuse_mad", "accuse_dead", "accuse_ahead", "lie_links")
_FLOODS = ("junk_flood", "sealed_junk", "spoofed_flood", "hello_replay", "contact_replay", "mirror")
_DOUBTED = (MemberState.SUSPECT, MemberState.DEGRADED)


class BoundsChecker(CheckerBase):
    """See the module."""

    def __init__(self, run: RunContext) -> None:
        super().__init__(run)
        self._sent: deque[list[int]] = deque(maxlen=WINDOW_S + 1)
        self._doubts: set[tuple[int, bytes]] = set()
        self._pairs = self._doubted = 0
        self._told: set[tuple[str, int]] = set()

    def on_member(self, host: Host, change: MemberChanged) -> None:
        """Who doubts whom."""
        if change.new in _DOUBTED:
            self._doubts.add((host.index, change.node))
        else:
            self._doubts.discard((host.index, change.node))

    def on_step(self, now_ns: int) -> None:
        """Once a second."""
        self._sent.append(list(self.run.network.sent_bytes))
        recent = {fault.kind for fault in self.run.injector.recent}
        if not recent & (ATTACK_KINDS.keys() | {"accuse", "flood", "replay_attack"}):
            return
        self._authors()
        self._traffic()
        if recent & set(_ACCUSERS):
            self._accused()
        if recent & set(_FLOODS):
            self._newcomers(now_ns)

    def on_end(self, now_ns: int) -> None:
        """The share of doubts over the whole run."""
        most_ppm = self.run.scenario.checks.doubted_ppm
        if most_ppm and self._pairs >= PAIRS_MIN and self._doubted * 1_000_000 > most_ppm * self._pairs:
            self.run.watch.violate(
                "membership.accused",
                f"{self._doubted} of {self._pairs} samples of healthy pairs are SUSPECT or DEGRADED under one accuser",
            )

    def _authors(self) -> None:
        for host in self.run.live():
            replica = self.run.replica(host)
            if replica is None:
                continue
            logs = replica._holdings.store.logs
            for origin in origins(replica):
                log = logs.get(origin)
                if log is None:
                    continue
                if log.size_bytes > AUTHOR_BYTES or len(log.facts) > AUTHOR_BATCHES:
                    self._violate(
                        "cost.author",
                        host,
                        f"{host.name} holds {log.size_bytes:,} B in {len(log.facts)} batches of one",
                    )
            waiting = replica.views.health()["waiting_for_certificates"]
            if waiting > WAITING_MAX:
                self._violate("cost.waiting", host, f"{host.name} keeps {waiting} batches for which it lacks a key")

    def _traffic(self) -> None:
        """Honest nodes only, and only those that no other fault has touched: what a clog held back is no amplifier."""
        most = self.run.scenario.checks.attacked_bytes_s
        if not most or len(self._sent) <= WINDOW_S:
            return
        first, last = self._sent[0], self._sent[-1]
        honest = [host for host in self.run.live() if self.run.injector.healthy(host.index, MARGIN_NS)]
        if len(honest) * 2 <= len(self.run.hosts):
            return
        mean = sum(last[host.index] - first[host.index] for host in honest) // WINDOW_S // len(honest)
        if mean > most:
            self._violate(
                "cost.traffic",
                honest[0],
                f"honest nodes send {mean:,} B/s each; at most {most:,} under attack",
            )

    def _accused(self) -> None:
        run = self.run
        healthy = [host for host in run.live() if run.injector.healthy(host.index, MARGIN_NS)]
        for host in healthy:
            for other in healthy:
                if other is not host and run.linked(host.index, other.index):
                    self._pairs += 1
                    self._doubted += (host.index, other.node_id) in self._doubts

    def _newcomers(self, now_ns: int) -> None:
        run = self.run
        healthy = [host for host in run.component() if run.injector.healthy(host.index, MARGIN_NS)]
        for host in run.component():
            age_ns = now_ns - host.life.started_ns
            if not JOIN_NS < age_ns < 2 * JOIN_NS or not run.injector.untouched_since(
                host.index, host.life.started_ns + 1
            ):
                continue
            if any(fault.kind in ("partition", "clog", "jam", "loss") for fault in run.injector.recent):
                continue
            late = [other for other in healthy if not _knows(other, host)]
            if late:
                self._violate(
                    "membership.kept_out",
                    host,
                    f"{host.name} started {age_ns / 1e9:.1f} s ago under a flood; {late[0].name} does not know it",
                )

    def _violate(self, rule: str, host: Host, text: str) -> None:
        if (rule, host.index) not in self._told:
            self._told.add((rule, host.index))
            self.run.watch.violate(rule, text)


def _knows(host: Host, other: Host) -> bool:
    return any(
        view.node == other.node_id and view.state in (MemberState.ALIVE, *_DOUBTED) for view in host.node.members()
    )
