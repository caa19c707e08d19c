"""Law: who is not heard blames nobody. A link is told broken by one that is answered by others.

A node whose frames are lost on every path is answered by nobody, though it hears all: each of its links looks as if it
led one way. What it finds then is about itself: once it is heard again, nobody is put in doubt on its word. A member
that truly hears nobody is found by all others meanwhile, since they answer each other, and so are two at once: it is
DEGRADED with all, and failed with none, in whatever order verdicts and the word of those that hear it come.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import MemberState
from tests.support.swim_net import Net

COUNT = 7
MUTE = 0
OTHERS = range(1, COUNT)
STEP_S = 0.1


@settings(derandomize=True, deadline=None, max_examples=12)
@given(for_s=st.floats(1, 20), seed=st.integers(1, 1_000))
@example(for_s=8.0, seed=1)
@example(for_s=1.75, seed=4)
def test_who_is_not_heard_puts_nobody_in_doubt(for_s, seed):
    check_unheard(for_s, seed)


def check_unheard(for_s: float, seed: int) -> None:
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    net.cut([MUTE], list(OTHERS), one_way=True)
    watch(net, for_s)
    net.blocked.clear()
    watch(net, 6.0)
    assert net.run_until(net.formed, 8) is not None


def watch(net: Net, seconds: float) -> None:
    """Nobody says, or is told, that a link between the others is broken, or that one of theirs to the mute one is."""
    for _ in range(int(seconds / STEP_S)):
        net.run(STEP_S)
        for index in OTHERS:
            table = net.hosts[index].node._core.table
            mute = table.by_node.get(net.hosts[MUTE].node.node)
            assert mute is None or not mute.report.links, (net.now, index, mute.report.links)
            for other in OTHERS:
                if other != index:
                    assert net.all_see(MemberState.ALIVE, other, [index]), (net.now, index, other)


@settings(derandomize=True, deadline=None, max_examples=12)
@given(deaf=st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=2), seed=st.integers(1, 1_000))
@example(deaf={5, 6}, seed=1)
@example(deaf={6}, seed=1)
@example(deaf={0}, seed=629826)
def test_who_hears_nobody_is_found_by_all_others(deaf, seed):
    check_deaf(deaf, seed)


def check_deaf(deaf: set[int], seed: int) -> None:
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    others = [index for index in range(COUNT) if index not in deaf]
    net.cut(list(range(COUNT)), list(deaf), one_way=True)

    assert net.run_until(lambda: all(net.all_see(MemberState.DEGRADED, one, others) for one in deaf), 12) is not None
