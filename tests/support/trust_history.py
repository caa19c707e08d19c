"""One fleet's honest history through two replacements of keys, and what attackers without a role say beside it.

Root 1 begins. Root 2 replaces the enrol, release and heartbeat keys as planned. Root 3 replaces everything but the root
keys because it was stolen, starts epoch 2 and names what stays right. Root 4 replaces the revoke and floor keys as
planned, in the same epoch. The attackers hold a node's key, one key below
each threshold above one, every key that was replaced, and every statement that was ever signed.
"""

import random
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases import versions
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.releases import Releases, ReleasesConfig
from swarmd_protocols.releases.statements import Floor, Force, Halt, Heartbeat, Revoke
from swarmd_protocols.trust.envelopes import ROLE_OF, Envelope, KeyId, decode_envelope, sign_statement
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import make_root, mark, root_digest
from swarmd_protocols.trust.trust import Trust
from tests.support.release_world import MODEL, make_release

CRYPTO = ModelCrypto()
SWARM = "farm"
NEED = {"root": (2, 3), "enrol": (1, 1), "revoke": (1, 2), "release": (2, 3), "floor": (2, 3), "heartbeat": (1, 1)}
FAR = 1 << 40
_S = 1_000_000_000

Item = tuple[str, bytes]
"""A statement's kind and bytes, as it is handed to a node."""


def seeds(role: str, generation: int) -> list[bytes]:
    """All keys of a role, of the fleet's first, second or third set."""
    return [blake2b(f"{role}{generation}/{at}".encode(), digest_size=32).digest() for at in range(NEED[role][1])]


def node(name: str) -> bytes:
    """A node's seed."""
    return blake2b(name.encode(), digest_size=32).digest()


def certificate(name: str, seed: bytes, counter: int) -> Certificate:
    """What a node's certificate says."""
    public = CRYPTO.public_key(seed)
    return Certificate(node_id_of(public), public, name, (), SWARM, counter)


def say(kind: str, payload: msgspec.Struct | bytes, generation: int, count: int = 0) -> Item:
    """Signed by as many keys of the kind's role as it takes, or by `count`."""
    role = ROLE_OF[kind]
    return kind, sign_statement(kind, payload, seeds(role, generation)[: count or NEED[role][0]], CRYPTO)


def _root(version: int, epoch: int, previous: bytes, generations: dict[str, int], kept: Iterable[bytes] = ()) -> Item:
    roles = {
        role: (need, [CRYPTO.public_key(seed) for seed in seeds(role, generations.get(role, 0))])
        for role, (need, _) in NEED.items()
    }
    root = make_root("laws", roles, version=version, epoch=epoch, previous=previous, kept=kept)
    return say("root", root, 0)


def _marks(items: Iterable[Item]) -> list[bytes]:
    return [mark(decode_envelope(data)) for _, data in items]


FIRST = _root(1, 1, b"", {})
R = [make_release(bytes([number]) * 50, number) for number in (1, 2, 3)]
R1 = say("release", R[0].payload(), 0, 3)
D1 = decode_envelope(R1[1]).digest
R2 = say("release", make_release(b"\x02" * 50, 2, D1).payload(), 0)
D2 = decode_envelope(R2[1]).digest
NODES = [say("node", certificate(name, node(name), 10), 0) for name in ("a", "b", "c", "thief")]
AGAIN = say("node", certificate("c", node("c2"), 11), 0)
"""The node c, enrolled again: its old key counts no more."""
GROUPS = [say("group", GroupKey(SWARM, counter, bytes([counter]) * 32), 0) for counter in (5, 6)]
OUT = [
    say("revoke", Revocation(SWARM, 7, (node_id_of(CRYPTO.public_key(node("thief"))),), "stolen"), 0, 2),
    say("revoke", Revocation(SWARM, 7, (b"x" * 16,), "of another desk, with the same counter"), 0),
]
FLOOR = say("floor", Floor(MODEL, 1, 2).payload(), 0, 3)
REVOKED = say("model-revoke", Revoke(MODEL, 1, D1, "vulnerable", 5).payload(), 0, 2)
HALTED = say("halt", Halt(MODEL, 1, b"h" * 32, "hot").payload(), 0)
SECOND = _root(
    2,
    1,
    root_digest(FIRST[1]),
    {"enrol": 1, "release": 1, "heartbeat": 1},
    _marks([*NODES[:2], AGAIN, GROUPS[1], R1, R2]),
)
KEPT = [*NODES[:2], AGAIN, GROUPS[1], *OUT, FLOOR, REVOKED, HALTED]
THIRD = _root(
    3,
    2,
    root_digest(SECOND[1]),
    {"enrol": 2, "release": 2, "heartbeat": 2, "floor": 1, "revoke": 1},
    _marks(KEPT),
)
FOURTH = _root(
    4,
    2,
    root_digest(THIRD[1]),
    {"enrol": 2, "release": 2, "heartbeat": 2, "floor": 2, "revoke": 2},
    _marks(KEPT),
)
R3 = say("release", make_release(b"\x03" * 50, 3, D2, epoch=2).payload(), 2)
LATER = [
    (R2[0], sign_statement("release", decode_envelope(R2[1]).payload, seeds("release", 2)[:2], CRYPTO)),
    R3,
    say("group", GroupKey(SWARM, 9, b"9" * 32), 2),
    say("node", certificate("d", node("d"), 3), 2),
    say("heartbeat", Heartbeat(2, 4).payload(), 2),
    say("force", Force(MODEL, 2, decode_envelope(R3[1]).digest, 1).payload(), 2),
]
EARLY = [R1, R2, *NODES, AGAIN, *GROUPS, *OUT, FLOOR, REVOKED, HALTED, say("heartbeat", Heartbeat(1, 900).payload(), 0)]
HONEST: list[Item] = [*EARLY, SECOND, THIRD, FOURTH, *LATER]


def _broken(items: Sequence[Item]) -> list[Item]:
    """Each statement with each of its signatures zeroed, dropped, or under another key's name; and padded ones."""
    made: list[Item] = []
    for kind, data in items:
        envelope = decode_envelope(data)
        pairs = envelope.signatures
        for at in range(len(pairs)):
            for bad in (bytes(64), b"\xff" * 64):
                changed = tuple((key, bad if i == at else one) for i, (key, one) in enumerate(pairs))
                made.append((kind, Envelope(kind, envelope.payload, changed).encode()))
            made.append((kind, Envelope(kind, envelope.payload, pairs[:at] + pairs[at + 1 :]).encode()))
        padded = {KeyId(blake2b(bytes([number]), digest_size=16).digest()): bytes(64) for number in range(30)}
        padded.update(pairs)
        made.append((kind, Envelope(kind, envelope.payload, tuple(sorted(padded.items())[:32])).encode()))
        made.append((kind, msgspec.msgpack.encode([kind, envelope.payload, [list(one) for one in pairs]]) + b"\xc0"))
        made += [(other, Envelope(other, envelope.payload, pairs).encode()) for other in ("floor", "revoke", "node")]
    return made


def _by_replaced_keys() -> list[Item]:
    """What the holders of replaced keys say once they are replaced (`FOURTH` is out)."""
    made = [say("node", certificate("a", node("rogue"), FAR), generation) for generation in (0, 1)]
    made += [say("node", certificate("thief", node("thief2"), 11), generation) for generation in (0, 1)]
    made += [say("group", GroupKey(SWARM, counter, b"r" * 32), 1) for counter in (5, 6, 9, 2**32 - 1)]
    for old in (0, 1):
        made += [say("floor", Floor(MODEL, epoch, 1 << 40).payload(), old) for epoch in (1, 2)]
        made += [say("floor", Floor(f"0invented{at}", 2, 1).payload(), old) for at in range(3)]
        removed = enumerate((D1, D2))
        made += [say("model-revoke", Revoke(MODEL, 2, digest, "", at).payload(), old) for at, digest in removed]
        made += [say("halt", Halt(MODEL, 2, decode_envelope(R3[1]).digest).payload(), old)]
        out = (node_id_of(CRYPTO.public_key(node("a"))),)
        made += [say("revoke", Revocation(SWARM, at, out, ""), old) for at in (1, 7)]
    made += [say("model-revoke", Revoke(f"0{at:02}", 2, bytes(32)).payload(), 0) for at in range(66)]
    made += [say("release", make_release(b"evil" * 20, 4, D2, epoch=2).payload(), generation) for generation in (0, 1)]
    made += [say("heartbeat", Heartbeat(epoch, (1 << 62)).payload(), 1) for epoch in (1, 2)]
    made += [say("force", Force(MODEL, 2, D2, 2).payload(), 1)]
    return made


def _below_threshold() -> list[Item]:
    evil = make_release(b"evil" * 20, 5, D2, epoch=2)
    fifth = decode_envelope(_root(5, 2, root_digest(FOURTH[1]), {"release": 1})[1]).payload
    return [
        say("release", evil.payload(), 2, 1),
        say("floor", Floor(MODEL, 2, 1 << 40).payload(), 2, 1),
        ("root", sign_statement("root", fifth, seeds("root", 0)[:1], CRYPTO)),
        ("release", sign_statement("release", evil.payload(), seeds("revoke", 2), CRYPTO)),
        ("floor", sign_statement("floor", Floor(MODEL, 2, 9).payload(), [*seeds("release", 2), node("a")], CRYPTO)),
    ]


def _noise() -> list[Item]:
    rng = random.Random(4711)
    kinds = ("root", "node", "group", "revoke", "release", "floor")
    return [(kinds[at % 6], rng.randbytes(rng.randrange(0, 300))) for at in range(12)]


AFTER = _by_replaced_keys()
"""Attacks by who held a role once: they are no holders any more when `FOURTH` is known."""
ALWAYS = [*_broken([*EARLY, *LATER, SECOND, THIRD, FOURTH]), *_below_threshold(), *_noise()]
"""Attacks by who never held the role."""


class Hearer:
    """One node's trust and releases, the real ones; hears statements and says what they decide."""

    def __init__(self) -> None:
        self.trust = Trust(SWARM, [FIRST[1]], CRYPTO)
        seed = node("b")
        self.releases = Releases(
            CRYPTO.public_key(seed),
            lambda message: CRYPTO.sign(seed, message),
            self.trust,
            ReleasesConfig(models=(MODEL,)),
            random.Random(1),
            {},
        )
        self._now_ns = 0
        self.releases.start(0)

    def hear(self, items: Iterable[Item]) -> "Hearer":
        """Take statements in, as a node does; each a minute after the other."""
        for kind, data in items:
            self._now_ns += 60 * _S
            if kind in ("node", "group", "revoke", "root"):
                try:
                    self.trust.add(kind, data)
                except IdentityError:
                    continue
                if self.trust.news.take():
                    self.releases.on_trust(self._now_ns)
            else:
                push = encode_message(Push((), (data,), ()))
                self.releases.on_message(NodeId(b"p" * 16), push, self._now_ns)
        return self

    def settle(self, items: Sequence[Item] = HONEST) -> "Hearer":
        """Hear it again and again, as repair between nodes does, until nothing changes any more."""
        for _ in range(8):
            before = self.decides()
            self.hear(items)
            if self.decides() == before:
                return self
        raise AssertionError("statements repeated for ever go on changing what they decide")

    def decides(self) -> object:
        """All that role-signed statements decide, as one comparable value."""
        trust, view = self.trust, self.releases.view
        names = ("a", "b", "c", "c2", "d", "thief", "thief2", "rogue")
        nodes = {name: NodeId(node_id_of(CRYPTO.public_key(node(name)))) for name in names}
        desired = versions.desired(view, MODEL)
        return (
            [link.envelope for link in trust.chain.links],
            trust.revoked,
            trust.group_keys,
            {name: trust.certified(one) for name, one in nodes.items()},
            {name: trust.certificate_statement(one) for name, one in nodes.items()},
            sorted(trust.statements()),
            view.heartbeat,
            {name: (one.floor, one.revoked, one.halted, one.releases) for name, one in view.models.items()},
            desired and desired[0],
            sorted((digest, entry.envelope) for digest, entry in self.releases.statements.entries.items()),
        )
