"""The node: sealed channel, membership and sub-protocols composed into one object without I/O.

    handle(event, now_ns) -> list[Effect]

The daemon and the simulator drive this very class. It never raises on what a peer sends; it raises `StateError` for a
local request that cannot be carried out, and `IdentityError` from the constructor when its own identity does not hold.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from random import Random
from typing import assert_never

from swarmd_protocols.channel.channel import CAST, CONTACT, COOKIE, DATAGRAM, GROUP, NOTICE, Channel, frame_kind
from swarmd_protocols.channel.codec import DATAGRAM_MAX_BYTES, STREAM_MAX_BYTES, encode
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import (
    REFUSED,
    Alarm,
    Command,
    DatagramReceived,
    Effect,
    Event,
    GoAway,
    HostProbed,
    Join,
    Leave,
    MemberState,
    Moved,
    Persist,
    SendFailed,
    SetMeta,
    SetTimer,
    Started,
    StreamReceived,
    TimerFired,
    UserEvent,
)
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import WAYS, Address, NodeId
from swarmd_protocols.reader import Reader
from swarmd_protocols.sends import Sends
from swarmd_protocols.subprotocol import (
    Cast,
    HearsCasts,
    HearsTrust,
    HearsUnsent,
    MindsTraffic,
    Send,
    SubEffect,
    SubProtocol,
)
from swarmd_protocols.summary import MemberView, NodeSummary, TrustSummary
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.core import Core, Own
from swarmd_protocols.swim.event_shelf import last_life
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.far_streams import FarStreams
from swarmd_protocols.swim.mesh.far_words import NAME as FAR
from swarmd_protocols.swim.mesh.relay import Relay
from swarmd_protocols.swim.messages import (
    Beacon,
    Message,
    Near,
    Statement,
    Sub,
    decode_messages,
)
from swarmd_protocols.swim.rows import member_rows, names, own_state, peers_of, trust_summary
from swarmd_protocols.swim.rules import BOOT_MAX, BOOT_SHIFT
from swarmd_protocols.swim.sender import FrameSender, bytes_out, trust_key
from swarmd_protocols.swim.swim import Swim
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.requests import AddStatement
from swarmd_protocols.trust.trust import TRUST_JOURNAL, Trust

_BOOT_JOURNAL = b"node/boot"
_TICK = ("swim", "tick")
_TICK_SLACK_NS = 1_000_000
"""The driver's timer is not set anew for less than this, nanoseconds."""
_DATAGRAMS_ONLY = (DATAGRAM, CAST, NOTICE, COOKIE, CONTACT)
_OWN_NETWORK = ("unreachable", "forbidden")
"""Reasons of `SendFailed` that speak about this node's own network; full queues and expired frames do not."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What the daemon or the simulator decides about a node."""

    seeds: tuple[Address, ...] = ()
    """Addresses tried until they answer, and again whenever the swarm is lost; may be empty."""
    version: str = ""
    """The software's version as peers show it, at most 32 characters."""
    capability: str = ""
    """What this node can do ("eye", "observer", "gateway" ...), at most 64 characters."""
    swim: SwimConfig = field(default_factory=SwimConfig)


class Node:
    """One member of the swarm."""

    def __init__(
        self,
        identity: Identity,
        config: NodeConfig,
        crypto: Crypto,
        rng: Random,
        restored: Mapping[bytes, bytes],
        subprotocols: Sequence[SubProtocol],
        advertise: Address,
        trust: Trust | None = None,
    ) -> None:
        """Compose a node; nothing happens before the event `Started`.

        Args:
            identity: From `swarmd keys enrol`, `Identity.from_bytes` or `make_dev_identity`.
            config: See `NodeConfig`.
            crypto: `NaClCrypto()`, or `ModelCrypto()` in simulations (every node of a swarm the same kind).
            rng: Seeded from the system's entropy in the daemon, from the scenario's seed in the simulator.
            restored: All journal records (`Persist`) of the node's earlier life; empty for a new node.
            subprotocols: Already restored from the same records by their maker; names are distinct.
            advertise: Where peers reach this node, in the transport's notation.
            trust: `open_trust(identity, restored, crypto)`, where sub-protocols share it.

        Raises:
            IdentityError: The identity does not hold.
        """
        trust = trust or open_trust(identity, restored, crypto)
        claims = identity.claims()
        boot = max(int.from_bytes(restored.get(_BOOT_JOURNAL, b"")[:8], "big"), last_life(restored, claims.node)) + 1
        if boot > BOOT_MAX:
            boot = 1  # The journal is damaged; peers that know a later life will say so.
        channel = Channel(identity.seed, boot.to_bytes(8, "big") + rng.randbytes(32), crypto)
        own = Own(
            NodeId(claims.node),
            claims.name,
            identity.seed,
            trust.certificate_statement(NodeId(claims.node)) or identity.certificate,
            advertise,
            config.version[:32],
            config.capability[:64],
        )
        own.incarnation = boot << BOOT_SHIFT
        own.session_public = channel.public
        self._wire = FrameSender(channel, subprotocols)
        self._core = Core(config.swim, own, trust, crypto, rng, self._wire)
        self._wire.bind(self._core)
        self._swim = Swim(self._core, config.seeds)
        self._swarm = claims.swarm
        self._restored = restored
        self._given: tuple[bytes, ...] = (
            *identity.roots,
            *identity.revocations,
            *identity.group_keys,
            identity.certificate,
        )
        self._subs = {sub.name: sub for sub in subprotocols}
        for sub in subprotocols:
            if isinstance(sub, MindsTraffic):
                sub.traffic.watch(partial(bytes_out, self._core.counters))
        self._hearers = {sub.name: sub for sub in subprotocols if isinstance(sub, HearsCasts)}
        self._reader = Reader(self._core, self._wire, self._swim, self._subs, self._perform, self._on_trust)
        self._relay = Relay(self._core, self._wire, self._reader.take_relayed)
        self._far = FarStreams(self._core, self._relay, self._reader.take_streamed, self._say_directly, self._on_unsent)
        self._relay.gave_up = self._on_given_up
        self._sends = Sends(self._core, self._wire, self._swim.membership, self._relay, self._far, self._perform)
        if config.swim.mesh != "off":
            self._subs[self._relay.name] = self._relay
            self._subs[self._far.name] = self._far
        self.on_cast_opened: Callable[[Address, bytes], None] = lambda source, nonce: None
        """Told where each cast that has opened came from, and its nonce: a member sealed it, some time."""
        self._armed_ns: int | None = None
        self._trust_revision = trust.revision
        self._is_forked = False
        if not trust.group_keys:
            raise IdentityError("the identity holds no group key: enrol the node anew")
        channel.set_group_keys({counter: group.key for counter, group in trust.group_keys.items()})
        self._swim.count_trust()

    # --- the one entry point -----------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """Take one event; the effects are to be performed in order (`effects.py` has the rules).

        Raises:
            StateError: A local request cannot be carried out; nothing has changed.
        """
        wire, core = self._wire, self._core
        core.now_ns = now_ns
        wire.effects = []
        self._on_event(event)
        if core.trust.news:
            self._on_trust()
        if core.queue.pressing:
            wire.flush()
        if wire.peers_stale:
            wire.peers_stale = False
            self._tell_peers()
        due_ns = core.scheduler.next_due_ns()
        if due_ns is not None and (
            self._armed_ns is None or due_ns < self._armed_ns or due_ns > self._armed_ns + _TICK_SLACK_NS
        ):
            self._armed_ns = due_ns
            wire.effects.append(SetTimer(_TICK, due_ns))
        return wire.effects

    # --- events ------------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        swim = self._swim
        match event:
            case DatagramReceived():
                self._on_frame(event.source, event.data, DATAGRAM_MAX_BYTES, is_stream=False)
            case TimerFired():
                self._on_timer(event)
            case StreamReceived():
                self._on_frame(event.source, event.data, STREAM_MAX_BYTES, is_stream=True)
            case Command():
                self._on_command(event)
            case SendFailed():
                self._on_send_failed(event)
            case HostProbed():
                swim.on_host(event.destination, event.answer)
            case Started():
                self._on_started()
            case Join():
                swim.join(event.addresses)
            case Moved():
                swim.move(event.address)
            case Leave():
                swim.leave()
            case GoAway():
                swim.go_away(event.duration_ns)
            case UserEvent():
                swim.events.say(event.name, event.payload)
            case SetMeta():
                swim.metadata.set_meta(event.key, event.value)
            case _:
                assert_never(event)

    def _on_started(self) -> None:
        core = self._core
        self._wire.emit(Persist(_BOOT_JOURNAL, core.own.boot.to_bytes(8, "big")))
        self._swim.start(self._restored)
        held = {trust_key(*one) for one in core.trust.journalled()}
        for key in sorted(key for key in self._restored if key.startswith(TRUST_JOURNAL) and key not in held):
            self._wire.emit(Persist(key, None))  # Replaced, revoked, or by keys that no longer count.
        for kind, statement in core.trust.journalled():
            if trust_key(kind, statement) not in self._restored and statement not in self._given:
                self._wire.emit(Persist(trust_key(kind, statement), statement))  # Out of a damaged record.
        self._restored, self._given = {}, ()
        self._swim.on_trust([])
        for sub in self._subs.values():
            self._perform(sub, sub.start(core.now_ns))
        self._tell_trust()

    def _on_timer(self, event: TimerFired) -> None:
        core = self._core
        if event.key[:1] != _TICK[:1]:
            sub = self._subs.get(str(event.key[0])) if event.key else None
            if sub is not None:
                self._perform(sub, sub.on_timer(event.key, core.now_ns))
            return
        if self._armed_ns is None or core.now_ns < self._armed_ns:
            return  # Re-armed since: the later firing comes.
        late_ns = core.now_ns - self._armed_ns
        self._armed_ns = None
        if late_ns > core.config.pause_ns:
            self._swim.on_pause()
        core.scheduler.run(core.now_ns)

    def _on_frame(self, source: Address, frame: bytes, limit_bytes: int, *, is_stream: bool) -> None:
        core = self._core
        if core.own.left:
            return
        try:
            if len(frame) > limit_bytes:
                raise WireError(f"frame of {len(frame)} bytes; at most {limit_bytes} are taken on this path")
            kind = frame_kind(frame)
            if is_stream == (kind in _DATAGRAMS_ONLY) and kind != GROUP:
                raise WireError(f"frame sealed for path {kind} came on another")
            if kind == CAST:
                body, nonce = self._wire.channel.open_cast(frame), frame[5:29]
                self.on_cast_opened(source, nonce)
                self._on_cast(decode_messages(body, limit_bytes), source, nonce)
                return
            if kind >= GROUP:
                self._on_contact(source, kind, frame, limit_bytes)
                return
            opened = self._wire.open(frame)
            if opened is None:
                core.counters["unopened"] += 1
                if not is_stream and not (WAYS in core.own.address and self._wire.is_repeat(frame)):
                    self._wire.first.unopened(source, frame)
                return
            member, body = opened
            self._reader.take(member, source, body, is_stream=is_stream)
        except WireError as error:
            self._reader.refused(source, error)

    def _on_contact(self, source: Address, kind: int, frame: bytes, limit_bytes: int) -> None:
        """A first contact, or what is said about one; raises `WireError`."""
        if kind == NOTICE:
            member = self._wire.first.on_notice(source, frame)
            if member is not None:
                self._swim.on_notice(member)
        elif kind == COOKIE:
            self._wire.first.on_cookie(source, frame)
        else:
            opened = self._wire.first.on_first_contact(source, kind, frame)
            if opened is not None:
                self._swim.on_hello(decode_messages(opened.body, limit_bytes), source, opened.group)

    def _on_cast(self, messages: Sequence[Message], source: Address, nonce: bytes) -> None:
        """What some member cast to all: for sub-protocols that ask for it; of membership's, that somebody is here."""
        for message in messages:
            if type(message) is Beacon:
                self._core.view.on_beacon(message, source)
            elif type(message) is Near:
                self._core.view.on_near(message, None, nonce)
            elif type(message) is Sub and message.name in self._hearers:
                effects = self._hearers[message.name].on_cast(message.payload, self._core.now_ns)
                self._perform(self._subs[message.name], effects)

    def _on_send_failed(self, event: SendFailed) -> None:
        if event.reason == REFUSED:
            self._swim.on_refused(event.destination)
        elif event.reason in _OWN_NETWORK:
            self._swim.on_send_failed(event.destination, event.reason)
        else:
            self._core.counters["send_failures_elsewhere"] += 1

    def _on_command(self, event: Command) -> None:
        if event.subprotocol == "node" and isinstance(event.request, AddStatement):
            try:
                self._swim.take_statement(event.request.kind, event.request.statement)
            except IdentityError as error:
                raise StateError(f"the statement is not taken: {error}") from error
            return
        sub = self._subs.get(event.subprotocol)
        if sub is None:
            raise StateError(f"no sub-protocol {event.subprotocol!r} here; there are {sorted(self._subs)}")
        self._perform(sub, sub.on_command(event.request, self._core.now_ns))

    # --- sub-protocols -----------------------------------------------------------------------------------------------

    def _perform(self, sub: SubProtocol, effects: Sequence[SubEffect]) -> None:
        wire = self._wire
        payload, message = b"", b""
        for effect in effects:
            if isinstance(effect, Send):
                if effect.payload is not payload:  # What goes to several at once is encoded once.
                    payload, message = effect.payload, encode(Sub(sub.name, effect.payload))
                self._sends.send(effect, message, sub.name)
            elif isinstance(effect, Cast):
                if not self._core.own.left:
                    self._wire.cast(encode(Sub(sub.name, effect.payload)))
            else:
                wire.effects.append(effect)

    def _say_directly(self, member: Member, word: bytes) -> None:
        """A word of a stream, in a datagram to a far member's own address."""
        self._wire.datagram_or_stream(member, [encode(Sub(FAR, word))])

    def _on_given_up(self, part: bytes, via: NodeId) -> None:
        self._perform(self._far, self._far.on_given_up(part, via))

    def _on_unsent(self, name: str, to: NodeId) -> None:
        sub = self._subs.get(name)
        if isinstance(sub, HearsUnsent):
            self._perform(sub, sub.on_unsent(to, self._core.now_ns))

    def _on_trust(self) -> None:
        """What counts may have changed: shut out who is, tell the sub-protocols, and only then spread what is new."""
        trust = self._core.trust
        news = trust.news.take()
        if trust.revision != self._trust_revision:
            self._trust_revision = trust.revision
            self._swim.on_trust([encode(Statement(*one)) for one in news if one[0] in ("root", "revoke", "node")])
            self._tell_trust()
        was_forked, self._is_forked = self._is_forked, trust.chain.is_forked
        if self._is_forked and not was_forked:
            text = "the root role signed two different roots; this node stays with the one before them"
            self._wire.emit(Alarm("root-equivocation", text))
        if trust.fallen:
            names = ", ".join(sorted(node.hex()[:8] for node in trust.fallen))
            text = f"root {trust.root.version} does not name the revocation of {names}: sign it with the new keys"
            text += "; group keys that name it hold again after that"
            self._wire.emit(Alarm("revocation-fell", text))
            trust.fallen = frozenset()
        for kind, statement in news:
            self._wire.trust_changed(kind, statement)
        for one in trust.news.take_gone():
            self._wire.emit(Persist(trust_key(*one), None))

    def _tell_trust(self) -> None:
        for sub in self._subs.values():
            if isinstance(sub, HearsTrust):
                self._perform(sub, sub.on_trust(self._core.now_ns))

    def _tell_peers(self) -> None:
        if not self._subs:
            return
        peers = peers_of(self._core)
        for sub in self._subs.values():
            self._perform(sub, sub.on_peers(peers, self._core.now_ns))

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def node(self) -> NodeId:
        """This node's id."""
        return self._core.own.node

    def group_keys(self) -> list[bytes]:
        """The raw group keys this node holds, newest first, those learned after enrolment included."""
        groups = self._core.trust.group_keys
        return [groups[counter].key for counter in sorted(groups, reverse=True)]

    def trust(self) -> TrustSummary:
        """What this node holds of the fleet's trust."""
        return trust_summary(self._core, self._swim.why_out)

    def view_digest(self) -> bytes:
        """8 bytes over the membership view (members, events, metadata, trust, links); equal where known alike.

        In a partial view over what is the same everywhere: recent events and trust.
        """
        total = 0
        table = self._core.table
        for section in self._core.view.digest_sections:
            total ^= (table.sections[section] * (2 * section + 3)) & 0xFFFFFFFFFFFFFFFF
        return total.to_bytes(8, "big")

    def members(self) -> list[MemberView]:
        """All known members, this node included, sorted by name; built on demand."""
        return list(chain.from_iterable(self.member_parts()))

    def member_parts(self, state: MemberState | None = None) -> Iterator[list[MemberView]]:
        """The same, or those in one state, a few at a time, for who must not hold the event loop up for all of them."""
        meta = {key: value for key, (_, value, _) in self._swim.metadata.own_meta.items() if value}
        return member_rows(self._core, self._swim.membership.links.own, meta, state)

    def subprotocol(self, name: str) -> SubProtocol | None:
        """One of those that it was made with; None where there is none of that name."""
        return self._subs.get(name)

    def names(self) -> dict[NodeId, str]:
        """Node to name of all known members."""
        return names(self._core)

    def budget_used(self) -> float:
        """What probing and its answers cost lately, as a share of the byte budget."""
        return self._core.port.pressure()

    def summary(self) -> NodeSummary:
        """The node at a glance; cheap enough for once a second."""
        core = self._core
        states: dict[str, MemberState] = {core.own.name: own_state(self._core)}
        for member in core.table.by_node.values():
            if member.overlay.active and not member.unheard:
                name = member.name if member.name not in states else f"{member.name}~{member.node.hex()[:8]}"
                states[name] = member.state
        return NodeSummary(
            core.own.node,
            core.own.name,
            self._swarm,
            self.view_digest(),
            dict(sorted(states.items())),
            core.health,
            dict(core.counters),
            core.view.partial,
            core.view.size(),
            core.view.weighs_links,
        )
