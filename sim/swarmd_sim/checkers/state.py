"""Replicated state: nothing acknowledged is lost, equal digests mean equal views, digests meet after quiet."""

from collections.abc import Collection, Sequence
from typing import Any

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.anti_entropy import NAMED_SELDOM
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.observations import LocalDetection, ObjectView
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.faults.faults import HOSTILE_KINDS, OFFICER_KINDS
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import DetectionFact

COVER_CM = 1_250
"""An object stands for a detection within this: the outer gate, twice, and the estimate's own movement."""
BYTES_A_NODE = 4_096
BYTES_A_FACT = 1_024
JOURNAL_EVENTS = 64
"""User events that a journal may hold, whoever said them and however many there were."""
JOURNAL_BESIDE = 24
"""Journal records that are no batches: keys, members, trust, statements about models."""
CERTIFICATE_NS = 1_000_000_000
"""How long a batch may wait for its author's certificate, which is asked for at once and, where a peer does not answer,
of the next after 0.36 s. In a large swarm the first records of its nodes come for minutes, each from an author that
many have not met."""
TIMERS_MAX = 64
BEGUN_NS = 5_000_000_000
"""Who has heard somebody, and is known, knows so long after what was said before it came."""
RECOVERED_NS = 10_000_000_000
"""So long after a flood has ended, what its author says is passed on as everybody's."""
NS_PER_S = 1_000_000_000
PAYS_NS = 20 * NS_PER_S
"""A debtor resumes within seconds (`quota.AUTHOR_RESUME_BYTES`) and then compares with somebody each second."""
LOOKED_AGAIN_MS = 600
"""What lay in the future is looked at again every 500 ms, and an event may wait its turn."""
PART_BYTES = 1_024
"""Of an author one who may be sent no more than this gets one batch at most: it has 960 bytes."""
ASKED_NS = 5 * 1_000_000_000
"""Who lacks something compares each second; at 30 % loss one question in five seconds arrives, and more."""
FADING_MS = 30_000
"""What is about to be shown no more, or has just ceased to be, by one clock or another: each looks every 5 s."""
VITALS_PEERS = 8
"""Records are told and compared this many times less often in a swarm of this many times eight peers."""


class StateChecker(CheckerBase):
    """See the module."""

    def __init__(self, run: RunContext) -> None:
        super().__init__(run)
        self._grown: dict[tuple[int, NodeId], tuple[int, tuple[int, int]]] = {}
        """By host and tainted author: when its log changed last, and to what (in which life)."""
        self._owed_ns: dict[tuple[int, NodeId], int] = {}
        """When a host last owed something of a tainted author: what it lacks comes at the author's rate, part by part,
        and it owes nothing in the moment before it asks for the next."""
        self._cut_off: set[int] = set()
        """Healthy hosts that no path leads to at the end, as where a revoked one is all that is between."""
        self._cut_ns = 0
        """What such a one said before has come."""

    def on_end(self, now_ns: int) -> None:
        """Liveness and equality after the quiet time."""
        hosts = [host for host in self.run.component() if self.run.replica(host) is not None]
        if not hosts:
            return
        self._digests(hosts)
        self._cut_off = {host.index for host in self.run.live()} - {host.index for host in self.run.component()}
        thefts = (fault.at_ns for fault in self.run.injector.script if fault.kind in HOSTILE_KINDS | OFFICER_KINDS)
        self._cut_ns = max(0, min(thefts, default=now_ns) - RECOVERED_NS)
        reference = hosts[0]
        self._counters(hosts)
        self._cells(hosts)
        self._detections(reference)
        self._events(hosts, now_ns)
        self._sizes(hosts)

    def _is_cut_off(self, host: int, at_ns: int) -> bool:
        """Whether nothing may have led on what a host said: who is between two sides may be in other hands."""
        return host in self._cut_off and at_ns > self._cut_ns

    def _index_of(self, node: bytes) -> int:
        host = self.run.watch.by_id.get(node)
        return host.index if host is not None else -1

    def on_step(self, now_ns: int) -> None:
        """When a log of a tainted author last grew, at each host."""
        for author in self.run.tainted_ids():
            for host in self.run.live():
                replica = self.run.replica(host)
                if replica is not None and self._owes(host, author):
                    self._owed_ns[host.index, author] = now_ns
                log = None if replica is None else replica._holdings.store.logs.get(author)
                figures = (host.boots, 0 if log is None else log.lasting)
                if self._grown.get((host.index, author), (0, figures))[1] != figures:
                    self._grown[host.index, author] = now_ns, figures
                self._grown.setdefault((host.index, author), (now_ns, figures))

    def _digests(self, hosts: Sequence[Host]) -> None:
        """Everybody holds the same, and what it counts of it has its time by its own clock.

        A log that its author made costly in other hands is read at its author's rate, and where several have sent the
        same of it at the rate at which they pass it on, minutes long: who has spent one of these accounts lately may
        still owe of it, but must have taken in some of it within 20 s. All else is compared.
        """
        owed = {
            author
            for author in self.run.tainted_ids()
            if any(self._owes_lately(host, author) or self._is_kept_short(host, author, hosts) for host in hosts)
        }
        alike: dict[tuple[tuple[bytes, int], ...], list[Host]] = {}
        groups: dict[bytes, list[Host]] = {}
        for host in hosts:
            replica = self.run.replica(host)
            groups.setdefault(bytes(replica.views.digest()), []).append(host)
            alike.setdefault(_lasting_of(replica, owed), []).append(host)
        if len(alike) > 1:
            sizes = sorted(((len(members), members[0].name) for members in alike.values()), reverse=True)
            self.run.watch.violate("state.diverged", f"{len(alike)} digests after quiet: {sizes[:5]}")
        for author in sorted(owed):
            self._pays(hosts, author)
        self._future(hosts)
        for members in groups.values():
            views = {self._fingerprint(host): host for host in members}
            if len(views) > 1:
                names = sorted(host.name for host in views.values())
                self.run.watch.violate("state.view_differs", f"{names[:4]} have equal digests and unequal views")

    def _future(self, hosts: Sequence[Host]) -> None:
        """Who holds a batch counts it when its time has come by its own clock, and not before; clocks agree.

        So equal batches make equal digests, but for the moment in which one node has looked and another has not yet.
        """
        bound_ms = self.run.state_config.clock.drift_bound_ms
        counted: dict[bytes, dict[bool, list[int]]] = {}
        for host in hosts:
            holdings = self.run.replica(host)._holdings
            if not holdings.clock.knows_time:
                continue
            physical_ms = holdings.clock.physical_ms(host.clock.local_ns(self.run.engine.now_ns))
            for log in holdings.store.logs.values():
                for batch in log.facts.values():
                    early_ms = stamp_ms(batch.stamp) - bound_ms - physical_ms
                    is_hidden = batch.digest in holdings.deferred
                    counted.setdefault(batch.digest, {}).setdefault(is_hidden, []).append(physical_ms)
                    if early_ms < -LOOKED_AGAIN_MS if is_hidden else early_ms > 0:
                        text = f"{host.name} {'hides' if is_hidden else 'counts'} what is {early_ms} ms ahead of time"
                        self.run.watch.violate("state.diverged", text)
                        return
        for clocks in counted.values():
            times = [time for some in clocks.values() for time in some]
            if len(clocks) > 1 and max(times) - min(times) > bound_ms:
                text = f"clocks are {max(times) - min(times)} ms apart, and one counts what another does not"
                self.run.watch.violate("state.diverged", text)
                return

    def _owes_lately(self, host: Host, author: NodeId) -> bool:
        since_ns = self.run.engine.now_ns - self._owed_ns.get((host.index, author), -ASKED_NS - 1)
        return since_ns <= ASKED_NS or self._owes(host, author)

    def _owes(self, host: Host, author: NodeId) -> bool:
        quotas = self.run.replica(host)._intake.quotas
        return quotas.room(author, host.clock.local_ns(self.run.engine.now_ns)) is not None

    def _is_kept_short(self, host: Host, author: NodeId, hosts: Sequence[Host]) -> bool:
        """Whether a neighbour holds what a host lacks of an author, was asked for it, and may not send it just now."""
        return any(
            self._has_spent(other, author, host)
            for other in self._beside(host, hosts)
            if self._lacking(host, author, [other])
        )

    def _has_spent(self, holder: Host, author: NodeId, asker: Host) -> bool:
        """Whether one has asked another within `ASKED_NS`, and had its copy and its share of the rate beyond."""
        replica = self.run.replica(holder)
        relays, log = replica._intake.quotas.relays, replica._holdings.store.logs[author]
        left, share = relays._levels.get(author), relays._shares.get((author, asker.node_id))
        if left is None or share is None:
            return False
        asked_ns = holder.clock.local_ns(self.run.engine.now_ns) - share.at_ns
        is_low = left.level <= log.size_bytes * NS_PER_S and share.level < PART_BYTES * NS_PER_S
        return bool(asked_ns < ASKED_NS and is_low)

    def _beside(self, host: Host, hosts: Sequence[Host]) -> list[Host]:
        """Of whom a host may have what it lacks: in a mesh those that it hears."""
        return [other for other in hosts if other is not host and self.run.linked(host.index, other.index)]

    def _lacking(self, host: Host, author: NodeId, others: Sequence[Host]) -> set[tuple[int, int]]:
        """What a host lacks of an author's log and one of these holds."""
        logs = [self.run.replica(other)._holdings.store.logs.get(author) for other in others]
        dots = {dot for log in logs if log is not None for dot in log.facts}
        own = self.run.replica(host)._holdings.store.logs.get(author)
        return dots if own is None else {dot for dot in dots if dot >= own.base and dot not in own.facts}

    def _pays(self, hosts: Sequence[Host], author: NodeId) -> None:
        """Who lacks some of an author's log that others beside it hold takes it in, at whatever rate."""
        for host in hosts:
            lacking = self._lacking(host, author, self._beside(host, hosts))
            since_ns = self._grown.get((host.index, author), (0, None))[0]
            quiet_ns = self.run.engine.now_ns - since_ns
            if lacking and quiet_ns > PAYS_NS:
                name = self.run.hosts[self._index_of(author)].name
                text = f"{host.name} lacks {len(lacking)} batches of {name}, none came for {quiet_ns / NS_PER_S:.0f} s"
                self.run.watch.violate("state.diverged", text)

    def _fingerprint(self, host: Host) -> bytes:
        """What a node shows, without what fades in these seconds: equal clocks are milliseconds apart, and what ends
        between two of them is shown by one and not by the other."""
        replica = self.run.replica(host)
        physical_ms = replica.clock.physical_ms(host.clock.local_ns(self.run.engine.now_ns))
        over_ms = physical_ms - self.run.state_config.dedup.ttl_ms
        lasting = [one for one in replica.views.objects() if abs(stamp_ms(one.last_hlc) - over_ms) > FADING_MS]
        return repr((lasting, sorted(replica.views.notes().items()))).encode()

    def _sizes(self, hosts: Sequence[Host]) -> None:
        """Nothing has grown beyond what there is to know: no leaks in memory, journal, timers or the member table."""
        run = self.run
        lies = sum(fault.duration_ns // 400_000_000 for fault in run.injector.script if fault.kind.startswith("lie_"))
        known = len(run.ledger.detections) + len(run.ledger.cells_flown) + len(run.site.cells) + lies
        known += sum(len(notes) for notes in run.ledger.notes.values())
        tainted = run.injector.tainted()
        for host in hosts:
            if host.index in tainted:
                continue
            health = run.replica(host).views.health()
            # One author's quota is `cost.author`'s to judge.
            logs = [run.replica(host)._holdings.store.logs.get(author) for author in run.tainted_ids()]
            theirs = sum(log.size_bytes for log in logs if log is not None)
            events = sum(1 for key in host.disk.records() if key.startswith(b"swim/event/"))
            journal = len(host.disk.records()) - events
            bounds = {
                "bytes of state": (health["bytes_held"] - theirs, BYTES_A_NODE * len(run.hosts) + BYTES_A_FACT * known),
                "members": (len(host.node.members()), len(run.hosts)),
                "timers": (len(host.timers), TIMERS_MAX),
            }
            if host.index not in run.ledger.disk_lost_ns:
                # A full disk keeps what should have gone, a flipped bit makes an author that nobody knows.
                # Of each host a certificate, a newer one of its name, and how far its events were told.
                beside = JOURNAL_BESIDE + 3 * len(run.hosts)
                # Who lost its certificate is set aside until it is revoked; `cost.journal` judges its share.
                shelf, revoked = run.replica(host)._holdings._shelf, run.replica(host)._intake._trust.revoked
                aside = sum(len(records) for author, records in shelf.items() if author not in revoked)
                bounds["user events in the journal"] = (events, JOURNAL_EVENTS)
                bounds["journal records"] = (journal, health["batches_held"] + aside + beside)
                if not tainted:
                    asked_ns = host.clock.local_ns(run.engine.now_ns) - CERTIFICATE_NS
                    waiting = run.replica(host)._intake.waiting_since(asked_ns)
                    bounds["batches without a certificate"] = (waiting, 0)
            for what, (size, bound) in bounds.items():
                if size > bound:
                    run.watch.violate("state.size", f"{host.name} holds {size:,} {what}; at most {bound:,} make sense")

    def _counters(self, hosts: Sequence[Host]) -> None:
        known_ns = self.run.engine.now_ns - self._vitals_ns()
        expected = {
            index: sum(
                amount
                for at_ns, key, amount in rows
                if key == "frames_inferred"
                and at_ns <= known_ns
                and not self._is_cut_off(index, at_ns + self._vitals_ns())
            )
            for index, rows in self.run.ledger.counted.items()
        }
        for host in hosts:
            counted = self.run.replica(host).views.counters().get("frames_inferred", {})
            for index, least in sorted(expected.items()):
                author = self.run.hosts[index]
                if counted.get(author.node_id, 0) < least and index not in self.run.ledger.disk_lost_ns:
                    self.run.watch.violate(
                        "state.counter_lost",
                        f"{host.name} counts {counted.get(author.node_id, 0)} of {author.name}, not {least}",
                    )
                    return

    def _vitals_ns(self) -> int:
        """How long a counter may take to reach everybody; comparisons alone spread it in a large swarm."""
        config, nodes = self.run.state_config, self.run.scenario.swarm.nodes
        stretch = max(1, (nodes - 1) // VITALS_PEERS)
        compared_ns = config.vitals_sync_ns * (NAMED_SELDOM if nodes - 1 > config.direct_peers_max else 1)
        return stretch * (config.vitals_ns + (nodes.bit_length() + 1) * compared_ns)

    def _cells(self, hosts: Sequence[Host]) -> None:
        wanted = {cell for cell, facts in self.run.ledger.cells_done.items() if any(not fact.excused for fact in facts)}
        for host in hosts:
            done = {cell.cell_id for cell in self.run.replica(host).views.cells() if cell.done_by}
            lost = sorted(wanted - done)
            if lost:
                self.run.watch.violate("state.cell_lost", f"{host.name} does not know that {lost[:5]} are done")
                return

    def _detections(self, host: Host) -> None:
        """Every acknowledged track stands behind some object; one of its reports is enough, a track is one thing."""
        lost, tracks = self.lost_tracks(host)
        if lost:
            first = lost[0][0]
            self.run.watch.violate(
                "state.detection_lost",
                f"{len(lost)} of {tracks} acknowledged tracks have no object at {host.name}; the first is "
                f"{self.run.hosts[first.host].name}'s at {first.at_ns / 1e9:.3f} s: {first.detection}",
            )

    def lost_tracks(self, host: Host, settled_ns: int = 0) -> tuple[list[list[DetectionFact]], int]:
        """Acknowledged tracks that no object of a node stands for though they were seen within the time for which one
        is shown, and how many tracks there were within it.

        Args:
            host: The node.
            settled_ns: How old, nanoseconds, what is asked for must be.
        """
        objects = self.run.replica(host).views.objects()
        dedup, now_ns = self.run.state_config.dedup, self.run.engine.now_ns
        tracks: dict[tuple[int, int, int], list[DetectionFact]] = {}
        for fact in self.run.ledger.detections:
            if fact.detection is None or fact.detection.kind == "end" or fact.at_ns > now_ns - settled_ns:
                continue
            ttl_ms = dedup.track_ttl_ms if fact.detection.moving else dedup.ttl_ms
            if fact.at_ns > now_ns - (ttl_ms - FADING_MS) * 1_000_000:
                tracks.setdefault((fact.host, fact.life, fact.detection.track_id), []).append(fact)
        lost = [
            facts
            for facts in tracks.values()
            if not any(fact.excused or self._is_cut_off(fact.host, fact.at_ns) for fact in facts)
            and not any(_covers(view, fact.detection) for view in objects for fact in facts if fact.detection)
        ]
        return lost, len(tracks)

    def _events(self, hosts: Sequence[Host], now_ns: int) -> None:
        """User events reach every host that was in the swarm from before the event until the end.

        What was said before a node heard others, and others knew it, in this life is not its to deliver, nor what was
        said while it has been deaf since, as nobody can tell it then what is new. Of one origin the last 64 events are
        kept for repair, and its flood is passed on at a bounded rate: whoever holds its key may push out what it said
        before, until 10 s after, and that alone.
        """
        missed = 0
        storms = [fault for fault in self.run.injector.script if fault.kind == "event_storm"]
        for at_ns, origin, name in self.run.ledger.events:
            source = self.run.hosts[origin]
            if source.life.started_ns > at_ns or not source.process_up or source.hostile:
                continue
            if self._is_cut_off(origin, at_ns):
                continue
            if 0 <= source.life.met_boot <= self.run.ledger.events_forgotten.get(name, -1):
                # Its life was met under a number that its disk had forgotten, by one that did not know better.
                continue
            if any(origin in storm.nodes and at_ns < storm.end_ns + RECOVERED_NS for storm in storms):
                continue
            reached = self.run.ledger.event_deliveries.get(name, {})
            for host in hosts:
                was_there = 0 <= self._begun_ns(host) < at_ns - BEGUN_NS
                if host.index != origin and was_there and host.index not in reached:
                    missed += 1
                    if missed == 1:
                        first = f"{name} of {source.name} at {at_ns / 1e9:.1f} s never reached {host.name}"
        if missed:
            self.run.watch.violate("state.event_lost", f"{missed} deliveries of user events are missing; {first}")

    def _begun_ns(self, host: Host) -> int:
        """From when on a node is one of those who hear events; -1: it is not."""
        if min(host.life.first_heard_ns, host.life.known_ns) < 0:
            return -1
        begun_ns = max(host.life.first_heard_ns, host.life.known_ns)
        for fault in sorted(self.run.injector.script, key=lambda fault: fault.at_ns):
            if fault.kind == "deaf" and host.index in fault.nodes and fault.at_ns < begun_ns + BEGUN_NS:
                begun_ns = max(begun_ns, fault.end_ns)
        return begun_ns


def _covers(view: ObjectView, detection: LocalDetection) -> bool:
    if detection.asset and view.asset:
        return view.asset == detection.asset
    if view.east_cm is None or view.north_cm is None or detection.east_cm is None or detection.north_cm is None:
        return True
    east, north = view.east_cm - detection.east_cm, view.north_cm - detection.north_cm
    return east * east + north * north <= COVER_CM * COVER_CM


def _lasting_of(replica: Any, but: Collection[bytes]) -> tuple[tuple[bytes, int], ...]:
    """What a node holds of each author but these; -1 stands for a proof."""
    store = replica._holdings.store
    logs = [(bytes(origin), log.lasting) for origin, log in store.logs.items() if log.lasting and origin not in but]
    return tuple(sorted([*logs, *((bytes(origin), -1) for origin in store.quarantined)]))
