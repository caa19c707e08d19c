"""Whoever borrows an address takes nothing from its owner: all that say they are at an address are found by it."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.ids import WAYS
from swarmd_protocols.swim.hosts import HostEvidence
from swarmd_protocols.swim.members import MemberTable, Probe
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
moves = st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 3), max_size=3)), max_size=40)
"""(member, the ways of the address that it says next; none: it is forgotten)."""


class Someone:
    """As much of a member as the table's addresses and the evidence of hosts look at."""

    def __init__(self, name: int) -> None:
        self.node, self.name = bytes([name]), str(name)
        self.address = ""
        self.where = 0
        self.link = SimpleNamespace(probe=None, rtt_ns=0, way="", source="", heard_ns=-1)
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


@given(
    moves,
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12),
    st.integers(0, 3),
    st.integers(3, 4),
)
def test_an_open_port_speaks_for_its_owner_alone(
    steps: list[tuple[int, list[int]]], heard: list[tuple[int, int]], where: int, at_home: int
) -> None:
    """Who is heard from its address keeps what its host says; else the port is that of whoever is heard from there."""
    table, members = Table(16), [Someone(index) for index in range(5)]
    told(table, members, steps)
    for now_ns, (who, source) in enumerate(heard):
        members[who].link.source, members[who].link.heard_ns = str(source), now_ns
    for member in members:
        member.link.probe = Probe(member, 0, False)  # type: ignore[arg-type]
    asked: list[Any] = []
    port, own = SimpleNamespace(emit=asked.append), SimpleNamespace(address=str(at_home))
    config = SimpleNamespace(host_timeout_ns=500_000_000)
    core = SimpleNamespace(table=table, now_ns=0, config=config, rtt_ns=0, port=port, own=own)
    HostEvidence(core, None, None, SimpleNamespace()).on_host(str(where), HostAnswer.OPEN)  # type: ignore[arg-type]
    here = [member for member in members if str(where) in member.address.split(WAYS)]
    owners = [member for member in here if member.link.source in member.address.split(WAYS)]
    for member in here:
        newer = [other for other in owners if other.link.heard_ns > member.link.heard_ns]
        is_anothers = member not in owners and (bool(newer) or where == at_home)
        expected = HostAnswer.SILENT if is_anothers else HostAnswer.OPEN
        assert member.link.probe.host is expected


def test_who_borrowed_an_address_is_known_to_be_dead_in_time() -> None:
    """It says that it is where another member is, whose port is open; then it dies."""
    script = [Fault(12 * S, "borrow_address", (6,), 10 * S, 5), Fault(24 * S, "power_loss", (6,), 25 * S, 0)]
    result = Simulation(load_scenario("fuzz"), 1, Options(script=script)).run()
    assert result.violations == []
