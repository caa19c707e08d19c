"""What an attack may cost: one author, one accuser, one stranger, measured while they go on and after.

cost.author          one author's facts take more memory, or are more batches, than one author's may
cost.waiting         more batches wait for a certificate than may
cost.journal         one author's batches take more than their share of a node's journal, for 10 s
cost.traffic         an honest node sends more than `checks.attacked_bytes_s` because of an attack, or 10 s after it;
                     half as much more for each further member that attacks
membership.accused   while one member accuses, a healthy pair is SUSPECT or DEGRADED for more than
                     `checks.doubted_ppm` of the time, on average
membership.kept_out  a node that starts under a flood is unknown to a healthy member after 5 s
"""

from collections import Counter, deque

from swarmd_protocols.effects import MemberChanged, MemberState
from swarmd_protocols.ids import NODE_ID_BYTES
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import BATCH_MAX_BYTES, RECORD_MAX_BYTES, Stream
from swarmd_protocols.state.crdt.journal_keys import OTHERS_PREFIX, PROOF_PREFIX
from swarmd_protocols.state.crdt.log import BATCHES_MAX, INCARNATIONS_MAX
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.checkers.decisions import origins
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.faults import OFFICER_KINDS
from swarmd_sim.run.host import Host

NS_PER_S = 1_000_000_000
WINDOW_S = 10
KEY_BYTES = len(OTHERS_PREFIX) + NODE_ID_BYTES + 10
"""Name of a batch in a journal: its author and its dot."""
ONE_BATCH_BYTES = 512 * 1_024
"""A log is cut after a batch was added: what the dearest batch costs may stand above its bound."""
JOURNAL_NS = 10 * NS_PER_S
"""Deletions are journalled after what replaced the deleted, a part each second: a share is kept within this."""
RECORDS_BYTES = len(Stream) * INCARNATIONS_MAX * (RECORD_MAX_BYTES + KEY_BYTES) + 2 * RECORD_MAX_BYTES
"""What is no fact in an author's share of a journal: the latest of each other stream and life, and a proof."""
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
        self._doubts: dict[tuple[int, bytes], int] = {}
        """Who doubts whom, and since when."""
        self._past_ns: Counter[tuple[int, bytes]] = Counter()
        """How long, since the last step, one doubted another and does no more."""
        self._stepped_ns = 0
        self._pairs = self._doubted_ns = 0
        self._told: set[tuple[str, int]] = set()
        self._journal_ns: dict[tuple[int, int, bytes], int] = {}
        """Since when, in one life of a host, an author's share of its journal is too large."""

    def on_member(self, host: Host, change: MemberChanged) -> None:
        """Who doubts whom."""
        pair, now_ns = (host.index, change.node), self.run.engine.now_ns
        if change.new in _DOUBTED:
            self._doubts.setdefault(pair, now_ns)
        elif pair in self._doubts:
            self._past_ns[pair] += now_ns - max(self._doubts.pop(pair), self._stepped_ns)

    def on_step(self, now_ns: int) -> None:
        """Once a second."""
        self._look(now_ns)
        self._past_ns.clear()
        self._stepped_ns = now_ns

    def _look(self, now_ns: int) -> None:
        self._sent.append(list(self.run.network.sent_bytes))
        recent = {fault.kind for fault in self.run.injector.recent}
        if not recent & (ATTACK_KINDS.keys() | {"accuse", "flood", "replay_attack"}):
            return
        self._authors()
        self._journals(now_ns)
        self._traffic()
        if recent & set(_ACCUSERS):
            self._accused(now_ns)
        if recent & set(_FLOODS):
            self._newcomers(now_ns)

    def on_end(self, now_ns: int) -> None:
        """The share of doubts over the whole run."""
        most_ppm = self.run.scenario.checks.doubted_ppm
        doubted_ppm = self._doubted_ns // (1_000 * max(1, self._pairs))  # A pair is looked at each second.
        if most_ppm and self._pairs >= PAIRS_MIN and doubted_ppm > most_ppm:
            text = f"{doubted_ppm / 10_000:.1f} % of the time of {self._pairs} healthy pairs, a second each,"
            self.run.watch.violate("membership.accused", f"{text} are SUSPECT or DEGRADED under one accuser")

    def _authors(self) -> None:
        config = self.run.state_config
        for host in self.run.live():
            replica = self.run.replica(host)
            if replica is None:
                continue
            logs = replica._holdings.store.logs
            for origin in origins(replica):
                log = logs.get(origin)
                if log is None:
                    continue
                if log.cost > config.origin_cost_max + ONE_BATCH_BYTES or len(log.facts) > BATCHES_MAX:
                    self._violate(
                        "cost.author",
                        host,
                        f"{host.name} holds {len(log.facts)} batches of one author, which cost {log.cost:,} B",
                    )
            waiting = replica.views.health()["waiting_for_certificates"]
            if waiting > config.waiting_max:
                self._violate("cost.waiting", host, f"{host.name} keeps {waiting} batches for which it lacks a key")

    def _journals(self, now_ns: int) -> None:
        """A full disk takes no deletions: it is not judged."""
        most = journal_share(self.run.state_config)
        for host in self.run.live():
            sizes = {} if host.disk.is_behind else host.disk.sizes((OTHERS_PREFIX, PROOF_PREFIX), NODE_ID_BYTES)
            for author, size in sizes.items():
                key = (host.index, host.boots, author)
                if size <= most:
                    self._journal_ns.pop(key, None)
                elif now_ns - self._journal_ns.setdefault(key, now_ns) >= JOURNAL_NS:
                    self._violate(
                        "cost.journal",
                        host,
                        f"{size:,} B of {host.name}'s journal are one author's; its share: {most:,}",
                    )

    def _traffic(self) -> None:
        """Each honest node that no other fault has touched: what a clog held back is no amplifier.

        Nor is who was hostile: what it said waits in its own queues for as long as the radio takes to carry it. Half of
        the bound is what a node sends without attacks, the other half one attacker's share: what an author may cost is
        bounded by author (law 4), so each further one who attacks at the same time has a share of its own: 64 KiB that
        are passed on once and 70 KB that are repaired within ten seconds come to 14 kB/s of these 20, and twice the
        traffic budget to 2.
        """
        injector = self.run.injector
        most = self.run.scenario.checks.attacked_bytes_s
        if not most or len(self._sent) <= WINDOW_S:
            return
        attacks = [fault for fault in injector.recent if fault.kind in ATTACK_KINDS.keys() - OFFICER_KINDS]
        thieves = {node for attack in attacks for node in attack.nodes}
        most += max(0, len(thieves) - 1) * most // 2
        first, last = self._sent[0], self._sent[-1]
        tainted = injector.tainted()
        untainted = [host for host in self.run.live() if host.index not in tainted]
        honest = [host for host in untainted if injector.healthy(host.index, MARGIN_NS)]
        for host in honest:
            rate = (last[host.index] - first[host.index]) // WINDOW_S
            if rate > most:
                self._violate(
                    "cost.traffic", host, f"{host.name} is honest and sends {rate:,} B/s; at most {most:,} under attack"
                )

    def _accused(self, now_ns: int) -> None:
        run = self.run
        healthy = [host for host in run.live() if run.injector.healthy(host.index, MARGIN_NS)]
        for host in healthy:
            for other in healthy:
                if other is not host and run.linked(host.index, other.index):
                    pair = host.index, other.node_id
                    since_ns = max(self._doubts.get(pair, now_ns), self._stepped_ns)
                    self._pairs += 1
                    self._doubted_ns += self._past_ns[pair] + now_ns - since_ns

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


def journal_share(config: ReplicaConfig) -> int:
    """Bytes of a node's journal that one author's batches may take.

    What a batch costs in memory is more than twice its bytes, so the bound of the memory is one of the disk as well.

    Args:
        config: Of the replicated state.
    """
    return min(BATCHES_MAX * (BATCH_MAX_BYTES + KEY_BYTES), config.origin_cost_max // 2) + RECORDS_BYTES


def _knows(host: Host, other: Host) -> bool:
    return any(
        view.node == other.node_id and view.state in (MemberState.ALIVE, *_DOUBTED) for view in host.node.members()
    )
