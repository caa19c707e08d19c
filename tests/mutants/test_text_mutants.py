"""Mutants of texts: each lets a state or a lender's word do what it must not, and a law finds it."""

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swarmd.worker import checks, texting
from swarmd_models import texts
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import DetectorOptions
from swarmd_models.service import Service
from tests.integration import test_inference_text as api
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.unit import test_texting as words
from tests.unit import test_texts as laws


def _chunks() -> None:
    service = Service.open(load_bundle("zoo:events-text"), DetectorOptions(), lambda text: None)
    laws.test_how_many_tokens_are_asked_for_at_once_changes_no_token(service, 3.0)


def _only_tokens() -> None:
    mark: Any = words.test_only_what_was_asked_for_counts.pytestmark[0]  # type: ignore[attr-defined]
    for found, made in mark.args[1]:
        words.test_only_what_was_asked_for_counts(found, made)


def _states_are_plain(patch: pytest.MonkeyPatch) -> None:
    def seal(self: texting.Sealer, state: Any) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(state)).decode()

    def opened(self: texting.Sealer, text: str) -> Any:
        return texting._STATES.decode(base64.urlsafe_b64decode(text))

    patch.setattr(texting.Sealer, "seal", seal)
    patch.setattr(texting.Sealer, "open", opened)


def _states_live_for_ever(patch: pytest.MonkeyPatch) -> None:
    seal = texting.Sealer.seal
    patch.setattr(
        texting.Sealer, "seal", lambda self, state: seal(self, msgspec.structs.replace(state, until_ns=1 << 62))
    )


def _every_device_has_one_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(texting.Sealer, "__init__", lambda self, key: setattr(self, "_key", b"x" * 32))


def _each_ask_begins_the_draw_anew(patch: pytest.MonkeyPatch) -> None:
    run = texts.TextNet.run
    patch.setattr(
        texts.TextNet, "run", lambda self, going: run(self, dataclasses.replace(going, seed=going.seed // 1024 * 1024))
    )


def _any_token_will_do(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "_texts_agree", lambda own, theirs: True)


def _a_tie_excuses_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "_NEAR_MARGIN", 100.0)


def _what_a_lender_says_goes(patch: pytest.MonkeyPatch) -> None:
    def anything(found: Any, steps: int, count: int, end: int) -> list[int]:
        return texting.read_answer(found.body, found.json_bytes)["tokens"].tolist()  # type: ignore[no-any-return]

    patch.setattr(words, "_tokens_of", anything)


_STATES: Callable[[], None] = api.test_a_session_is_of_this_device_this_model_and_its_time
PAIRS: list[tuple[Law, Mutant]] = [
    (_STATES, _states_are_plain),
    (_STATES, _states_live_for_ever),
    (_STATES, _every_device_has_one_key),
    (_chunks, _each_ask_begins_the_draw_anew),
    (laws.test_a_lenders_tokens_agree_up_to_a_near_tie, _any_token_will_do),
    (laws.test_a_lenders_tokens_agree_up_to_a_near_tie, _a_tie_excuses_all),
    (_only_tokens, _what_a_lender_says_goes),
]


@each_law(PAIRS)
def test_laws_hold(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_mutants_are_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
