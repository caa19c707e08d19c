"""What a node takes of the packets that come to its swarm's multicast group, and what it does not."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmd.transports import casting
from swarmd.transports.casting import MAX_CAST_BYTES, CastFrame, Casting, CastOptions, cast_group, cast_tag, decode_cast
from swarmd.transports.reach import Reach
from swarmd_protocols.channel.channel import CAST, CONTACT, DATAGRAM, GROUP
from swarmd_protocols.ids import Address
from tests.support.mutants import Mutant, assert_found

FRAME = bytes([0x10 | CAST]) + bytes(60)
Flood: TypeAlias = Callable[[int], tuple[bytes, str]]
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


class Air:
    """A node, its ten neighbours that cast once a second each, and an outsider's packets between, over made-up time."""

    def __init__(self, patch: pytest.MonkeyPatch, *, neighbours: int = 10) -> None:
        self.now_ns = 10**12
        patch.setattr(casting.time, "monotonic_ns", lambda: self.now_ns)
        self.ear = Ear()
        self.ear.casting._salt = bytes(16)
        self.rng = Random(1)
        self.neighbours = [f"192.0.2.{number + 1}" for number in range(neighbours)]
        self.sealed = 0

    def cast(self, host: str) -> bool:
        """A member there casts; whether it was handed on."""
        self.sealed += 1
        nonce = self.sealed.to_bytes(24, "big")
        before = len(self.ear.heard)
        self.ear.take(packet(frame=FRAME[:1] + bytes(4) + nonce + bytes(32)), (host, 17_946))
        for source, frame in self.ear.heard[before:]:
            self.ear.casting.opened(source, frame[5:29])  # As the node tells.
        return len(self.ear.heard) > before

    def run(self, seconds: int, flood: Callable[[int], tuple[bytes, str]], *, per_s: int = 500) -> int:
        """Casts of neighbours that were not handed on."""
        missed, number = 0, 0
        for _ in range(seconds):
            due = sorted((self.rng.random(), host) for host in self.neighbours)
            second_ns = self.now_ns
            for at in range(per_s):
                while due and due[0][0] <= at / per_s:
                    at_s, neighbour = due.pop(0)
                    self.now_ns = second_ns + int(at_s * 1e9)
                    missed += not self.cast(neighbour)
                self.now_ns = second_ns + at * 1_000_000_000 // per_s
                junk, host = flood(number)
                number += 1
                self.ear.take(junk, (host, 17_946))
            self.now_ns = second_ns + 1_000_000_000
        return missed


def ports(number: int) -> tuple[bytes, str]:
    """One host that says of each packet that its sender listens on another port."""
    return packet(port=1 + number % 65_000), "198.51.100.1"


def hosts(number: int) -> tuple[bytes, str]:
    """Each packet from a host of its own."""
    return packet(), f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


@pytest.mark.parametrize("flood", [ports, hosts])
def test_invented_sources_cost_only_each_other(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 packets a second by somebody without a key: every cast of every known neighbour is handed on."""
    air = Air(monkeypatch)
    assert all(map(air.cast, air.neighbours))
    assert air.run(60, flood) == 0
    handed_on = len(air.ear.heard) - air.sealed
    assert handed_on <= 2 * casting._NEW_PER_S + 60 * casting._NEW_PER_S
    assert len(air.ear.casting._known) == 10


def test_a_newcomer_is_known_by_its_first_cast_while_one_host_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    air = Air(monkeypatch)
    air.run(5, ports)
    assert all(air.cast(f"192.0.2.{number}") for number in range(100, 120))


def test_a_newcomer_is_known_in_a_minute_while_all_hosts_are_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of ten packets passes; it casts once a second, and from its first that passes on each does."""
    air = Air(monkeypatch)
    air.run(60, hosts)
    assert len(air.ear.casting._known) == 10
    assert air.run(10, hosts) == 0


def test_a_frame_that_is_played_again_makes_no_source_known(monkeypatch: pytest.MonkeyPatch) -> None:
    air = Air(monkeypatch)
    assert air.cast(air.neighbours[0])
    for number in range(300):
        air.ear.casting.opened(f"10.0.0.{number}:7946", (1).to_bytes(24, "big"))
    assert list(air.ear.casting._known) == ["192.0.2.1:7946"]


def test_a_known_source_keeps_its_place_until_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who has recorded many frames plays each from another source: those that are known stay known."""
    air = Air(monkeypatch, neighbours=1)
    assert air.cast("192.0.2.1")
    for second in range(60):
        air.now_ns += 1_000_000_000
        for number in range(20):
            air.ear.casting.opened(f"10.0.{second}.{number}:7946", b"%012d%012d" % (second, number))
        if second % 20 == 0:
            air.cast("192.0.2.1")
        assert "192.0.2.1:7946" in air.ear.casting._known
        assert len(air.ear.casting._known) <= 256
    air.now_ns += casting._KNOWN_NS
    air.ear.casting.opened("192.0.2.2:7946", b"a newcomer's first frame")
    assert "192.0.2.2:7946" in air.ear.casting._known
    assert len(air.ear.casting._known) == 256
    assert len(air.ear.casting._opened) <= casting._OPENED_MAX


def test_a_known_source_has_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    air = Air(monkeypatch)
    assert sum(air.cast("192.0.2.1") for _ in range(5_000)) <= 100 + 1
    assert air.ear.counts["casts_dropped_over_rate"] >= 4_899


def _known_ones_are_new_each_time(patch: pytest.MonkeyPatch) -> None:
    original = Casting._may_come

    def may_come(self: Casting, sender: Address, host: str, now_ns: int) -> bool:
        return original(self, sender, host, now_ns) and self._new.take(now_ns)

    patch.setattr(Casting, "_may_come", may_come)


def _whoever_casts_is_known(patch: pytest.MonkeyPatch) -> None:
    original, number = Casting._may_come, count()

    def may_come(self: Casting, sender: Address, host: str, now_ns: int) -> bool:
        self.opened(sender, b"%024d" % next(number))
        return original(self, sender, host, now_ns)

    patch.setattr(Casting, "_may_come", may_come)


def _one_host_has_the_rate_of_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting, "_HOST_PER_S", 10_000)


def _nobody_new_is_handed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting, "_HOST_PER_S", 0.01)


def _frames_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    original = Casting.opened

    def opened(self: Casting, sender: Address, nonce: bytes) -> None:
        self._opened.clear()
        original(self, sender, nonce)

    patch.setattr(Casting, "opened", opened)


def _the_oldest_makes_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting, "_KNOWN_NS", 0)


def _a_place_is_kept_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting, "_KNOWN_MAX", 10_000)


def _who_is_known_may_flood(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting, "_SOURCE_PER_S", 900)


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (partial(test_invented_sources_cost_only_each_other, hosts), _known_ones_are_new_each_time),
        (partial(test_invented_sources_cost_only_each_other, hosts), _whoever_casts_is_known),
        (test_a_newcomer_is_known_by_its_first_cast_while_one_host_floods, _one_host_has_the_rate_of_all),
        (test_a_newcomer_is_known_in_a_minute_while_all_hosts_are_invented, _nobody_new_is_handed_on),
        (test_a_frame_that_is_played_again_makes_no_source_known, _frames_are_not_remembered),
        (test_a_known_source_keeps_its_place_until_it_is_silent, _the_oldest_makes_room),
        (test_a_known_source_keeps_its_place_until_it_is_silent, _a_place_is_kept_for_good),
        (test_a_known_source_has_a_rate, _who_is_known_may_flood),
    ],
)
def test_a_law_finds_its_mutant(
    law: Callable[[pytest.MonkeyPatch], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, lambda: law(monkeypatch), monkeypatch)


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
