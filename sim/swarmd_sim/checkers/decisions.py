"""Who decides: what nodes believe of the fleet and of its models is what the right hands have signed, no more, no less.

trust.invented        a node believes a root, a revocation or a group key that no officer signed; where it has not heard
                      of the root that replaced a role's stolen keys, what these say is that role's word to it, until
                      it hears (`trust.withheld`: within the quiet time)
trust.forgotten       within one life, a node no longer believes what it believed of the officers' words
trust.unwritten       a node's journal lacks what the node holds of the fleet's trust, or holds what fell: a later life,
                      which hears nobody, would believe something else
trust.withheld        after quiet, a node does not believe what the officers handed over where it could hear it: in its
                      part of the swarm, or at somebody who has been linked with it for ten seconds since (`told.py`)
trust.shut_out_here   a revoked node, or one that only a replaced key certified, is ALIVE somewhere 10 s after its news
trust.key_leaked      a node that was shut out when the newest group key was made holds it; one that was shut out since
                      learned that key by right, and only a newer one can take it out
state.stranger        a node holds facts of an author that nobody enrolled
state.shut_out_facts  after quiet, a node holds facts of an author that was shut out, as it is to know by then, or shows
                      people something of it
releases.invented     the same of a floor, a revocation or a release that the publisher did not sign
releases.forgotten    within one life, a node no longer believes a floor or a revocation; a floor that a thief's one
                      displaced in this life is gone with that one, as the node hears of the root that replaced the
                      stolen keys, until it is published again (docs/decisions/0023)
releases.taken_back   what every node ran, promoted and not revoked, is run no more; where a thief's word made a node
                      leave it, once the node has known for 5 s that this counts no more (`fooled.py`)
"""

from dataclasses import dataclass, field
from typing import Any

from swarmd_protocols.effects import MemberState
from swarmd_protocols.swim.sender import trust_key
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.trust import TRUST_JOURNAL, Trust
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.checkers.fooled import Fooled
from swarmd_sim.checkers.told import Told, words_of
from swarmd_sim.run.host import Host
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.publisher import FACTORY, MODEL, Flaw
from swarmd_sim.run.releases import ReleaseWorld

NEWS_NS = 10_000_000_000
"""Within this a revocation has reached every node that is linked with one that knows it, and has taken effect."""
CALM_NS = 20_000_000_000
"""A node counts where no fault has touched it for so long."""
PROMOTED_NS = 5_000_000_000
"""A release that every node has run for so long is promoted, whatever stage a node believes in."""
_HERE = (MemberState.ALIVE, MemberState.DEGRADED)


@dataclass(slots=True)
class _Belief:
    """What one life of a node believed at most."""

    boots: int
    roots: int = 0
    revoked: frozenset[bytes] = frozenset()
    groups: frozenset[int] = frozenset()
    floor: int = 0
    written: tuple[int, int] = (-1, -1)
    """Of the trust, when the journal was last held against it."""
    judged_roots: int = 0
    """Of the chain under which the floor was believed."""
    revoked_releases: frozenset[bytes] = field(default_factory=frozenset)


class DecisionsChecker(CheckerBase):
    """See the module.

    Args:
        run: The run.
        officers: Who has signed what; None where the run has none.
    """

    def __init__(self, run: RunContext, officers: Officers | None) -> None:
        super().__init__(run)
        self._officers = officers
        self._beliefs: dict[int, _Belief] = {}
        self._told: set[tuple[str, int]] = set()
        self._ran_by_all_ns: dict[bytes, int] = {}
        self._known_ns: dict[bytes, int] = {}
        self._words = Told(officers) if officers is not None else None
        self._fooled = Fooled(officers, run.releases.foreign_words) if officers and run.releases else None

    def on_step(self, now_ns: int) -> None:
        """Safety once a second."""
        if self._officers is None:
            return
        enrolled = {node for node, host in self.run.watch.by_id.items() if host is not None}
        for host in self.run.live():
            belief = self._beliefs.get(host.index)
            if belief is None or belief.boots != host.boots:
                belief = self._beliefs[host.index] = _Belief(host.boots)
            self._trust(host, belief, self._officers)
            self._journal(host, belief)
            self._strangers(host, enrolled)
            self._models(host, belief, self._officers)
        self._shut_out(now_ns, self._officers)
        self._promoted(now_ns)
        if self._words is not None and self.run.injector.last_push_ns >= 0:
            self._words.on_step(self.run.components())

    def on_end(self, now_ns: int) -> None:
        """After quiet, everybody believes all of it."""
        if self._officers is None or self._words is None or self.run.injector.last_push_ns < 0:
            return
        officers = self._officers
        component = self.run.component()
        words = self._words.known_in(component)
        shut_out = officers.shut_out - (set() if words.roots >= len(officers.roots) else officers.rogues)
        shut_out -= set(officers.revoked_ns) - words.revoked
        for host in component:
            late = words_of(_trust_of(host)).lacks(words)
            if late:
                self._violate("trust.withheld", host, f"{host.name} lacks {late} of the officers after quiet")
            facts = shut_out & {*origins(self.run.replica(host)), *shown_authors(self.run.replica(host))}
            if facts:
                self._violate(
                    "state.shut_out_facts", host, f"{host.name} holds facts of {len(facts)} nodes that were shut out"
                )
        newest = max(officers.groups, default=0)
        for host in self.run.hosts:
            kept_from = host.node_id in officers.withheld_from.get(newest, ())
            if host.process_up and kept_from and newest in _trust_of(host).group_keys:
                self._violate(
                    "trust.key_leaked",
                    host,
                    f"{host.name} was shut out before group key {newest} was made, and holds it",
                )

    # --- Trust --------------------------------------------------------------------------------------------------------

    def _trust(self, host: Host, belief: _Belief, officers: Officers) -> None:
        trust = _trust_of(host)
        payloads = {decode_envelope(root).payload for root in officers.roots}
        known = len(trust.roots)
        invented = [
            what
            for what, holds in (
                ("a root", all(decode_envelope(root).payload in payloads for root in trust.roots)),
                ("a revocation", officers.is_fooled("revoke", known) or set(trust.revoked) <= set(officers.revoked_ns)),
                ("a group key", officers.is_fooled("enrol", known) or set(trust.group_keys) <= {1, *officers.groups}),
            )
            if not holds
        ]
        if invented:
            self._violate("trust.invented", host, f"{host.name} believes {invented} that no officer signed")
        roots, revoked, groups = len(trust.roots), frozenset(trust.revoked), frozenset(trust.group_keys)
        if roots < belief.roots or not revoked >= belief.revoked:
            self._violate(
                "trust.forgotten",
                host,
                f"{host.name} believed {belief.roots} roots and {len(belief.revoked)} revocations; now {roots} and "
                f"{len(revoked)}",
            )
        belief.roots, belief.revoked, belief.groups = roots, revoked & set(officers.revoked_ns), groups

    def _journal(self, host: Host, belief: _Belief) -> None:
        """What comes with the identity needs no record."""
        trust = _trust_of(host)
        now = (trust.revision, trust.news.count)
        if now == belief.written or host.waits_for_disk or not hasattr(trust, "_given"):
            return  # The last: an earlier version, in a rolling upgrade, which says not what it began with.
        belief.written = now
        given = {one.statement for one in trust._given}
        written = {key: one for key, one in host.disk.everything().items() if key.startswith(TRUST_JOURNAL)}
        held = {trust_key(*one): one[1] for one in trust.journalled()}
        lacks = [key for key, one in held.items() if written.get(key) != one and one not in given]
        left = written.keys() - held.keys()
        if lacks or left:
            kinds = sorted({key.split(b"/")[2].decode() for key in (*lacks, *left)})
            self._violate(
                "trust.unwritten",
                host,
                f"{host.name}'s journal lacks {len(lacks)} and keeps {len(left)} too many, of {', '.join(kinds)}",
            )

    def _shut_out(self, now_ns: int, officers: Officers) -> None:
        """Nobody who knows better calls a node alive that was shut out."""
        shut_out = officers.shut_out
        if not shut_out:
            return
        component = self.run.component()
        for host in component:
            trust = _trust_of(host)
            has_newest_root = len(trust.roots) >= len(officers.roots)
            for view in host.node.members():
                # A frozen host has every root and no word of the revocation yet.
                knows = view.node in trust.revoked if view.node in officers.revoked_ns else has_newest_root
                if view.node in shut_out and view.state in _HERE and knows:
                    since_ns = self._known_ns.setdefault(
                        bytes([host.index & 255, host.boots & 255]) + view.node, now_ns
                    )
                    if now_ns - since_ns > NEWS_NS:
                        self._violate(
                            "trust.shut_out_here",
                            host,
                            f"{host.name} calls {view.name} {view.state.value}; it was shut out "
                            f"{(now_ns - since_ns) / 1e9:.0f} s ago",
                        )

    # --- Facts --------------------------------------------------------------------------------------------------------

    def _strangers(self, host: Host, enrolled: set[bytes]) -> None:
        strangers = [origin for origin in origins(self.run.replica(host)) if origin not in enrolled]
        if strangers:
            self._violate(
                "state.stranger", host, f"{host.name} holds facts of {len(strangers)} authors that nobody enrolled"
            )

    # --- Models -------------------------------------------------------------------------------------------------------

    def _models(self, host: Host, belief: _Belief, officers: Officers) -> None:
        world = self.run.releases
        if world is None or host.index not in world.devices:
            return
        desk = world.publisher
        models = world.devices[host.index].protocol.view.models
        view = models.get(MODEL)
        invented = sorted(set(models) - {MODEL})
        floor = view.floor.version if view is not None and view.floor is not None else 0
        revoked = frozenset(view.revoked) if view is not None else frozenset()
        known = len(_trust_of(host).roots)
        if self._fooled is not None:
            self._fooled.on_step(host.index, known, self.run.engine.now_ns)
        if floor > desk.floor and not officers.is_fooled("floor", known):
            invented.append(f"floor {floor}")
        if not revoked <= set(desk.revoked_ns) and not officers.is_fooled("revoke", known):
            invented.append(f"{len(revoked)} revoked")
        releases = set(view.releases) if view is not None else set()
        if not releases <= set(desk.signed) and not officers.is_fooled("release", known):
            invented.append("a release")
        if invented:
            self._violate("releases.invented", host, f"{host.name} believes {invented[:3]}, which nobody signed")
        if is_displaced(world, (host.index, host.boots), range(belief.judged_roots + 1, known + 1)):
            belief.floor = min(belief.floor, floor)
        if floor < belief.floor or not revoked >= belief.revoked_releases:
            self._violate(
                "releases.forgotten",
                host,
                f"{host.name} believed floor {belief.floor} and {len(belief.revoked_releases)} revocations; "
                f"now {floor} and {len(revoked)}",
            )
        belief.floor, belief.judged_roots = floor if floor <= desk.floor else belief.floor, known
        belief.revoked_releases = revoked & set(desk.revoked_ns)

    def _promoted(self, now_ns: int) -> None:
        """A good release that all ran for a while stays, until a newer one, a floor or its revocation replaces it."""
        world = self.run.releases
        if world is None:
            return
        live = self.run.live()
        running = {host.index: world.running(host) for host in live}
        for digest, published in world.publisher.signed.items():
            everywhere = bool(live) and all(release == digest for release in running.values())
            since_ns = self._ran_by_all_ns.get(digest, -1)
            if everywhere and since_ns < 0:
                self._ran_by_all_ns[digest] = now_ns
            elif not everywhere and since_ns >= 0 and now_ns - since_ns < PROMOTED_NS:
                del self._ran_by_all_ns[digest]
            is_promoted = 0 <= self._ran_by_all_ns.get(digest, -1) <= now_ns - PROMOTED_NS
            desk = world.publisher
            overruled = digest in desk.revoked_ns or published.version < desk.floor
            if not is_promoted or overruled or published.flaw is not Flaw.NONE:
                continue
            for host in live:
                runs = world.publisher.signed.get(running[host.index])
                other = runs.version if runs is not None else FACTORY
                excused = self._fooled is not None and self._fooled.is_excused(host.index, now_ns)
                if other < published.version and not excused and self.run.injector.healthy(host.index, CALM_NS):
                    self._violate(
                        "releases.taken_back",
                        host,
                        f"{host.name} runs v{other}; everybody ran v{published.version}, which is good and not revoked",
                    )

    def _violate(self, rule: str, host: Host, text: str) -> None:
        """Once for each rule and host."""
        if (rule, host.index) not in self._told:
            self._told.add((rule, host.index))
            self.run.watch.violate(rule, text)


def is_displaced(world: ReleaseWorld, life: tuple[int, int], heard: range) -> bool:
    """Whether a floor that a thief's one displaced is gone by right, with the root that made that one fall.

    Args:
        world: What is known about models.
        life: Of which host, by number, and which life of its.
        heard: The roots that the node has heard of since its floor was looked at last, the first one being 1.
    """
    falls_at = world.officers.falls_at
    return any(
        falls_at("floor", word.roots) in heard
        for word in world.foreign_words
        if word.role == "floor" and (word.host, word.life) == life
    )


def _trust_of(host: Host) -> Trust:
    trust: Trust = host.node._core.trust
    return trust


def origins(replica: Any) -> list[bytes]:
    """Whose facts a replica holds, those that are quarantined included."""
    store = replica._holdings.store
    return [*store.logs, *store.quarantined]


def shown_authors(replica: Any) -> set[bytes]:
    """Of whom people see something in a replica's views."""
    views = replica.views
    shown = {view.origin for view in views.detections()}
    shown |= {node for thing in views.objects() for node in thing.observers}
    shown |= {node for cell in views.cells() for node in (*cell.done_by, cell.holder) if node is not None}
    shown |= {node for by in views.counters().values() for node in by}
    return shown | set(views.events())
