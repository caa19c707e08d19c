"""Whose turn it is to claim a cell: in large swarms, where not all are known, and where nobody has been met yet."""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.claims import Claims
from swarmd_protocols.state.claims.config import ClaimConfig

S, MS = 1_000_000_000, 1_000_000
CONFIG = ClaimConfig()


def node(number: int) -> NodeId:
    return NodeId((number * 2_654_435_761 % (1 << 64)).to_bytes(16, "big"))


def free(cells: int, own: NodeId, known: int, swarm: int = 0) -> Claims:
    """Who has nothing to do beside that many others, at the place of all cells."""
    claims = Claims(own, CONFIG)
    claims.define([(f"c{number}", 0, number) for number in range(cells)])
    roster = sorted({own, *(node(1_000 + number) for number in range(known))})
    claims.know_roster(roster, roster, 0, swarm)
    claims.want(0, 0, 1_000)
    return claims


def speaks_s(claims: Claims, until_s: float = 4.0) -> float:
    """When it claims a cell where nobody else does."""
    for at in range(0, int(until_s * 1_000) + 1, 50):
        claims.step(at * MS)
        if claims.held:
            return at / 1_000
    return until_s + 1


def last_of(known: int) -> NodeId:
    """A node that comes after nearly all of these by the draw."""
    return max((node(number) for number in range(50)), key=lambda own: free(1, own, known).turns.rank({}))


def check_who_will_find_none_free_lets_all_others_speak() -> None:
    """Forty cells: each that comes before has its twentieth of a second; where all find one, it is a second at most."""
    own = last_of(99)
    assert speaks_s(free(40, own, 99)) >= 2.0
    assert speaks_s(free(10, own, 99)) >= 1.0
    assert speaks_s(free(200, own, 99)) <= 1.1


def test_who_will_find_none_free_lets_all_others_speak() -> None:
    check_who_will_find_none_free_lets_all_others_speak()


def check_who_knows_its_neighbours_alone_counts_all() -> None:
    """Of 500 that know six each, a few speak in the first quarter of a second after they have met them, not all."""
    first = [own for own in map(node, range(500)) if speaks_s(free(4, own, 6, swarm=500), 0.75) <= 0.75]
    assert 1 <= len(first) <= 25


def test_who_knows_its_neighbours_alone_counts_all() -> None:
    check_who_knows_its_neighbours_alone_counts_all()


def check_who_has_met_nobody_looks_around_first() -> None:
    alone, beside = Claims(node(1), CONFIG), free(1, node(1), 1)
    alone.define([("c0", 0, 0)])
    alone.want(0, 0, 1_000)
    for claims in (alone, beside):
        claims.turns.begin(0)
    assert 1.0 <= speaks_s(alone) <= 1.1
    assert speaks_s(beside) <= 0.1


def test_who_has_met_nobody_looks_around_first() -> None:
    check_who_has_met_nobody_looks_around_first()


def test_neighbours_that_come_and_go_keep_nobody_from_claiming() -> None:
    claims = free(40, node(1), 6, swarm=8)
    for at in range(0, 4_001, 50):
        roster = sorted({node(1), *(node(1_000 + number + at) for number in range(6))})
        claims.know_roster(roster, roster, at * MS, 8)
        claims.step(at * MS)
        if claims.held:
            break
    assert at * MS <= 2 * CONFIG.settle_ns


def check_a_size_that_a_neighbour_makes_up_costs_a_renewal() -> None:
    """It says that there are a million; nearly all of them come first by the draw, and 1,600 cells are free."""
    assert speaks_s(free(1_600, last_of(7), 7, swarm=10**6), 13.0) <= (CONFIG.renew_ns + CONFIG.settle_ns) / S


def test_a_size_that_a_neighbour_makes_up_costs_a_renewal() -> None:
    check_a_size_that_a_neighbour_makes_up_costs_a_renewal()
