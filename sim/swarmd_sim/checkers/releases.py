"""Releases: nobody runs an unsigned, revoked or below-floor model; canaries halt a bad one; no split fleet at the end.

The checker knows from the publisher's desk what was signed, what is bad, what was revoked, and from the devices what
every eye really runs. What a node has been told it asks of nobody: a node that no fault excuses must know within
`KNOWN_NS`.
"""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.rollout import cohort_size, due_count, fails_to_halt, ranks
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.run.host import Host
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.publisher import MODEL, Flaw, Published
from swarmd_sim.run.releases import Run

MARGIN_NS = 15_000_000_000
"""A host counts when no fault has touched it for so long."""
CALM_NS = 20_000_000_000
"""For rules about the whole swarm: none of its hosts was touched for so long."""
KNOWN_NS = 5_000_000_000
"""Within this a verdict, a revocation or a floor has reached every healthy host that is linked with the others."""
_HOUSEKEEPING = "its tries are used up"
"""Three crashes during a trial fail it, whoever was to blame."""


class ReleasesChecker(CheckerBase):
    """See the module.

    Args:
        run: The run.
        officers: Who is shut out, whose verdict counts no more; None where the run has none.
    """

    def __init__(self, run: RunContext, officers: Officers | None = None) -> None:
        super().__init__(run)
        self._officers = officers
        self._ran: dict[bytes, set[int]] = {}
        self._told: set[tuple[str, int, bytes]] = set()
        self._verdicts_seen = 0
        self._halted_ns: dict[bytes, int] = {}
        self._failed: dict[bytes, set[int]] = {}
        """Which hosts have failed each release."""
        self._told_failed: dict[bytes, set[int]] = {}
        """Which of them have told somebody: what a liar keeps to itself, no protocol learns of."""
        self._liars_failed: set[tuple[bytes, int]] = set()
        """(release, host) of the verdicts of liars that no honest host holds."""
        self._known_ns: dict[tuple[str, bytes], int] = {}
        if run.releases is not None:
            run.releases.listeners.append(self._on_run)

    # --- As it happens ----------------------------------------------------------------------------------------------

    def _on_run(self, taken: Run) -> None:
        run, world = self.run, self.run.releases
        assert world is not None
        host = run.hosts[taken.host]
        if not taken.release or host.hostile:
            return
        published = world.publisher.signed.get(taken.release)
        if published is None:
            run.watch.violate(
                "releases.unsigned", f"{host.name} runs release {taken.release.hex()[:8]}, which nobody signed"
            )
            return
        if taken.data_sha256 != published.release.bundle[0].blob.sha256:
            run.watch.violate("releases.unsigned", f"{host.name} runs other bytes than those signed as its version")
        if taken.is_trial:
            self._on_trial(host, published)

    def _on_trial(self, host: Host, published: Published) -> None:
        """A trial begins: of a bad one only at a canary, and not once a verdict has stopped it."""
        run = self.run
        hosts = self._ran.setdefault(published.digest, set())
        again = host.index in hosts
        hosts.add(host.index)
        if published.flaw is Flaw.NONE or again or not run.injector.healthy(host.index, MARGIN_NS):
            return
        # Who takes part: every host that has ever run; dead ones keep their place, and the next wait for them.
        members = [other for other in run.hosts if other.boots]
        rank = ranks(published.digest, [NodeId(other.node_id) for other in members])[NodeId(host.node_id)]
        cohort = cohort_size(published.release.rollout.stages_percent[0], len(members))
        if rank >= 2 * cohort and self._all_were_known(host, members):
            run.watch.violate(
                "releases.canary",
                f"{host.name} tries bad v{published.version} though {rank} of {len(members)} come before it (canaries "
                f"are {cohort}, and as many stand in)",
            )
        halted_ns = self._halted_ns.get(published.digest, -1) if self._is_halted(published) else -1
        if 0 <= halted_ns < run.engine.now_ns - KNOWN_NS and self._settled(host):
            run.watch.violate(
                "releases.halt_ignored",
                f"{host.name} tries bad v{published.version}, which canaries halted at {halted_ns / 1e9:.1f} s",
            )

    def _is_halted(self, published: Published) -> bool:
        """Whether enough have failed it that belong to the fleet: who is shut out takes its verdict along."""
        shut_out = self._officers.shut_out if self._officers is not None else set()
        failed = self._told_failed.get(published.digest, set())
        members = sum(host.boots > 0 for host in self.run.hosts)
        counted = sum(self.run.hosts[index].node_id not in shut_out for index in failed)
        return counted >= fails_to_halt(due_count(members, members), published.release.rollout)

    def _all_were_known(self, host: Host, members: list[Host]) -> bool:
        """Whether nothing excuses the host for not knowing every participant: all run, all untouched, all linked."""
        run = self.run
        return all(
            run.injector.healthy(other.index, MARGIN_NS) and (other is host or run.linked(host.index, other.index))
            for other in members
        )

    def _settled(self, host: Host) -> bool:
        """Whether the host and the largest part of the swarm have been together and undisturbed for long."""
        component = self.run.component()
        return (
            host in component
            and len(component) * 2 > len(self.run.hosts)
            and not any(fault.kind in ("partition", "clog", "jam") for fault in self.run.injector.recent)
            and all(self.run.injector.healthy(other.index, CALM_NS) for other in component)
        )

    # --- Once a second ----------------------------------------------------------------------------------------------

    def on_step(self, now_ns: int) -> None:
        """What must not run does not run any longer, wherever it can be known."""
        run, world = self.run, self.run.releases
        if world is None:
            return
        self._take_verdicts()
        desk = world.publisher
        views = {host.index: world.devices[host.index].protocol.view.models.get(MODEL) for host in run.live()}
        told = [view for index, view in views.items() if view is not None and run.injector.healthy(index, MARGIN_NS)]
        late_revoked = {
            digest
            for digest in desk.revoked_ns
            if self._is_late(("revoked", digest), any(digest in view.revoked for view in told))
        }
        has_floor = any(view.floor is not None and view.floor.version >= desk.floor for view in told)
        late_floor = desk.floor if desk.floor and self._is_late(("floor", b""), has_floor) else 0
        if not late_revoked and not late_floor:
            return
        for host in run.live():
            published = desk.signed.get(world.running(host))
            if published is None or not run.injector.healthy(host.index, CALM_NS):
                continue
            if published.digest in late_revoked and self._first("revoked", host, published) and self._settled(host):
                run.watch.violate(
                    "releases.revoked", f"{host.name} runs v{published.version}; others know for 5 s that it is revoked"
                )
            if published.version < late_floor and self._first("floor", host, published) and self._settled(host):
                run.watch.violate(
                    "releases.below_floor",
                    f"{host.name} runs v{published.version}; others know for 5 s that the floor is {late_floor}",
                )

    def _is_late(self, statement: tuple[str, bytes], is_known: bool) -> bool:
        """Whether a healthy node has known a statement for long enough that all others must know it too."""
        if is_known:
            self._known_ns.setdefault(statement, self.run.engine.now_ns)
        return self.run.engine.now_ns - self._known_ns.get(statement, self.run.engine.now_ns) > KNOWN_NS

    def _first(self, rule: str, host: Host, published: Published) -> bool:
        key = (rule, host.index, published.digest)
        if key in self._told:
            return False
        if self._settled(host):
            self._told.add(key)
        return True

    def _take_verdicts(self) -> None:
        """Verdicts said since the last step: a sound model may not fail, a bad one may not pass."""
        run, world = self.run, self.run.releases
        assert world is not None
        for digest in [one for one in self._halted_ns if not self._is_halted(world.publisher.signed[one])]:
            del self._halted_ns[digest]  # Who failed it was shut out since.
        fresh, self._verdicts_seen = world.verdicts[self._verdicts_seen :], len(world.verdicts)
        for judged in fresh:
            published = world.publisher.signed.get(judged.release)
            if published is None:
                continue
            name = run.hosts[judged.host].name
            if judged.verdict is Verdict.FAIL:
                self._failed.setdefault(judged.release, set()).add(judged.host)
                if judged.hostile:
                    self._liars_failed.add((judged.release, judged.host))
                else:
                    self._tell_failed(published, judged.host, judged.at_ns)
                if published.flaw is Flaw.NONE and not judged.hostile and judged.reason != _HOUSEKEEPING:
                    run.watch.violate("releases.good_failed", f"{name} fails v{published.version}: {judged.reason}")
            elif judged.verdict is Verdict.PASS and published.flaw is not Flaw.NONE and not judged.hostile:
                run.watch.violate("releases.bad_passed", f"{name} passes bad v{published.version}")
        for release, index in sorted(self._liars_failed):
            node = NodeId(run.hosts[index].node_id)
            books = [world.devices[host.index].protocol.book for host in run.live() if not host.hostile]
            if any(book.verdicts(release).get(node) is Verdict.FAIL for book in books):
                self._liars_failed.discard((release, index))
                self._tell_failed(world.publisher.signed[release], index, run.engine.now_ns)

    def _tell_failed(self, published: Published, host: int, now_ns: int) -> None:
        self._told_failed.setdefault(published.digest, set()).add(host)
        if self._is_halted(published):
            self._halted_ns.setdefault(published.digest, now_ns)

    # --- After the quiet time ---------------------------------------------------------------------------------------

    def on_end(self, now_ns: int) -> None:
        """Everybody runs the same: the newest good release, unless some device could not run it."""
        run, world = self.run, self.run.releases
        if world is None or not world.publisher.signed:
            return
        self._take_verdicts()
        hosts = run.component()
        by_release: dict[bytes, list[Host]] = {}
        newest = world.publisher.newest_good()
        for host in hosts:
            # A host that failed the release itself, say because its power went away thrice, stays with another.
            if newest is None or host.index not in self._failed.get(newest.digest, ()):
                by_release.setdefault(world.running(host), []).append(host)
        if len(by_release) > 1:
            parts = {world.version_of(digest): [h.name for h in some][:4] for digest, some in by_release.items()}
            run.watch.violate("releases.split", f"after quiet the fleet runs {len(by_release)} releases: {parts}")
            return
        if newest is None or newest.digest in by_release or newest.digest in self._failed or not by_release:
            return
        if self._is_known(newest, hosts):
            run.watch.violate(
                "releases.withheld",
                f"after quiet the fleet runs {world.version_of(next(iter(by_release)))}; v{newest.version} is good and "
                "nobody failed it",
            )

    def _is_known(self, published: Published, hosts: list[Host]) -> bool:
        """Whether its statement and its bytes lie at some host that lives: otherwise there is nothing to spread."""
        world = self.run.releases
        assert world is not None
        blob = published.release.bundle[0].blob.sha256
        devices = [world.devices[host.index] for host in hosts]
        return any(
            device.store.has_blob(blob) and device.protocol.release(MODEL, published.digest) is not None
            for device in devices
        )
