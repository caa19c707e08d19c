"""A mutant for each rule of pictures' forms: break the rule, and the test that stands for it must fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from swarmd.worker import elsewhere, forms, oip, pictures
from swarmd.worker.borrowing import Borrowing
from swarmd.worker.elsewhere import Elsewhere
from swarmd.worker.forms import Forms, Link
from swarmd.worker.hush import Hush
from swarmd_models.backends.base import Array
from tests.support import lending_pair
from tests.support.mutants import assert_found
from tests.unit import test_jpeg_scans as scans
from tests.unit import test_picture_forms as laws
from tests.unit import test_picture_lending as lending


def _other_pixels_always(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forms, "allowed", lambda self, wish, is_kept: pictures.FORMS)


def _keeping_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    whole = Forms.dress

    async def dress(self: Forms, *about: Any) -> Any:
        return await whole(self, *about[:-1], False)

    patch.setattr(Forms, "dress", dress)


def _links_are_all_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Link, "ns_per_byte", None)


def _a_way_is_never_wrong(patch: pytest.MonkeyPatch) -> None:
    def note(self: Link, size_bytes: int, took_ns: int, way_ns: int) -> None:
        self._samples.append(max(0, took_ns - way_ns) / max(1, size_bytes))

    patch.setattr(Link, "note", note)


def _the_own_model_sees_what_travels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Elsewhere, "exact_of", lambda self, asked: None)


def _equal_requests_are_one(patch: pytest.MonkeyPatch) -> None:
    """And the first to be answered ends it."""
    whole = Borrowing.exact_of

    def exact_of(self: Borrowing, number: int) -> Any:
        return None if number > 1 and number - 1 not in self._exact else whole(self, number)

    patch.setattr(Borrowing, "exact_of", exact_of)


def _what_travels_counts_as_exact(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forms.Dressed, "is_exact", True)


def _headers_are_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pictures, "_frame_of", lambda data: (60, 320, 1))


def _restarts_are_free(patch: pytest.MonkeyPatch) -> None:
    whole = pictures._judge_scan
    patch.setattr(pictures, "_judge_scan", lambda data, begin, end, most: whole(data, begin, end, 1 << 30))


def _each_marker_copies_the_rest(patch: pytest.MonkeyPatch) -> None:
    whole = pictures._judge_scan

    def judge(data: bytes, begin: int, end: int, most: int) -> None:
        for found in pictures._MARKER.finditer(data, begin, end):
            assert data[found.start() :]
        whole(data, begin, end, most)

    patch.setattr(pictures, "_judge_scan", judge)


def _a_complaint_about_a_form_is_like_any(patch: pytest.MonkeyPatch) -> None:
    """It is held against the own model, which has nothing to complain of."""
    patch.setattr(elsewhere, "is_about_form", lambda complaint, form: False)


def _any_complaint_is_about_the_form(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elsewhere, "is_about_form", lambda complaint, form: complaint is not None)


def _nobody_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forms.Unread, "note", lambda self, node, now_ns: None)


def _who_complained_is_asked_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        elsewhere,
        "replace",
        lambda one, **about: replace(one, **{**about, "but": ()}) if "but" in about else replace(one, **about),
    )


def _complaints_are_paid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lending_pair, "is_worthless", lambda data: False)


def _forms_are_read_as_they_come(patch: pytest.MonkeyPatch) -> None:
    whole = oip._judge_coded

    def judge(tensor: Any, size: Any, *about: Any) -> None:
        whole(tensor, size, *about)
        oip._decoded_input(tensor, np.dtype(np.uint8), memoryview(bytes(size)))

    patch.setattr(oip, "_judge_coded", judge)


def _sides_are_any(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pictures, "_JPEG_SIDE_MAX", 1 << 20)


def _nobody_is_hushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hush, "note", lambda self, borrower, now_ns: None)


def _all_are_hushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hush, "left_s", lambda self, borrower, now_ns: 30.0 if self._bad else 0.0)


def _columns_for_rows(patch: pytest.MonkeyPatch) -> None:
    def back(data: bytes, sides: tuple[int, ...]) -> Array:
        steps = np.frombuffer(pictures.unpacked(data, pictures.judge_sides(sides)), np.uint8).reshape(sides)
        return np.asarray(np.add.accumulate(steps, axis=1, dtype=np.uint8))

    for module in (pictures, forms):
        patch.setattr(module, "from_differences", back, raising=False)
    patch.setattr(laws, "from_differences", back)


def a_jpeg_of_other_sides_is_refused() -> None:
    laws.test_a_form_that_does_not_hold_is_refused_by_its_name("a JPEG of other sides")


def restarts_are_counted() -> None:
    scans.test_restarts_are_those_that_the_header_says(3, 1)


def a_byte_is_left_over() -> None:
    with pytest.MonkeyPatch.context() as patch:
        scans.test_nothing_is_decoded_of_a_request_that_is_wrong_otherwise(b"x", {}, patch)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_other_pixels_always, laws.test_other_pixels_go_only_where_everybody_allows_them),
    (_keeping_changes_nothing, laws.test_what_is_kept_has_one_form_whatever_the_link),
    (_a_way_is_never_wrong, laws.test_a_way_that_is_longer_than_answers_took_is_no_free_link),
    (_links_are_all_alike, laws.test_the_cheapest_form_goes_over_the_link_as_it_is),
    (_the_own_model_sees_what_travels, lending.the_own_model_answers_with_the_programs_pixels),
    (_equal_requests_are_one, lending.of_two_equal_requests_each_is_answered_with_the_programs_pixels),
    (
        _what_travels_counts_as_exact,
        laws.a_lender_is_held_against_both,
    ),
    (_headers_are_not_read, a_jpeg_of_other_sides_is_refused),
    (_restarts_are_free, restarts_are_counted),
    (_each_marker_copies_the_rest, scans.test_a_scan_is_looked_through_once_however_many_markers_it_has),
    (_a_complaint_about_a_form_is_like_any, lending.an_older_lender_is_right_and_pictures_travel_to_it_once),
    (_any_complaint_is_about_the_form, lending.a_complaint_about_something_else_is_the_programs_and_judged),
    (_nobody_is_remembered, lending.an_older_lender_is_right_and_pictures_travel_to_it_once),
    (_who_complained_is_asked_first, lending.a_form_goes_to_who_reads_it_and_where_nobody_answers_the_picture_to_all),
    (_complaints_are_paid, lending.a_complaint_costs_nothing),
    (_forms_are_read_as_they_come, a_byte_is_left_over),
    (_sides_are_any, scans.test_a_side_that_no_jpeg_has_is_none),
    (_nobody_is_hushed, laws.one_borrowers_bad_forms_silence_no_worker),
    (_all_are_hushed, laws.test_who_sends_what_cannot_be_read_is_not_read_for_a_while_and_nobody_else),
    (_columns_for_rows, laws.test_what_is_lossless_has_the_same_pixels),
]


@pytest.mark.parametrize(("mutant", "one"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], one: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, one, monkeypatch)
