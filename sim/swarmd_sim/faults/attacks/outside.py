"""Attacks without any key: what a stranger in radio range can put into every member's socket."""

from collections.abc import Mapping

from swarmd_protocols.channel.channel import CAST, DATAGRAM, GROUP, WIRE_VERSION
from swarmd_sim.faults.attacks.thief import Stroke, Thief

_STRANGERS = 200
"""Addresses that a stranger uses in turn: more than any bucket for one address helps against."""
_DATAGRAM_BYTES = 1_200


def _stranger(thief: Thief) -> str:
    return f"192.0.2.{thief.draw(_STRANGERS)}:{1_024 + thief.draw(60_000)}"


def _head(kind: int) -> bytes:
    return bytes((WIRE_VERSION << 4 | kind,))


def _inject(thief: Thief, source: str, data: bytes) -> None:
    """Into every member's socket, from an address that the air does not check."""
    for other in thief.others():
        thief.network.inject(thief.host, source, other, data)
    thief.did()


def junk_flood(thief: Thief) -> None:
    """A header that looks like first contact, then noise."""
    _inject(thief, _stranger(thief), _head(GROUP) + thief.noise(24))


def sealed_junk(thief: Thief) -> None:
    """A header that looks like an established session's, then noise, of every length."""
    kind = (DATAGRAM, CAST)[thief.draw(2)]
    _inject(thief, _stranger(thief), _head(kind) + thief.noise(1 + thief.draw(_DATAGRAM_BYTES - 1)))


def spoofed_flood(thief: Thief) -> None:
    """Noise that seems to come from a member, so that its address is what gets throttled."""
    other = thief.victim()
    if other is not None:
        _inject(thief, other.address, _head(DATAGRAM) + thief.noise(40))


def hello_replay(thief: Thief) -> None:
    """First contacts that were once real, again, from addresses that never spoke: who answers is the amplifier."""
    frames = [data for _source, _target, data in thief.network.captured or () if data[:1] == _head(GROUP)]
    if frames:
        _inject(thief, _stranger(thief), frames[thief.draw(len(frames))])


def contact_replay(thief: Thief) -> None:
    """Short frames of the first contact (cookies and what asks for them), replayed from another address."""
    frames = [data for _source, _target, data in thief.network.captured or () if len(data) < 120]
    if frames:
        _inject(thief, _stranger(thief), frames[thief.draw(len(frames))])


def mirror(thief: Thief) -> None:
    """A member's own frames back at it, and everybody's at everybody."""
    captured = thief.network.captured
    if captured:
        source, _target, data = captured[thief.draw(len(captured))]
        origin = thief.hosts[source]
        if origin.process_up:
            thief.network.inject(thief.host, origin.address, origin, data)
            thief.did()


OUTSIDE_ATTACKS: Mapping[str, Stroke] = {
    "junk_flood": junk_flood,
    "sealed_junk": sealed_junk,
    "spoofed_flood": spoofed_flood,
    "hello_replay": hello_replay,
    "contact_replay": contact_replay,
    "mirror": mirror,
}
