"""Each check on what officers sign is removed in turn, and the law that it keeps is then seen to break."""

from collections.abc import Callable

import msgspec
import pytest

from swarmd.identity import desk, officers, prepared, words
from tests.property.test_two_desks import TwoDesks
from tests.support.officers import NAMES
from tests.unit import test_officer_key_files as key_files
from tests.unit import test_prepared_statements as statements

Patch = Callable[[pytest.MonkeyPatch], None]


def _any_signer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prepared, "check_signer", lambda *_: None)


def _joins_whatever_comes(patch: pytest.MonkeyPatch) -> None:
    def union(one: prepared.Prepared, other: prepared.Prepared) -> prepared.Prepared:
        entries = {entry.key: entry for entry in (*other.signatures, *one.signatures)}
        return msgspec.structs.replace(one, signatures=tuple(entries[key] for key in sorted(entries)))

    patch.setattr(statements, "merge", union)


def _believes_every_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prepared, "_vouches", lambda *_: True)


def _asks_the_new_root_alone(patch: pytest.MonkeyPatch) -> None:
    whole = prepared.requirements

    def lenient(one: prepared.Prepared, root: object = None) -> list[prepared.Requirement]:
        return whole(one)[-1:]

    patch.setattr(prepared, "requirements", lenient)


def _counts_what_does_not_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prepared, "_CRYPTO", _Agreeable())


class _Agreeable:
    @staticmethod
    def verify(*_: bytes) -> bool:
        return True


def _prints_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(words, "plain", lambda text, limit=200: text)


def _says_what_the_file_says(patch: pytest.MonkeyPatch) -> None:
    def told(one: prepared.Prepared) -> words.Words:
        return words.Words(one.does[0], one.does[1:])

    patch.setattr(statements, "words", told)


def _seals_without_the_head(patch: pytest.MonkeyPatch) -> None:
    whole = officers._sealing_key
    patch.setattr(officers, "_sealing_key", lambda head, *others: whole("", *others))


def _works_as_long_as_the_file_asks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(officers, "_OPERATIONS_MAX", 1 << 60)
    patch.setattr(officers, "_MEMORY_MAX_KIB", 1 << 60)


MUTANTS: dict[str, tuple[Patch, Callable[[], object]]] = {
    "any key may sign": (_any_signer, statements.test_a_key_of_another_role_and_a_stranger_are_refused_at_once),
    "joins keep what does not hold": (
        _joins_whatever_comes,
        statements.test_joining_keeps_no_signature_that_does_not_hold,
    ),
    "names are believed": (_believes_every_name, statements.test_a_name_that_nobody_vouches_for_is_not_shown),
    "a new root judges itself": (
        _asks_the_new_root_alone,
        statements.test_a_root_takes_the_old_keys_and_the_new_ones,
    ),
    "signatures are counted, not checked": (
        _counts_what_does_not_hold,
        statements.test_joining_keeps_no_signature_that_does_not_hold,
    ),
    "text is printed as it comes": (
        _prints_everything,
        statements.test_text_in_a_statement_cannot_steer_a_terminal_or_add_a_line,
    ),
    "the file's own words are shown": (
        _says_what_the_file_says,
        statements.test_the_words_in_the_file_are_for_readers_and_change_nothing,
    ),
    "a key's head is not sealed": (
        _seals_without_the_head,
        key_files.test_the_head_of_a_key_cannot_be_changed_by_who_lacks_the_passphrase,
    ),
    "a file asks for any work": (
        _works_as_long_as_the_file_asks,
        lambda: key_files.test_a_file_cannot_ask_for_unbounded_work("17 8"),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_law_breaks_without_its_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, law = MUTANTS[name]
    law()
    mutate(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, prepared.PreparedError)):
        law()


def test_two_statements_in_one_file_are_found_by_the_law_of_two_desks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file's name is the number alone, the second of one second says that it was there already."""
    _two_of_one_second()
    monkeypatch.setattr(desk, "_digest", lambda paper: "same")
    with pytest.raises(AssertionError):
        _two_of_one_second()


def _two_of_one_second() -> None:
    desks = TwoDesks()
    try:
        desks.found()
        papers = [desks.prepare_statement(kind="revoke", at=at, other=0) for at in (0, 1)]
        for paper in papers:
            desks.submit(paper=paper, other=paper, by=NAMES)
    finally:
        desks.teardown()
