"""Attacks on borrowed inference: offers too good to be true with lies, garbage or nothing behind, floods, held places.

What a hostile lender offers is its own word, signed with its own key: the quickest of all, with every bundle. What it
answers then is for its worker to say; `LENDING_MANNERS` are the attacks that change that (`run/offload.py` asks).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from swarmd_protocols.offload import messages
from swarmd_protocols.offload.messages import Descriptor, Offered, Row
from swarmd_protocols.offload.turns import HIGH
from swarmd_sim.faults.attacks.thief import Stroke, Thief
from swarmd_sim.run.offload_fleet import BUNDLE, LARGER_BUNDLE

_FAR_NUMBER = 1 << 62
"""Above everything that an honest protocol of the same key has said."""
_FLOOD_BYTES = (10, 1_000, 100_000)
_AT_ONCE = 8
_HELD_BYTES = (10, 1_000, 100_000, messages.PAYLOAD_MAX_BYTES)
_PLACES = 6
"""Held at once: more than a lender gives to one."""


class _Place(NamedTuple):
    """Where a thief may have something held."""

    lender: bytes
    digest: bytes
    ticket: int


def _boast(thief: Thief) -> None:
    """An offer to everybody: at once, and everything."""
    thief.memory["number"] = number = thief.memory.get("number", 0) + 1
    now_ms = thief.host.engine.now_ns // 1_000_000
    rows = tuple(Row(digest, 1, 0, 0, 1_000) for digest in (BUNDLE, LARGER_BUNDLE))
    number += _FAR_NUMBER + (now_ms << 8)
    said = Descriptor(thief.host.node_id, number, 3_000, 1_000, messages.PAYLOAD_MAX_BYTES, rows)
    body = messages.encode_descriptor(said)
    offered = Offered(body, thief.crypto.sign(thief.seed, messages.offer_bytes(body)))
    for member in thief.members()[:64]:
        thief.say(member.node, "offload", messages.encode_message(offered))


def lend_lies(thief: Thief) -> None:
    """Answers in proper form with something false, of whatever it is asked."""
    _boast(thief)


def lend_garbage(thief: Thief) -> None:
    """Answers that have no form, and answers to requests that nobody asked it."""
    _boast(thief)
    answer = messages.Answer(thief.draw(1 << 20), thief.noise(100), thief.noise(64))
    thief.say_some("offload", messages.encode_message(answer))


def lend_nothing(thief: Thief) -> None:
    """Takes every request and says nothing more."""
    _boast(thief)


def forge_offers(thief: Thief) -> None:
    """Offers in others' names, and its own with a broken signature."""
    others = thief.members()
    if not others:
        return
    named = others[thief.draw(len(others))].node
    rows = (Row(BUNDLE, 1, 0),)
    body = messages.encode_descriptor(Descriptor(named, _FAR_NUMBER, 30_000, 1_000, 1 << 18, rows))
    signature = thief.crypto.sign(thief.seed, messages.offer_bytes(body)) if thief.draw(2) else thief.noise(64)
    for member in others[:16]:
        thief.say(member.node, "offload", messages.encode_message(Offered(body, signature)))


def borrow_flood(thief: Thief) -> None:
    """Tickets asked for without end, requests without one, and far more than a good one allows, all of it urgent."""
    offload: Any = thief.node._subs["offload"]
    held = list(offload._borrower._tickets.items())
    for _ in range(_AT_ONCE):
        data = bytes(_FLOOD_BYTES[thief.draw(len(_FLOOD_BYTES))])
        digest = (BUNDLE, LARGER_BUNDLE, thief.noise(32))[thief.draw(3)]
        ticket, lender = thief.draw(1 << 40), None
        if held and thief.draw(2):
            (lender, digest), one = held[thief.draw(len(held))]
            ticket = one.ticket.number
        request = messages.Request(thief.draw(1 << 40), ticket, digest, 1 + thief.draw(64), 5_000, data, 0, HIGH)
        for message in (messages.Ask(digest), request, messages.Cancel(thief.draw(1 << 40))):
            payload = messages.encode_message(message)
            if lender is not None and message is request:
                thief.say(lender, "offload", payload)
            else:
                thief.say_some("offload", payload, 1)


def _places(thief: Thief) -> list[_Place]:
    """Under tickets that it was given: it heard each grant, whatever its own protocol made of that."""
    found: list[_Place] = []
    for other in thief.others():
        grants: Any = other.node._subs["offload"]._lender._grants
        tickets = [left.ticket for left in grants._left.values() if left.ticket.borrower == thief.host.node_id]
        found += [_Place(other.node_id, one.digest, one.number) for one in tickets]
    return found


def _request(thief: Thief, place: _Place, number: int, held_ms: int, left_ms: int = messages.DEADLINE_MAX_MS) -> None:
    data = bytes(_HELD_BYTES[thief.draw(len(_HELD_BYTES))])
    said = messages.Request(number, place.ticket, place.digest, 1, left_ms, data, 0, HIGH, held_ms)
    thief.say(place.lender, "offload", messages.encode_message(said))


def _new(thief: Thief) -> int:
    thief.memory["request"] = number = int(thief.memory.get("request", 0)) + 1
    return number


def _fill(thief: Thief, place: _Place) -> None:
    """More than one may have, for as long as may be; and at once one that is to begin."""
    held = thief.memory.setdefault("held", {}).setdefault(place.lender, [])
    for _ in range(_PLACES):
        held.append(_new(thief))
        _request(thief, place, held[-1], messages.HELD_MAX_MS)
    _request(thief, place, _new(thief), 0)


def _renew(thief: Thief, place: _Place) -> None:
    """What it has there ends before it begins, and others are held in its place: without end, and for no work."""
    held = thief.memory.setdefault("held", {})
    for number in held.pop(place.lender, []):
        thief.say(place.lender, "offload", messages.encode_message(messages.Cancel(number)))
    _fill(thief, place)


def _overstay(thief: Thief, place: _Place) -> None:
    """For longer than may be, and until or beyond its own deadline."""
    for held_ms, left_ms in ((messages.HELD_MAX_MS + 1, messages.DEADLINE_MAX_MS), (2_000, 1_000), (5_000, 5_000)):
        _request(thief, place, _new(thief), held_ms, left_ms)


def _begin_twice(thief: Thief, place: _Place) -> None:
    """One request that is held, begins, begins again, is to be held again, and is to begin with another bundle."""
    number, other = _new(thief), place._replace(digest=thief.noise(32))
    for at, held_ms in ((place, 1_000), (place, messages.HELD_MAX_MS), (place, 0), (place, 0), (place, 1), (other, 0)):
        _request(thief, at, number, held_ms)


def _begin_unpaid(thief: Thief, place: _Place) -> None:
    """Held and begun under a ticket that is none, or another's; no first attempt was ever sent to anybody."""
    number, place = _new(thief), place._replace(ticket=place.ticket + 1 + thief.draw(4))
    for held_ms in (1_000, 0):
        _request(thief, place, number, held_ms)


_HELD_MANNERS: tuple[Callable[[Thief, _Place], None], ...] = (_fill, _renew, _overstay, _begin_twice, _begin_unpaid)


def borrow_held(thief: Thief) -> None:
    """Requests that another is said to work on, wherever it has a ticket; it asks for those without end too."""
    thief.say_some("offload", messages.encode_message(messages.Ask((BUNDLE, LARGER_BUNDLE)[thief.draw(2)])))
    places = _places(thief)
    if places:
        _HELD_MANNERS[thief.draw(len(_HELD_MANNERS))](thief, places[thief.draw(len(places))])


LENDING_ATTACKS: Mapping[str, Stroke] = {
    stroke.__name__: stroke
    for stroke in (lend_lies, lend_garbage, lend_nothing, forge_offers, borrow_flood, borrow_held)
}
"""By kind."""
LENDING_MANNERS = ("lend_lies", "lend_garbage", "lend_nothing")
"""Those that also change what the hostile device's worker answers."""
