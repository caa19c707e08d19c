"""Attacks on membership with one stolen key: accusing, flooding what is relayed, asking what is dear to answer."""

from collections.abc import Mapping

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import SetMeta, UserEvent
from swarmd_protocols.swim.messages import (
    Accusation,
    AccusationBody,
    Alive,
    AliveBody,
    Links,
    LinksBody,
    Message,
    PingReq,
    Want,
)
from swarmd_sim.faults.attacks.thief import Stroke, Thief

_AT_ONCE = 8
_SUSPECT, _FAILED = 0, 2
_EVENT_BYTES = 900
_META_BYTES = 1_000
_ALL_SECTIONS = 8


def _accuse(thief: Thief, levels: tuple[int, ...], incarnation_ahead: int = 0) -> None:
    """Tell every member, one after the other, that all the others are suspect or worse."""
    core = thief.node._core
    members = thief.members()
    for told in members:
        words: list[Message] = []
        for accused in members:
            if accused is not told and len(words) < _AT_ONCE:
                level = levels[thief.draw(len(levels))]
                body = encode(
                    AccusationBody(core.own.node, accused.node, accused.incarnation + incarnation_ahead, level)
                )
                words.append(Accusation(body, core.sign("accuse", body)))
        if words:
            thief.speak(told.node, words)


def accuse_mad(thief: Thief) -> None:
    """Everybody to everybody, suspect or stuck, as fast as it is heard."""
    _accuse(thief, (_SUSPECT, 1))


def accuse_dead(thief: Thief) -> None:
    """The same with the last word: failed."""
    _accuse(thief, (_FAILED,))


def accuse_ahead(thief: Thief) -> None:
    """Accusations of incarnations that their subjects have not reached, which no refutation seems to beat."""
    _accuse(thief, (_SUSPECT, 1, _FAILED), 1 + thief.draw(1 << 20))


def event_storm(thief: Thief) -> None:
    """User events of the node's own, as large and as many as go."""
    # No name twice: a storm that comes again is no event that is delivered again.
    thief.host.ask(UserEvent(f"storm-{thief.noise(12).hex()}", thief.noise(_EVENT_BYTES)))
    thief.did()


def meta_storm(thief: Thief) -> None:
    """Metadata that never rests."""
    thief.host.ask(SetMeta(f"k{thief.draw(64)}", thief.noise(_META_BYTES)))
    thief.did()


def borrow_address(thief: Thief) -> None:
    """The node's own record, signed, at another member's address: whoever believes it sends its frames there."""
    core = thief.node._core
    victim = thief.victim()
    if victim is None:
        return
    ahead = thief.memory["ahead"] = thief.memory.get("ahead", 0) + 1
    own = core.own
    body = encode(
        AliveBody(own.node, own.incarnation + ahead, 0, 0, victim.address, own.session_public, own.version, "")
    )
    for member in thief.members():
        thief.speak(member.node, [Alive(body, core.sign("alive", body))])


def leap_incarnation(thief: Thief) -> None:
    """The node's own incarnation, moved on by leaps: nothing of it may be used up for its next life."""
    core = thief.node._core
    own = core.own
    body = encode(
        AliveBody(own.node, own.incarnation + 1 + thief.draw(1 << 16), 0, 0, own.address, own.session_public, "", "")
    )
    for member in thief.members():
        thief.speak(member.node, [Alive(body, core.sign("alive", body))])


def lie_links(thief: Thief) -> None:
    """Nobody hears anybody, says the thief, whose word about its own links is signed."""
    core = thief.node._core
    members = thief.members()
    number = thief.memory["n"] = thief.memory.get("n", 1 << 20) + 1
    entries = tuple((member.node, 1 + thief.draw(3)) for member in members[:32])
    body = encode(LinksBody(core.own.node, number, entries))
    for member in members:
        thief.speak(member.node, [Links(body, core.sign("links", body))])


def reflect_pings(thief: Thief) -> None:
    """Asks everybody to ping one member: many small questions of one become a flood at another."""
    members = thief.members()
    if members:
        target = members[thief.draw(len(members))]
        for member in members:
            if member is not target:
                words: list[Message] = [PingReq(thief.draw(1 << 30), target.node) for _ in range(_AT_ONCE)]
                thief.speak(member.node, words)


def want_everything(thief: Thief) -> None:
    """Asks for whole sections of the view again and again: a small question with a large answer."""
    members = thief.members()
    if members:
        member = members[thief.draw(len(members))]
        thief.speak(member.node, [Want(thief.draw(_ALL_SECTIONS), thief.noise(64))])


MEMBER_ATTACKS: Mapping[str, Stroke] = {
    "accuse_mad": accuse_mad,
    "accuse_dead": accuse_dead,
    "accuse_ahead": accuse_ahead,
    "event_storm": event_storm,
    "meta_storm": meta_storm,
    "borrow_address": borrow_address,
    "leap_incarnation": leap_incarnation,
    "lie_links": lie_links,
    "reflect_pings": reflect_pings,
    "want_everything": want_everything,
}
