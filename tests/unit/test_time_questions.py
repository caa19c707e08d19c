"""Whom a node of a mesh asks what time it is, and how its clock follows those far off."""

from random import Random

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock, ClockConfig
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.state.time_questions import TimeQuestions
from swarmd_protocols.subprotocol import Peer

S, MS = 1_000_000_000, 1_000_000
NODES = [NodeId(bytes([index]) * 16) for index in range(16)]


def peers(near: int, far: int, cost: int = 20) -> list[Peer]:
    """The first ones are near, the others are reached over them."""
    return [
        Peer(node, "", b"", True, 1 + near + far, index >= near, cost if index >= near else 4)
        for index, node in enumerate(NODES[: near + far])
    ]


def asked(near: int, far: int, seconds: int, *, cost: int = 20, sure: bool = False) -> list[NodeId]:
    """Whom a node asks that is asked to once a second; everybody answers at once, and tells the same time."""
    questions, clock = TimeQuestions(Random(1), Sent()), Clock(ClockConfig(), 0)
    questions.know_peers(peers(near, far, cost))
    whom: list[NodeId] = []
    for now_ns in range(1_000 * S, (1_000 + seconds) * S, S):
        for send in questions.ask(now_ns, clock):
            whom.append(send.to)
            clock.vote(send.to, now_ns, 5 * S + now_ns, now_ns + MS)
    assert clock.is_sure((1_000 + seconds) * S) == sure
    return whom


def test_on_a_line_everybody_is_asked() -> None:
    assert set(asked(2, 10, 12)) == set(NODES[:12])


def test_who_has_many_near_asks_others_now_and_then() -> None:
    whom = asked(8, 4, 18, cost=16)
    assert 5 <= sum(node in NODES[8:12] for node in whom) <= 6  # One in 2 s, rounded up, once three near ones have.


def test_near_ones_are_not_asked_again_soon_while_far_ones_are_missing() -> None:
    whom = asked(8, 4, 20, cost=20)
    assert sorted(whom.count(node) for node in NODES[:8]) == [1] * 8


def test_whom_no_question_comes_to_is_not_asked() -> None:
    assert set(asked(2, 6, 20, cost=49)) == set(NODES[:2])


def asked_before(cost_most: int) -> int:
    """How many of twenty questions go to the five before a node on a line, that has nine behind it."""
    before = [Peer(NODES[at], "", b"", True, 15, at > 0, 4 + 4 * at, b"left") for at in range(5)]
    behind = [Peer(NODES[5 + at], "", b"", True, 15, at > 0, 4 + 4 * at, b"right") for at in range(8)]
    questions, clock = TimeQuestions(Random(1), Sent()), Clock(ClockConfig(), 0)
    questions.know_peers([*before, *behind, Peer(NODES[13], "", b"", True, 15, True, cost_most, b"right")])
    whom: list[NodeId] = []
    for now_ns in range(1_000 * S, 1_020 * S, S):
        for send in questions.ask(now_ns, clock):
            whom.append(send.to)
            clock.vote(send.to, now_ns, 5 * S + now_ns, now_ns + MS)
    assert len(whom) == 20
    return sum(node in NODES[:5] for node in whom)


def test_on_a_long_line_each_side_is_asked_for_the_members_there() -> None:
    assert asked_before(80) == 9  # Each of thirteen in turn.
    assert asked_before(84) == 1  # 5³ for 9³, as long as eight answers of the others are the latest.


def test_a_sure_clock_spends_half_a_transmission_a_second_on_others() -> None:
    late = asked(2, 10, 120, sure=True)[60:]
    assert 2 <= sum(node in NODES[2:12] for node in late) <= 4  # One in 20 s.


def test_one_that_keeps_silent_takes_nobody_s_turn() -> None:
    questions, clock = TimeQuestions(Random(1), Sent()), Clock(ClockConfig(), 0)
    questions.know_peers(peers(4, 0))
    whom: list[NodeId] = []
    for now_ns in range(1_000 * S, 1_020 * S, S):
        send = questions.ask(now_ns, clock)[0]
        whom.append(send.to)
        if send.to != NODES[0]:
            clock.vote(send.to, now_ns, 5 * S + now_ns, now_ns + MS)
            questions.asked.pop(send.to)
    assert {node: whom.count(node) for node in NODES[:4]} == dict.fromkeys(NODES[:4], 5)
    assert clock.synced


def voted(asks_far: bool, offsets_ms: list[int], first_ms: int) -> Clock:
    """A clock that three neighbours have set; then the others answer, a second apart."""
    clock = Clock(ClockConfig(), 0)
    clock.asks_far = asks_far
    for at, ms in enumerate([first_ms] * 3 + offsets_ms):
        now_ns = (1_000 + at) * S
        clock.vote(NODES[at], now_ns, now_ns + 50_000 * S + ms * MS, now_ns)
    return clock


def test_in_a_mesh_many_from_everywhere_set_again_what_three_neighbours_set() -> None:
    others = [-700, -900, -1_100, -1_300]
    assert voted(False, others, 0).offset_ns > 50_000 * S - 10 * MS  # Slewed: they do not agree among themselves.
    assert voted(True, others, 0).offset_ns == 50_000 * S - 700 * MS


def test_in_a_mesh_one_voter_of_five_sets_nothing() -> None:
    assert voted(True, [-700, -900], 0).offset_ns > 50_000 * S - 50 * MS


def test_what_is_below_a_step_is_slewed_sooner_in_a_mesh() -> None:
    moved = [voted(far, [-200, -200, -200, -200], 0) for far in (False, True)]
    for clock in moved:
        clock.slew(1_016 * S)
    near, far = (clock.offset_ns - 50_000 * S for clock in moved)
    assert -10 * MS < near < 0
    assert far == -200 * MS  # Unsure as it is, so young, by a twelfth.
