"""Whoever borrows an address takes nothing from its owner: all that say they are at an address are found by it."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.ids import WAYS
from swarmd_protocols.swim.hosts import HostEvidence
from swarmd_protocols.swim.members import MemberTable, Probe

moves = st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 3), max_size=3)), max_size=40)
"""(member, the ways of the address that it says next; none: it is forgotten)."""


class Someone:
    """As much of a member as the table's addresses and the evidence of hosts look at."""

    def __init__(self, name: int) -> None:
        self.node = bytes([name])
        self.address = ""
        self.where = 0
        self.link = SimpleNamespace(probe=None, rtt_ns=0, way="")
        self.route = ""
        self.overlay = SimpleNamespace(active=True)
        self.accusations: dict[bytes, Any] = {}


class Table(MemberTable):
    """Addresses only: what is counted and listed of members is not asked here."""

    def count(self, member: Any, counted: bool) -> None:
        """Not asked here."""

    def set_reachable(self, member: Any, reachable: bool) -> None:
        """Not asked here."""


def told(table: Table, members: list[Any], steps: list[tuple[int, list[int]]]) -> None:
    for who, where in steps:
        member, address = members[who], WAYS.join(map(str, where))
        if not where:
            table.remove(member)
            member.address = ""
        elif member.address != address:
            table.move(member, address)


def places(member: Any) -> set[str]:
    """Where a member is found: at its address, and at each of its ways."""
    return {member.address, *member.address.split(WAYS)}


@given(moves)
def test_everybody_at_an_address_is_found_by_it(steps: list[tuple[int, list[int]]]) -> None:
    table, members = Table(16), [Someone(index) for index in range(5)]
    told(table, members, steps)
    for address in {str(way) for way in range(4)}.union(*map(places, members)) - {""}:
        there = {member.node for member in members if address in places(member)}
        assert {member.node for member in table.at(address)} == there
        assert len(table.at(address)) == len(there)
        newest = table.by_address.get(address)
        assert (newest.node in there) if newest is not None else not there


@given(moves, st.integers(0, 3))
def test_what_a_host_answers_counts_for_everybody_there(steps: list[tuple[int, list[int]]], where: int) -> None:
    table, members = Table(16), [Someone(index) for index in range(5)]
    told(table, members, steps)
    asked: list[Any] = []
    for member in members:
        member.link.probe = Probe(member, 0, False)  # type: ignore[arg-type]
    config = SimpleNamespace(host_timeout_ns=500_000_000)
    core = SimpleNamespace(table=table, now_ns=0, config=config, rtt_ns=0, port=SimpleNamespace(emit=asked.append))
    accusations = SimpleNamespace()
    evidence = HostEvidence(core, None, None, accusations)  # type: ignore[arg-type]
    evidence.on_host(str(where), HostAnswer.SILENT)
    for member in members:
        assert member.link.probe.silences == (str(where) in places(member))
