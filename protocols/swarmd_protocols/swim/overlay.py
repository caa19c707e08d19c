"""Partial views, for swarms too large for everybody to know everybody (HyParView).

Above `full_view_max` members a node keeps a few **neighbours** (they are the table's reachable members: probed, told
news, offered to the sub-protocols) and the signed records of some others, its **passive view**, to choose new
neighbours from. Nothing that a node keeps or says then grows with the swarm.

    neighbour wanted   neighbor(ask) to somebody of the passive view ─▶ neighbor(accept | reject)
    newcomer           neighbor(please) ─▶ neighbor(accept), another neighbour gets disconnect;
                       forward_join ─▶ ... ─▶ neighbor(ask) to it
    every 30 s         shuffle ◀─▶ shuffle with a neighbour: three records each way
    neighbour silent   found by its neighbours' own probes; another one is asked as soon as it is suspected

Rules that this file keeps:

- Being neighbours is mutual: whoever is pinged by somebody who is no neighbour says so (`DISCONNECT`).
- Only who has answered in a sealed frame becomes a neighbour; only records signed by their subject are kept.
- One key is one neighbour at most. One neighbour fills at most a third of the passive view. A full view makes room for
  strangers at a bounded rate.
- Former neighbours that were lost are tried for ever (a few of them): that heals partitions.

Source:
    Leitao, Pereira, Rodrigues, "HyParView" (DSN 2007).
"""

from typing import TYPE_CHECKING

import msgspec

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Persist
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import LINKS, MEMBERS, META, Member
from swarmd_protocols.swim.messages import (
    DISCONNECT,
    NEIGHBOR_ACCEPT,
    NEIGHBOR_ASK,
    NEIGHBOR_JOIN,
    NEIGHBOR_PLEASE,
    NEIGHBOR_REJECT,
    PARTIAL_VIEW,
    STATUS_ALIVE,
    AliveBody,
    Fingerprints,
    ForwardJoin,
    MetaEntry,
    Neighbor,
    NeighborAddresses,
    Record,
    Shuffle,
    SizeEstimate,
    Want,
)
from swarmd_protocols.swim.rules import fingerprint, pack_fingerprints, unpack_fingerprints
from swarmd_protocols.swim.sizing import SizeSketch, estimated_size

if TYPE_CHECKING:
    from swarmd_protocols.swim.membership import Membership

_S = 1_000_000_000
_JOURNAL = b"swim/partial"
"""Size of the swarm; there while the view is partial."""
_TICK_NS = 500_000_000
_ROOM = 2
"""Neighbours held beyond those sought, so that somebody who asks is seldom refused."""
_ASK_NS = _S
_ASKS_TRIES = 2
_ASKS_MAX = 8
_ASK_AGAIN_NS = 5 * _S
_HOPS, _HOPS_KEPT = 3, 1
_WALKS = 2
_RENEW_NS = 180 * _S
"""How often a neighbour is replaced although nothing is wrong: overlays that grew apart mix again."""
_EVICTIONS_BURST = 4.0
_CREDIT_BURST, _CREDIT_PER_S = 16.0, 1.0
_CREDITS_MAX = 64
_TRANSIENTS_MAX, _TRANSIENT_NS = 64, 10 * _S
_LOST_MAX = 32
_SHUFFLED = 3
_SHUFFLE_ROOM = 1_080
_SHUFFLE_SOON_PERIODS = 8
_ESTIMATE_PERIODS, _ESTIMATE_ANYWAY, _EPOCH_PERIODS = 4, 20, 120
_ADDRESSES_TOLD_MAX = 12
_SETTLE_NS = _S
_TOLD_NS = 60 * _S
_TELLERS_WANTED, _TELLERS_MAX = 6, 64
_TELL_GAP_NS, _TELL_LATER_NS = 200_000_000, 20_000_000
_BEHIND_NS = 10_000_000
_ASK_ROUND_NS = 2 * _S
_REPAIR_GAP_NS = 2 * _S
_WIDEN_BELOW = 0.75


class _Known:
    """An entry of the passive view."""

    __slots__ = ("asked_ns", "incarnation", "record", "via")

    def __init__(self, record: Record, incarnation: int, via: bytes) -> None:
        self.record = record
        self.incarnation = incarnation
        self.via = via
        self.asked_ns = -(2**62)


class _Ask:
    """A question to somebody to be a neighbour."""

    __slots__ = ("due_ns", "kind", "tries")

    def __init__(self, due_ns: int, kind: int) -> None:
        self.due_ns = due_ns
        self.kind = kind
        self.tries = 1


class Overlay:
    """Decides who this node's neighbours are, and whether it has any or knows everybody."""

    def __init__(self, core: Core, membership: "Membership") -> None:
        self.core = core
        self._membership = membership
        self.passive: dict[bytes, _Known] = {}
        self.sketch = SizeSketch(core.rng, _EPOCH_PERIODS * core.config.protocol_period_ns)
        self._asks: dict[bytes, _Ask] = {}
        self._credits: dict[bytes, tuple[float, int]] = {}
        self._tellers: dict[bytes, int] = {}
        self._told = 0
        self._evictions = _EVICTIONS_BURST
        self._evictions_ns = 0
        self._shuffled_ns = 0
        self._renewed_ns = 0
        self._asked_round_ns = -(2**62)
        self._neighbors_changed_ns = 0
        """When the neighbours last changed."""
        self._ticking = False
        self._narrowing = False

    # --- full or partial ---------------------------------------------------------------------------------------------

    @property
    def neighbours_max(self) -> int:
        """Neighbours held at most."""
        return self.core.config.active_view + _ROOM

    def size(self) -> int:
        """Members of the swarm, this node included: counted in a full view, estimated in a partial one."""
        known = len(self.core.table.reachable) + 1
        if not self.core.table.partial:
            return known
        return max(known, self.sketch.estimate() or max(self._told, self.sketch.running()))

    def grown(self) -> None:
        """One more member is reachable: are they too many for a full view?"""
        core, table = self.core, self.core.table
        most = self.neighbours_max + 1 if table.partial else core.config.full_view_max
        if len(table.reachable) >= most and not self._narrowing:
            # Not at once: whoever called is not done with the member.
            self._narrowing = True
            core.scheduler.at(core.now_ns, self._part_with_surplus if table.partial else self._narrow_if_large)

    def _narrow_if_large(self, _: object) -> None:
        self._narrowing = False
        if not self.core.table.partial and len(self.core.table.reachable) >= self.core.config.full_view_max:
            self._narrow(len(self.core.table.reachable) + 1)

    def _narrow(self, size: int) -> None:
        """Turn the full view into a partial one."""
        core, table = self.core, self.core.table
        if table.partial:
            return
        table.partial = True
        core.counters["views_narrowed"] += 1
        core.port.emit(Persist(_JOURNAL, min(size, 2**32).to_bytes(5, "big")))
        self._told = size
        self._tellers.clear()
        self.sketch.clear()
        self.sketch.begin(0, core.now_ns)
        self._shuffled_ns = self._renewed_ns = self._neighbors_changed_ns = core.now_ns
        self._membership.view_changed()
        others = [member for member in table.reachable if not member.holds_me]
        core.rng.shuffle(others)
        ordered = [member for member in table.reachable if member.holds_me] + others
        told = 0
        for member in ordered[core.config.active_view :]:
            self._shelve(member, core.own.node)
            if member.holds_me or told < _TELLERS_WANTED:
                told += 1
                self._say(member, DISCONNECT)
            self._membership.forget(member)
        self._forget_lost()
        core.queue.keep(core.travels)
        if len(table.reachable) <= core.config.active_view // 2 and not any(m.holds_me for m in table.reachable):
            # Who has met but a few has no view to begin with: it is to be helped in.
            for member in list(table.reachable):
                self._demote(member)
            self._fill()
        for member in list(table.reachable):
            self._say(member, NEIGHBOR_ACCEPT if member.holds_me else NEIGHBOR_ASK)
        core.changed()
        core.port.peers_changed()
        if not self._ticking:
            self._ticking = True
            core.scheduler.at(core.now_ns + _TICK_NS, self._tick)

    def begin_partial(self, size: int, records: list[Record]) -> None:
        """The node's earlier life ended with a partial view: go on from its records."""
        self._narrow(min(2**32, max(size, self.core.config.full_view_max + 1)))
        for record in records[-self.core.config.passive_view :]:
            self._learn(record, self.core.own.node)
        self._fill()

    def _widen(self) -> None:
        """The swarm has become small: know everybody again."""
        core, table = self.core, self.core.table
        table.partial = False
        core.counters["views_widened"] += 1
        core.port.emit(Persist(_JOURNAL, None))
        records = [known.record for known in self.passive.values()]
        records += [Record(member.certificate, *member.record) for member in table.transients.values()]
        for member in list(table.transients.values()):
            self._membership.forget(member)
        self.passive.clear()
        self._asks.clear()
        self._credits.clear()
        self._tellers.clear()
        for member in table.reachable:
            member.holds_me = True
        self._membership.view_changed()
        for record in records:
            # Held for gone until heard: they are pinged, and the digests bring who is there.
            self._membership.restore(record)
        core.changed()
        core.port.peers_changed()

    def _be_told(self, member: Member, size: int) -> None:
        """A member says that its view is partial: believed when most members that this node hears say so."""
        core = self.core
        if size < core.config.full_view_max * _WIDEN_BELOW:
            return  # They will soon know everybody themselves.
        self._tellers[member.node] = core.now_ns
        if len(self._tellers) > _TELLERS_MAX:
            del self._tellers[next(iter(self._tellers))]
        since_ns = core.now_ns - _TOLD_NS
        recent = sum(1 for told_ns in self._tellers.values() if told_ns > since_ns)
        recent += sum(1 for m in core.table.reachable if m.holds_me and self._tellers.get(m.node, since_ns) <= since_ns)
        # Whoever is known by hearsay alone says neither yes nor no.
        heard = sum(1 for other in core.table.reachable if other.heard_ns >= 0 and other.heard_ns > since_ns)
        if recent >= min(_TELLERS_WANTED, heard // 2 + 1):
            self._narrow(size)
        elif core.now_ns - self._asked_round_ns >= _ASK_ROUND_NS:
            # What one says is no proof, but a reason to look: whose view is partial says so when it is pinged.
            self._asked_round_ns = core.now_ns
            for other in core.table.sample(core.rng, 2 * _TELLERS_WANTED, member):
                self._membership.prober.ping_once(other)
            # And whom it knows itself, that may be a swarm of which nobody here has heard yet.
            core.port.push(member, [encode(Shuffle(True, ()))])

    # --- neighbours --------------------------------------------------------------------------------------------------

    def _neighbor(self, kind: int) -> bytes:
        return encode(Neighbor(kind, min(2**32, self.size())))

    def _say(self, member: Member, kind: int) -> None:
        self.core.port.push(member, [self._neighbor(kind)])

    def tell(self, member: Member) -> None:
        """Somebody greets: say that there is no full view to be had here.

        A little later, since it must have this node's record to read that; or with the answer to its first question.
        """
        core = self.core
        strange = core.table.partial and not member.active and member.node not in self._asks
        if strange and core.now_ns - member.disconnected_ns >= _TELL_GAP_NS:
            member.disconnected_ns = core.now_ns
            core.scheduler.at(core.now_ns + _TELL_LATER_NS, self._tell_now, (member, core.now_ns))

    def _tell_now(self, told: tuple[Member, int]) -> None:
        member, since_ns = told
        if member.disconnected_ns == since_ns and self._is_transient(member) and member.node not in self._asks:
            self._say(member, PARTIAL_VIEW)

    def partial_view_rider(self, member: Member) -> list[bytes]:
        """The same, riding in an answer."""
        if not self.core.table.partial or member.active:
            return []
        member.disconnected_ns = self.core.now_ns
        return [self._neighbor(PARTIAL_VIEW)]

    def _is_transient(self, member: Member) -> bool:
        return self.core.table.partial and self.core.table.transients.get(member.node) is member

    def on_neighbor(self, member: Member, message: Neighbor) -> None:
        """A question, an answer or a good-bye about being neighbours."""
        core = self.core
        if not core.table.partial:
            if message.kind <= NEIGHBOR_JOIN:
                member.holds_me = True
                self._say(member, NEIGHBOR_ACCEPT)
            elif message.kind == DISCONNECT:
                member.holds_me = False
            self._be_told(member, message.size)
            return
        if message.kind <= NEIGHBOR_JOIN:
            self._on_ask(member, message.kind)
        elif message.kind == NEIGHBOR_ACCEPT:
            self._on_yes(member)
        elif message.kind == PARTIAL_VIEW:
            self._on_tell(member)
        elif message.kind in (NEIGHBOR_REJECT, DISCONNECT):
            self._asks.pop(member.node, None)
            if member.where >= 0:
                self._demote(member)
                if member.node in self.passive:
                    self.passive[member.node].asked_ns = core.now_ns
            self._fill()

    def _on_tell(self, member: Member) -> None:
        """Somebody who was greeted has a partial view too: it may be what leads out of a lonely corner."""
        core = self.core
        if not self._is_transient(member):
            return
        self._shelve(member, member.node)
        if self._healthy() < core.config.active_view:
            self._fill()
        elif core.now_ns - self._asked_round_ns >= _ASK_ROUND_NS:
            # Its part of the overlay and this one may have grown apart, or never have met.
            self._asked_round_ns = core.now_ns
            self._ask(member.node, NEIGHBOR_JOIN)

    def _on_ask(self, member: Member, kind: int) -> None:
        member.disconnected_ns = self.core.now_ns
        if member.where >= 0:
            self._say(member, NEIGHBOR_ACCEPT)
        elif member.active:
            self._membership.remind(member)  # Lost: it must refute first, and is a neighbour then.
        elif not self._takes(member, kind != NEIGHBOR_ASK):
            self._say(member, NEIGHBOR_REJECT)
        else:
            self._say(member, NEIGHBOR_ACCEPT)
        if kind == NEIGHBOR_JOIN:
            self._send_records(member, answer=False)
            self._send_walks(member)

    def _takes(self, member: Member, urgent: bool) -> bool:
        core = self.core
        if member.status != STATUS_ALIVE:
            return False
        full = len(core.table.reachable) >= self.neighbours_max
        if full and not (urgent and self._may_evict()):
            return False
        self._promote(member)
        if full:
            self._part_with_one(member)
        return True

    def _may_evict(self) -> bool:
        core = self.core
        gained = (core.now_ns - self._evictions_ns) / _S
        self._evictions = min(_EVICTIONS_BURST, self._evictions + gained)
        self._evictions_ns = core.now_ns
        if self._evictions < 1:
            core.counters["ties_over_rate"] += 1
            return False
        self._evictions -= 1
        return True

    def _part_with_surplus(self, _: object = None) -> None:
        """Several that were lost may come back at once."""
        self._narrowing = False
        while self.core.table.partial and len(self.core.table.reachable) > self.neighbours_max:
            self._part_with_one()

    def _part_with_one(self, without: Member | None = None) -> None:
        """Not with somebody in doubt, as long as there are others: that would leave its death unsaid."""
        table = self.core.table
        pool = [member for member in table.reachable if member is not without and member.probe is None]
        for member in self.core.rng.sample(pool, 1) if pool else table.sample(self.core.rng, 1, without):
            self._say(member, DISCONNECT)
            self._demote(member)

    def _on_yes(self, member: Member) -> None:
        asked = self._asks.pop(member.node, None)
        if member.where >= 0:
            return
        if member.active:
            self._membership.remind(member)
        elif asked is None or member.status != STATUS_ALIVE or len(self.core.table.reachable) >= self.neighbours_max:
            self._say(member, DISCONNECT)
        else:
            self._promote(member)
            if self._healthy() > self.core.config.active_view:
                self._part_with_one(member)

    def _promote(self, member: Member) -> None:
        """Somebody who answered in a sealed frame becomes a neighbour."""
        core = self.core
        assert core.table.by_node[member.node] is member
        self.passive.pop(member.node, None)
        self._asks.pop(member.node, None)
        core.table.set_active(member, True)
        self._neighbors_changed_ns = core.now_ns
        member.addresses_told_ns = -(2**62)
        member.estimate_told_ns = -(2**62)
        self._membership.prober.welcome(member)
        self._membership.evaluate(member, "a neighbour", joined=True, fresh=True)

    def _demote(self, member: Member) -> None:
        """A neighbour no more; it goes on living in the passive view."""
        core = self.core
        if member.probe is not None:
            member.probe.over = True
            member.probe = None
        self._membership.clear_doubts(member)
        member.met_ns = core.now_ns
        core.table.set_active(member, False)
        self._neighbors_changed_ns = core.now_ns
        member.neighbor_addresses = ()
        self._shelve(member, member.node)
        core.port.peers_changed()
        self._trim_transients()

    def disconnect_rider(self, member: Member) -> list[bytes]:
        """What an ack says to somebody who is no neighbour: should it take itself for one, it shall know better."""
        if not self.core.table.partial or member.active or member.node in self._asks:
            return []
        return [self._neighbor(DISCONNECT)]

    def _healthy(self) -> int:
        return sum(1 for member in self.core.table.reachable if not member.suspected)

    # --- looking for neighbours --------------------------------------------------------------------------------------

    def _tick(self, _: object) -> None:
        core, table = self.core, self.core.table
        if not table.partial or core.own.left:
            self._ticking = False
            return
        quiet = not self._asks and self._healthy() >= core.config.active_view
        core.scheduler.at(core.now_ns + (2 * _TICK_NS if quiet else _TICK_NS), self._tick)
        self.sketch.tick(core.now_ns)
        size = self.sketch.estimate()
        if self.sketch.settled and size is not None and size < core.config.full_view_max * _WIDEN_BELOW:
            self._widen()
            return
        self._ask_again()
        self._fill()
        self._part_with_surplus()
        self._forget_lost()
        self._trim_transients()
        self._shuffle()

    def _fill(self) -> None:
        """Ask some of the passive view, as many as neighbours are missing; one now and then even if none is."""
        core = self.core
        healthy = self._healthy()
        cut_off = healthy == 0 or core.isolated()
        missing = (core.config.active_view if cut_off else core.config.active_view - healthy) - len(self._asks)
        kind = NEIGHBOR_JOIN if cut_off and not self._asks else NEIGHBOR_PLEASE
        if missing <= 0 and core.now_ns - self._renewed_ns >= _RENEW_NS and not self._asks:
            missing, kind = 1, NEIGHBOR_ASK
        if missing <= 0:
            return
        self._renewed_ns = core.now_ns
        ready = [node for node, known in self.passive.items() if core.now_ns - known.asked_ns >= _ASK_AGAIN_NS]
        if len(ready) > missing:
            ready = core.rng.sample(ready, missing)
        for node in ready:
            self._ask(node, kind)
            kind = min(kind, NEIGHBOR_PLEASE)  # One is enough to bring a newcomer in.

    def _ask(self, node: bytes, kind: int) -> None:
        core = self.core
        known = self.passive.get(node)
        if known is None or len(self._asks) >= _ASKS_MAX:
            return
        known.asked_ns = core.now_ns
        member = core.table.by_node.get(node) or self._membership.on_record(known.record, None)
        if member is None or member.active:
            self.passive.pop(node, None)
            return
        self._asks[node] = _Ask(core.now_ns + _ASK_NS, kind)
        self._put(member, kind)

    def _put(self, member: Member, kind: int) -> None:
        """Show who asks, and ask; somebody heard before most likely still knows this node."""
        if member.heard_ns < 0:
            self.core.port.hello(member.address, False)
            self.on_hello_from(member)
        else:
            self._say(member, kind)

    def on_hello_from(self, member: Member) -> None:
        """Somebody who is asked has been shown this node's record: the question goes right behind it."""
        ask = self._asks.get(member.node)
        if ask is not None:
            self.core.scheduler.at(self.core.now_ns + _BEHIND_NS, self._say_again, (member, ask))

    def _say_again(self, asked: tuple[Member, _Ask]) -> None:
        member, ask = asked
        if self._asks.get(member.node) is ask and self.core.table.by_node.get(member.node) is member:
            self._say(member, ask.kind)

    def _ask_again(self) -> None:
        core = self.core
        for node, ask in list(self._asks.items()):
            if core.now_ns < ask.due_ns:
                continue
            member = core.table.by_node.get(node)
            if member is None or member.active:
                del self._asks[node]
            elif ask.tries < _ASKS_TRIES:
                ask.tries += 1
                ask.due_ns = core.now_ns + _ASK_NS
                self._put(member, ask.kind)
            else:
                self._give_up(member)

    def _give_up(self, member: Member) -> None:
        """No answer: forget it, unless nobody answers, for then the fault is more likely this node's own."""
        core = self.core
        self._asks.pop(member.node, None)
        if any(core.now_ns - other.heard_ns < 2 * _S for other in core.table.reachable):
            self.passive.pop(member.node, None)
            self._membership.forget(member)

    def refused(self, member: Member) -> None:
        """No process listens where somebody was asked."""
        if not member.active and member.node in self._asks:
            del self._asks[member.node]
            self.passive.pop(member.node, None)
            self._membership.forget(member)
            self._fill()

    def _send_walks(self, member: Member) -> None:
        """A newcomer: let some others hear of it, each at the end of a random walk."""
        core = self.core
        if not self._credit(member.node, 4.0):
            return
        walk = encode(ForwardJoin(_HOPS, Record(member.certificate, *member.record)))
        for neighbour in core.table.sample(core.rng, _WALKS, member):
            core.port.push(neighbour, [walk])

    def on_forward_join(self, member: Member, message: ForwardJoin) -> None:
        """A newcomer's record on its way."""
        core = self.core
        if not core.table.partial or not self._credit(member.node, 1.0):
            return
        onward = [other for other in core.table.sample(core.rng, 2, member) if other.record[0] != message.record.body]
        if message.hops > 0 and onward:
            core.port.push(onward[0], [encode(ForwardJoin(message.hops - 1, message.record))])
            if message.hops == _HOPS_KEPT:
                self._learn(message.record, member.node)
            return
        node = self._learn(message.record, member.node)
        if node is not None and len(core.table.reachable) < self.neighbours_max:
            self._ask(node, NEIGHBOR_ASK)

    # --- the passive view --------------------------------------------------------------------------------------------

    def _credit(self, node: bytes, cost: float) -> bool:
        """Whether a sender may still make this node work for it."""
        core = self.core
        tokens, last_ns = self._credits.pop(node, (_CREDIT_BURST, core.now_ns))
        tokens = min(_CREDIT_BURST, tokens + (core.now_ns - last_ns) * _CREDIT_PER_S / _S)
        if len(self._credits) >= _CREDITS_MAX:
            del self._credits[next(iter(self._credits))]
        self._credits[node] = (tokens - cost if tokens >= cost else tokens, core.now_ns)
        if tokens < cost:
            core.counters["records_over_rate"] += 1
        return tokens >= cost

    def _shelve(self, member: Member, via: bytes) -> None:
        """Keep a member's record; it was verified when the member was admitted."""
        if member.record[0] and member.status == STATUS_ALIVE and not member.failed:
            record = Record(member.certificate, *member.record)
            self._keep(member.node, _Known(record, member.incarnation, via))

    def _keep(self, node: bytes, known: _Known) -> None:
        core, passive = self.core, self.passive
        if node in passive:
            passive[node] = known
            return
        if known.via != core.own.node:
            mine = [other for other, entry in passive.items() if entry.via == known.via]
            if len(mine) >= max(1, core.config.passive_view // 3):
                del passive[mine[int(core.rng.random() * len(mine))]]
        while len(passive) >= core.config.passive_view:
            del passive[list(passive)[int(core.rng.random() * len(passive))]]
        passive[node] = known

    def _learn(self, record: Record, via: bytes) -> bytes | None:
        """Take a record that somebody passes on; returns its node where it is in the passive view afterwards."""
        core = self.core
        body = self._membership.read_record(record, via)
        if body is None or body.node == core.own.node:
            return None
        if body.node in core.table.by_node:
            self._membership.on_record(record, None)
            return body.node if body.node in self.passive else None
        held = self.passive.get(body.node)
        if held is not None and held.incarnation >= body.incarnation:
            return body.node
        if not self._holds(record, body):
            return None
        if body.status != STATUS_ALIVE:
            self.passive.pop(body.node, None)
            return None
        self._keep(body.node, _Known(self.core.crypto.share(record), body.incarnation, via))
        return body.node

    def _holds(self, record: Record, body: AliveBody) -> bool:
        """Whether a record's certificate and signature hold."""
        core = self.core
        try:
            certificate = core.trust.certificate(record.certificate)
        except IdentityError as error:
            self._membership.reject(None, str(error))
            return False
        if certificate.node == body.node and core.signed_by(
            certificate.public_key, "alive", record.body, record.signature
        ):
            return True
        self._membership.reject(None, f"a record of {certificate.name!r} is not signed by it")
        return False

    def _shuffle(self) -> None:
        core = self.core
        scarce = len(self.passive) < core.config.passive_view // 2
        gap_ns = _SHUFFLE_SOON_PERIODS * core.config.protocol_period_ns if scarce else core.config.shuffle_ns
        if len(self.passive) + len(core.table.reachable) < core.config.active_view:
            gap_ns //= 4  # Too few to ask.
        if core.now_ns - self._shuffled_ns < gap_ns or not core.table.reachable:
            return
        self._shuffled_ns = core.now_ns
        for member in core.table.sample(core.rng, 1):
            self._send_records(member, answer=True)

    def _send_records(self, member: Member, *, answer: bool) -> None:
        """One neighbour, the rest from the passive view, as many as fit into a datagram."""
        core = self.core
        entries = [
            Record(other.certificate, *other.record)
            for other in core.table.sample(core.rng, 1, member)
            if not other.suspected
        ]
        chosen = core.rng.sample(list(self.passive), min(_SHUFFLED - len(entries), len(self.passive)))
        entries += [self.passive[node].record for node in chosen if node != member.node]
        while entries and sum(len(r.certificate) + len(r.body) + 72 for r in entries) > _SHUFFLE_ROOM:
            entries.pop()
        if entries or answer:
            core.port.push(member, [encode(Shuffle(answer, tuple(entries)))])

    def on_shuffle(self, member: Member, message: Shuffle) -> None:
        """Records from a neighbour, or from somebody who could not take this node in."""
        core = self.core
        if not self._credit(member.node, 1.0 + len(message.entries)):
            return
        if not core.table.partial:
            if member.node in self._tellers:
                for record in message.entries:
                    self._membership.on_record(record, member)
            return
        if message.answer:
            self._send_records(member, answer=False)
        for record in message.entries:
            self._learn(record, member.node)
        self._fill()

    # --- bounds ------------------------------------------------------------------------------------------------------

    def meet(self, member: Member) -> None:
        """Somebody new is met: a transient peer, until both want to be neighbours."""
        member.met_ns = self.core.now_ns
        self.core.table.set_active(member, False)
        self._trim_transients(member)

    def _trim_transients(self, spare: Member | None = None) -> None:
        transients, long_ago_ns = self.core.table.transients, self.core.now_ns - _TRANSIENT_NS
        too_many = len(transients) - _TRANSIENTS_MAX
        for at, member in enumerate(list(transients.values())):
            if at >= too_many and member.met_ns > long_ago_ns:
                break
            if member is not spare and member.node not in self._asks:
                if member.heard_ns >= 0 and member.node not in self.passive:
                    self._shelve(member, member.node)
                self._membership.forget(member)

    def _forget_lost(self) -> None:
        lost = self.core.table.lost
        if len(lost) > _LOST_MAX:
            for member in sorted(lost.values(), key=lambda gone: (gone.since_ns, gone.node))[: len(lost) - _LOST_MAX]:
                self._membership.forget(member)

    def on_trust(self) -> None:
        """Forget whose certificate no longer holds."""
        trust = self.core.trust
        for node in [node for node, known in self.passive.items() if not trust.holds(known.record.certificate)]:
            del self.passive[node]

    # --- between neighbours ------------------------------------------------------------------------------------------

    def riders(self, member: Member) -> list[bytes]:
        """What rides in a ping or ack to a neighbour."""
        core = self.core
        if not core.table.partial or member.where < 0:
            return []
        riders = []
        if member.addresses_told_ns <= self._neighbors_changed_ns <= core.now_ns - _SETTLE_NS:
            member.addresses_told_ns = core.now_ns
            riders.append(
                encode(NeighborAddresses(tuple(other.address for other in core.table.reachable[:_ADDRESSES_TOLD_MAX])))
            )
        estimate = self._estimate_for(member)
        return riders if estimate is None else [*riders, estimate]

    def on_neighbor_addresses(self, member: Member, message: NeighborAddresses) -> None:
        """Where a neighbour's neighbours are."""
        if member.where >= 0:
            member.neighbor_addresses = message.addresses

    def warn(self, member: Member, accusation: bytes) -> None:
        """This node misses a neighbour and is the first or the second to say so: its other neighbours look at once."""
        core = self.core
        if not core.table.partial or self._membership.confirmations(member) > 1:
            return
        for address in member.neighbor_addresses:
            other = core.table.by_address.get(address)
            if other is not None and other.where >= 0:
                core.port.push(other, [accusation])
            elif address != core.own.address:
                core.port.hello(address, False, extra=accusation)

    def _estimate_for(self, member: Member) -> bytes | None:
        """For one that was not told the newest minima, or nothing for long."""
        core = self.core
        since_ns = core.now_ns - member.estimate_told_ns
        gap_ns = _ESTIMATE_PERIODS * core.config.protocol_period_ns
        if since_ns < gap_ns or (
            member.estimate_told_ns >= self.sketch.changed_ns and since_ns < _ESTIMATE_ANYWAY * gap_ns
        ):
            return None
        member.estimate_told_ns = core.now_ns
        own = pack_fingerprints([core.own.fp, self._membership.own_meta_fp(), self._membership.links.own_fp])
        return encode(SizeEstimate(self.sketch.epoch, self.sketch.minima, own))

    def on_size_estimate(self, member: Member, message: SizeEstimate) -> None:
        """A neighbour's minima, and what it says of itself: what differs here is asked for."""
        core = self.core
        if not core.table.partial:
            member.holds_me = True
            self._be_told(member, estimated_size([message.minima]))
            return
        if member.where < 0:
            return
        if self.sketch.merge(message.epoch, message.minima, core.now_ns):
            member.estimate_told_ns = min(member.estimate_told_ns, core.now_ns - _S, self.sketch.changed_ns - 1)
        record, meta, links = unpack_fingerprints(message.own)
        if core.now_ns - member.sync_ns < _REPAIR_GAP_NS:
            return
        parts = []
        if record != member.fp_record:
            parts.append(encode(Want(MEMBERS, pack_fingerprints([record]))))
        if links not in (0, member.fp_links):
            parts.append(encode(Want(LINKS, pack_fingerprints([links]))))
        if meta != member.fp_meta:
            bodies = [
                msgspec.msgpack.decode(encoded, type=MetaEntry).body for _, _, encoded in (member.meta or {}).values()
            ]
            parts.append(encode(Fingerprints(META, -1, pack_fingerprints([fingerprint(body) for body in bodies]))))
        if parts:
            member.sync_ns = core.now_ns
            core.port.push(member, parts)
