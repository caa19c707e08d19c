"""When rows leave, by which path, and how soon a path that answers nothing is left: in virtual time."""

from itertools import pairwise

from swarmd_protocols.federation.flow import AGAIN_MAX_NS, ANSWER_NS, LOST_NS, POLL_NS, WINDOW_BYTES, Flow
from swarmd_protocols.federation.gate import WINDOW, Allowance, Numbers

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


def test_waits_grow_to_half_a_minute_and_no_further() -> None:
    flow, at, gaps, last = Flow(2), 0, [], 0
    for _ in range(2_000):
        if any(rows for rows, _ in send(flow, [(1, 10)], at)):
            gaps.append(at - last)
            last = at
        at += 100 * MS
    assert gaps[1] == ANSWER_NS
    assert all(later >= earlier for earlier, later in pairwise(gaps[1:]))
    assert max(gaps) <= AGAIN_MAX_NS + 100 * MS


def test_a_region_that_comes_back_is_sent_at_once_what_it_missed() -> None:
    flow, at = Flow(2), 0
    send(flow, [(1, 10), (2, 10)], at)
    while at < 60_000 * MS:
        at += 100 * MS
        send(flow, [(1, 10), (2, 10)], at)
    flow.answered([], 0, 0, at)
    assert [rows for rows, _ in send(flow, [(1, 10), (2, 10)], at)] == [[1, 2]], "its absence is waited for once more"
    # An answer in time changes nothing of what waits: a row that it lacks something for comes ever more rarely.
    flow.answered([(1, 1)], 0, 0, at + 100 * MS)
    assert send(flow, [(2, 10)], at + 200 * MS) == []


def test_a_region_that_is_only_slow_is_not_sent_everything_twice() -> None:
    flow = Flow(2)
    send(flow, [(1, 10), (2, 10)], 0)
    send(flow, [(1, 10), (2, 10)], ANSWER_NS)
    flow.answered([(1, 1)], 0, 0, 2_500 * MS)
    assert send(flow, [(2, 10)], 2_600 * MS) == []


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
