"""Attacks with officers' keys: too few of those in force, or all of those that were replaced."""

from collections.abc import Mapping, Sequence

from swarmd_protocols.ids import node_id_of
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.statements import Floor, Heartbeat, Revoke
from swarmd_protocols.swim.messages import Message, Statement
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import make_root, root_digest
from swarmd_sim.faults.attacks.thief import Stroke, Thief
from swarmd_sim.run.publisher import MODEL, signed_by

_FAR = 1 << 60
_ROLES = ("root", "enrol", "revoke", "release", "floor", "heartbeat")


def _spread(thief: Thief, kind: str, statement: bytes) -> None:
    words: list[Message] = [Statement(kind, statement)]
    for member in thief.members():
        thief.speak(member.node, words)


def _say_with(thief: Thief, role: str, seeds: Sequence[bytes]) -> None:
    """Everything that the role could say, with these keys."""
    crypto, swarm = thief.crypto, thief.node._core.trust.swarm
    if role == "root":
        trust = thief.node._core.trust
        keys = [crypto.public_key(thief.seed)]
        version, previous = trust.root.version + 1, root_digest(trust.roots[-1])
        root = make_root(trust.root.fleet, dict.fromkeys(_ROLES, (1, keys)), version=version, previous=previous)
        _spread(thief, "root", sign_statement("root", root, [*seeds, thief.seed], crypto))
    elif role == "enrol":
        public = crypto.public_key(thief.noise(32))
        certificate = Certificate(node_id_of(public), public, "rogue", (), swarm, 1 << 30)
        _spread(thief, "node", sign_statement("node", certificate, seeds, crypto))
        counter = 2 + thief.draw(4)
        _spread(thief, "group", sign_statement("group", GroupKey(swarm, counter, thief.noise(32)), seeds, crypto))
    elif role == "revoke":
        nodes = tuple(member.node for member in thief.members())
        revocation = Revocation(swarm, 1 + thief.draw(4), nodes, "by a thief")
        _spread(thief, "revoke", sign_statement("revoke", revocation, seeds, crypto))
        released = thief.releases.publisher.signed if thief.releases is not None else {}
        for digest in released:
            _push(thief, "model-revoke", Revoke(MODEL, 1, digest, "by a thief").payload(), seeds)
    elif role == "floor":
        for epoch in (0, 1, 2):
            _push(thief, "floor", Floor(MODEL, epoch, _FAR, _FAR).payload(), seeds)
    elif role == "heartbeat":
        _push(thief, "heartbeat", Heartbeat(1, _FAR).payload(), seeds)
    elif thief.releases is not None:
        desk = thief.releases.publisher
        release = desk.describe(99, thief.memory.setdefault("model", thief.noise(4_096)), bytes(32))
        _push(thief, "release", release.payload(), seeds)


def _push(thief: Thief, kind: str, payload: bytes, seeds: Sequence[bytes]) -> None:
    if thief.releases is not None:
        envelope = signed_by(thief.crypto, kind, payload, list(seeds))
        thief.say_some("releases", encode_message(Push((), (envelope.encode(),), ())))


def stolen_officer(thief: Thief) -> None:
    """One officer's keys, one too few for each role, beside the node's own as if it were another."""
    officers = thief.officers
    if officers is None:
        return
    for role in _ROLES:
        seeds = officers.stolen(role)
        if seeds:
            _say_with(thief, role, [*seeds, thief.seed])
            _say_with(thief, role, [*seeds, *seeds])


def replaced_keys(thief: Thief) -> None:
    """Every key of a role, replaced because it was stolen: what it signs after that counts no more."""
    officers = thief.officers
    if officers is None:
        return
    # What they sign is theirs to sign for as long as the thief's own node has not heard of the new root.
    if len(thief.node._core.trust.roots) == len(officers.roots):
        for role, seeds in sorted(officers.leaked.items()):
            _say_with(thief, role, seeds)


STOLEN_ATTACKS: Mapping[str, Stroke] = {"stolen_officer": stolen_officer, "replaced_keys": replaced_keys}
"""Strokes by kind; `attack_kinds.py` says what each is."""
