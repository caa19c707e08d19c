"""What a thief says with a node's own key and sessions: accusations of everybody, forged words about models.

The node itself is the real one; these functions reach below its `handle`, as whoever stole the device can, and let its
own channel seal what the node would never say. The frames go out like all others.
"""

from typing import Any

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Effect
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.reports import Report, Verdict
from swarmd_protocols.releases.statements import DeltaOffer, DeltaRef, Floor, Revoke
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.swim.messages import Accusation, AccusationBody, Message, Sub
from swarmd_protocols.trust.envelopes import Envelope, KeyId, key_id, signed_bytes
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.host import Host
from swarmd_sim.run.publisher import MODEL, Flaw, Published, Publisher, make_model, signed_by
from swarmd_sim.run.releases import ReleaseWorld

_FORGED_VERSION = 99
_ACCUSED_AT_ONCE = 8


def accuse_everybody(host: Host, victim: bytes, level: int) -> None:
    """Tell one member, signed with the stolen key, that all the others are suspect (0), stuck (1) or failed (2).

    Args:
        host: Whose key was stolen.
        victim: Who is told.
        level: What everybody is accused of.
    """
    core = host.node._core
    accused = [member for member in core.table.by_node.values() if member.node != victim and member.where >= 0]
    for start in range(0, len(accused), _ACCUSED_AT_ONCE):
        words: list[Message] = []
        for member in accused[start : start + _ACCUSED_AT_ONCE]:
            body = encode(AccusationBody(core.own.node, member.node, member.incarnation, level))
            words.append(Accusation(body, core.sign("accuse", body)))
        _send(host, victim, words)


def say(host: Host, to: bytes, subprotocol: str, payload: bytes) -> None:
    """Send a payload of a sub-protocol, whatever it is, in the node's name; nothing where there is none."""
    if payload:
        _send(host, to, [Sub(subprotocol, payload)])


def _send(host: Host, to: bytes, messages: list[Message]) -> None:
    node: Any = host.node
    member = node._core.table.by_node.get(to)
    if member is None or member.where < 0 or node._core.own.left:
        return
    node._core.now_ns = host.clock.local_ns(host.engine.now_ns)
    node._wire.effects = []
    node._wire.datagram_or_stream(member, [encode(message) for message in messages])
    effects: list[Effect] = node._wire.effects
    host._perform(effects, 0, None)


class Forger:
    """Words about models that nobody with the right keys has said.

    Args:
        world: The run's releases; the thief has read everything that was published.
        choices: All randomness.
    """

    def __init__(self, world: ReleaseWorld, choices: Choices) -> None:
        self._desk: Publisher = world.publisher
        self._world = world
        self._choices = choices
        self._forged: dict[int, tuple[bytes, Envelope]] = {}

    def delta(self, host: Host) -> bytes:
        """A way to make the newest version out of the image that makes something else, with too few signatures."""
        newest = self._newest()
        target = newest.release.bundle[0].blob if newest is not None else describe(self._desk.factory)[0]
        junk = bytes([host.index & 255]) * 512
        patch, _hashes = describe(junk)
        base, _hashes = describe(self._desk.factory)
        self._give(host, junk)
        offer = DeltaOffer(MODEL, 1, DeltaRef(base.sha256, target.sha256, "blocks", patch, target.size, 1 << 20))
        return _push(self._sign(host, "delta", offer.payload(), "release"))

    def anything(self, host: Host) -> bytes:
        """One of the forgeries."""
        makers = (self._release, self._floor, self._revocation, self._report, self._release)
        return makers[self._choices.choose("hostile.forge", len(makers))](host)

    def _newest(self) -> Published | None:
        return max(self._desk.signed.values(), key=lambda one: one.version, default=None)

    def _sign(self, host: Host, kind: str, payload: bytes, role: str) -> Envelope:
        """With what a thief may have: the node's own key, one of the role's where two are needed, all of another role.

        Or with the own key under the names of the right ones.
        """
        officers, crypto = self._desk.officers, self._desk.crypto
        own: bytes = host.node._core.own.seed
        match self._choices.choose("hostile.keys", 4):
            case 0:
                return signed_by(crypto, kind, payload, [own])
            case 1:
                stolen = officers.seeds(role)[0] if officers.needed(role) > 1 else own
                return signed_by(crypto, kind, payload, [stolen])
            case 2:
                return signed_by(crypto, kind, payload, list(officers.seeds("heartbeat")))
            case _:
                names = sorted(key_id(crypto.public_key(seed)) for seed in officers.seeds(role))
                signature = crypto.sign(own, signed_bytes(kind, payload))
                return Envelope(kind, payload, tuple((KeyId(name), signature) for name in names))

    def _give(self, host: Host, data: bytes) -> None:
        store = self._world.devices[host.index].store
        host.command("releases", requests.Provide(store.put_blob(data), True))

    def _release(self, host: Host) -> bytes:
        """A version far ahead, with a model that can be fetched from the thief."""
        known = self._forged.get(host.index)
        if known is None:
            data = make_model(self._choices, _FORGED_VERSION, Flaw.NONE, self._desk.config.model_kb << 10)
            release = self._desk.describe(_FORGED_VERSION, data, bytes(32))
            known = self._forged[host.index] = data, Envelope("release", release.payload())
        data, bare = known
        self._give(host, data)
        return _push(self._sign(host, "release", bare.payload, "release"))

    def _floor(self, host: Host) -> bytes:
        payload = Floor(MODEL, 1, _FORGED_VERSION, _FORGED_VERSION).payload()
        return _push(self._sign(host, "floor", payload, "floor"))

    def _revocation(self, host: Host) -> bytes:
        newest = self._newest()
        payload = Revoke(MODEL, 1, newest.digest if newest is not None else bytes(32), "forged").payload()
        return _push(self._sign(host, "model-revoke", payload, "revoke"))

    def _report(self, host: Host) -> bytes:
        """Another node's verdict on the newest release, signed by the thief: a pass for a bad one, else a fail."""
        newest = self._newest()
        others = [member for member in host.node._core.table.by_node.values() if member.where >= 0]
        if newest is None or not others:
            return b""
        other = others[self._choices.choose("hostile.witness", len(others))]
        verdict = Verdict.FAIL if newest.flaw is Flaw.NONE else Verdict.PASS
        report = Report(
            other.public_key, MODEL, 1 << 40, b"", 0, 0, "idle", newest.digest, verdict, 9, 99, "said by another"
        )
        forged = signed_by(self._desk.crypto, "health", report.payload(), [host.node._core.own.seed])
        return encode_message(Push((), (), (forged.encode(),)))


def _push(envelope: Envelope) -> bytes:
    return encode_message(Push((), (envelope.encode(),), ()))
