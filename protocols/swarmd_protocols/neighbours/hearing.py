"""What one node holds of one neighbouring swarm, and what of it counts.

Rules this file keeps:

- Nothing counts that the neighbour's pinned root does not stand behind: roots follow one from the other from the pinned
  one on, a certificate names the role gateway, a word bears the signature of such a gateway's key, and says that it is
  for this swarm.
- The neighbour's yes is an agreement about this swarm that an operator of its newest root has signed, of the highest
  revision heard; one that has ended is a no.
- Of words the later counts, of each gateway at most one each `GAP_MS` and as many as its part of `WORD_BYTES_S` pays
  for; what is dated to come counts as of now, so that no gateway keeps another's words away. One that is older than
  `PAST_MS` when it comes, or of more than `AHEAD_MS` to come, is refused. Whatever was said ends: a claim within
  `LEFT_MAX_MS`, a place within `PLACE_MAX_MS`.
- Of its claims as many count as the own operators have agreed to, and as much space; the rest is counted and passed
  over.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.neighbours.words import (
    AGREEMENT,
    INTRODUCTION,
    WORD,
    Agreement,
    ClaimRow,
    Introduction,
    PlaceRow,
    Signed,
    Word,
    agreement_order,
    read_agreement,
    read_introduction,
    read_word,
)
from swarmd_protocols.state.reviews import operators_of
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.payloads import Revocation, read_payload
from swarmd_protocols.trust.trust import Trust

AHEAD_MS = 10_000
"""A word may be of so many milliseconds to come: two swarms' clocks differ by what no receiver has corrected."""
PAST_MS = 60_000
"""A word that is older when it comes says nothing of now: somebody kept it."""
GAP_MS = 500
"""Between two words of one gateway that are taken: a flood of its costs two signature checks a second."""
WORD_BYTES_S = 2_048
"""What a neighbour's words may come to, for each member hears them all: each of its gateways has an equal part, and
what one says counts once the last that it said is paid for. The largest, 3.5 kB, takes 1.7 s of one gateway."""
PLACES_KEPT = 256
"""Places of one neighbour that are shown at once: four words of the most that one holds; the oldest go."""
PLACE_MAX_MS = 60_000
"""A place that is older is not shown: a drone has flown half a kilometre since."""
CONSENT_MS = 60_000
"""A neighbour that has said nothing for so long is told nothing: its yes is as old as its last word."""
GATEWAYS_MAX = 4
"""Gateways of one neighbour that are known at once: those whose introductions were made last. Every member comes to
hold the same ones in whichever order it hears of them."""
FOREIGN_MAX = 64
"""Introductions after which what is known of a neighbour's trust is built anew, with the certificates of the gateways
in use: a neighbour that enrols without end fills nothing here."""
REVOKED_MAX_BYTES = 131_072
"""Of a neighbour's revocations the newest are kept, by their numbers: seven of the largest, hundreds of the usual."""


@dataclass(slots=True)
class Gateway:
    """One of the neighbour's."""

    public: bytes
    introduction: bytes
    """As it came last with something new in it, or was given later by another member."""
    said_ms: int
    """When it was made."""
    mark: bytes
    """Hash of what is in it, its time apart."""
    heard_ms: int
    word_ms: int = 0
    """Of its last word that was taken, as it was dated."""
    next_ms: int = 0
    """Before this no other of its words is."""


@dataclass(slots=True)
class Hearing:
    """One neighbour, at one node.

    Attributes:
        own: This swarm's key.
        agreement: The own side's, which names the bounds.
        crypto: Checks who signed.
        own_root: Digest of the own fleet's first root, which the neighbour has to have pinned.
        own_name: The own swarm's name.
    """

    own: bytes
    own_root: bytes
    own_name: str
    agreement: Agreement
    crypto: Crypto
    trust: Trust | None = None
    gateways: dict[NodeId, Gateway] = field(default_factory=dict)
    consent: Agreement | None = None
    """The neighbour's word about this swarm, of the highest revision: whether it is a yes is `agrees`'s to say."""
    word: Word | None = None
    statement: bytes = b""
    """`word`, as it is passed on."""
    stamp_ms: int = 0
    """When `word` was said, and not after it was heard: a date to come keeps nobody else's words away."""
    counts: dict[str, int] = field(default_factory=lambda: {"words": 0, "refused": 0, "over_agreed": 0})
    _consent_order: tuple[int, bytes] = (0, b"")
    _consent_by: bytes = b""
    """The operator's key."""
    _places: dict[bytes, tuple[PlaceRow, int]] = field(default_factory=dict)
    """Alias to its last place and the stamp of the word that had it: a word holds as many as fit, in turn."""
    _taken: int = 0
    """Introductions since what is known of its trust was built."""

    @property
    def key(self) -> bytes:
        """The neighbour's."""
        return self.agreement.key

    # --- what counts --------------------------------------------------------------------------------------------------

    def agrees(self, now_ms: int) -> bool:
        """Whether both sides have said yes, and neither has ended it."""
        return self.agreement.is_in_force(now_ms) and self.consent is not None and self.consent.is_in_force(now_ms)

    def may_be_told(self, now_ms: int) -> bool:
        """Whether the neighbour is told anything: both agree, and it is there to be heard."""
        return self.agrees(now_ms) and now_ms - self.heard_ms <= CONSENT_MS

    @property
    def heard_ms(self) -> int:
        """When the neighbour last said anything, by its own clock; 0 for never."""
        heard = [one.heard_ms for one in self.gateways.values()]
        return max([0 if self.word is None else self.word.at_ms, *heard])

    def keys(self, now_ms: int) -> list[bytes]:
        """Public keys of its gateways that are heard, and still certified."""
        return [
            one.public
            for node, one in self.gateways.items()
            if now_ms - one.heard_ms <= CONSENT_MS and self._is_gateway(one.public, node)
        ]

    def places(self, now_ms: int) -> Iterator[tuple[PlaceRow, int]]:
        """Where its members are, and how old that is, milliseconds."""
        if not self.agrees(now_ms):
            return
        for row, said_ms in self._places.values():
            age_ms = row.age_ms + max(0, now_ms - said_ms)
            if age_ms <= PLACE_MAX_MS:
                yield row, age_ms

    def claims(self, now_ms: int) -> Iterator[tuple[ClaimRow, int]]:
        """Its claims of space that count, and how long each stands yet, milliseconds."""
        word = self.word
        if word is None or not self.agrees(now_ms):
            return
        for row in self._agreed(word):
            left_ms = row.left_ms - (now_ms - word.at_ms)
            if left_ms > 0:
                yield row, left_ms

    def _agreed(self, word: Word) -> Iterator[ClaimRow]:
        left_m2 = self.agreement.area_m2
        for row in word.claims[: self.agreement.claims]:
            if row.area_m2 > left_m2:
                return
            left_m2 -= row.area_m2
            yield row

    # --- what is said -------------------------------------------------------------------------------------------------

    def introduce(self, statement: bytes, now_ms: int, *, given: bool = False) -> bool:
        """A gateway shows its roots, its certificate and its operators' yes; whether that is news beyond its time.

        Args:
            statement: As the gateway signed it.
            now_ms: Swarm time.
            given: A member passed it on: then all are to hold the same one, the latest that was passed on.

        Raises:
            WireError: It is none.
            IdentityError: The pinned root does not stand behind it, or it is for another swarm.
        """
        signed, said = read_introduction(statement)
        if said.sender != self.key or said.to != self.own:
            raise IdentityError("it is of another swarm, or for another")
        if said.at_ms > now_ms + AHEAD_MS:
            raise IdentityError(f"it is of {(said.at_ms - now_ms) / 1000:.0f} s to come: the two swarms' clocks differ")
        node = node_id_of(signed.public)
        known = self.gateways.get(node)
        if known is not None and said.at_ms <= known.said_ms:
            return False
        if known is None and not self._has_room(said.at_ms, node):
            return False
        if not signed.holds(INTRODUCTION, signed.public, self.crypto.verify):
            raise IdentityError("it is not signed by the key that it bears")
        mark = _mark_of(said)
        if known is not None and known.mark == mark:
            known.heard_ms = max(known.heard_ms, said.at_ms)
            if given:
                known.introduction, known.said_ms = statement, said.at_ms
            return False
        self._take_trust(said)
        if not self._is_gateway(signed.public, node):
            raise IdentityError("its certificate does not name the role gateway, or does not hold")
        self._take_consent(said.consent)
        before = self.gateways.pop(node, None)
        self.gateways[node] = Gateway(signed.public, statement, said.at_ms, mark, said.at_ms)
        if before is not None:
            self.gateways[node].word_ms, self.gateways[node].next_ms = before.word_ms, before.next_ms
        while len(self.gateways) > GATEWAYS_MAX:
            del self.gateways[min(self.gateways, key=lambda one: (self.gateways[one].said_ms, one))]
        return True

    def _has_room(self, said_ms: int, node: NodeId) -> bool:
        """Whether an introduction of this moment would stay: one that goes at once is no news to pass on."""
        if len(self.gateways) < GATEWAYS_MAX:
            return True
        return (said_ms, node) > min((one.said_ms, held) for held, one in self.gateways.items())

    def tell(self, statement: bytes, now_ms: int) -> bool:
        """A word; whether it is newer than what is held.

        Raises:
            WireError: It is none.
            IdentityError: No gateway of the neighbour has signed it, it is for another swarm, or of another time.
        """
        signed, word = read_word(statement)
        if word.sender != self.key or word.to != self.own:
            raise IdentityError("it is of another swarm, or for another")
        node, stamp_ms = node_id_of(signed.public), stamp_of(word.at_ms, now_ms)
        gateway = self.gateways.get(node)
        if stamp_ms <= self.stamp_ms or (
            gateway is not None and (word.at_ms <= gateway.word_ms or stamp_ms < gateway.next_ms)
        ):
            return False
        if not -AHEAD_MS <= now_ms - word.at_ms <= PAST_MS:
            raise IdentityError(f"it is {(now_ms - word.at_ms) / 1000:.0f} s old: kept back, or the clocks differ")
        if gateway is None or not self._is_gateway(signed.public, node):
            raise IdentityError("no gateway that was introduced has signed it")
        if not signed.holds(WORD, signed.public, self.crypto.verify):
            raise IdentityError("it is not signed by the key that it bears")
        self.word, self.statement, self.stamp_ms = word, statement, stamp_ms
        gateway.heard_ms, gateway.word_ms = max(gateway.heard_ms, word.at_ms), word.at_ms
        gateway.next_ms = stamp_ms + max(GAP_MS, len(statement) * 1_000 * len(self.gateways) // WORD_BYTES_S)
        for row in word.places:
            self._places.pop(row.alias, None)
            self._places[row.alias] = (row, stamp_ms)
        while len(self._places) > PLACES_KEPT:
            del self._places[next(iter(self._places))]
        self.counts["words"] += 1
        over = len(word.claims) - sum(1 for _ in self._agreed(word))
        self.counts["over_agreed"] += over
        return True

    def _take_trust(self, said: Introduction) -> None:
        """What it shows of its trust, held against the pinned root."""
        if decode_envelope(said.roots[0]).digest != self.agreement.root:
            raise IdentityError("its first root is not the one that is pinned")
        if self.trust is None or self._taken >= FOREIGN_MAX or self._revoked_bytes > REVOKED_MAX_BYTES:
            self.trust, self._taken = self._built_anew(said.roots[0]), 0
        self._taken += 1
        trust = self.trust
        for root in said.roots[1:]:
            trust.add("root", root)
        for revocation in said.revocations:
            trust.add("revoke", revocation)
        if self.consent is not None and self._consent_by not in operators_of(trust.chain):
            # Its newest root names that operator no more: what another says counts, whatever its number.
            self.consent, self._consent_order = None, (0, b"")
        trust.admit_certificate(said.certificate)

    @property
    def _revoked_bytes(self) -> int:
        assert self.trust is not None, "it is asked where there is one"
        return sum(len(statement) for kind, statement in self.trust.statements() if kind == "revoke")

    def _built_anew(self, root: bytes) -> Trust:
        """What counts of a neighbour's trust: its roots, its newest revocations, the gateways in use."""
        trust = Trust(self.agreement.other, [root], self.crypto)
        if self.trust is None:
            return trust
        revoked: list[tuple[int, bytes]] = []
        for kind, statement in self.trust.statements():
            if kind == "root":
                trust.add(kind, statement)
            elif kind == "revoke":
                revoked.append((number_of(statement), statement))
        left = REVOKED_MAX_BYTES
        for _, statement in sorted(revoked, reverse=True):
            left -= len(statement)
            if left < 0:
                break
            trust.add("revoke", statement)
        for gateway in self.gateways.values():
            with suppress(IdentityError):  # It was shut out meanwhile.
                trust.admit_certificate(read_introduction(gateway.introduction)[1].certificate)
        return trust

    def _take_consent(self, statement: bytes) -> None:
        if not statement:
            return
        signed, said = read_agreement(statement)
        order = agreement_order(signed, said)
        if order <= self._consent_order:
            return
        trust = self.trust
        is_ours = said.swarm == self.agreement.other and said.root == self.own_root and said.other == self.own_name
        if trust is None or not is_ours or signed.public not in operators_of(trust.chain):
            raise IdentityError("the consent that it shows is not about this swarm, or is of no operator")
        if not signed.holds(AGREEMENT, signed.public, self.crypto.verify):
            raise IdentityError("the consent that it shows does not hold")
        self.consent, self._consent_order, self._consent_by = said, order, signed.public

    def _is_gateway(self, public: bytes, node: NodeId) -> bool:
        held = None if self.trust is None else self.trust.certified(node)
        return held is not None and held.public_key == public and ROLE in held.roles


def judged(
    statements: Mapping[str, bytes],
    swarm: str,
    operators: frozenset[bytes],
    verify: Callable[[bytes, bytes, bytes], bool],
) -> dict[bytes, tuple[Signed, Agreement]]:
    """Of agreements of the own side those that an operator has signed, by the neighbour's key; of two the greater.

    Args:
        statements: By any name.
        swarm: The own swarm.
        operators: Keys that speak for one.
        verify: Checks a signature.
    """
    found: dict[bytes, tuple[Signed, Agreement]] = {}
    for statement in statements.values():
        try:
            signed, said = read_agreement(statement)
        except WireError:
            continue
        if said.swarm != swarm or signed.public not in operators:
            continue
        held = found.get(said.key)
        if held is not None and agreement_order(*held) >= agreement_order(signed, said):
            continue
        if signed.holds(AGREEMENT, signed.public, verify):
            found[said.key] = (signed, said)
    return found


def stamp_of(at_ms: int, now_ms: int) -> int:
    """By what words are ordered: when one was said, and not after it was heard."""
    return min(at_ms, now_ms)


def number_of(statement: bytes) -> int:
    """The counter of a revocation that holds: the greater, the newer."""
    said = read_payload("revoke", decode_envelope(statement).payload)
    assert isinstance(said, Revocation), "it was taken as one"
    return said.counter


def _mark_of(said: Introduction) -> bytes:
    mark = blake2b(digest_size=16, person=b"swarmd-intro")
    for part in (*said.roots, said.certificate, *said.revocations, said.consent):
        mark.update(len(part).to_bytes(4, "little"))
        mark.update(part)
    return mark.digest()
