"""Attacks on borrowed inference: offers too good to be true with lies, garbage or nothing behind, and floods.

What a hostile lender offers is its own word, signed with its own key: the quickest of all, with every bundle. What it
answers then is for its worker to say; `LENDING_MANNERS` are the attacks that change that (`run/offload.py` asks).
"""

from collections.abc import Mapping
from typing import Any

from swarmd_protocols.offload import messages
from swarmd_protocols.offload.messages import Descriptor, Offered, Row
from swarmd_protocols.offload.turns import HIGH
from swarmd_sim.faults.attacks.thief import Stroke, Thief
from swarmd_sim.run.offload_fleet import BUNDLE, LARGER_BUNDLE

_FAR_NUMBER = 1 << 62
"""Above everything that an honest protocol of the same key has said."""
_FLOOD_BYTES = (10, 1_000, 100_000)
_AT_ONCE = 8


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


LENDING_ATTACKS: Mapping[str, Stroke] = {
    stroke.__name__: stroke for stroke in (lend_lies, lend_garbage, lend_nothing, forge_offers, borrow_flood)
}
"""By kind."""
LENDING_MANNERS = ("lend_lies", "lend_garbage", "lend_nothing")
"""Those that also change what the hostile device's worker answers."""
