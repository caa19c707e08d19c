"""Mutants of reviews: each lets somebody make, keep, lose or hide what operators say, and a law finds it."""

import random

import pytest

from swarmd_protocols.effects import Persist
from swarmd_protocols.state import reviews as module
from swarmd_protocols.state.author import Author
from swarmd_protocols.state.crdt import reviews as statements
from swarmd_protocols.state.crdt.journal_keys import fact_key
from swarmd_protocols.state.crdt.reviews import SignedReview, open_review
from swarmd_protocols.state.heirs import Heirs
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.state.reviews import Reviews
from swarmd_protocols.state.shown import Shown
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.trust.envelopes import signed_bytes
from tests.property import test_review_laws as laws
from tests.support.mutants import assert_found, each_mutant


def the_join() -> None:
    for seed in range(150):
        laws.check_the_join(seed, random.Random(seed))


def what_is_touched() -> None:
    for seed in range(60):
        laws.check_what_is_touched(seed, random.Random(seed))


def signatures_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SignedReview, "holds", lambda self, verify: True)


def a_signature_of_another_kind_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def holds(self: SignedReview, verify: statements.Verify) -> bool:
        payload, signature = self.statement[96:], self.statement[32:96]
        return any(verify(self.public, signed_bytes(kind, payload), signature) for kind in ("review", "revoke"))

    monkeypatch.setattr(SignedReview, "holds", holds)


def every_key_is_an_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    class Everybody(frozenset[bytes]):
        def __contains__(self, key: object) -> bool:
            return True

    def know(self: Reviews, operators: frozenset[bytes]) -> None:
        self.operators = Everybody(operators)

    monkeypatch.setattr(Reviews, "know_operators", know)


def the_latest_to_come_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = iter(range(1 << 30))
    seen: dict[bytes, int] = {}
    monkeypatch.setattr(
        SignedReview,
        "order",
        property(lambda self: (seen.setdefault(self.statement, next(counter)), self.review.made_ms, self.digest)),
    )


def another_swarms_statements_count(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Reviews.take

    def everywhere(self: Reviews, said: SignedReview) -> int:
        self.swarm = said.review.swarm
        return take(self, said)

    monkeypatch.setattr(Reviews, "take", everywhere)


def said_twice_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = Reviews.drop

    def forgetful(self: Reviews, said: SignedReview) -> int:
        if said.statement in self._said:
            self._said[said.statement] = 1
        return drop(self, said)

    monkeypatch.setattr(Reviews, "drop", forgetful)


def an_operator_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviews, "_changed", lambda self, public, target: self.touched.update({target: None}) or 0)


def a_note_replaces_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviews, "_slot", lambda self, review: (self._target(review), False))


def a_change_of_operators_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviews, "know_operators", lambda self, operators: setattr(self, "operators", operators))


def what_is_pushed_out_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Reviews._changed

    def quiet(self: Reviews, public: bytes, target: module.Target) -> int:
        before = {**self.touched, target: None}
        units = changed(self, public, target)
        self.touched = before
        return units

    monkeypatch.setattr(Reviews, "_changed", quiet)


def the_newest_of_all_operators_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Reviews.of

    def one(self: Reviews, targets: object) -> tuple[module.ReviewView, ...]:
        found = of(self, targets)  # type: ignore[arg-type]
        return tuple(sorted(found, key=lambda said: (said.revision, said.made_ms))[-1:])

    monkeypatch.setattr(Reviews, "of", one)


def trust_is_read_at_boot_only(monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[frozenset[bytes]] = []

    def once(self: Reviews, operators: frozenset[bytes]) -> None:
        if operators and not first:
            first.append(operators)
        self.operators = first[0] if first else operators

    monkeypatch.setattr(Reviews, "know_operators", once)


def what_is_older_is_taken_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def say(self: Author, statement: bytes) -> None:
        self.pending.append(open_review(statement))

    monkeypatch.setattr(Author, "say_review", say)


def a_review_stays_with_the_register(monkeypatch: pytest.MonkeyPatch) -> None:
    said_of = Shown._said_of
    monkeypatch.setattr(Shown, "_said_of", lambda self, members: said_of(self, list(members)[:1]))


def objects_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shown, "touch_reviewed", lambda self: self._reviews.touched.clear())


def dropped_batches_keep_their_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviews, "drop", lambda self, said: 0)


def nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviews, "take", lambda self, said: 0)


def nobody_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heirs, "due", lambda self, heard, now_ns: [])


def everybody_inherits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heirs, "_turn", lambda self, said, others: 0)


def what_was_replaced_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviews, "orphans", lambda self: [open_review(one) for one in self.missing])


def anybodys_words_are_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    def orphans(self: Reviews) -> list[SignedReview]:
        return [said for said in map(open_review, self.missing) if self._has_place(said)]

    monkeypatch.setattr(Reviews, "orphans", orphans)


def the_convicted_inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Replica._expire

    def _expire(self: Replica, effects: list[SubEffect], now_ns: int) -> None:
        whole(self, effects, now_ns)
        if self._node in self._holdings.store.quarantined:
            self._author.pending += self._heirs.due(self._anti_entropy.peers, now_ns)

    def flush(self: Author, effects: list[SubEffect], now_ns: int) -> None:
        items, self.pending = self.pending, []
        if not items:
            return
        self._flushed_ns = now_ns
        for batch in self.log.append(items, lambda: self._clock.tick(now_ns)):
            effects.append(Persist(fact_key(batch), batch.raw))
            self._join(batch, effects, now_ns)

    monkeypatch.setattr(Replica, "_expire", _expire)
    monkeypatch.setattr(Author, "flush", flush)


def carriers_that_go() -> None:
    for seed in range(4):
        laws.check_carriers_that_go(seed)


@each_mutant(
    [
        (the_join, signatures_are_not_checked),
        (the_join, a_signature_of_another_kind_passes),
        (the_join, every_key_is_an_operators),
        (the_join, the_latest_to_come_counts),
        (the_join, another_swarms_statements_count),
        (the_join, said_twice_goes_at_once),
        (the_join, an_operator_has_no_bound),
        (the_join, a_note_replaces_the_verdict),
        (the_join, dropped_batches_keep_their_reviews),
        (what_is_touched, a_change_of_operators_touches_nothing),
        (what_is_touched, what_is_pushed_out_is_not_touched),
        (laws.check_two_sides_of_a_cut, the_newest_of_all_operators_counts),
        (laws.check_two_sides_of_a_cut, nothing_is_taken),
        (laws.check_revocation, trust_is_read_at_boot_only),
        (laws.check_revocation, objects_are_not_told),
        (laws.check_hostile_member, what_is_older_is_taken_here),
        (laws.check_merged_objects, a_review_stays_with_the_register),
        (carriers_that_go, nobody_inherits),
        (carriers_that_go, everybody_inherits_at_once),
        (carriers_that_go, what_was_replaced_is_inherited),
        (laws.check_what_is_no_operators_goes, anybodys_words_are_inherited),
        (laws.check_a_convicted_carrier, the_convicted_inherit),
    ]
)
def test_each_mutant_is_found(law, mutant, monkeypatch):
    monkeypatch.setattr(module, "OPERATOR_MAX", laws.ROOM)
    assert_found(mutant, law, monkeypatch)
