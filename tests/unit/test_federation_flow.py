"""When rows leave, by which path, and how soon a path that answers nothing is left: in virtual time."""

from itertools import pairwise

from swarmd_protocols.federation.allowance import WINDOW, Allowance, Numbers
from swarmd_protocols.federation.flow import (
    AGAIN_MAX_NS,
    ANSWER_NS,
    LOST_NS,
    POLL_NS,
    QUIET_NS,
    RETURN_NS,
    WINDOW_BYTES,
    WINDOW_LEAST_BYTES,
    Flow,
)

MS = 1_000_000
BOTH = (True, True)


def send(
    flow: Flow, waiting: list[tuple[int, int]], now_ns: int, connected: tuple[bool, ...] = BOTH
) -> list[tuple[list[int], int]]:
    """What leaves now, and does."""
    plans = flow.plan(waiting, connected, now_ns)
    sizes = dict(waiting)
    for plan in plans:
        flow.sent([(seq, sizes[seq]) for seq in plan.rows], plan.path, now_ns)
    return [(plan.rows, plan.path) for plan in plans]


def test_rows_leave_once_in_order_by_the_first_path() -> None:
    flow = Flow(2)
    assert send(flow, [(1, 10), (2, 10)], 0) == [([1, 2], 0)]
    assert send(flow, [(1, 10), (2, 10)], 500 * MS) == []
    flow.answered([(1, 2)], 0, 0, 600 * MS)
    assert send(flow, [(3, 10)], 700 * MS) == [([3], 0)]


def test_a_dark_path_is_left_within_two_seconds() -> None:
    flow = Flow(2)
    send(flow, [(1, 10)], 0)
    at = ANSWER_NS
    assert send(flow, [(1, 10), (2, 10)], at) == [([1], 1), ([2], 1)]
    assert flow.first == 1
    flow.answered([(1, 2)], 1, 0, at + 50 * MS)
    assert flow.first == 1
    assert at + 50 * MS <= 2_000 * MS


def test_a_path_that_is_not_connected_is_not_waited_for() -> None:
    flow = Flow(2)
    assert send(flow, [(1, 10)], 0, (False, True)) == [([1], 1)]
    assert send(flow, [(1, 10)], 0, (False, False)) == []


def test_what_is_on_its_way_by_a_path_that_breaks_leaves_by_the_other_at_once() -> None:
    flow, waiting = Flow(2), [(1, 10), (2, 10)]
    send(flow, waiting, 0)
    assert send(flow, waiting, 100 * MS, (False, True)) == [([1, 2], 1)]
    assert flow.window_bytes == WINDOW_BYTES, "a connection that broke is no sign of a full line"
    # Paths that come and go by turns cost each row one frame more, not one each time.
    assert send(flow, waiting, 200 * MS, (True, False)) == []
    assert send(flow, waiting, 300 * MS, (False, True)) == []
    flow.answered([(1, 2)], 1, 0, 400 * MS)
    assert send(flow, [], 500 * MS) == []


def test_waits_grow_to_half_a_minute_and_no_further() -> None:
    """Of a row that a region which answers everything does not take: it lacks its certificate."""
    flow, at, left = Flow(2), 0, []
    for _ in range(2_000):
        for rows, path in send(flow, [(1, 10)], at):
            left += [at] * len(rows)
            flow.answered([], path, 0, at + 50 * MS)
        at += 100 * MS
    gaps = [later - earlier for earlier, later in pairwise(left)]
    assert gaps[0] == ANSWER_NS
    assert all(later >= earlier for earlier, later in pairwise(gaps))
    assert AGAIN_MAX_NS <= max(gaps) <= AGAIN_MAX_NS + 100 * MS


def test_while_nobody_answers_only_the_question_is_left() -> None:
    """Ten minutes with an object a second: each row used to leave every half minute, all the time."""
    flow, tries, questions = Flow(2, place=0.3), dict[int, int](), list[tuple[int, int]]()
    silence_s = 600
    for step in range(silence_s * 4):
        at = step * 250 * MS
        waiting = [(seq, 300) for seq in range(1, 2 + step // 4)]
        for rows, path in send(flow, waiting, at):
            for seq in rows:
                assert at < QUIET_NS, "a row leaves that nobody has answered for long"
                tries[seq] = tries.get(seq, 0) + 1
            if at >= QUIET_NS:
                questions.append((at, path))
    assert max(tries.values()) <= 4
    asked_s = silence_s - QUIET_NS // (1_000 * MS)
    assert asked_s - 2 <= len(questions) <= asked_s + 1
    assert {path for _, path in questions} == {0, 1}
    assert all(later[1] != earlier[1] for earlier, later in pairwise(questions)), "a path is asked twice in a row"
    assert max(later[0] - earlier[0] for earlier, later in pairwise(questions)) <= ANSWER_NS + 250 * MS


def test_gateways_that_were_cut_off_together_do_not_ask_together() -> None:
    moments = set()
    for number in range(64):
        flow, at = Flow(1, place=number / 64), 0
        while at < QUIET_NS:
            send(flow, [(1, 10)], at, (True,))
            at += 50 * MS
        while not send(flow, [(1, 10)], at, (True,)) or at < QUIET_NS + 2 * ANSWER_NS:
            at += 50 * MS
        moments.add(at % ANSWER_NS)
    assert len(moments) >= 16


def test_what_was_only_said_in_a_silence_returns_with_the_rest() -> None:
    """Nothing had been sent when the region went: there is nothing to send again, and as much that is new."""
    for connected in ((True, True), (False, False)):
        flow, at = Flow(2, place=0.5), 0
        while at < 60_000 * MS:
            send(flow, [] if at < QUIET_NS else [(seq, 1_000) for seq in range(1, 900)], at, connected)
            at += 50 * MS
        waiting = [(seq, 1_000) for seq in range(1, 900)]
        while not (asked := send(flow, waiting, at)):
            at += 50 * MS
        assert asked[0][0] == []
        answered_ns = at + 50 * MS
        flow.answered([], asked[0][1], 0, answered_ns)
        at = answered_ns
        while not (left := [rows for rows, _ in send(flow, waiting, at) if rows]):
            at += 50 * MS
        assert answered_ns + RETURN_NS // 2 <= at <= answered_ns + RETURN_NS
        assert sum(map(len, left)) * 1_000 <= WINDOW_LEAST_BYTES


def test_a_region_that_comes_back_is_sent_what_it_missed_within_two_seconds() -> None:
    """Away for 8 s: by the doubled waits alone what was said first came 15 s later."""
    for away_ms in (3_000, 8_000, 60_000):
        flow, at, waiting = Flow(2, place=0.9), 0, [(1, 10), (2, 10)]
        while at < away_ms * MS:
            send(flow, waiting, at)
            at += 50 * MS
        asked = None
        while asked is None or at < asked:
            if send(flow, waiting, at) and asked is None:
                asked = at + 50 * MS
            at += 50 * MS
        assert asked <= (away_ms + 1_050) * MS, "nobody asked whether it is there again"
        flow.answered([], 0, 0, asked)
        while not any(rows == [1, 2] for rows, _ in send(flow, waiting, at)):
            assert at <= (away_ms + 2_100) * MS, f"away for {away_ms} ms, its absence is waited for once more"
            at += 50 * MS
        # An answer in time changes nothing of what waits: a row that it lacks something for comes ever more rarely.
        flow.answered([(1, 1)], 0, 0, at + 100 * MS)
        assert send(flow, [(2, 10)], at + 200 * MS) == []


def test_a_thousand_gateways_do_not_return_at_once() -> None:
    moments = []
    for number in range(128):
        flow, at = Flow(2, place=number / 128), 0
        waiting = [(seq, 1_000) for seq in range(1, 150)]
        while at < 20_000 * MS:
            send(flow, waiting, at)
            at += 100 * MS
        flow.answered([], 0, 0, at)
        while not (left := [rows for rows, _ in send(flow, waiting, at) if rows]):
            at += 10 * MS
        moments.append(at - 20_000 * MS)
        assert sum(map(len, left)) * 1_000 <= WINDOW_LEAST_BYTES
    assert max(moments) - min(moments) >= RETURN_NS * 3 // 4
    assert len({moment // (100 * MS) for moment in moments}) >= 9


def test_a_slow_region_is_asked_no_more_often_than_it_answers() -> None:
    """A thousand gateways that each ask it once a second keep a region slow that has a second's work before it."""
    for answer_ms, each_s in ((30, 1), (6_000, 6)):
        flow = Flow(2, place=0.3)
        lived(answer_ms, 60, flow)
        # Then it is silent for two minutes, with something waiting.
        asked = [at for at in range(0, 120_000, 250) if send(flow, [(1, 10)], 100_000_000 * MS + at * MS)]
        asked = [at for at in asked if at * MS >= QUIET_NS]
        assert 105 / each_s / 1.5 <= len(asked) <= 105 / each_s + 2, f"{len(asked)} times, answers take {answer_ms} ms"


def lived(answer_ms: int, seconds: int, flow: Flow, began_ns: int = 0) -> tuple[int, int]:
    """A row each second to a region that answers everything after so long; returns (rows, times that they left)."""
    answers: list[tuple[int, list[int], int]] = []
    waiting: dict[int, int] = {}
    left, at = 0, began_ns
    for step in range(seconds * 20):
        at = began_ns + step * 50 * MS
        if step % 20 == 0:
            waiting[1_000_000 + at // (1_000 * MS)] = 10
        while answers and answers[0][0] <= at:
            _, taken, path = answers.pop(0)
            flow.answered([(seq, seq) for seq in taken], path, 0, at)
            for seq in taken:
                waiting.pop(seq, None)
        for rows, path in send(flow, sorted(waiting.items()), at):
            left += len(rows)
            answers.append((at + answer_ms * MS, rows, path))
    return seconds, left


def test_a_region_that_is_only_slow_is_not_sent_everything_twice() -> None:
    for answer_ms in (1_500, 2_500, 6_000):
        flow = Flow(2)
        lived(answer_ms, 30, flow)
        rows, left = lived(answer_ms, 60, flow, 100_000 * MS)
        assert left <= 1.2 * rows, f"{left} frames for {rows} rows where an answer takes {answer_ms} ms"
        lived(30, 30, flow, 200_000 * MS)
        assert flow.patience_ns <= 1.1 * ANSWER_NS, "a region that is quick again is still waited for"


def test_what_is_missed_halves_the_window_and_answers_open_it() -> None:
    flow, at = Flow(1), 0
    waiting = [(seq, 10_000) for seq in range(1, 200)]
    for _ in range(100):
        send(flow, waiting, at, (True,))
        at += 100 * MS
    assert flow.window_bytes == WINDOW_LEAST_BYTES
    while waiting and at < 60_000 * MS:
        for rows, _ in send(flow, waiting, at, (True,)):
            flow.answered([(seq, seq) for seq in rows], 0, 0, at + 20 * MS)
            waiting = [one for one in waiting if one[0] not in rows]
        at += 100 * MS
    assert flow.window_bytes == WINDOW_BYTES


def test_no_more_than_the_window_is_on_its_way() -> None:
    flow = Flow(2)
    waiting = [(seq, 10_000) for seq in range(1, 200)]
    [(rows, _)] = send(flow, waiting, 0)
    assert len(rows) * 10_000 <= WINDOW_BYTES
    assert flow.flying_bytes <= WINDOW_BYTES
    flow.answered([(1, 5)], 0, 0, MS)
    [(more, _)] = send(flow, waiting[5:], 2 * MS)
    assert len(more) == 5


def test_rows_that_nobody_takes_keep_no_others_back() -> None:
    flow, at = Flow(1), 0
    stuck = [(1, WINDOW_BYTES)]
    waiting = [*stuck, (2, 10)]
    for _ in range(200):
        plans = send(flow, waiting, at, (True,))
        if any(2 in rows for rows, _ in plans):
            flow.answered([(2, 2)], 0, 0, at)
            break
        at += 100 * MS
    assert at < 30_000 * MS, "a row that the region cannot take holds up all others"


def test_a_row_larger_than_the_window_leaves_alone() -> None:
    assert send(Flow(1), [(1, WINDOW_BYTES + 1), (2, 10)], 0, (True,)) == [([1], 0)]


def test_silence_is_noticed_where_nothing_is_to_be_said() -> None:
    flow = Flow(2)
    assert send(flow, [], 0) == [([], 0)]
    assert not flow.works(0), "nobody has answered yet"
    flow.answered((), 0, 0, 10 * MS)
    assert flow.works(10 * MS)
    assert send(flow, [], 100 * MS) == []
    assert send(flow, [], POLL_NS) == [([], 0)]
    assert send(flow, [], POLL_NS + ANSWER_NS) == [([], 1)], "the other path is asked before the region counts as lost"
    assert ANSWER_NS < LOST_NS
    assert flow.works(POLL_NS + 100 * MS)
    assert not flow.works(POLL_NS + LOST_NS)
    assert POLL_NS + LOST_NS <= 5_000 * MS, "shares change hands too late"


def test_without_any_path_the_region_counts_as_lost_until_it_answers() -> None:
    flow = Flow(2)
    flow.answered((), 0, 0, 0)
    assert send(flow, [], MS, (False, False)) == []
    assert flow.works(MS)
    assert not flow.works(MS + LOST_NS)
    [(rows, path)] = send(flow, [], 2 * LOST_NS)
    assert rows == []
    flow.answered((), path, 0, 2 * LOST_NS + MS)
    assert flow.works(2 * LOST_NS + MS)


def test_both_answering_the_first_path_stays() -> None:
    flow = Flow(2)
    send(flow, [(1, 10)], 0)
    flow.answered((), 0, 0, 10 * MS)
    flow.answered((), 1, 0, 20 * MS)
    assert (flow.first, flow.switches) == (0, 0)


def test_a_pause_is_kept() -> None:
    flow = Flow(1)
    flow.answered((), 0, 500, 0)
    assert send(flow, [(1, 10)], 499 * MS, (True,)) == []
    assert send(flow, [(1, 10)], 500 * MS, (True,)) == [([1], 0)]


def test_a_copy_is_known_within_the_window_and_an_old_life_is_over() -> None:
    numbers = Numbers()
    for number in (5, 3, 9):
        assert not numbers.is_copy(1, number)
        numbers.add(1, number)
    assert [numbers.is_copy(1, number) for number in (3, 5, 9, 4, 10)] == [True, True, True, False, False]
    numbers.add(1, 9 + 2 * WINDOW)
    assert numbers.is_copy(1, 4), "too old to tell counts as there"
    numbers.add(2, 0)
    assert numbers.is_copy(1, 10**6)
    assert not numbers.is_copy(3, 0)


def test_an_allowance_comes_back_at_its_rate() -> None:
    one = Allowance(1_000, 2_000)
    one.spend(3_000)
    assert one.pause_ms(0) > 0
    assert one.pause_ms(1_500 * MS) == 0
    one.spend(10**6)
    assert one.pause_ms(1_500 * MS) <= 3_600_000
