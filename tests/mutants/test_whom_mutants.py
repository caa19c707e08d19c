"""A mutant for each rule of who may borrow and be borrowed from: break it, and the law must fail."""

from collections.abc import Callable
from typing import Any

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import whom
from swarmd_protocols.offload.borrowing import Borrower
from swarmd_protocols.offload.lending import Lender
from swarmd_protocols.offload.messages import Ask
from swarmd_protocols.offload.offload import Offload
from swarmd_protocols.offload.whom import Whom
from tests.property import test_offload_whom as laws
from tests.support.mutants import assert_found


def _all_are_let_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Whom, "broken_by", lambda self, member, own: "")


def _one_of_the_conditions_is_enough(patch: pytest.MonkeyPatch) -> None:
    whole = Whom.broken_by

    def broken_by(self: Whom, member: Any, own: Any) -> str:
        apart = [Whom(names=self.names), Whom(roles=self.roles), Whom(attested=self.attested)]
        found = [whole(one, member, own) for one in apart if one != Whom()]
        return "" if "" in found else whole(self, member, own)

    patch.setattr(Whom, "broken_by", broken_by)


def _who_has_no_owner_is_everybodys(patch: pytest.MonkeyPatch) -> None:
    whole = whom.owner_of
    patch.setattr(whom, "owner_of", lambda member: whole(member) or "nobody")


def _any_owner_of_several_counts(patch: pytest.MonkeyPatch) -> None:
    def owner_of(member: Any) -> str:
        named = sorted(role for role in (member.roles if member else ()) if role.startswith(whom.OWNER))
        return named[0].removeprefix(whom.OWNER) if named else ""

    patch.setattr(whom, "owner_of", owner_of)


def _what_is_signed_later_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    whole = Offload.on_trust

    def on_trust(self: Offload, now_ns: int) -> list[Any]:
        return [] if self._borrowers or self._lenders else whole(self, now_ns)

    patch.setattr(Offload, "on_trust", on_trust)


def _who_is_next_out_is_still_asked(patch: pytest.MonkeyPatch) -> None:
    def on_keys(self: Borrower, keys: dict[NodeId, bytes], far: frozenset[NodeId], now_ns: int) -> list[Any]:
        effects = [one for node in [*self._keys] if node not in keys for one in self._withdraw(node, now_ns)]
        self._keys = keys
        return effects

    patch.setattr(Borrower, "on_keys", on_keys)


def _who_is_left_out_gets_a_ticket(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.on_outside

    def on_outside(self: Lender, sender: NodeId, message: Any, rule: str, now_ns: int) -> list[Any]:
        return self.on_ask(sender, message.digest, now_ns) if isinstance(message, Ask) else whole(
            self, sender, message, rule, now_ns)  # fmt: skip

    patch.setattr(Lender, "on_outside", on_outside)


def _a_job_stays_whoever_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "on_gone", lambda self, borrower: [])


def _anybody_takes_a_far_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offload, "_is_useless", lambda self, node: False)


LAW = laws.test_nobody_outside_a_rule_is_asked_or_served
MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_all_are_let_in, LAW),
    (_one_of_the_conditions_is_enough, LAW),
    (_who_has_no_owner_is_everybodys, LAW),
    (_any_owner_of_several_counts, LAW),
    (_what_is_signed_later_changes_nothing, laws.test_who_falls_out_of_a_rule_is_asked_and_served_no_more_at_once),
    (_who_is_next_out_is_still_asked, laws.test_who_falls_out_of_a_rule_is_asked_and_served_no_more_at_once),
    (_who_is_left_out_gets_a_ticket, LAW),
    (
        _anybody_takes_a_far_place,
        laws.test_far_ones_whom_a_rule_leaves_out_take_no_place_of_those_it_lets_in,
    ),
    (_a_job_stays_whoever_asked, laws.test_a_job_of_who_falls_out_of_a_rule_is_dropped),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, law, monkeypatch)
