"""A gateway's talk with the gateways of neighbouring swarms: what is said to whom, what is taken, and what it costs.

Rules this file keeps:

- Nothing but introductions is said to a swarm that has not said yes, or has not been heard for a minute. An
  introduction is sealed with a key that both sides come to from the two roots that they have pinned of each other; a
  word is sealed for one gateway's key.
- A word holds where members are and which space is claimed, under names that stand for nothing else, and no more.
- A frame is looked at in the order of what it costs: its place, its number (a copy is dropped), the quota, the seal.
  A word counts against the swarm whose gateway's key it opens under. An introduction proves nothing by opening: whoever
  knows both roots can make one, under any key. So it counts against a bucket of its own for each neighbour, and uses up
  a gateway's number only where that gateway has signed what is inside. What opens under nothing counts against one
  bucket of all.
- A word is said each `SAY_NS`, with as many places as it holds, all members' in turn; and within `CHANGED_NS` of a
  change of what is claimed, without places.

It holds no sockets: the daemon and the simulator carry its frames.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

import msgspec

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.federation.allowance import Allowance, Numbers
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import SALT_BYTES, Head, Lock, Pair, Way, read_head
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.hearing import Hearing
from swarmd_protocols.neighbours.neighbours import Neighbours
from swarmd_protocols.neighbours.requests import Bring
from swarmd_protocols.neighbours.words import (
    CLAIMS_MAX,
    INTRODUCTION,
    INTRODUCTION_MAX_BYTES,
    PLACES_MAX,
    REVOCATIONS_MAX,
    WORD,
    ClaimRow,
    Introduction,
    PlaceRow,
    Word,
    alias_of,
    read_introduction,
    sign,
)
from swarmd_protocols.state.positions import Located
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.identity import read_certificate
from swarmd_protocols.trust.payloads import Revocation, read_payload

INTRODUCE_NS = 10_000_000_000
"""Between two introductions: a sixth of the time after which a silent neighbour is told nothing
(`hearing.CONSENT_MS`)."""
SAY_NS = 5_000_000_000
"""Between two words where nothing changed: members fly 50 m in it."""
CHANGED_NS = 1_000_000_000
"""Between two words where claims changed."""
FAREWELL_NS = 60_000_000_000
"""After an agreement has ended the neighbour is told so for as long."""
LEFT_MS = 30_000
"""How long a claim stands that is not said again: six words, and a lease (`ClaimConfig.lease_ns`)."""
CEILING_CM = 12_000
"""Top of a claimed cell above ground, centimetres: 120 m, the open category's (EU 2019/947, UAS.OPEN.010)."""
PLACE_AGE_MS = 60_000
"""An own member's place that is older is not told."""
QUOTA_BYTES_S, QUOTA_BURST_BYTES = 16_384, 262_144
"""What one neighbour's gateways may say: four gateways with the largest word each second."""
INTRODUCED_BYTES_S, INTRODUCED_BURST_BYTES = 8_192, 131_072
"""What introductions of one neighbour's gateways may cost, whoever made them: four of the usual size a second."""
STRANGERS_BYTES_S, STRANGERS_BURST_BYTES = 262_144, 1 << 20
"""What frames that open under nothing may cost: a millisecond of trials each second. Beyond it no introduction is read,
so that a bucket as small as the one above would let a trickle keep neighbours from meeting."""


_REST_BYTES, _STATEMENT_HEAD_BYTES = 512, 5
"""Of an introduction beside its statements, and what msgpack adds to each of them, at most."""


class Scene(Protocol):
    """What a gateway tells of its swarm."""

    def located(self) -> Mapping[NodeId, Located]:
        """The last place of each member."""
        ...


@dataclass(slots=True)
class _Talk:
    """With one neighbour."""

    lock: Lock
    introduced_ns: int = -(1 << 62)
    said_ns: int = -(1 << 62)
    placed_ns: int = -(1 << 62)
    """When a word with places was said."""
    placed: NodeId | None = None
    """The last member whose place was told."""
    said_claims: tuple[bytes, ...] = ()
    ended_ns: int | None = None
    allowance: Allowance = field(default_factory=lambda: Allowance(QUOTA_BYTES_S, QUOTA_BURST_BYTES))
    introduced: Allowance = field(default_factory=lambda: Allowance(INTRODUCED_BYTES_S, INTRODUCED_BURST_BYTES))
    numbers: dict[bytes, Numbers] = field(default_factory=dict)
    """Public key to the frames that came of it."""
    pairs: dict[bytes, Pair] = field(default_factory=dict)


class Border:
    """One gateway's.

    Args:
        neighbours: The own node's sub-protocol: judges, and knows who may be told.
        node: This gateway.
        seed: Its Ed25519 seed.
        crypto: The library.
        scene: Where members are.
        life: Number of this start, higher than of those before.
        salt: So many fresh random bytes.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        node: NodeId,
        seed: bytes,
        crypto: Crypto,
        scene: Scene,
        life: int,
        salt: Callable[[int], bytes],
    ) -> None:
        self._neighbours = neighbours
        self._trust = neighbours.trust
        self._node = node
        self._seed, self._crypto = seed, crypto
        self._public = crypto.public_key(seed)
        self._scene = scene
        self._life, self._number = life, 0
        self._salt = salt
        self._talks: dict[bytes, _Talk] = {}
        self._strangers = Allowance(STRANGERS_BYTES_S, STRANGERS_BURST_BYTES)
        self.counts = {
            "introductions": 0, "words": 0, "taken": 0, "malformed": 0, "copies": 0, "over_quota": 0, "strangers": 0,
            "unopened": 0,
        }  # fmt: skip

    # --- what is said -------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> list[tuple[bytes, bytes]]:
        """What leaves now; called a few times a second.

        Returns:
            (key of the swarm, frame) of each.
        """
        now_ms = self._neighbours.now_ms(now_ns)
        hearings = self._neighbours.hearings()
        self._talks = {key: talk for key, talk in self._talks.items() if key in hearings}
        frames: list[tuple[bytes, bytes]] = []
        for key, (hearing, agreement) in hearings.items():
            talk = self._talk(key, hearing)
            if hearing.agreement.is_in_force(now_ms):
                talk.ended_ns = None
            elif talk.ended_ns is None:
                talk.ended_ns = now_ns
            is_over = talk.ended_ns is not None and now_ns - talk.ended_ns > FAREWELL_NS
            if not is_over and now_ns - talk.introduced_ns >= INTRODUCE_NS:
                talk.introduced_ns = now_ns
                frames.append((key, self._introduce(key, talk, agreement, now_ms)))
            if hearing.may_be_told(now_ms):
                frames += self._say(key, talk, hearing, now_ns)
        return frames

    def _introduce(self, key: bytes, talk: _Talk, agreement: bytes, now_ms: int) -> bytes:
        own = self._trust.certificate_statement(self._node) or b""
        roots = tuple(self._trust.roots)
        left, gone = INTRODUCTION_MAX_BYTES - _REST_BYTES - sum(map(len, (own, agreement, *roots))), list[bytes]()
        for one in self._revoked_gateways()[:REVOCATIONS_MAX]:
            left -= len(one) + _STATEMENT_HEAD_BYTES
            if left < 0:
                break
            gone.append(one)
        said = Introduction(self._neighbours.key, key, now_ms, roots, own, tuple(gone), agreement)
        statement = sign(INTRODUCTION, said, self._public, lambda message: self._crypto.sign(self._seed, message))
        self.counts["introductions"] += 1
        return talk.lock.seal(self._public, key, self._life, self._next(), self._salt(SALT_BYTES), statement)

    def _revoked_gateways(self) -> list[bytes]:
        """Revocations that may name a gateway, the newest first: of members that are known to be none a neighbour hears
        nothing. Who was enrolled in the place of a stolen gateway may never have seen that one's certificate."""
        statements = [statement for kind, statement in self._trust.statements() if kind == "revoke"]
        if not statements:
            return []
        held = [read_certificate(one) for kind, one in self._trust.journalled() if kind in ("node", "seen")]
        plain = {certificate.node for certificate in held if ROLE not in certificate.roles}
        found = [(said.counter, one) for one in statements if not plain.issuperset((said := _revocation(one)).nodes)]
        return [one for _, one in sorted(found, reverse=True)]

    def _say(self, key: bytes, talk: _Talk, hearing: Hearing, now_ns: int) -> list[tuple[bytes, bytes]]:
        claims = self._claims(key, now_ns)
        shown = tuple(row.alias + bytes([row.is_working]) for row in claims)
        is_placed = now_ns - talk.placed_ns >= SAY_NS
        if not is_placed and (shown == talk.said_claims or now_ns - talk.said_ns < CHANGED_NS):
            return []
        talk.said_ns, talk.said_claims = now_ns, shown
        places = self._places(key, talk, now_ns) if is_placed else ()
        now_ms = self._neighbours.now_ms(now_ns)
        word = Word(self._neighbours.key, key, now_ms, places, claims)
        statement = sign(WORD, word, self._public, lambda message: self._crypto.sign(self._seed, message))
        frames = []
        for public in hearing.keys(now_ms):
            pair = talk.pairs.get(public)
            if pair is None:
                pair = talk.pairs[public] = Pair(self._crypto, self._seed, public)
            salt = self._salt(SALT_BYTES)
            frames.append((key, pair.seal(Way.BESIDE, key, self._life, self._next(), salt, statement)))
            self.counts["words"] += 1
        return frames

    def _places(self, key: bytes, talk: _Talk, now_ns: int) -> tuple[PlaceRow, ...]:
        """The next that a word holds, after those of the last."""
        found: list[PlaceRow] = []
        secret, last = self._secret(), talk.placed
        held = sorted(self._scene.located().items())
        talk.placed_ns = now_ns
        for node, one in sorted(held, key=lambda item: last is not None and item[0] <= last):
            age_ms = max(0, now_ns - one.captured_ns) // 1_000_000
            if age_ms > PLACE_AGE_MS:
                continue
            if len(found) == PLACES_MAX:
                break
            talk.placed, place = node, one.place
            found.append(
                PlaceRow(
                    alias_of(secret, key, node), place.latitude_e7, place.longitude_e7,
                    place.height_agl_cm, place.sigma_cm, age_ms,
                )
            )  # fmt: skip
        return tuple(found)

    def _claims(self, key: bytes, now_ns: int) -> tuple[ClaimRow, ...]:
        plane, survey = self._neighbours.plane, self._neighbours.survey
        if plane is None:
            return ()
        radius_cm, secret = max(1, survey.claims.pitch_cm // 2), self._secret()
        found = []
        for claim in survey.live(now_ns):
            latitude, longitude = plane.to_wgs84(claim.east_cm / 100, claim.north_cm / 100)
            where = (round(latitude * 1e7), round(longitude * 1e7))
            alias = alias_of(secret, key, repr(where).encode())
            found.append(ClaimRow(alias, *where, radius_cm, 0, CEILING_CM, claim.is_working, LEFT_MS))
            if len(found) == CLAIMS_MAX:
                break
        return tuple(found)

    # --- what is heard ------------------------------------------------------------------------------------------------

    def hear(self, frame: bytes, now_ns: int) -> Bring | None:
        """A frame came to a place of this swarm.

        Args:
            frame: Bytes from anybody.
            now_ns: Monotonic clock.

        Returns:
            What the own node is to judge; None where it is nothing.
        """
        try:
            head = read_head(frame)
        except WireError:
            return self._drop("malformed")
        if head.swarm != self._neighbours.key or head.way not in (Way.BESIDE, Way.INTRODUCE):
            return self._drop("malformed")
        now_ms = self._neighbours.now_ms(now_ns)
        hearings = {key: hearing for key, (hearing, _) in self._neighbours.hearings().items()}
        key = next((key for key, one in hearings.items() if head.public_key in one.keys(now_ms)), None)
        if head.way is Way.INTRODUCE:
            return self._meet(frame, head, key, hearings, now_ns)
        if key is None:
            return self._drop("strangers")
        talk = self._talk(key, hearings[key])
        numbers = talk.numbers.setdefault(head.public_key, Numbers())
        if numbers.is_copy(head.life, head.number):
            return self._drop("copies")
        if talk.allowance.pause_ms(now_ns):
            return self._drop("over_quota")
        statement = self._open(frame, head.public_key, talk)
        if statement is None:
            return self._drop("unopened")
        talk.allowance.spend(len(frame))
        numbers.add(head.life, head.number)
        self.counts["taken"] += 1
        return Bring(key, WORD, statement)

    def _meet(
        self, frame: bytes, head: Head, known: bytes | None, hearings: Mapping[bytes, Hearing], now_ns: int
    ) -> Bring | None:
        """An introduction, of a gateway of the neighbour `known` by its head, or of a key that nobody vouches for."""
        numbers = Numbers()
        if known is not None:
            numbers = self._talk(known, hearings[known]).numbers.setdefault(head.public_key, numbers)
        if numbers.is_copy(head.life, head.number):
            return self._drop("copies")
        if self._strangers.pause_ms(now_ns):
            return self._drop("strangers")
        for key, hearing in hearings.items():
            talk = self._talk(key, hearing)
            statement = talk.lock.open(frame)
            if statement is None:
                continue
            if talk.introduced.pause_ms(now_ns):
                return self._drop("over_quota")
            talk.introduced.spend(len(frame))
            if key == known and self._has_signed(head.public_key, statement):
                numbers.add(head.life, head.number)
            self.counts["taken"] += 1
            return Bring(key, INTRODUCTION, statement)
        self._strangers.spend(len(frame))
        return self._drop("unopened")

    def _has_signed(self, public: bytes, statement: bytes) -> bool:
        try:
            return read_introduction(statement)[0].holds(INTRODUCTION, public, self._crypto.verify)
        except WireError:
            return False

    def _secret(self) -> bytes:
        """What aliases are made with: all gateways of the swarm have the newest group key, and no neighbour has it."""
        keys = self._trust.group_keys
        held = keys[max(keys)].key if keys else self._seed
        return blake2b(held, digest_size=32, person=b"swarmd-aliases").digest()

    def _open(self, frame: bytes, public: bytes, talk: _Talk) -> bytes | None:
        try:
            pair = talk.pairs.get(public)
            if pair is None:
                pair = talk.pairs[public] = Pair(self._crypto, self._seed, public)
            return msgspec.msgpack.decode(pair.open(frame), type=bytes)
        except (IdentityError, msgspec.MsgspecError):
            return None

    def _talk(self, key: bytes, hearing: Hearing) -> _Talk:
        talk = self._talks.get(key)
        if talk is None:
            # Both come to it from the same four words, whoever speaks first.
            own, other = hearing.own_root + hearing.own, hearing.agreement.root + key
            secret = blake2b(min(own, other) + max(own, other), digest_size=32, person=b"swarmd-beside").digest()
            talk = self._talks[key] = _Talk(Lock(self._crypto, secret))
        keys = {one.public for one in hearing.gateways.values()}
        for table in (talk.numbers, talk.pairs):
            for public in [public for public in table if public not in keys]:
                del table[public]
        return talk

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _drop(self, name: str) -> Bring | None:
        self.counts[name] += 1
        return None


def _revocation(statement: bytes) -> Revocation:
    said = read_payload("revoke", decode_envelope(statement).payload)
    assert isinstance(said, Revocation)
    return said
