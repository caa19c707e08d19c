"""What a node takes of the packets that come to its swarm's multicast group, and what it does not."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmd.transports import casting
from swarmd.transports.casting import MAX_CAST_BYTES, CastFrame, Casting, CastOptions, cast_group, cast_tag, decode_cast
from swarmd.transports.reach import Reach
from swarmd_protocols.channel.channel import CAST, CONTACT, DATAGRAM, GROUP
from swarmd_protocols.ids import Address

FRAME = bytes([0x10 | CAST]) + bytes(60)
IPV4 = ("192.0.2.7", 17_946)


class Ear:
    """A node's casts without sockets: what it handed on, and its counts."""

    def __init__(self, swarm: str = "farm") -> None:
        self.heard: list[tuple[Address, bytes]] = []
        self.counts: Counter[str] = Counter()
        self.casting = Casting(
            CastOptions(swarm), Reach("127.0.0.1", 7946), lambda *what: self.heard.append(what), self.counts
        )

    def take(self, packet: bytes, source: tuple[str, int] = IPV4) -> None:
        self.casting._on_packet(packet, source)


def packet(swarm: str = "farm", frame: bytes = FRAME, *, port: int = 7946, origin: bytes = b"somebody") -> bytes:
    return casting._HEAD.pack(b"swC1", cast_tag(swarm), origin, port) + frame


def test_a_cast_is_handed_on_with_the_address_where_its_sender_listens() -> None:
    ear = Ear()
    ear.take(packet(port=7950))
    assert ear.heard == [("192.0.2.7:7950", FRAME)]
    ear.casting._on_packet(packet(), ("fe80::7", 17_946, 0, 3))
    assert ear.heard[1:] == [("[fe80::7%3]:7946", FRAME)]
    assert ear.counts["casts_in"] == 2


def test_what_is_not_of_this_swarm_costs_nothing_and_is_counted() -> None:
    ear = Ear()
    ear.take(packet("orchard"))
    ear.take(packet(origin=ear.casting._origin))
    for junk in (b"", b"swC1", packet()[:22], packet(port=0), b"swC2" + packet()[4:]):
        ear.take(junk)
    ear.take(packet(frame=FRAME[:1] + bytes(1_200)))
    for kind in (DATAGRAM, GROUP, CONTACT):  # One such packet would make each node answer.
        ear.take(packet(frame=bytes([0x10 | kind]) + bytes(60)))
    assert ear.heard == []
    assert ear.counts == {"casts_dropped_foreign": 1, "casts_own": 1, "casts_dropped_malformed": 9}


def test_swarms_have_groups_of_their_own() -> None:
    for ipv6 in (False, True):
        groups = {cast_group(f"swarm-{number}", ipv6=ipv6) for number in range(50)}
        assert len(groups) == 50


def test_who_floods_takes_nobody_elses_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One source has 100 a second; sources that are invented have 50 a second in all, and those known keep theirs."""
    monkeypatch.setattr(casting.time, "monotonic_ns", lambda: 10**12)
    ear = Ear()
    for number in range(20):
        ear.take(packet(), (f"192.0.2.{number}", 17_946))
    for _ in range(5_000):
        ear.take(packet(), ("198.51.100.1", 17_946))
    for number in range(5_000):
        ear.take(packet(), (f"203.0.{number >> 8}.{number & 255}", 17_946))
    before = len(ear.heard)
    assert before < 20 + 2 * 100 + 3 * 100
    for number in range(20):
        ear.take(packet(), (f"192.0.2.{number}", 17_946))
    assert len(ear.heard) == before + 20
    assert ear.counts["casts_dropped_over_rate"] > 9_000
    assert len(ear.casting._sources) <= casting._SOURCES_MAX


@given(st.binary(max_size=MAX_CAST_BYTES + 50))
@example(packet())
@example(packet()[:-61])
def test_no_bytes_make_the_decoder_raise(data: bytes) -> None:
    cast = decode_cast(data)
    assert cast is None or casting._HEAD.pack(b"swC1", cast.swarm, cast.origin, cast.port) + cast.frame == data
    Ear().take(data)


@given(st.integers(0, len(packet()) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_is_in_what_is_not_read_here(at: int, bit: int) -> None:
    data = bytearray(packet())
    data[at] ^= 1 << bit
    cast = decode_cast(bytes(data))
    is_marked = at < 4 or (at == casting._HEAD.size and bit < 4)
    assert isinstance(cast, CastFrame) != is_marked


IGMP = """Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter
1\tlo        :     1      V3
\t\t\t\t010000E0     1 0:00000000\t\t0
7\twlan0     :     2      V3
\t\t\t\tB1C6C1EF     1 0:00000000\t\t0
\t\t\t\t010000E0     1 0:00000000\t\t0
"""
IGMP6 = """1    lo              ff020000000000000000000000000001     1 0000000C 0
7    wlan0           ff120000000000000000000015c6b115     1 00000004 0
"""


def test_the_kernels_list_says_whether_the_group_is_joined() -> None:
    group = bytes([239, 193, 198, 177])
    assert casting._is_listed(IGMP, 7, group)
    assert not casting._is_listed(IGMP, 1, group)
    assert not casting._is_listed(IGMP, 7, bytes([239, 193, 198, 178]))
    group6 = bytes.fromhex("ff120000000000000000000015c6b115")
    assert casting._is_listed(IGMP6, 7, group6)
    assert not casting._is_listed(IGMP6, 1, group6)
    assert not casting._is_listed("", 7, group)
