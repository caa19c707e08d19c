"""Each rule of questions to gateways taken out once: the laws must see it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmd.federation import answering, live
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.federation.allowance import Allowance, Numbers
from swarmd_protocols.federation.gate import Gate, Heard
from swarmd_protocols.federation.wire import HEAD_BYTES, Pair, read_head
from swarmd_protocols.ids import NodeId
from tests.unit import test_federation_live as laws

Patch = pytest.MonkeyPatch


def anybody_asks(patch: Patch) -> None:
    """Who asks is answered, whoever that is."""

    patch.setattr(ModelCrypto, "open", lambda self, key, nonce, sealed: sealed[:-16])
    patch.setattr(Pair, "open", lambda self, frame: self._crypto.open(self._key, b"", frame[HEAD_BYTES:]))


def copies_count(patch: Patch) -> None:
    """A question that was there is answered again."""
    patch.setattr(Numbers, "is_copy", lambda self, life, number: False)


def any_clock(patch: Patch) -> None:
    """A question of any time to come counts, and what is asked by a clock that is right does not any more."""
    patch.setattr(answering, "AHEAD_MS", 1 << 60)


def no_bound(patch: Patch) -> None:
    """Answers may take whatever is asked for."""
    patch.setattr(Allowance, "pause_ms", lambda self, now_ns: 0)


def any_answer(patch: Patch) -> None:
    """An answer to any question counts for this one."""
    kept = Gate.told

    def told(self: Gate, frame: bytes, life: int, number: int) -> Heard | None:
        head = read_head(frame)
        return kept(self, frame, head.life, head.number)

    patch.setattr(Gate, "told", told)


def part_is_whole(patch: Patch) -> None:
    """The last row alone makes an answer one of now."""
    kept = live.take

    def take(told: Any, question: live.Question, frame: bytes) -> None:
        kept(told, question, frame)
        for of in told.values():
            for _, as_of_ms in of.last.values():
                of.as_of_ms = as_of_ms

    patch.setattr(laws, "take", take)


def silent_is_known(patch: Patch) -> None:
    """Who does not answer is as fresh as the region's file says."""
    patch.setattr(live, "_site", lambda site, told, shown: msgspec.structs.replace(site))


class Anyone(bytes):
    """Equals whom it is compared with."""

    def __ne__(self, other: object) -> bool:
        return False


def any_key_answers(patch: Patch) -> None:
    """Whoever can seal for the region answers for a gateway."""
    kept = Gate.told

    def told(self: Gate, frame: bytes, life: int, number: int) -> Heard | None:
        heard = kept(self, frame, life, number)
        return None if heard is None else replace(heard, gateway=NodeId(Anyone(heard.gateway)))

    patch.setattr(Gate, "is_gateway", lambda self, public_key: True)
    patch.setattr(Gate, "told", told)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (anybody_asks, laws.test_only_who_holds_the_regions_key_is_answered),
        (copies_count, laws.test_a_question_is_answered_once_and_an_old_one_never),
        (any_clock, laws.test_a_clock_that_was_set_wrong_silences_questions_for_an_hour_at_most),
        (no_bound, laws.test_what_answers_may_take_is_bounded),
        (any_answer, laws.test_an_answer_to_another_question_is_none),
        (silent_is_known, laws.test_what_does_not_answer_is_stale_and_shown_as_it_was),
        (any_key_answers, laws.test_nobody_else_answers_for_a_gateway),
    ],
)
def test_the_law_sees_it(
    mutant: Callable[[Patch], None], law: Callable[[laws.Asked], None], tmp_path: Path, monkeypatch: Patch
) -> None:
    for name in ("whole", "mutant"):
        (tmp_path / name).mkdir()
    whole, changed = laws.Asked(tmp_path / "whole"), laws.Asked(tmp_path / "mutant")
    try:
        law(whole)
        mutant(monkeypatch)
        with pytest.raises(AssertionError):
            law(changed)
    finally:
        whole.close()
        changed.close()


def test_a_part_that_counts_as_whole_is_seen(tmp_path: Path, monkeypatch: Patch) -> None:
    one = laws.Asked(tmp_path)
    try:
        part_is_whole(monkeypatch)
        with pytest.raises(AssertionError):
            laws.test_a_part_of_an_answer_is_not_the_whole(one, monkeypatch)
    finally:
        one.close()
