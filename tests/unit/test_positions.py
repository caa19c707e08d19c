"""Positions of members: told directly and carried on, signed, bounded in rate and age; no fix, no place."""

import random

import pytest
from msgspec.structs import replace

from swarmd.api.daemon import PoseSeen
from swarmd.api.views import position_row
from swarmd.brain.positions import Throttle, place_of, position_of
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Rejected, SetTimer, StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.positions import (
    MESSAGE_BYTES,
    NAME,
    Place,
    PlaceLearned,
    Positions,
    PositionsConfig,
    SayPlace,
)
from swarmd_protocols.subprotocol import Peer, Send, SubEffect

S = 1_000_000_000
CRYPTO = ModelCrypto()
HERE = Place(-188_856_864, -701_124_341, 3_200, 9_000, 120, 710)
DUE = (NAME, "say")


def seed_of(index: int) -> bytes:
    return bytes([index & 255, index >> 8]) + bytes(30)


def id_of(index: int) -> NodeId:
    return node_id_of(CRYPTO.public_key(seed_of(index)))


def node(index: int, boot: int = 7, config: PositionsConfig | None = None) -> Positions:
    signer = NodeSigner(CRYPTO, seed_of(index))
    return Positions(id_of(index), signer, config or PositionsConfig(), boot, lambda now_ns: now_ns // 1_000_000)


def peers(*indices: int) -> list[Peer]:
    return [Peer(id_of(i), f"n{i}", CRYPTO.public_key(seed_of(i)), True) for i in indices]


def sends(effects: list[SubEffect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def said(one: Positions, at_ns: int, place: Place | None = HERE) -> bytes:
    sent = sends(one.on_command(SayPlace(place, at_ns), at_ns))
    assert sent, "it says what it was told to say"
    return sent[0].payload


def pair() -> tuple[Positions, Positions]:
    a, b = node(1), node(2)
    a.on_peers(peers(2), 0)
    b.on_peers(peers(1, 3), 0)
    return a, b


def test_a_place_is_told_to_everybody_and_read_as_it_was_said() -> None:
    a, b = node(1), node(2)
    a.on_peers(peers(2, 3), 0)
    b.on_peers(peers(1, 3), 0)
    out = sends(a.on_command(SayPlace(HERE, 9 * S), 10 * S))
    assert {send.to for send in out} == {id_of(2), id_of(3)}
    assert all(len(send.payload) == MESSAGE_BYTES and not send.reliable for send in out)
    effects = b.on_message(id_of(1), out[0].payload, 11 * S)
    assert [type(effect) for effect in effects] == [StateChanged]
    assert b.located()[id_of(1)].place == HERE
    assert b.located()[id_of(1)].captured_ns == 9 * S
    assert a.located()[id_of(1)].place == HERE


def test_no_fix_takes_the_place_away_and_nobody_invents_one() -> None:
    a, b = pair()
    assert sends(a.on_command(SayPlace(None, S), S)) == []  # It never claimed to know.
    b.on_message(id_of(1), said(a, 10 * S), 10 * S)
    effects = b.on_message(id_of(1), said(a, 12 * S, None), 12 * S)
    assert effects == [StateChanged(NAME, PlaceLearned(id_of(1), None))]
    assert b.located() == {}
    assert a.located() == {}


def test_the_later_number_wins_whatever_the_order() -> None:
    a, b = pair()
    messages = [said(a, at * S, replace(HERE, latitude_e7=at * 1_000)) for at in (10, 12, 14)]
    rng = random.Random(5)
    for _ in range(20):
        b = node(2, config=PositionsConfig(gap_ns=0))
        b.on_peers(peers(1), 0)
        for message in rng.sample(messages * 2, 6):
            b.on_message(id_of(1), message, 15 * S)
        assert b.located()[id_of(1)].place.latitude_e7 == 14_000


def test_a_later_life_speaks_above_the_earlier_one() -> None:
    a, b = pair()
    b.on_message(id_of(1), said(a, 10 * S), 10 * S)
    again = node(1, boot=8)
    again.on_peers(peers(2), 0)
    b.on_message(id_of(1), said(again, 12 * S, replace(HERE, sigma_cm=7)), 12 * S)
    assert b.located()[id_of(1)].place.sigma_cm == 7


def test_who_lost_its_journal_and_counts_from_below_is_heard_after_a_minute_and_old_letters_never() -> None:
    a, b = pair()
    letters = [said(a, at * S, replace(HERE, latitude_e7=at * 1_000)) for at in (10, 12)]
    for at, letter in zip((10, 12), letters, strict=True):
        b.on_message(id_of(1), letter, at * S)
    again = node(1, boot=3)
    again.on_peers(peers(2), 0)
    for at in range(13, 110):
        for letter in letters:
            b.on_message(id_of(3), letter, at * S)
        b.on_message(id_of(1), said(again, at * S, replace(HERE, latitude_e7=at * 1_000)), at * S)
        assert b.located()[id_of(1)].place.latitude_e7 == (12_000 if at <= 72 else at * 1_000), at


def test_only_members_have_a_place_and_only_they_can_say_it() -> None:
    stranger = node(9)
    stranger.on_peers(peers(2), 0)
    a, b = pair()
    assert b.on_message(id_of(3), said(stranger, 10 * S), 10 * S) == []
    message = said(a, 10 * S)
    for at in range(0, MESSAGE_BYTES, 5):
        forged = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        b.on_message(id_of(3), forged, 10 * S)
    assert b.located() == {}
    assert b.counts["learned"] == 0
    b.on_message(id_of(1), message, 10 * S)
    b.on_peers(peers(3), 11 * S)  # Revoked, or forgotten.
    assert b.located() == {}


@pytest.mark.parametrize("message", [b"", bytes(MESSAGE_BYTES), b"\xff" * MESSAGE_BYTES, b"\1" * (MESSAGE_BYTES + 1)])
def test_bytes_that_are_no_place_are_refused(message: bytes) -> None:
    _, b = pair()
    assert [type(effect) for effect in b.on_message(id_of(1), message, S)] == [Rejected]
    assert b.counts["refused"] == 1


def test_old_letters_and_letters_from_the_future_are_refused() -> None:
    a, b = pair()
    message = said(a, 10 * S)
    assert isinstance(b.on_message(id_of(3), message, 80 * S)[0], Rejected)
    assert isinstance(b.on_message(id_of(3), message, 5 * S)[0], Rejected)
    assert b.located() == {}


def test_a_flood_is_not_read() -> None:
    a = node(1, config=PositionsConfig(period_ns=1, messages_per_s=10**9, still_factor=1))
    b = node(2)
    a.on_peers(peers(2), 0)
    b.on_peers(peers(1), 0)
    for step in range(100):
        at = 10 * S + step * S // 1000
        b.on_message(id_of(1), said(a, at), at)
    assert b.counts["learned"] == 1
    assert b.counts["too_soon"] == 99


def drive(one: Positions, seconds: int, count: int, speed_e7: int) -> int:
    """Poses ten times a second; how many datagrams leave."""
    one.on_peers(peers(*range(100, 100 + count)), 0)
    timer, sent = None, 0
    for step in range(seconds * 10):
        now = S + step * S // 10
        place = replace(HERE, latitude_e7=HERE.latitude_e7 + step * speed_e7)
        effects = one.on_command(SayPlace(place, now), now)
        if timer is not None and timer <= now:
            timer = None
            effects += one.on_timer(DUE, now)
        timer = next((effect.at_ns for effect in effects if isinstance(effect, SetTimer)), timer)
        sent += len(sends(effects))
    return sent


@pytest.mark.parametrize(("count", "speed_e7", "most"), [(3, 100, 3.1), (20, 100, 4.4), (60, 100, 5), (3, 0, 0.7)])
def test_what_it_costs_is_bounded(count: int, speed_e7: int, most: float) -> None:
    sent = drive(node(1), 60, count, speed_e7)
    assert count <= sent <= most * 60


def test_others_places_ride_along_in_turn_and_carry_their_own_signature() -> None:
    b, c = node(2), node(3)
    b.on_peers(peers(1, 3, 4), 0)
    c.on_peers(peers(1, 2, 4), 0)
    for index in (1, 4):
        one = node(index)
        one.on_peers(peers(2), 0)
        b.on_message(id_of(index), said(one, 10 * S), 10 * S)
    riders = [rider for at in range(10, 16) for rider in b.piggyback(1_000, at * S)]
    assert len(riders) == 2
    assert b.piggyback(MESSAGE_BYTES - 1, 20 * S) == []
    for rider in riders:
        c.on_message(id_of(2), rider, 16 * S)
    assert set(c.located()) == {id_of(1), id_of(4)}


def test_whoever_comes_later_is_told_although_nothing_moves() -> None:
    a = node(1)
    a.on_peers(peers(2), 0)
    said(a, 10 * S)
    a.on_command(SayPlace(HERE, 10 * S), 10 * S)
    effects = a.on_peers(peers(2, 3), 12 * S)
    assert {send.to for send in sends(effects)} == {id_of(2), id_of(3)}


def test_period_zero_says_nothing() -> None:
    a = node(1, config=PositionsConfig(period_ns=0))
    a.on_peers(peers(2), 0)
    assert a.on_command(SayPlace(HERE, S), S) == []


def test_places_that_cannot_be_are_refused() -> None:
    for changes in ({"latitude_e7": 10**9}, {"yaw_cdeg": 36_000}, {"battery_milli": 1001}, {"sigma_cm": -1}):
        with pytest.raises(StateError):
            replace(HERE, **changes)
    with pytest.raises(StateError, match="no request str"):
        node(1).on_command("x", 0)


# --- the daemon's side ----------------------------------------------------------------------------------------------


def pose(at_ns: int, *, has_fix: bool = True, latitude: float = 47.5) -> PoseSeen:
    return PoseSeen(latitude, 8.5, 32.0, -0.5, 1.2, has_fix, 710, at_ns)


def test_poses_are_thinned_and_a_lost_fix_is_told_at_once() -> None:
    throttle = Throttle(1.0)
    taken = [throttle.take(pose(S + step * S // 20)) for step in range(40)]
    assert 2 <= sum(one is not None for one in taken) <= 5
    lost = throttle.take(pose(3 * S, has_fix=False))
    assert lost is not None
    assert lost.place is None
    assert Throttle(0.0).take(pose(S)) is None


def test_a_pose_survives_the_way_through_integers() -> None:
    place = place_of(pose(S))
    assert place is not None
    a = node(1)
    a.on_command(SayPlace(place, S), S)
    position = position_of(a.located()[id_of(1)])
    row = position_row(position, 3 * S)
    assert row is not None
    assert (row["latitude_deg"], row["longitude_deg"], row["height_agl_m"]) == (47.5, 8.5, 32.0)
    assert row["yaw_deg"] == pytest.approx(360 - 28.65, abs=0.01)
    assert row["age_s"] == 2.0
    assert position_row(None, S) is None
    assert place_of(pose(S, latitude=float("nan"))) is None
    assert place_of(pose(S, latitude=91.0)) is None
