"""The sub-protocol `beside`: what every member knows of the swarms beside its own, and keeps clear of.

Agreements come from operators at any member and last (they are journalled); what a neighbour says comes in at gateways
(`border.py`), and every member judges it for itself (`hearing.py`) by the root that its own operators have pinned. News
is pushed by who brought it; a difference that probes show is mended by `Have` and `Give`. A swarm without an agreement
says and compares nothing.

Once a second a member looks which of its cells a neighbour covers (`space.py`), and tells its survey.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import Alarm, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.federation.objects import EPOCH_UNIX_MS
from swarmd_protocols.federation.wire import swarm_key
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.hearing import Hearing, judged
from swarmd_protocols.neighbours.messages import GIVE_MAX_BYTES, NEIGHBOURS_MAX, Give, Have, Item, decode, encode
from swarmd_protocols.neighbours.news import News
from swarmd_protocols.neighbours.requests import Agree, Bring, NeighbourChanged, NeighbourView
from swarmd_protocols.neighbours.space import Ground, Holds, Plane, Spot, cells_under, right_of_way
from swarmd_protocols.neighbours.words import (
    INTRODUCTION,
    WORD,
    Agreement,
    Signed,
    agreement_order,
    read_agreement,
    read_introduction,
    read_word,
)
from swarmd_protocols.state.claims.covers import Covers
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.state.reviews import operators_of
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.trust import Trust

NAME = "beside"
JOURNAL = b"beside/"
"""Before each key of the journal; the neighbour's follows."""
LOOK_NS = 1_000_000_000
"""Between two looks at what neighbours cover: a small part of a claim's life."""
ASK_NS = 1_000_000_000
"""Between two exchanges with one peer about what differs."""
READ_A_S = 20
"""Messages of one member that are read in a second: one word each `hearing.GAP_MS` of each neighbour, thrice over."""
SETTLE_NS = 6_000_000_000
"""How long a claim of a cell stands before work while there is a neighbour: a word to it each second when something
changes, a second on the way in, and as much to all its members, twice over."""
KEPT_MAX = 16
"""Agreements kept, also such as have ended, so that an older one does not come back; operators sign each. One more is
refused where it is brought, unless one has run out by its own date; of too many that members learnt apart from each
other the oldest goes, with all alike."""
DATAGRAM_BYTES = 1_000
"""What fits a best-effort payload (`subprotocol.Send`)."""
ALARM_NS = 3_600_000_000_000
"""Between two alarms about one neighbour."""
_LOOK: TimerKey = (NAME, "look")
_GIVE_HEAD_BYTES, _STATEMENT_HEAD_BYTES = 16, 5
"""What msgpack adds to a `Give`, and to each statement in it, at most."""


@dataclass(slots=True)
class _Beside:
    """One neighbour with whom there is an agreement."""

    hearing: Hearing
    signed: Signed
    holds: Holds
    news: News = field(default_factory=News)
    """For its introductions."""
    alarmed_ns: int | None = None


@dataclass(slots=True)
class _Asked:
    """What one member has cost of late."""

    second: int = -1
    read: int = 0
    spoke_ns: int = -(1 << 62)
    gave_ns: int = -(1 << 62)


@dataclass(slots=True)
class _Looked:
    """Own cells by place, and of which survey that is."""

    ground: Ground = field(default_factory=lambda: Ground((), 1))
    cells: object = None


class Neighbours:
    """See the module.

    Args:
        trust: The own swarm's.
        first_root: The first root statement of the own fleet.
        crypto: Checks who signed.
        replica: Knows swarm time, and whose survey keeps clear.
        plane: Of the own mission; None where there is no origin, and claims cover nothing.
        restored: The journal's records of an earlier life that begin with `JOURNAL`.
    """

    def __init__(
        self,
        trust: Trust,
        first_root: bytes,
        crypto: Crypto,
        replica: Replica,
        plane: Plane | None,
        restored: Mapping[bytes, bytes],
    ) -> None:
        self.trust = trust
        """The own swarm's."""
        self._root = decode_envelope(first_root).digest
        self.key = swarm_key(self._root, trust.swarm)
        """Of the own swarm."""
        self._crypto = crypto
        self._clock = replica.clock
        self.survey = replica.views.survey
        self.plane = plane
        self._kept = {key.hex(): value for key, value in restored.items() if key.startswith(JOURNAL)}
        self._beside: dict[bytes, _Beside] = {}
        self._peers: dict[NodeId, Peer] = {}
        self._asked: dict[NodeId, _Asked] = {}
        self._looked = _Looked()
        self._is_looking = False
        self.counts = {"learned": 0, "given": 0, "refused": 0, "too_many": 0}
        self._judge()

    # --- what can be read -------------------------------------------------------------------------------------------

    def now_ms(self, now_ns: int) -> int:
        """Swarm time, milliseconds since 1970."""
        return EPOCH_UNIX_MS + self._clock.physical_ms(now_ns)

    def hearings(self) -> Mapping[bytes, tuple[Hearing, bytes]]:
        """Neighbour's key to what is heard of it, and the own agreement as it was signed; also of one that has
        ended."""
        return {key: (one.hearing, one.signed.statement) for key, one in self._beside.items()}

    def views(self, now_ns: int) -> list[NeighbourView]:
        """All neighbours, by what they are called here."""
        now_ms = self.now_ms(now_ns)
        found = [self._view(one, now_ms) for one in self._beside.values()]
        return sorted(found, key=lambda view: view.name)

    def _view(self, one: _Beside, now_ms: int) -> NeighbourView:
        hearing, agreement = one.hearing, one.hearing.agreement
        if not agreement.is_in_force(now_ms):
            state = "ended"
        elif hearing.consent is None:
            state = "waiting"
        elif not hearing.agrees(now_ms):
            state = "refused"
        else:
            state = "agreed" if hearing.may_be_told(now_ms) else "silent"
        return NeighbourView(
            hearing.key, agreement.name, agreement.other, state, agreement.until_ms, hearing.heard_ms,
            len(hearing.keys(now_ms)), tuple(hearing.places(now_ms)), tuple(hearing.claims(now_ms)),
            len(one.holds.spent), dict(hearing.counts),
        )  # fmt: skip

    # --- SubProtocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """Look, where there is an agreement."""
        return self._keep_looking(now_ns)

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Who is listened to and told."""
        self._peers = {peer.node: peer for peer in peers if peer.public_key}
        self._asked = {node: one for node, one in self._asked.items() if node in self._peers}
        return []

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """Who speaks for an operator may have changed."""
        self._judge()
        return [*self._look(now_ns), *self._keep_looking(now_ns)]

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """`Agree` or `Bring`; raises `StateError` for anything else, and for an agreement that does not hold."""
        match request:
            case Agree(statement):
                return [*self._agree(statement, now_ns), *self._look(now_ns), *self._keep_looking(now_ns)]
            case Bring():
                return self._bring(request, now_ns)
            case _:
                raise StateError(f"`{NAME}` knows no request {type(request).__name__}")

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """A look at what neighbours cover."""
        if key != _LOOK or not self._is_looking:
            return []
        self._is_looking = False
        return [*self._look(now_ns), *self._keep_looking(now_ns)]

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A member has, or gives; whatever the bytes are, nothing is raised."""
        peer, asked = self._peers.get(sender), self._asked.setdefault(sender, _Asked())
        second = now_ns // 1_000_000_000
        asked.read = 1 if asked.second != second else asked.read + 1
        asked.second = second
        if peer is None or asked.read > READ_A_S or len(payload) > GIVE_MAX_BYTES:
            self.counts["too_many"] += peer is not None
            if peer is None:
                del self._asked[sender]
            return []
        try:
            message = decode(payload)
        except WireError as error:
            return self._refuse(sender.hex(), str(error))
        match message:
            case Have(items):
                return self._answer(sender, items, asked, now_ns)
            case Give():
                return self._take(sender, message, now_ns)

    def summary(self) -> bytes:
        """8 bytes over all that is held; b"" without an agreement."""
        items = self._items()
        if not items:
            return b""
        return blake2b(encode(items), digest_size=8, person=b"swarmd-beside").digest()

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """Say what is held where a peer holds something else."""
        asked = self._asked.setdefault(sender, _Asked()) if sender in self._peers else None
        if asked is None or summary == self.summary() or now_ns - asked.spoke_ns < ASK_NS:
            return []
        asked.spoke_ns = now_ns
        return [Send(sender, encode(Have(tuple(self._items()))), False, Priority.SYNC)]

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Nothing here rides along."""
        return []

    # --- agreements ---------------------------------------------------------------------------------------------------

    def _agree(self, statement: bytes, now_ns: int | None = None) -> list[SubEffect]:
        """Take an agreement that is brought now, or that a member gives (None)."""
        try:
            signed, said = read_agreement(statement)
        except WireError as error:
            raise StateError(f"this is no agreement about a neighbour: {error}") from error
        if said.swarm != self.trust.swarm:
            raise StateError(f"this agreement is of the swarm {said.swarm}, not of {self.trust.swarm}")
        if said.key == self.key:
            raise StateError("a swarm is not its own neighbour")
        operators = operators_of(self.trust.chain)
        if not judged({"": statement}, self.trust.swarm, operators, self._crypto.verify):
            raise StateError(
                "no operator whom this member knows has signed this agreement: sign it with a key that swarmd keys "
                "role named, or hand over the root that names it first (swarmd keys push)"
            )
        # Held against all that are kept, those that have ended and do not count any more as well.
        held = judged(self._kept, self.trust.swarm, operators, self._crypto.verify).get(said.key)
        if held is not None and agreement_order(*held) > agreement_order(signed, said):
            raise StateError(
                f"revision {held[1].revision} of the agreement with {held[1].name} is known already: sign a higher one"
            )
        effects: list[SubEffect] = []
        if now_ns is not None and (JOURNAL + said.key).hex() not in self._kept:
            for key in in_the_way(self._kept, self.now_ms(now_ns)):
                del self._kept[key]
                effects.append(Persist(bytes.fromhex(key), None))
        return [*effects, *self._keep(said, statement)]

    def _keep(self, said: Agreement, statement: bytes) -> list[SubEffect]:
        """An agreement that holds and is the newest of its neighbour."""
        if self._kept.get((JOURNAL + said.key).hex()) == statement:
            return []
        self._kept[(JOURNAL + said.key).hex()] = statement
        effects: list[SubEffect] = [Persist(JOURNAL + said.key, statement)]
        while len(self._kept) > KEPT_MAX:
            oldest = min(self._kept, key=lambda key: read_agreement(self._kept[key])[1].made_ms)
            del self._kept[oldest]
            effects.append(Persist(bytes.fromhex(oldest), None))
        self._judge()
        self.counts["learned"] += 1
        return [*effects, StateChanged(NAME, NeighbourChanged(said.key))]

    def _judge(self) -> None:
        """Hold all agreements against the operators that there are now."""
        trust = self.trust
        held = judged(self._kept, trust.swarm, operators_of(trust.chain), self._crypto.verify)
        # Of too many those count that end last: one that was ended makes room.
        keys = sorted(held, key=lambda key: (-held[key][1].until_ms, key))[:NEIGHBOURS_MAX]
        before, self._beside = self._beside, {}
        for key in sorted(keys):
            signed, said = held[key]
            known = before.get(key)
            if known is not None and known.signed == signed:
                self._beside[key] = known
                continue
            hearing = Hearing(self.key, self._root, trust.swarm, said, self._crypto)
            if known is not None:
                hearing = known.hearing
                hearing.agreement = said
            self._beside[key] = _Beside(hearing, signed, Holds(said.hold_s * 1_000))

    # --- what neighbours say ------------------------------------------------------------------------------------------

    def _bring(self, brought: Bring, now_ns: int) -> list[SubEffect]:
        one = self._beside.get(brought.key)
        if one is None:
            return []
        is_word = brought.kind == WORD
        public = b""
        try:
            if not is_word and one.news.pause_ms(public := read_introduction(brought.statement)[0].public, now_ns):
                one.hearing.counts["refused"] += 1
                return []
            is_new = (one.hearing.tell if is_word else one.hearing.introduce)(brought.statement, self.now_ms(now_ns))
        except (IdentityError, WireError) as error:
            one.hearing.counts["refused"] += 1
            return self._refuse(one.hearing.agreement.name, str(error))
        if not is_new:
            return []
        if not is_word:
            one.news.spend(public, len(brought.statement), now_ns)
        give = Give(words=(brought.statement,)) if is_word else Give(introductions=(brought.statement,))
        return [*self._push(give, None), *self._changed(brought.key, now_ns)]

    def _take(self, sender: NodeId, give: Give, now_ns: int) -> list[SubEffect]:
        """Statements of a member's: each counts by who signed it, not by who gives it."""
        effects: list[SubEffect] = []
        for statement in give.agreements:
            try:
                effects += self._agree(statement)
            except StateError as error:
                self.counts["refused"] += 1
                effects.append(Rejected(sender.hex(), str(error)))
        now_ms = self.now_ms(now_ns)
        news = Give(
            (),
            tuple(one for one in give.introductions if self._hears(sender, INTRODUCTION, one, now_ms, effects)),
            tuple(one for one in give.words if self._hears(sender, WORD, one, now_ms, effects)),
        )
        if news.introductions or news.words:
            peer = self._peers[sender]
            if peer.swarm:
                effects += self._push(news, sender)
            effects += self._look(now_ns)
        return [*effects, *self._keep_looking(now_ns)]

    def _hears(self, sender: NodeId, kind: str, statement: bytes, now_ms: int, effects: list[SubEffect]) -> bool:
        try:
            said = (read_word if kind == WORD else read_introduction)(statement)[1]
            one = self._beside.get(said.sender)
            if one is None:
                return False
            hearing = one.hearing
            is_new = (
                hearing.tell(statement, now_ms) if kind == WORD else hearing.introduce(statement, now_ms, given=True)
            )
        except (IdentityError, WireError) as error:
            self.counts["refused"] += 1
            effects.append(Rejected(sender.hex(), str(error)))
            return False
        if is_new:
            effects.append(StateChanged(NAME, NeighbourChanged(one.hearing.key)))
        return is_new

    def _changed(self, key: bytes, now_ns: int) -> list[SubEffect]:
        return [StateChanged(NAME, NeighbourChanged(key)), *self._look(now_ns), *self._keep_looking(now_ns)]

    def _refuse(self, source: str, reason: str) -> list[SubEffect]:
        self.counts["refused"] += 1
        return [Rejected(source, reason)]

    # --- among members ------------------------------------------------------------------------------------------------

    def _items(self) -> list[Item]:
        found: list[Item] = []
        for key, one in self._beside.items():
            order = one.hearing.agreement.revision << 24 | int.from_bytes(one.signed.digest[:3], "big")
            found.append((0, key, order))
            found += [(1, node, held.said_ms) for node, held in sorted(one.hearing.gateways.items())]
            if one.hearing.word is not None:
                found.append((2, key, one.hearing.word.at_ms))
        return found

    def _answer(self, sender: NodeId, items: Sequence[Item], asked: _Asked, now_ns: int) -> list[SubEffect]:
        theirs = {(kind, name): order for kind, name, order in items}
        mine = {(kind, name): order for kind, name, order in self._items()}
        lacked = {one for one, order in mine.items() if theirs.get(one, -1) < order}
        effects: list[SubEffect] = []
        if any(mine.get(one, -1) < order for one, order in theirs.items()) and now_ns - asked.spoke_ns >= ASK_NS:
            asked.spoke_ns = now_ns
            effects.append(Send(sender, encode(Have(tuple(self._items()))), False, Priority.SYNC))
        give = _given(self._beside, lacked)
        if give != Give() and now_ns - asked.gave_ns >= ASK_NS:
            asked.gave_ns = now_ns
            self.counts["given"] += 1
            effects.append(Send(sender, encode(give), True, Priority.SYNC))
        return effects

    def _push(self, give: Give, but: NodeId | None) -> list[SubEffect]:
        payload = encode(give)
        is_reliable = len(payload) > DATAGRAM_BYTES
        return [
            Send(node, payload, is_reliable, Priority.SYNC)
            for node, peer in self._peers.items()
            if peer.reachable and not peer.far and node != but
        ]

    # --- space --------------------------------------------------------------------------------------------------------

    def _keep_looking(self, now_ns: int) -> list[SubEffect]:
        if self._is_looking or not self._beside:
            return []
        self._is_looking = True
        return [SetTimer(_LOOK, now_ns + LOOK_NS)]

    def _look(self, now_ns: int) -> list[SubEffect]:
        """Which cells neighbours cover now."""
        effects: list[SubEffect] = []
        now_ms, covers = self.now_ms(now_ns), dict[bytes, tuple[int, bool]]()
        ground = self._ground()
        is_agreed = False
        for key, one in self._beside.items():
            is_agreed = is_agreed or one.hearing.may_be_told(now_ms)
            if self.plane is None:
                continue
            under, is_cut = cells_under(one.hearing.claims(now_ms), ground, self.plane)
            spent = len(one.holds.spent)
            counts = one.holds.count(dict.fromkeys(under, True), now_ns // 1_000_000)
            if is_cut or len(one.holds.spent) > spent:
                effects += self._alarm(one, is_cut, now_ns)
            waits = not right_of_way(self.key, key, now_ms)
            for cell in counts:
                is_working, left_ms = under[cell]
                until_ns, was_firm = covers.get(cell, (0, False))
                covers[cell] = (max(until_ns, now_ns + left_ms * 1_000_000), was_firm or is_working or waits)
        self.survey.know_covers(Covers(covers, SETTLE_NS if is_agreed else 0))
        return effects

    def _alarm(self, one: _Beside, is_cut: bool, now_ns: int) -> list[SubEffect]:
        if one.alarmed_ns is not None and now_ns - one.alarmed_ns < ALARM_NS:
            return []
        one.alarmed_ns = now_ns
        agreement = one.hearing.agreement
        what = "claims more space than is looked at" if is_cut else f"keeps a place for more than {agreement.hold_s} s"
        text = f"the neighbouring swarm {agreement.name} {what}; what is beyond does not count here"
        return [Alarm("neighbour-holds", text)]

    def _ground(self) -> Ground:
        claims = self.survey.claims
        if self._looked.cells is not claims.cells:
            spots = [Spot(cell.key, cell.east_cm, cell.north_cm) for cell in claims.cells.values()]
            self._looked = _Looked(Ground(spots, claims.pitch_cm), claims.cells)
        return self._looked.ground


def in_the_way(kept: Mapping[str, bytes], now_ms: int) -> list[str]:
    """Which agreement makes room for one more; none where there is room.

    Raises:
        StateError: None does.
    """
    if len(kept) < KEPT_MAX:
        return []
    until_ms = {key: read_agreement(statement)[1].until_ms for key, statement in kept.items()}
    run_out = [key for key, end_ms in until_ms.items() if 0 < end_ms <= now_ms]
    if not run_out:
        raise StateError(
            f"{KEPT_MAX} agreements are kept and none has run out: one that was ended stays, so that its older "
            "revisions stay ended; sign a higher revision of one that nobody needs with --days 0.001, and bring this "
            "one again two minutes later"
        )
    return [min(run_out, key=lambda key: (until_ms[key], key))]


def _given(beside: Mapping[bytes, _Beside], lacked: Container[tuple[int, bytes]]) -> Give:
    """The smallest first, as many as one message takes: who has much to say keeps nothing of others away."""
    found: list[tuple[int, bytes]] = []
    for key, one in beside.items():
        found += [(0, one.signed.statement)] if (0, key) in lacked else []
        found += [(1, held.introduction) for node, held in one.hearing.gateways.items() if (1, node) in lacked]
        found += [(2, one.hearing.statement)] if (2, key) in lacked else []
    parts: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    left = GIVE_MAX_BYTES - _GIVE_HEAD_BYTES
    for kind, statement in sorted(found, key=lambda one: len(one[1])):
        left -= len(statement) + _STATEMENT_HEAD_BYTES
        if left < 0:
            break
        parts[kind].append(statement)
    return Give(*(tuple(part) for part in parts))
