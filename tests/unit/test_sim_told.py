"""What the checker of decisions asks of whom: who could hear the officers' words is to know them, and nobody else."""

from types import SimpleNamespace
from typing import Any

from swarmd_sim.checkers.told import TOGETHER_S, Told, Words

NOBODY = frozenset[bytes]()


class Swarm:
    """Hosts that know the first root and group key; the officers make another key and revoke nobody."""

    def __init__(self, count: int) -> None:
        self.officers: Any = SimpleNamespace(roots=[b"root"], revoked_ns={}, groups={1: b"", 2: b""}, handed={})
        self.told = Told(self.officers)
        trusts = [SimpleNamespace(roots=[b"root"], revoked={}, group_keys={1: b""}) for _ in range(count)]
        self.trusts: list[Any] = trusts
        cores = [SimpleNamespace(_core=SimpleNamespace(trust=trust)) for trust in trusts]
        self.hosts: list[Any] = [SimpleNamespace(index=index, node=core) for index, core in enumerate(cores)]

    def look(self, *parts: tuple[int, ...], times: int = 1) -> None:
        for _ in range(times):
            self.told.on_step([[self.hosts[index] for index in part] for part in parts])

    def knows_new_key(self, *part: int) -> bool:
        return 2 in self.told.known_in([self.hosts[index] for index in part]).groups

    def hand_over(self, index: int) -> None:
        self.officers.handed[index] = (1, NOBODY, frozenset({1, 2}))


def test_what_was_handed_over_beyond_a_cut_is_not_asked_for() -> None:
    swarm = Swarm(4)
    swarm.hand_over(3)
    swarm.trusts[3].group_keys[2] = b""
    swarm.look((0, 1), (2, 3), times=60)
    assert not swarm.knows_new_key(0, 1)
    assert swarm.knows_new_key(2, 3)


def test_what_was_handed_over_in_the_part_is_asked_for_though_nobody_believes_it() -> None:
    swarm = Swarm(3)
    swarm.hand_over(1)
    swarm.look((0, 1, 2))
    assert swarm.knows_new_key(0, 1, 2)
    assert swarm.told.known_in(swarm.hosts[:1]) == Words(1, NOBODY, frozenset({1}))


def test_what_somebody_carried_by_is_asked_for_also_after_it_has_gone() -> None:
    """It knows and says nothing: the others are to know all the same, and whom they meet then."""
    for times in (TOGETHER_S - 1, TOGETHER_S):
        swarm = Swarm(4)
        swarm.trusts[3].group_keys[2] = b""
        swarm.look((0,), (1,), (2,), (3,), times=20)
        swarm.look((0, 3), (1,), (2,), times=times)
        swarm.look((0, 1), (2,), (3,), times=20)
        assert [swarm.knows_new_key(index) for index in range(4)] == [times == TOGETHER_S] * 2 + [False, True]


def test_who_was_down_meanwhile_was_not_with_the_others() -> None:
    swarm = Swarm(2)
    swarm.trusts[1].group_keys[2] = b""
    swarm.look((0, 1), times=TOGETHER_S - 1)
    swarm.look((0,))
    swarm.look((0, 1), times=TOGETHER_S - 1)
    assert not swarm.knows_new_key(0)


def test_what_a_thief_said_is_asked_of_nobody() -> None:
    swarm = Swarm(2)
    swarm.trusts[1].group_keys[9] = b""
    swarm.trusts[1].revoked[b"n"] = "by a thief"
    swarm.trusts[1].roots.append(b"forged")
    swarm.look((0, 1), times=20)
    assert swarm.told.known_in(swarm.hosts) == Words(1, NOBODY, frozenset({1}))
