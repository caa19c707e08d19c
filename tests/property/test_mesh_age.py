"""How old a state is: whoever is not reached any more was heard of last when the last chain to it broke."""

from swarmd_protocols.effects import MemberState
from swarmd_protocols.summary import MemberView
from swarmd_protocols.swim.rows import member_rows
from tests.support.mesh_net import MeshNet, line
from tests.support.swim_net import S


def rows(net: MeshNet, index: int) -> dict[str, MemberView]:
    parts = member_rows(net.hosts[index].node._core, (), {})
    return {row.name: row for part in parts for row in part}


def test_who_is_cut_off_is_told_with_the_time_since_when() -> None:
    net = MeshNet(6, line(6))
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    assert all(row.unheard_since_ns is None for row in rows(net, 0).values()), "a chain leads to everybody"
    cut_ns = net.now
    net.relink(line(6) - {(2, 3)})
    net.run(12)
    for seconds in (0, 20):
        net.run(seconds)
        told = rows(net, 0)
        for name in ("n003", "n004", "n005"):
            assert told[name].state in (MemberState.UNREACHABLE, MemberState.FAILED)
            since_ns = told[name].unheard_since_ns
            assert since_ns is not None
            assert 0 <= since_ns - cut_ns <= 6 * S
        assert [told[name].unheard_since_ns for name in ("n000", "n001", "n002")] == [None] * 3
    net.relink(line(6))
    assert net.run_until(net.formed, 10) is not None
    assert all(row.unheard_since_ns is None for row in rows(net, 0).values())


def test_where_all_hear_all_no_state_has_an_age() -> None:
    net = MeshNet(4, {(a, b) for a in range(4) for b in range(a + 1, 4)})
    assert net.run_until(net.formed, 20) is not None
    net.kill(3)
    net.run(10)
    assert rows(net, 0)["n003"].state is MemberState.FAILED
    assert all(row.unheard_since_ns is None for row in rows(net, 0).values())
