"""The matrix of links: each row is a member's own word, and what nobody says is not known rather than good."""

from hypothesis import given
from hypothesis import strategies as st

from swarmd.ground.exports import HEARD, ROW_MAX, links
from swarmd.ground.rows import Member
from tests.support.ground import member, node_id

QUALITIES = ("heard-only", "indirect", "late")


@given(
    st.lists(st.sampled_from(["alive", "degraded", "suspect", "failed", "left"]), min_size=1, max_size=40),
    st.dictionaries(st.tuples(st.integers(0, 45), st.integers(0, 45)), st.sampled_from(QUALITIES), max_size=200),
)
def test_a_link_is_told_by_who_says_so_and_good_only_where_it_was_said(
    states: list[str], said: dict[tuple[int, int], str]
) -> None:
    members: dict[str, Member] = {}
    rows: dict[int, list[tuple[str, str]]] = {}
    for (reporter, other), quality in said.items():
        if reporter != other and reporter < len(states) and len(rows.setdefault(reporter, [])) < ROW_MAX:
            rows[reporter].append((node_id(other), quality))
    for number, state in enumerate(states):
        members[node_id(number)] = member(number, state, row=rows.get(number, []))
    told = list(links(members))
    assert len(told) == sum(map(len, rows.values()))
    named = {one.name: one for one in members.values()}
    for link in told:
        other = named.get(link.other)
        assert link.reporter_state == named[link.reporter].state
        mine = next(one for one in members.values() if one.name == link.reporter)
        if link.other_way == "good":
            assert other is not None
            assert other.state in HEARD
            assert len(other.row) < ROW_MAX
            assert mine.id not in dict(other.row)
        elif link.other_way != "unknown":
            assert other is not None
            assert dict(other.row)[mine.id] == link.other_way


def test_a_full_row_leaves_the_rest_unknown() -> None:
    full = [(node_id(number), "late") for number in range(2, 2 + ROW_MAX)]
    members = {one.id: one for one in (member(0, row=[(node_id(1), "heard-only")]), member(1, row=full))}
    assert {(link.reporter, link.other): link.other_way for link in links(members)}["drone-0", "drone-1"] == "unknown"
