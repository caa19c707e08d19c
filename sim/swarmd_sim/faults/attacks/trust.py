"""Attacks on the fleet's own statements with one stolen node key: chains, certificates and keys of one's own making."""

from collections.abc import Mapping

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.swim.messages import AliveBody, Message, Record, Statement
from swarmd_protocols.trust.envelopes import Envelope, add_signature, decode_envelope, sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds, dev_root
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import make_root, root_digest
from swarmd_sim.faults.attacks.thief import Stroke, Thief

_SWARM = "sim"
_OTHER_FLEET = b"another fleet's secret, of the thief"
_LARGE = 60_000
_FAR = 1 << 30


def _spread(thief: Thief, kind: str, statement: bytes) -> None:
    words: list[Message] = [Statement(kind, statement)]
    for member in thief.members():
        thief.speak(member.node, words)


def _held(thief: Thief) -> list[tuple[str, bytes]]:
    trust = thief.node._core.trust
    return [("root", trust.roots[0]), *trust.statements()]


def _own_roles(crypto: ModelCrypto) -> list[bytes]:
    return list(dev_role_seeds(_OTHER_FLEET, "root"))


def zero_signatures(thief: Thief) -> None:
    """The fleet's own statements, their signatures zeroed one after the other."""
    for kind, statement in _held(thief):
        envelope = decode_envelope(statement)
        for index in range(len(envelope.signatures)):
            pairs = [
                (key, bytes(64) if i == index else signature) for i, (key, signature) in enumerate(envelope.signatures)
            ]
            _spread(thief, kind, Envelope(kind, envelope.payload, tuple(pairs)).encode())


def own_root(thief: Thief) -> None:
    """A root that follows the newest one, signed by the thief's keys alone; and the root of another fleet."""
    trust = thief.node._core.trust
    seeds = _own_roles(thief.crypto)
    keys = [thief.crypto.public_key(seed) for seed in seeds]
    roles = dict.fromkeys(("root", "enrol", "revoke", "release", "floor", "heartbeat"), (1, keys))
    newest = root_digest(trust.roots[-1])
    root = make_root(
        trust.root.fleet, roles, version=trust.root.version + 1, epoch=trust.root.epoch + 1, previous=newest
    )
    _spread(thief, "root", sign_statement("root", root, seeds, thief.crypto))
    _spread(thief, "root", dev_root(_OTHER_FLEET, thief.crypto))


def own_certificate(thief: Thief) -> None:
    """Certificates of the thief's making: a new key under a member's name, under its own and under nobody's."""
    victim = thief.victim()
    if victim is None:
        return
    seeds = [thief.seed, *_own_roles(thief.crypto)]
    public = thief.crypto.public_key(thief.noise(32))
    name = (victim.name, thief.host.name, "ghost")[thief.draw(3)]
    certificate = Certificate(node_id_of(public), public, name, ("enrol", "release"), _SWARM, _FAR)
    signed = sign_statement("node", certificate, seeds, thief.crypto)
    _spread(thief, "node", signed)
    own = thief.node._core.own
    body = encode(AliveBody(certificate.node, 1 << 20, 0, 0, own.address, own.session_public, "", ""))
    record: list[Message] = [Record(signed, body, thief.node._core.sign("alive", body))]
    for member in thief.members():
        thief.speak(member.node, record)


def own_revocation(thief: Thief) -> None:
    """Everybody else is revoked, says a key that may not, alone and beside the names of those that may."""
    nodes = tuple(member.node for member in thief.members())
    statement = sign_statement(
        "revoke", Revocation(_SWARM, 1 + thief.draw(9), nodes, "forged"), [thief.seed], thief.crypto
    )
    _spread(thief, "revoke", statement)
    _spread(
        thief, "revoke", add_signature(decode_envelope(statement), _own_roles(thief.crypto)[0], thief.crypto).encode()
    )


def own_group_key(thief: Thief) -> None:
    """Group keys of the thief's making, under the counters that are used and under the last one there is."""
    counter = (1, 2, 2**32 - 1)[thief.draw(3)]
    group = GroupKey(_SWARM, counter, thief.noise(32))
    _spread(thief, "group", sign_statement("group", group, [thief.seed], thief.crypto))


def other_kinds(thief: Thief) -> None:
    """Statements of kinds that nobody knows, some of the largest size: they are neither kept nor passed on."""
    kind = ("release", "floor", "root", "node", "x" * 16)[thief.draw(5)]
    _spread(thief, kind, thief.noise(_LARGE if thief.draw(2) else 80))


TRUST_ATTACKS: Mapping[str, Stroke] = {
    "zero_signatures": zero_signatures,
    "own_root": own_root,
    "own_certificate": own_certificate,
    "own_revocation": own_revocation,
    "own_group_key": own_group_key,
    "other_kinds": other_kinds,
}
