"""Attacks by what is said to whom: two faces under one number, claims to hold what nobody has, and old statements."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.releases.casting import BEGINS
from swarmd_protocols.releases.messages import CastNote, RefuseChunk, TellChunks, encode_message
from swarmd_protocols.state.crdt.messages import (
    CERTIFICATES_MAX,
    HELD,
    LASTING,
    VITALS,
    CertificateAsk,
    Have,
)
from swarmd_protocols.state.crdt.messages import encode as encode_state
from swarmd_protocols.swim.messages import (
    STATUS_ALIVE,
    STATUS_AWAY,
    STATUS_LEFT,
    VECTOR_ANSWER,
    Alive,
    AliveBody,
    CertifiedEvent,
    EventVector,
    MetaBody,
    MetaEntry,
    SignedEvent,
    Statement,
)
from swarmd_protocols.swim.rules import BOOT_SHIFT
from swarmd_sim.faults.attacks.thief import Stroke, Thief

_FAR_EVENTS = 500
_FAR_BATCH = (1 << 32) - 1
_HOARD_MAX = 256
_AT_ONCE = 16
_CHUNKS_MAX = 512
_SILENT_NS = 1_000_000_000
"""After a stroke its node goes on telling nothing of what was said for so long, nanoseconds."""
_FRESH_NS = 10_000_000_000
"""A member that came so lately, nanoseconds, may not know yet where it begins."""
_EVENT: msgspec.msgpack.Decoder[SignedEvent | CertifiedEvent] = msgspec.msgpack.Decoder(SignedEvent | CertifiedEvent)


def _ahead(thief: Thief) -> int:
    ahead: int = thief.memory.get("ahead", 0) + 1
    thief.memory["ahead"] = ahead
    return ahead


def lie_vectors(thief: Thief) -> None:
    """Far more events of everybody have been delivered, it says: whoever believes it waits for none of them."""
    members = thief.members()
    far = tuple(sorted((one.node, (one.incarnation >> BOOT_SHIFT << BOOT_SHIFT) + _FAR_EVENTS) for one in members[:64]))
    for member in members:
        thief.speak(member.node, [EventVector(far, VECTOR_ANSWER)])


def short_answers(thief: Thief) -> None:
    """Nothing was said before, it tells who starts, asked or not, and brings it what was."""
    events, host = thief.node._swim.events, thief.host
    now_ns = host.engine.now_ns
    if thief.memory.get("node") is not thief.node:
        # Its own answers are empty as long as the strokes go on.
        thief.memory["node"], honest = thief.node, events._alone.holds
        events._alone.holds = lambda origin: host.engine.now_ns < thief.memory["until_ns"] or honest(origin)
    thief.memory["until_ns"] = now_ns + _SILENT_NS
    said = [_EVENT.decode(encoded) for log in list(events.logs.values()) for _, encoded in list(log.kept)[-_AT_ONCE:]]
    members = thief.members()
    fresh = [member for member in members if thief.node._core.now_ns - member.since_ns < _FRESH_NS]
    for member in fresh or [members[thief.draw(len(members))] for _ in members[:1]]:
        thief.speak(member.node, [EventVector((), VECTOR_ANSWER), *(said if member in fresh else ())])


def two_faced_meta(thief: Thief) -> None:
    """One value of its metadata under one number to each member, each another."""
    core = thief.node._core
    sequence = (core.own.boot << BOOT_SHIFT) + _FAR_EVENTS + _ahead(thief)
    for member in thief.members():
        body = encode(MetaBody(core.own.node, sequence, "face", thief.noise(8)))
        thief.speak(member.node, [MetaEntry(body, core.sign("meta", body))])


def _record(thief: Thief, incarnation: int, status: int, capability: str) -> Alive:
    core = thief.node._core
    own = core.own
    away_s = 60 if status == STATUS_AWAY else 0
    body = encode(
        AliveBody(own.node, incarnation, status, away_s, own.address, own.session_public, own.version, capability)
    )
    return Alive(body, core.sign("alive", body))


def two_faced_record(thief: Thief) -> None:
    """One record of itself under one incarnation to each member, each another."""
    incarnation = thief.node._core.own.incarnation + _ahead(thief)
    for member in thief.members():
        thief.speak(member.node, [_record(thief, incarnation, STATUS_ALIVE, thief.noise(8).hex())])


def flap(thief: Thief) -> None:
    """It leaves, goes away and is back, again and again: each is news for all."""
    ahead = _ahead(thief)
    status = (STATUS_LEFT, STATUS_ALIVE, STATUS_AWAY, STATUS_ALIVE)[ahead % 4]
    record = _record(thief, thief.node._core.own.incarnation + ahead, status, "")
    for member in thief.members():
        thief.speak(member.node, [record])


def _hoard(thief: Thief) -> list[tuple[str, bytes]]:
    """Every statement of trust that the stolen node ever held, the oldest first."""
    hoard: dict[tuple[str, bytes], None] = thief.memory.setdefault("statements", {})
    trust = thief.node._core.trust
    for kind, statement in (("root", trust.roots[0]), *trust.journalled()):
        if len(hoard) < _HOARD_MAX:
            hoard["node" if kind == "seen" else kind, statement] = None
    return list(hoard)


def hoard_trust(thief: Thief) -> None:
    """Roots, certificates, revocations and group keys as they once were, said again."""
    hoard = _hoard(thief)
    some = [hoard[thief.draw(len(hoard))] for _ in range(min(_AT_ONCE, len(hoard)))]
    for member in thief.members():
        thief.speak(member.node, [Statement(kind, statement) for kind, statement in some])


def lesson_storm(thief: Thief) -> None:
    """Lessons about the fleet's trust that nobody needs, in frames of first contact."""
    wire, hoard = thief.node._wire, _hoard(thief)
    thief.node._core.now_ns = thief.host.clock.local_ns(thief.host.engine.now_ns)
    wire.effects = []
    for member in thief.members():
        kind, statement = hoard[thief.draw(len(hoard))]
        wire.show(member.address, max(thief.node._core.trust.group_keys), encode(Statement(kind, statement)))
    effects = wire.effects
    if effects:
        thief.did()
    thief.host._perform(effects, 0, None)


def claim_much(thief: Thief) -> None:
    """Of every author it holds far more than there is, it says: whoever believes it asks for that, and only there."""
    logs = thief.node._subs["state"]._holdings.store.logs
    rows = []
    for origin in sorted(logs):
        lives = sorted(logs[origin].frontier)[-2:]
        positions = [(0, life, _FAR_BATCH, bytes(8)) for life in lives]
        positions += [(HELD, life, _FAR_BATCH - 1_000, (999).to_bytes(4, "little")) for life in lives]
        rows.append((bytes(origin), tuple(positions)))
    have = encode_state(Have(tuple(rows), LASTING | VITALS, True, 0))
    for member in thief.members():
        thief.say(member.node, "state", have)


def ask_certificates(thief: Thief) -> None:
    """Everybody's certificate is asked for again and again."""
    origins = tuple(sorted(bytes(member.node) for member in thief.members()))[:CERTIFICATES_MAX]
    if origins:
        thief.say_some("state", encode_state(CertificateAsk((origins * CERTIFICATES_MAX)[:CERTIFICATES_MAX])))


def _newest_blob(thief: Thief) -> bytes:
    assert thief.releases is not None
    signed = sorted(thief.releases.publisher.signed.values(), key=lambda one: one.version)
    return sha256(signed[-1].data).digest()[:8] if signed else b""


def promise_chunks(thief: Thief) -> None:
    """It has all of the newest model, it says, and refuses each chunk."""
    blob = _newest_blob(thief)
    for member in thief.members() if blob else ():
        thief.say(member.node, "releases", encode_message(TellChunks(blob, b"\xff" * (_CHUNKS_MAX // 8))))
        for index in range(_AT_ONCE):
            thief.say(member.node, "releases", encode_message(RefuseChunk(blob, index)))


def lie_casts(thief: Thief) -> None:
    """It is about to cast the newest model, it says, and never does: whoever believes it waits."""
    blob = _newest_blob(thief)
    for member in thief.members() if blob else ():
        thief.say(member.node, "releases", encode_message(CastNote(blob, _ahead(thief) % 10, BEGINS)))


LIES: Mapping[str, Stroke] = {
    "lie_vectors": lie_vectors,
    "short_answers": short_answers,
    "two_faced_meta": two_faced_meta,
    "two_faced_record": two_faced_record,
    "flap": flap,
    "hoard_trust": hoard_trust,
    "lesson_storm": lesson_storm,
    "claim_much": claim_much,
    "ask_certificates": ask_certificates,
    "promise_chunks": promise_chunks,
    "lie_casts": lie_casts,
}
"""Strokes by kind; `attack_kinds.py` says what each is."""
