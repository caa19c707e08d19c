"""A mutant for each promise of the ground view; the law that stands for it finds it."""

import asyncio
from itertools import islice

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.ground import exports, facts, grown, guard, live, past, picture, reports, server
from tests.integration import test_ground_server as served_laws
from tests.property import test_ground_picture as laws
from tests.support.ground import serving
from tests.support.mutants import assert_found
from tests.unit import test_ground_grown as grown_laws
from tests.unit import test_ground_live as live_laws
from tests.unit import test_ground_reports as report_laws


def _one_change_is_forgotten(patch):
    def since(self, epoch, after):
        if epoch != self.epoch or not self.seq - len(self._ring) <= after <= self.seq:
            return None
        return islice(self._ring, len(self._ring) - (self.seq - after) + 1, None)

    patch.setattr(picture.Picture, "since", since)


def _who_lags_is_not_told(patch):
    patch.setattr(picture.Picture, "since", lambda self, epoch, after: iter(self._ring))


def _the_same_again_is_news(patch):
    put = picture.Picture.put

    def anew(self, kind, row, at_s):
        self._rows[kind].pop(row.id, None)
        return put(self, kind, row, at_s)

    patch.setattr(picture.Picture, "put", anew)


def _a_snapshot_is_one_piece(patch):
    patch.setattr(picture, "PIECE_ROWS", 1 << 30)


def _gaps_are_hidden(patch):
    patch.setattr(past, "GAP_S", 1e9)


def _nothing_is_too_much(patch):
    patch.setattr(past.Past, "_bytes", lambda self: 0)


def _the_past_is_the_blocks_beginning(patch):
    moment = past._moment
    patch.setattr(past, "_moment", lambda block, at_s: moment(past.Block(block.rows, []), at_s))


def _marks_are_dropped(patch):
    between = past.Past._marks_between
    patch.setattr(past.Past, "_marks_between", lambda self, from_s, to_s: between(self, from_s, to_s)[::2])


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_one_change_is_forgotten, laws.test_who_lags_too_far_behind_or_comes_from_another_life_starts_anew),
        (_who_lags_is_not_told, laws.test_who_lags_too_far_behind_or_comes_from_another_life_starts_anew),
        (_the_same_again_is_news, laws.test_the_same_again_is_no_change_and_numbers_leave_no_gap),
        (_a_snapshot_is_one_piece, laws.test_no_piece_of_a_snapshot_holds_more_than_a_few_rows),
    ],
)
def test_the_law_of_the_picture_finds_the_fault(monkeypatch, fault, law):
    assert_found(fault, law, monkeypatch)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_gaps_are_hidden, laws.test_where_nothing_was_written_down_there_is_a_gap),
        (_nothing_is_too_much, laws.test_the_history_stays_within_its_bounds),
        (_the_past_is_the_blocks_beginning, laws.test_a_moment_within_a_block_is_as_it_was_then),
        (_marks_are_dropped, laws.test_many_marks_are_counted_in_bins_and_none_is_lost),
    ],
)
def test_the_law_of_the_past_finds_the_fault(monkeypatch, tmp_path, fault, law):
    assert_found(fault, lambda: law(tmp_path), monkeypatch)


def _any_name_is_served(patch):
    patch.setattr(guard, "is_local_host", lambda host: True)


def _nobody_is_asked_where_he_comes_from(patch):
    patch.setattr(server, "refusal", lambda method, path, headers: (0, ""))


def _formulas_go_out(patch):
    patch.setattr(exports, "cell", lambda value: value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_any_name_is_served, lambda one: served_laws.test_other_names_are_refused(one, "evil.example")),
        (_nobody_is_asked_where_he_comes_from, served_laws.test_pages_of_other_origins_are_refused),
        (_formulas_go_out, served_laws.test_exports_carry_no_formula),
    ],
)
def test_the_law_of_the_server_finds_the_fault(monkeypatch, tmp_path, fault, law):
    with serving(tmp_path) as served:
        assert_found(fault, lambda: law(served), monkeypatch)


def _what_others_say_is_said_as_it_is(patch):
    patch.setattr(facts, "clean", lambda text, most: text)


def _what_is_gone_stays(patch):
    patch.setattr(picture.Picture, "drop", lambda self, kind, name, at_s: None)


def _nobody_looks_again(patch):
    patch.setattr(live.LiveFeed, "_sweep", lambda self: asyncio.sleep(0))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_what_others_say_is_said_as_it_is, live_laws.test_what_other_nodes_say_is_short_and_written_forwards),
        (_what_is_gone_stays, live_laws.test_cells_alerts_and_events_are_shown),
        (_nobody_looks_again, live_laws.test_objects_follow_the_bus_and_the_sweep_finds_what_it_did_not_tell),
    ],
)
def test_the_law_of_the_feed_finds_the_fault(monkeypatch, fault, law):
    assert_found(fault, lambda: asyncio.run(law(monkeypatch)), monkeypatch)


def _names_are_markup(patch):
    patch.setattr(exports, "inert", lambda value: exports.escape(exports._NO_XML.sub("?", str(value))))


def _a_report_has_no_end(patch):
    patch.setattr(reports, "FINDINGS_MAX", 1 << 60)


def _candidates_come_first(patch):
    patch.setattr(exports, "findings", lambda site, objects: list(reversed(reports.findings(site, objects))))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_names_are_markup, report_laws.test_hostile_names_are_data_in_kml),
        (_a_report_has_no_end, report_laws.test_a_report_has_a_bound_and_says_what_it_leaves_out),
        (_candidates_come_first, report_laws.test_the_gravest_come_first),
    ],
)
def test_the_law_of_the_reports_finds_the_fault(monkeypatch, fault, law):
    assert_found(fault, law, monkeypatch)


def _what_is_known_now_was_known_then(patch):
    at = grown.Grown.at
    patch.setattr(grown.Grown, "at", lambda self, at_s, names: at(self, max(at_s, self.moments[-1]), names))


def _verdicts_to_come_count(patch):
    patch.setattr(grown, "settled", lambda reviews: ("confirmed", "crack"))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_what_is_known_now_was_known_then, grown_laws.test_an_object_grows_and_nothing_is_known_before_it_was_said),
        (_verdicts_to_come_count, grown_laws.test_a_label_that_operators_gave_later_is_not_shown_before),
    ],
)
def test_the_law_of_the_fetched_past_finds_the_fault(monkeypatch, fault, law):
    assert_found(fault, law, monkeypatch)
