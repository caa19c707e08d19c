"""A mutant for each rule of `where`: break the rule, and a check that stands for it must fail."""

from collections.abc import Callable
from typing import Any

import pytest

from swarmd_protocols.state import positions as module
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.positions import Positions, PositionsConfig
from tests.unit import test_positions as checks

ON_MESSAGE = Positions.on_message
ON_PEERS = Positions.on_peers


def believes_any_signature(self: NodeSigner, public_key: bytes, message: bytes, signature: bytes) -> bool:
    return True


def last_word_wins(self: Positions, sender: Any, payload: bytes, now_ns: int) -> list[Any]:
    self._held.clear()
    return ON_MESSAGE(self, sender, payload, now_ns)


def reads_a_flood(self: Positions, sender: Any, payload: bytes, now_ns: int) -> list[Any]:
    self._raw.clear()
    return ON_MESSAGE(self, sender, payload, now_ns)


def keeps_who_has_gone(self: Positions, peers: Any, now_ns: int) -> list[Any]:
    held, raw = dict(self._held), dict(self._raw)
    effects = ON_PEERS(self, peers, now_ns)
    self._held.update(held)
    self._raw.update(raw)
    return effects


def speaks_as_often_as_it_is_asked(self: Positions, own: Any, said: Any) -> int:
    return 0


def a_lost_fix_is_not_said(self: Positions, own: Any, now_ns: int) -> list[Any]:
    return [] if own.place is None else SAY(self, own, now_ns)


SAY = Positions._say
MUTANTS: list[tuple[Any, str, Any, Callable[[], None]]] = [
    (NodeSigner, "verify", believes_any_signature, checks.test_only_members_have_a_place_and_only_they_can_say_it),
    (Positions, "on_message", last_word_wins, checks.test_the_later_number_wins_whatever_the_order),
    (Positions, "on_message", reads_a_flood, checks.test_a_flood_is_not_read),
    (Positions, "on_peers", keeps_who_has_gone, checks.test_only_members_have_a_place_and_only_they_can_say_it),
    (
        Positions,
        "_pause_ns",
        speaks_as_often_as_it_is_asked,
        lambda: checks.test_what_it_costs_is_bounded(20, 100, 4.4),
    ),
    (Positions, "_say", a_lost_fix_is_not_said, checks.test_no_fix_takes_the_place_away_and_nobody_invents_one),
    (
        module,
        "PositionsConfig",
        lambda **changes: PositionsConfig(**{"past_ms": 10**9, "future_ms": 10**9, **changes}),
        lambda: old_letters(),
    ),
]


def old_letters() -> None:
    """The check of the unit test, with the configuration that the mutant gives."""
    a = checks.node(1, config=module.PositionsConfig())
    b = checks.node(2, config=module.PositionsConfig())
    a.on_peers(checks.peers(2), 0)
    b.on_peers(checks.peers(1), 0)
    message = checks.said(a, 10 * checks.S)
    b.on_message(checks.id_of(1), message, 80 * checks.S)
    b.on_message(checks.id_of(1), message, 5 * checks.S)
    assert b.located() == {}


@pytest.mark.parametrize(("where", "what", "how", "check"), MUTANTS, ids=[how.__name__ for _, _, how, _ in MUTANTS])
def test_a_broken_rule_is_noticed(
    where: Any, what: str, how: Any, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    monkeypatch.setattr(where, what, how)
    with pytest.raises(AssertionError):
        check()
