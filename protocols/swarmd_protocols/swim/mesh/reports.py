"""Reports of who hears whom: signed by their author, newest wins, passed on and repaired as all news of the swarm."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.errors import WireError
from swarmd_protocols.swim.core import VERDICT, Core
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.losses import trip_ns
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, PERFECT, WORST, Heard, Key
from swarmd_protocols.swim.messages import Near as NearMessage
from swarmd_protocols.swim.messages import NearBody
from swarmd_protocols.swim.rules import BOOT_SHIFT

_S, _MS = 1_000_000_000, 1_000_000
_NEAR_BODY = msgspec.msgpack.Decoder(NearBody)
_LOST_NS, _GAINED_NS = 20 * _MS, 500 * _MS
"""A lost link is reported so soon, and one that was gained so long after it, nanoseconds: several change at once, and
nobody's life hangs on the latter but a stranger's."""
_GAP_NS = 250 * _MS
"""Shortest time between two reports, nanoseconds: a node in motion gains and loses one neighbour a second or two."""
RENEWED_NS = 240 * _S
"""A report is said again, under a new number, when it has stood for so long, nanoseconds, or for up to a quarter less,
so that not all do so at once: 99 bytes of each member and 5 for each that is near to it."""
STALE_NS = 540 * _S
"""Who has said nothing for so long, nanoseconds, counts no more, whoever claims to hear it: longer than twice the time
after which it would have, and with the second until that is told less than the ten minutes that a ghost may live."""
_RECAST_NS, _ECHOES = 10 * _MS, 3
"""News of links waits for up to so long before it is passed on, nanoseconds, and is not pushed where so many near ones
have said the same by then: in a hall eight say it to each. Who misses it is found by the digest. Ni and others, "The
broadcast storm problem" (1999): the third echo adds no more than a twentieth of the area. It is so long for each near
one beyond those three: in a hall of fifty, eight near ones stand for thirty that hear it and wait as well, and whose
casts take the air 10 ms (8 kB/s a node with five times as long, 22 with once). Where near ones answer later than
that, the air is full and the echoes wait in queues: as long as half of them take to answer is what 10 ms stand for, so
that less is passed on as it fills."""
_RECAST_MAX_NS = 200 * _MS
"""What 10 ms stand for at most, nanoseconds."""
_NONCES_MAX = 16
"""Casts of one report that are told apart: twice as many as are near in a hall."""
_RIDES_PER_S, _RIDES_BURST = 1, 8
"""Reports that ride in probes because nobody else has cast them, per second, and at once: each takes ten datagrams and
says no more than a comparison brings. Where the air is full no echo comes in time, and all of them would ride."""
_AGAIN_NS, _AGAIN_MAX_NS = 20 * _MS, 1 * _S
"""Where few are near, and nobody has said it again so long after this node, nanoseconds, or after one and a half round
trips, a report is cast once more: all behind that hop waits for what is lost there, and a probe is 0.2 s away."""
_AGAIN_PER_S, _AGAIN_BURST = 4, 16
"""Casts that are said once more, per second, and at once: neighbours that never echo cost no more."""
_CASTS_PER_S = 100
"""Reports that came in a cast and are checked, per second: nobody answers for a cast but by its signature, and a check
takes 0.1 ms on a small device. What is left out rides in probes all the same."""
_ENTRY_BYTES = KEY_BYTES + 1
"""A node's key, and what the link to it costs."""
_FROZEN, _COST = 0x80, 0x7F
"""In the byte that tells the cost: the node is frozen."""


class Own(NamedTuple):
    """What a node would report."""

    heard: Heard
    """Whom it hears, and what each link costs."""
    gone: list[Key]
    """The lives whose end it has seen."""
    hears_all: bool
    """Nobody is out of its reach."""
    frozen: frozenset[Key]
    """Those of whom it hears that are frozen, where somebody's life hangs on that."""


_NOTHING = Own({}, [], False, frozenset())
_OVERTAKEN = Own({}, [b""], False, frozenset())
"""In the place of what this node said, where others hold another's word for it: like nothing that it will say."""


class Dropped(NamedTuple):
    """What a new report says no more."""

    author: bytes
    keys: set[Key]
    """Whom its author heard."""


class NearReports:
    """Own report and those of others, by author."""

    def __init__(self, core: Core, links: LinkReports) -> None:
        self.core = core
        self._links = links
        self.own: Callable[[], Own]
        """What this node would report. Set by the mesh before it begins."""
        self.casts: Callable[[], bool]
        """Whether one frame reaches whoever listens. Set likewise."""
        self._unproven = TokenBucket(_CASTS_PER_S, _CASTS_PER_S)
        self._rides = TokenBucket(_RIDES_PER_S, _RIDES_BURST)
        self._agains = TokenBucket(_AGAIN_PER_S, _AGAIN_BURST)
        self._awaited: dict[bytes, bytes] = {}
        """Reports that this node has cast among few and nobody has said again, by author."""
        self.heard: dict[bytes, Heard] = {}
        """By author's id, whom it hears by its last report of this life."""
        self._named: dict[Key, dict[Key, int]] = {}
        """By whom they hear, the authors of these: how many begin with that key."""
        self.gone: dict[bytes, frozenset[Key]] = {}
        """Likewise, the lives whose end it has seen (`life_key`). Who has seen none is left out."""
        self.frozen: dict[bytes, frozenset[Key]] = {}
        """Likewise, whom of those it hears it holds for frozen. Who holds nobody for that is left out."""
        self._numbers: dict[bytes, int] = {}
        """Their sequences: a report of broken links that is newer says that the author's view is full again."""
        self._words: dict[bytes, tuple[int, int]] = {}
        """By node, the life in which it was first or last seen to say something, and when: a word that was held
        already, and what others say of it, is none."""
        self._echoes: dict[bytes, int] = {}
        """Whose report waits to be passed on, and how many near ones have said it again since."""
        self._due: dict[bytes, tuple[Member, bytes]] = {}
        """Reports to be passed on as soon as what this node passed on last has had its time."""
        self._air_ns = 0
        """When that is."""
        self._nonces: dict[bytes, set[bytes]] = {}
        """Of the casts in which each author's last report came."""
        self.hears_all: set[bytes] = set()
        """Authors that say that nobody is out of their reach."""
        self._due_ns: int | None = None
        self._said_ns = -(2**62)
        self._said = _NOTHING

    def begin(self) -> None:
        """The view has become a mesh: what was reported before the last one ended is over."""
        for node in [node for node in self.heard if not self._is_newest(node)]:
            self.forget(node)
        self._said, self._due_ns = _NOTHING, None

    def _is_newest(self, node: bytes) -> bool:
        member = self.core.table.by_node.get(node)
        return member is not None and member.report.links_sequence == self._numbers[node]

    def tellers(self) -> list[Member]:
        """Members that live and whose last word in this life is that their view is a mesh."""
        held = [self.core.table.by_node[node] for node in self.heard if self._is_newest(node)]
        return [member for member in held if member.state in REACHABLE and self.is_of_this_life(member)]

    def soon(self, *, lost: bool) -> None:
        """What this node hears has changed."""
        core = self.core
        due_ns = max(core.now_ns + (_LOST_NS if lost else _GAINED_NS), self._said_ns + _GAP_NS)
        if self._due_ns is None or due_ns < self._due_ns:
            self._due_ns = due_ns
            core.scheduler.at(due_ns, self._say, due_ns)

    def _say(self, due_ns: int) -> None:
        core = self.core
        if self._due_ns != due_ns:
            return
        self._due_ns = None
        said = self.own()
        renewed_ns = RENEWED_NS - RENEWED_NS // 4 * core.own.node[0] // 256
        is_old = core.now_ns - self._said_ns >= renewed_ns
        if said.heard.keys() == self._said.heard.keys() and said[1:] == self._said[1:] and not is_old:
            return
        self._said, self._said_ns = said, core.now_ns
        costs = ((key, cost | _FROZEN * (key in said.frozen)) for key, cost in sorted(said.heard.items()))
        entries = b"".join(key + bytes((cost,)) for key, cost in costs)
        gone = b"".join(said.gone)
        body = encode(NearBody(core.own.node, self._links.next_sequence(), entries, gone, said.hears_all))
        encoded = encode(NearMessage(body, core.sign("near", body)))
        self._links.publish((), body, encoded)
        self._say_at_once(core.own.node, encoded)
        core.counters["near_reports"] += 1

    def on_near(self, message: NearMessage, via: Member | None, nonce: bytes = b"") -> Dropped | None:
        """A member reports whom it hears; whom it hears no more. None where that is not new."""
        core = self.core
        try:
            body = decode_body(_NEAR_BODY, message.body)
            if len(body.entries) % _ENTRY_BYTES or len(body.gone) % KEY_BYTES:
                raise WireError("a report of who is near ends within an entry")
        except WireError as error:
            core.reject(via, str(error))
            return None
        reporter = core.table.by_node.get(body.reporter)
        if reporter is None:
            if body.reporter == core.own.node:
                self._on_own_report(body, message, via, nonce)
            return None
        if body.sequence == reporter.report.links_sequence and encode(message) == reporter.report.links_encoded:
            if self._is_played_again(reporter.node, nonce):
                return None
            if nonce:  # Whoever brought it may say it in a probe, and casts it once.
                self._awaited.pop(reporter.node, None)
            core.queue.overheard(("links", reporter.node))
            if reporter.node in self._echoes:
                self._echoes[reporter.node] += 1
            return None
        if not self._links.is_newer(reporter, body.sequence, message):
            return None
        if via is None and not self._unproven.take(core.now_ns):
            core.counters["near_casts_over_rate"] += 1
            return None
        if not core.holds_word(reporter, "near", message, via, "a report of who is near"):
            return None
        self._links.adopt(reporter, body.sequence, message.body, encode(message), ())
        self._nonces[reporter.node] = {nonce}
        self._words[reporter.node] = reporter.incarnation >> BOOT_SHIFT, core.now_ns
        before = self.heard.get(reporter.node, {})
        heard = self._keep(reporter.node, body)
        reporter.report.near = len(heard)
        encoded = reporter.report.links_encoded
        if core.heard(reporter.node, reporter.name, len(encoded), f"report of who is near {body.sequence}"):
            self._pass_on(reporter, encoded)
        core.changed_by(reporter.node)
        return Dropped(reporter.node, set(before) - set(heard))

    def _on_own_report(self, body: NearBody, message: NearMessage, via: Member | None, nonce: bytes) -> None:
        """This node's own report is said again; or a newer one that it never made, which its next one replaces.

        The key is in use elsewhere, or was: nothing else ends that word while this life lasts. Nothing is looked at
        while an own report is due, which bounds checks and answers: a comparison brings what that one leaves standing.
        """
        core = self.core
        if nonce and self._awaited.get(body.reporter) == encode(message):
            del self._awaited[body.reporter]
            return
        if self._due_ns is not None or not core.view.weighs_links or not self._links.overtakes(body.sequence, message):
            return
        if via is None and not self._unproven.take(core.now_ns):
            return
        if not core.signed_by(core.crypto.public_key(core.own.seed), "near", message.body, message.signature):
            core.reject(via, "a report of who is near in this node's name is not signed by it")
            return
        if not self._links.give_way_to(body.sequence):
            return
        core.counters["near_reports_overtaken"] += 1
        self._said = _OVERTAKEN
        self.soon(lost=True)

    def _keep(self, node: bytes, body: NearBody) -> Heard:
        """Take what a member reports in the place of what it reported before; whom it hears."""
        at = range(0, len(body.entries), _ENTRY_BYTES)
        costs = {body.entries[i : i + KEY_BYTES]: body.entries[i + KEY_BYTES] for i in at}
        # No honest one says what lies beyond: one that says less would draw what is handed on, one that says more keeps
        # those behind it from being asked, and makes a short line look long.
        self._count(node, -1)
        heard = {key: max(PERFECT, min(WORST, cost & _COST)) for key, cost in costs.items()}
        self.heard[node], self._numbers[node] = heard, body.sequence
        self._count(node, 1)
        (self.hears_all.add if body.hears_all else self.hears_all.discard)(node)
        gone = frozenset(body.gone[i : i + KEY_BYTES] for i in range(0, len(body.gone), KEY_BYTES))
        frozen = frozenset(key for key, cost in costs.items() if cost & _FROZEN)
        for kept, said in ((self.gone, gone), (self.frozen, frozen)):
            kept.pop(node, None)
            if said:
                kept[node] = said
        return heard

    def _count(self, author: bytes, by: int) -> None:
        """Whom an author hears is named by it, or no more."""
        author_key = author[:KEY_BYTES]
        for key in self.heard.get(author, ()):
            named = self._named.setdefault(key, {})
            named[author_key] = named.get(author_key, 0) + by
            if not named[author_key]:
                del named[author_key]
            if not named:
                del self._named[key]

    def _is_played_again(self, node: bytes, nonce: bytes) -> bool:
        """Whether this very cast has been heard: anybody can record one, and three of them would silence this node."""
        nonces = self._nonces.setdefault(node, set())
        if not nonce or nonce in nonces:
            return bool(nonce)
        if len(nonces) < _NONCES_MAX:
            nonces.add(nonce)
        return False

    def _pass_on(self, reporter: Member, encoded: bytes) -> None:
        core = self.core
        if not core.may_push(reporter.node, len(encoded)):
            core.spread(("links", reporter.node), encoded, VERDICT, urgent=False)
            return
        core.queue.drop(("links", reporter.node))  # An older one need not ride on.
        if len(core.table.reachable) <= _ECHOES:
            self._say_at_once(reporter.node, encoded)
            return
        self._echoes[reporter.node] = 0
        core.scheduler.at(core.now_ns + int(self._window_ns() * core.rng.random()), self._recast, (reporter, encoded))

    def _window_ns(self) -> int:
        """How long others have to pass on what this node would: within so long one of each `_ECHOES` of them has."""
        trips = sorted(trip_ns(self.core, member) for member in self.core.table.reachable)
        wait_ns = min(trips[3 * len(trips) // 4] // 2, _RECAST_MAX_NS) if trips else 0
        return max(_RECAST_NS, wait_ns) * max(1, len(trips) - _ECHOES)

    def _say_at_once(self, node: bytes, encoded: bytes) -> None:
        """Cast where this transport casts, and is heard to; otherwise push to each near one.

        A cast that some may have missed rides in probes too.
        """
        casts = self.casts()
        if casts:
            self.core.port.cast(encoded)
            self._await_echo(node, encoded)
        self.core.spread(("links", node), encoded, VERDICT, urgent=not casts)

    def _await_echo(self, node: bytes, encoded: bytes) -> None:
        """Where somebody near has not heard it from whoever brought it, and few say it: one of them says it again."""
        core = self.core
        near = core.table.reachable
        if len(near) <= (node != core.own.node) or len(near) > _ECHOES:
            return
        self._awaited[node] = encoded
        trips = max(trip_ns(core, member) for member in near)
        others = max(len(self.heard.get(member.node, ())) for member in near)
        wait_ns = min(max(_AGAIN_NS, 3 * trips // 2) + _RECAST_NS * max(0, others - _ECHOES), _AGAIN_MAX_NS)
        core.scheduler.at(core.now_ns + wait_ns, self._cast_again, (node, encoded))

    def _cast_again(self, awaited: tuple[bytes, bytes]) -> None:
        node, encoded = awaited
        if self._awaited.get(node) != encoded:
            return
        del self._awaited[node]
        if self.casts() and self._agains.take(self.core.now_ns):
            self.core.counters["near_casts_again"] += 1
            self.core.port.cast(encoded)

    def _recast(self, held: tuple[Member, bytes]) -> None:
        """It is due; of many that are, each waits until others have had time to say the one before."""
        reporter, encoded = held
        if reporter.report.links_encoded != encoded:
            return  # A newer one waits by itself.
        if not self.casts():
            if self._is_wanted(reporter.node):
                self._echoes.pop(reporter.node)
                self._say_at_once(reporter.node, encoded)
            return
        self._due[reporter.node] = held
        if len(self._due) == 1:
            self.core.scheduler.at(max(self.core.now_ns, self._air_ns), self._recast_next)

    def _recast_next(self, _: object) -> None:
        core = self.core
        while self._due and core.now_ns >= self._air_ns:
            node = next(iter(self._due))
            reporter, encoded = self._due.pop(node)
            if reporter.report.links_encoded != encoded or not self._is_wanted(node):
                continue
            core.counters["near_recasts"] += 1
            core.port.cast(encoded)
            window_ns = self._window_ns()
            if self._echoes[node]:
                del self._echoes[node]
            else:
                core.scheduler.at(core.now_ns + 2 * window_ns, self._ride, (reporter, encoded))
            self._air_ns = core.now_ns + window_ns // _ECHOES
            if self._due:
                core.scheduler.at(self._air_ns, self._recast_next)
            return

    def _is_wanted(self, node: bytes) -> bool:
        """Whether few have passed on what a member reported."""
        if self._echoes.get(node, _ECHOES) < _ECHOES:
            return True
        self._echoes.pop(node, None)
        self.core.counters["near_recasts_spared"] += 1
        return False

    def _ride(self, held: tuple[Member, bytes]) -> None:
        """What nobody else has cast, before this node or after it, rides in probes too: few may have heard it."""
        reporter, encoded = held
        if reporter.report.links_encoded != encoded or self._echoes.pop(reporter.node, 1):
            return
        if self._rides.take(self.core.now_ns):
            self.core.counters["near_rides"] += 1
            self.core.spread(("links", reporter.node), encoded, VERDICT, urgent=False)

    def is_of_this_life(self, member: Member) -> bool:
        """Whether a member has reported since it began its life."""
        return member.node in self.heard and member.report.links_sequence >> BOOT_SHIFT >= (
            member.incarnation >> BOOT_SHIFT
        )

    def is_fresh(self, member: Member) -> bool:
        """Whether a member was seen to live of late: by a new report of its own, or by a frame that it sealed itself.

        Of a life that is new here the time begins when this is first asked.
        """
        now_ns, life = self.core.now_ns, member.incarnation >> BOOT_SHIFT
        seen, word_ns = self._words.get(member.node, (-1, 0))
        if seen != life:
            self._words[member.node] = life, now_ns
            return True
        return now_ns - max(word_ns, member.link.heard_ns) < STALE_NS

    def hearers(self, member: Member) -> list[Key]:
        """Who could hear a member, by the last reports of both sides."""
        key = member.node[:KEY_BYTES]
        return [*self.heard.get(member.node, {}), *self._named.get(key, ())]

    def is_lone(self, member: Member) -> bool:
        """Whether a member has said in this life that it hears nobody, and nobody has said since that it hears it."""
        return self.is_of_this_life(member) and not self.hearers(member)

    def forget(self, node: bytes) -> None:
        """Drop what a member reported."""
        self._words.pop(node, None)
        self._count(node, -1)
        self.heard.pop(node, None)
        self.gone.pop(node, None)
        self.frozen.pop(node, None)
        self._numbers.pop(node, None)
        self._echoes.pop(node, None)
        self._due.pop(node, None)
        self._awaited.pop(node, None)
        self._nonces.pop(node, None)
        self.hears_all.discard(node)
