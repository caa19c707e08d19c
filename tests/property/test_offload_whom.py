"""Nothing leaves to, and nothing is done for, a member that the owner's rule leaves out, whatever it says of itself."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.offload import FAR_MAX
from swarmd_protocols.offload.whom import RULES, Whom, owner_of
from swarmd_protocols.subprotocol import Peer
from tests.support.offload_swarm import CRYPTO, DIGEST, MS, NODES, SEEDS, Signed, Swarm

ROLES = ("station", "gateway", "attested", "owner:farm", "owner:port")
NAMES = ("a", "b", "c")
COUNT = 4
ME = NODES[0]

SIGNED = st.builds(Signed, st.sampled_from(NAMES), st.lists(st.sampled_from(ROLES), max_size=4).map(tuple))
WHOM = st.builds(
    Whom,
    st.frozensets(st.sampled_from(NAMES), max_size=2),
    st.frozensets(st.sampled_from(ROLES), max_size=2),
    st.booleans(),
    st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("signed"), st.integers(0, COUNT - 1), st.none() | SIGNED),
        st.tuples(st.just("borrow"), st.just(0), st.integers(1, 400)),
        st.tuples(st.just("begs"), st.integers(1, COUNT - 1), st.integers(1, COUNT - 1)),
        st.tuples(st.just("offers"), st.integers(1, COUNT - 1), st.none()),
        st.tuples(st.just("later"), st.just(0), st.integers(1, 1_500)),
        st.tuples(st.just("turn"), st.just(0), st.none()),
    ),
    max_size=30,
)


def is_let_in(whom: Whom, member: Signed | None, own: Signed | None) -> bool:
    """The same rule, told anew."""
    if whom == Whom():
        return True
    if member is None:
        return False
    owners = [{role for role in ((one and one.roles) or ()) if role.startswith("owner:")} for one in (member, own)]
    return (
        (not whom.names or member.name in whom.names)
        and (not whom.roles or bool(whom.roles & set(member.roles)))
        and (not whom.attested or "attested" in member.roles)
        and (not whom.same_owner or (owners[0] == owners[1] and len(owners[0]) == 1))
    )


class Watched(Swarm):
    """Judges whatever leaves, at the moment at which it leaves."""

    def __init__(self, lend_to: Whom, borrow_from: Whom, signed: list[Signed | None]) -> None:
        self.lend_to, self.borrow_from = lend_to, borrow_from
        super().__init__(COUNT, lend_to=lend_to, borrow_from=borrow_from)
        self.signed.clear()
        self.signed.update({node: one for node, one in zip(NODES, signed, strict=False) if one is not None})
        self.wire.clear()
        for node in self.nodes:
            self.claim(node)

    def claim(self, node: NodeId) -> None:
        """Everybody is there, and says of itself that it is whoever is let in."""
        name = min(self.lend_to.names | self.borrow_from.names, default="a")
        others = [(one, CRYPTO.public_key(SEEDS[index])) for index, one in enumerate(NODES[:COUNT]) if one != node]
        peers = [Peer(one, name, key, True) for one, key in sorted(others)]
        self.perform(node, self.nodes[node].on_peers(peers, self.now_ns))

    def sign(self, node: NodeId, signed: Signed | None) -> None:
        """The fleet says something else of a member; everybody hears it, the borrower and its lenders in turn."""
        if signed is None:
            self.signed.pop(node, None)
        else:
            self.signed[node] = signed
        for one in self.nodes:
            self.perform(one, self.nodes[one].on_trust(self.now_ns))

    def perform(self, node: NodeId, effects: list[Any]) -> None:
        before = len(self.said), len(self.orders.get(node, []))
        super().perform(node, effects)
        own = self.signed.get(node)
        for _, to, message in self.said[before[0] :]:
            match message:
                case messages.Ask() | messages.Request():
                    assert is_let_in(self.borrow_from, self.signed.get(to), own), "it left to who is left out"
                case messages.Offered() | messages.Grant() | messages.Answer():
                    assert is_let_in(self.lend_to, self.signed.get(to), own), "it was done for who is left out"
                case messages.Deny(_, reason) | messages.Refusal(_, reason):
                    rule = messages.REASONS[reason].removeprefix("outside-")
                    is_out = not is_let_in(self.lend_to, self.signed.get(to), own)
                    assert (rule in RULES) == is_out, "a refusal names the rule, and only a rule's does"
        for order in self.orders.get(node, [])[before[1] :]:
            if isinstance(order, requests.Infer) and order.borrower is not None:
                assert is_let_in(self.lend_to, self.signed.get(order.borrower), own), "it was run for who is left out"


def _law(lend_to: Whom, borrow_from: Whom, signed: list[Signed | None], steps: list[tuple[str, int, Any]]) -> Watched:
    swarm = Watched(lend_to, borrow_from, signed)
    number = 0
    for what, index, with_what in steps:
        node = NODES[index]
        match what:
            case "signed":
                swarm.sign(node, with_what)
            case "borrow":
                number += 1
                swarm.borrow(number, b"input %d" % number, with_what)
            case "begs":  # Without a ticket, or with a number that is a ticket's.
                lender = NODES[with_what]
                if lender != node:
                    swarm.hear(lender, node, messages.Ask(DIGEST))
                    swarm.hear(lender, node, messages.Request(9, (5 << 28) + 1, DIGEST, 1, 100, b"mine"))
            case "offers":
                swarm.stock(node)
                said = swarm.nodes[node]._lender.offer(3_000)
                swarm.hear(ME, node, said)
            case "later":
                swarm.later(with_what)
            case _:
                swarm.turn()
    swarm.turn()
    return swarm


_FARM, _TWO, _NONE = Signed("a", ("owner:farm",)), Signed("b", ("owner:farm", "owner:port")), Signed("c")
_ALL_ASK = [("later", 0, 1_500), ("begs", 1, 2), ("begs", 2, 1), ("begs", 3, 1), ("borrow", 0, 400), ("turn", 0, None)]


# What a rule turns on, so that it does not wait for a draw: two owners, none, the conditions one by one.
@example(Whom(), Whom(same_owner=True), [_FARM, _TWO, _TWO, _TWO], _ALL_ASK)
@example(Whom(same_owner=True), Whom(same_owner=True), [_FARM, _TWO, _NONE, _FARM], _ALL_ASK)
@example(Whom(same_owner=True), Whom(same_owner=True), [_NONE, _NONE, _TWO, _NONE], _ALL_ASK)
@example(Whom(), Whom(frozenset(["c"]), frozenset(["station"])), [_FARM, _NONE, _NONE, _NONE], _ALL_ASK)
@example(Whom(frozenset(["a"])), Whom(frozenset(["a"]), attested=True), [_FARM] * COUNT, _ALL_ASK)
@given(WHOM, WHOM, st.lists(st.none() | SIGNED, min_size=COUNT, max_size=COUNT), STEPS)
@settings(max_examples=120)
def test_nobody_outside_a_rule_is_asked_or_served(
    lend_to: Whom, borrow_from: Whom, signed: list[Signed | None], steps: list[tuple[str, int, Any]]
) -> None:
    _law(lend_to, borrow_from, signed, steps)


def test_who_falls_out_of_a_rule_is_asked_and_served_no_more_at_once() -> None:
    """Both lenders lose the role while both have the request: it goes to neither of them again."""
    fit, unfit = Signed("a", ("station",)), Signed("a")
    swarm = Watched(Whom(), Whom(roles=frozenset(["station"])), [unfit, fit, fit, fit])
    swarm.later(1_500)
    swarm.keeps = set(NODES[1:COUNT])
    swarm.borrow(1, b"input", 5_000)
    swarm.turn()
    asked = {to for _, to, message in swarm.said if isinstance(message, messages.Request)}
    assert len(asked) == 1
    others = [node for node in NODES[1:COUNT] if node not in asked]
    swarm.signed |= dict.fromkeys(NODES[1:COUNT], unfit)
    swarm.perform(ME, swarm.nodes[ME].on_trust(swarm.now_ns))
    assert [one.data for one in swarm.settles()] == [None]
    swarm.sign(others[0], fit)
    swarm.later(3_000)
    swarm.borrow(2, b"input", 5_000)
    swarm.turn()
    assert {to for _, to, one in swarm.said if isinstance(one, messages.Request)} == {*asked, others[0]}


def test_a_job_of_who_falls_out_of_a_rule_is_dropped() -> None:
    whom = Whom(attested=True)
    swarm = Watched(whom, Whom(), [Signed("a", ("attested",)), *[Signed("b")] * 3])
    swarm.later(1_500)
    swarm.keeps = set(NODES[1:COUNT])
    swarm.borrow(1, b"input", 5_000)
    swarm.turn()
    lender = next(node for node in NODES[1:COUNT] if swarm.nodes[node].jobs)
    swarm.sign(ME, Signed("a"))
    assert swarm.nodes[lender].jobs == 0
    assert any(isinstance(order, requests.Drop) for order in swarm.orders[lender])
    for order in [one for one in swarm.orders[lender] if isinstance(one, requests.Infer)]:
        swarm.command(lender, requests.Ran(order.job, b"answer"))
    assert not any(isinstance(message, messages.Answer) for _, _, message in swarm.said)


@pytest.mark.parametrize(
    ("roles", "owner"), [(("owner:farm",), "farm"), (("owner:a", "owner:b"), ""), (("owner:",), ""), ((), "")]
)
def test_an_owner_is_one_or_none(roles: tuple[str, ...], owner: str) -> None:
    assert owner_of(Signed("a", roles)) == owner


def test_the_least_that_is_needed_passes() -> None:
    """A law that nothing could break would hold too: with the roles that it asks for, a rule lets in."""
    whom = Whom(frozenset(["a"]), frozenset(["station"]), attested=True, same_owner=True)
    full = Signed("a", ("station", "attested", "owner:farm"))
    swarm = _law(whom, whom, [full] * COUNT, [("later", 0, 1_500), ("borrow", 0, 400), ("turn", 0, None)])
    assert [one.data for one in swarm.settles()] == [b"answer to input 1"]
    assert swarm.now_ns % MS == 0


def test_far_ones_whom_a_rule_leaves_out_take_no_place_of_those_it_lets_in() -> None:
    """More strangers than may be told of an offer, all nearer than the one of the own owner."""
    swarm = Swarm(2, borrow_from=Whom(same_owner=True))
    crowd = [NodeId(bytes([100 + index]) * 16) for index in range(FAR_MAX + 5)]
    swarm.signed |= {ME: Signed("a", ("owner:farm",)), crowd[-1]: Signed("z", ("owner:farm",))}
    swarm.signed |= {node: Signed(f"n{index}", ("owner:port",)) for index, node in enumerate(crowd[:-1])}
    one = swarm.nodes[ME]
    one._config = replace(one._config, lends=False)
    one.on_peers([Peer(node, "", bytes(32), True, far=True, cost=8 + at) for at, node in enumerate(crowd)], 0)
    assert list(one._lenders) == [crowd[-1]]
    assert len(one._near) <= FAR_MAX


def test_a_far_one_keeps_its_place_until_another_is_a_whole_transmission_nearer() -> None:
    """Ways change by a quarter every few seconds; who loses its place loses its jobs."""
    swarm = Swarm(2)
    crowd = [NodeId(bytes([100 + index]) * 16) for index in range(FAR_MAX + 1)]
    swarm.signed |= {node: Signed(f"n{index}", ()) for index, node in enumerate(crowd)}
    one = swarm.nodes[ME]

    def far_ones(last_cost: int) -> list[NodeId]:
        costs = dict.fromkeys(crowd, 12) | {crowd[-1]: last_cost}
        one.on_peers([Peer(node, "", bytes(32), True, far=True, cost=cost) for node, cost in costs.items()], 0)
        return list(one._far)

    assert sorted(far_ones(13)) == sorted(crowd[:-1])
    assert sorted(far_ones(11)) == sorted(crowd[:-1])
    assert crowd[-1] in far_ones(7)
    assert crowd[-1] in far_ones(13)
