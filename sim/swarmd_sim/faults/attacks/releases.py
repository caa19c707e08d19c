"""Attacks on models with one stolen node key: taking signatures away, voting on what is decided, naming what is not."""

from collections.abc import Mapping
from hashlib import sha256

from msgspec.structs import replace

from swarmd_protocols.releases.messages import AskChunk, AskList, Have, Push, Want, encode_message
from swarmd_protocols.releases.reports import Report, Verdict
from swarmd_protocols.releases.statements import Floor, Heartbeat, Revoke
from swarmd_protocols.trust.envelopes import Envelope
from swarmd_sim.faults.attacks.thief import Stroke, Thief
from swarmd_sim.run.publisher import MODEL, Published, signed_by

_FAR = 1 << 60
_ALL_BYTES = b"".join(bytes((first,)) * 8 for first in range(256))


def _push(thief: Thief, *envelopes: Envelope) -> None:
    thief.say_some("releases", encode_message(Push((), tuple(envelope.encode() for envelope in envelopes), ())))


def _signed(thief: Thief) -> list[Published]:
    assert thief.releases is not None
    return sorted(thief.releases.publisher.signed.values(), key=lambda one: one.version)


def _issued(thief: Thief) -> list[Envelope]:
    """Every statement that the right hands signed and the thief has heard."""
    protocol = thief.node._subs["releases"]
    return [protocol.statements.entries[digest].envelope for digest in sorted(protocol.view.digests)]


def unsign(thief: Thief) -> None:
    """Statements that hold, with one signature zeroed each: a join that merges them may not lose the good one."""
    for envelope in _issued(thief):
        for index in range(len(envelope.signatures)):
            pairs = [
                (key, bytes(64) if i == index else signature) for i, (key, signature) in enumerate(envelope.signatures)
            ]
            _push(thief, replace(envelope, signatures=tuple(pairs)))


def swap_signatures(thief: Thief) -> None:
    """Signatures of one statement under the payload of another, and each key's under the other's name."""
    issued = _issued(thief)
    if issued:
        one, other = issued[thief.draw(len(issued))], issued[thief.draw(len(issued))]
        _push(thief, replace(one, signatures=other.signatures))
        keys = [key for key, _ in one.signatures]
        rest = [signature for _, signature in one.signatures]
        _push(thief, replace(one, signatures=tuple(zip(keys, rest[1:] + rest[:1], strict=True))))


def _vote(thief: Thief, release: bytes, verdict: Verdict, model: str = MODEL) -> bytes:
    number = thief.memory["seq"] = thief.memory.get("seq", 1 << 40) + 1
    core = thief.node._core
    public_key = thief.crypto.public_key(core.own.seed)
    report = Report(public_key, model, number, b"", 0, 0, "failed", release, verdict, 9, 99, "said by a thief")
    return signed_by(thief.crypto, "health", report.payload(), [core.own.seed]).encode()


def vote_down(thief: Thief) -> None:
    """One member fails whatever is published, promoted or not."""
    reports = tuple(_vote(thief, one.digest, Verdict.FAIL) for one in _signed(thief))
    if reports:
        thief.say_some("releases", encode_message(Push((), (), reports)))


def vote_up(thief: Thief) -> None:
    """One member passes whatever is published, bad or not, wherever it stands in the order of canaries."""
    reports = tuple(_vote(thief, one.digest, Verdict.PASS) for one in _signed(thief))
    if reports:
        thief.say_some("releases", encode_message(Push((), (), reports)))


def stuff_votes(thief: Thief) -> None:
    """Verdicts on releases and models that do not exist, until the table is full."""
    reports = tuple(_vote(thief, thief.noise(32), Verdict.PASS) for _ in range(100))
    thief.say_some("releases", encode_message(Push((), (), reports)))


def invent_models(thief: Thief) -> None:
    """Floors and revocations for models that nobody makes, by a key that may not: real ones may not be pushed out."""
    name = f"0{thief.draw(10_000):04d}"
    floor = Floor(name, 1, _FAR, _FAR).payload()
    revoke = Revoke(name, 1, bytes(32), "invented").payload()
    _push(
        thief,
        signed_by(thief.crypto, "floor", floor, [thief.seed]),
        signed_by(thief.crypto, "model-revoke", revoke, [thief.seed]),
    )


def far_floor(thief: Thief) -> None:
    """A floor above everything, of this epoch and the next, by a key that may not raise it."""
    payloads = [Floor(MODEL, epoch, _FAR, _FAR).payload() for epoch in (0, 1, 2)]
    _push(thief, *(signed_by(thief.crypto, "floor", payload, [thief.seed]) for payload in payloads))


def leap_heartbeat(thief: Thief) -> None:
    """The publisher's sign of life with a number that leaves no room for the next, by a key that may not give it."""
    payload = Heartbeat(1, _FAR).payload()
    _push(thief, signed_by(thief.crypto, "heartbeat", payload, [thief.seed]))


def poison_canaries(thief: Thief) -> None:
    """Forged votes that a release failed, told only to those whose turn it is: nobody else sees why it stops."""
    newest = _signed(thief)[-1:]
    victim = thief.victim()
    if newest and victim is not None:
        report = _vote(thief, newest[0].digest, Verdict.FAIL)
        thief.say(victim.node_id, "releases", encode_message(Push((), (), (report,))))


def want_models(thief: Thief) -> None:
    """Everything is asked for again and again: statements, reports, chunks."""
    wanted = Want(0, _ALL_BYTES, _ALL_BYTES)
    thief.say_some("releases", encode_message(wanted))
    thief.say_some("releases", encode_message(Have(0, b"", b"", True)))
    for one in _signed(thief)[-1:]:
        blob = sha256(one.data).digest()[:8]
        thief.say_some("releases", encode_message(AskList(blob)))
        for index in range(8):
            thief.say_some("releases", encode_message(AskChunk(blob, index)), 1)


RELEASE_ATTACKS: Mapping[str, Stroke] = {
    "unsign": unsign,
    "swap_signatures": swap_signatures,
    "vote_down": vote_down,
    "vote_up": vote_up,
    "stuff_votes": stuff_votes,
    "invent_models": invent_models,
    "far_floor": far_floor,
    "leap_heartbeat": leap_heartbeat,
    "poison_canaries": poison_canaries,
    "want_models": want_models,
}
