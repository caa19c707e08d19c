"""A mutant for each rule of what is written down, told and kept; the law that stands for it finds it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from swarmd.brain import other_wires as other_wires_module
from swarmd.events import alerts as alerts_module
from swarmd.events import recorder as recorder_module
from swarmd.events import store as store_module
from swarmd.events.alerts import Alerts
from swarmd.events.kinds import Level
from swarmd.events.recorder import Recorder
from swarmd.events.store import EventStore
from tests.support.mutants import assert_found
from tests.unit import test_event_watch as watch_laws
from tests.unit import test_events_recorder as recorder_laws
from tests.unit import test_events_store as store_laws


def _one_witness_is_enough(patch):
    patch.setattr(recorder_module, "WITNESSES", 1)


def _everybody_says_it(patch):
    patch.setattr(recorder_module, "SAME_S", 0.0)


def _nobody_follows(patch):
    patch.setattr(Recorder, "_wait_s", lambda self, record: 1e9)


def _nothing_is_limited(patch):
    patch.setattr(Recorder, "_admits", lambda self, node: True)


def _what_flaps_is_said(patch):
    patch.setattr(recorder_module, "SAID_PER_S", 1.0)


def _every_kind_is_taken(patch):
    class All:
        def __contains__(self, kind):
            return True

    patch.setattr(recorder_module, "TOLD", All())


def _text_is_taken_as_it_is(patch):
    patch.setattr(recorder_module, "clean", lambda text, most: text)


def _this_node_answers_for_all(patch):
    original = store_module.EventStore.put
    patch.setattr(store_laws.EventStore, "put", lambda self, record, account="": original(self, record))


def _the_oldest_of_all_go(patch):
    patch.setattr(store_module, "FAIR_ROWS", 1_000_000)


def _waiting_has_no_bound(patch):
    patch.setattr(store_laws, "WAITING", 1_000_000)


def _a_damaged_file_ends_it(patch):
    patch.setattr(EventStore, "_salvage", lambda self: [])


def _a_failing_disk_is_said_each_time(patch):
    original = EventStore._failed

    def failed(self, error):
        self._problem = ""
        original(self, error)

    patch.setattr(EventStore, "_failed", failed)


def _an_alert_is_raised_again_and_again(patch):
    original = Alerts.set

    def set_(self, code, text, subject=""):
        if text:
            self._standing.pop((code, subject), None)
        original(self, code, text, subject)

    patch.setattr(Alerts, "set", set_)


def _alerts_have_no_bound(patch):
    patch.setattr(alerts_module, "STANDING_MAX", 1_000_000)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_one_witness_is_enough, recorder_laws.test_a_quick_liar_is_never_the_only_witness),
        (_everybody_says_it, recorder_laws.test_one_failure_is_said_by_two_and_known_to_all),
        (_nobody_follows, recorder_laws.test_when_the_first_two_are_gone_the_next_ones_speak),
        (_nothing_is_limited, recorder_laws.test_what_others_cause_is_charged_to_them_and_bounded),
        (_nothing_is_limited, recorder_laws.test_what_others_say_is_bounded_of_known_kinds_and_harmless_text),
        (_what_flaps_is_said, recorder_laws.test_what_flaps_is_written_down_within_bounds_and_seldom_said),
        (_every_kind_is_taken, recorder_laws.test_what_others_say_is_bounded_of_known_kinds_and_harmless_text),
        (_text_is_taken_as_it_is, recorder_laws.test_what_others_say_is_bounded_of_known_kinds_and_harmless_text),
        (_an_alert_is_raised_again_and_again, recorder_laws.test_an_alert_stands_once_until_it_is_cleared),
        (_alerts_have_no_bound, recorder_laws.test_standing_alerts_are_bounded),
    ],
)
def test_the_law_finds_the_fault(monkeypatch, fault, law):
    assert_found(fault, law, monkeypatch)


def waiting(folder: Path):
    with pytest.MonkeyPatch.context() as patch:
        store_laws.check_what_waits_is_bounded(folder, patch)


def failing(folder: Path):
    with pytest.MonkeyPatch.context() as patch:
        store_laws.test_a_failing_disk_is_said_once_events_wait_and_are_written_later(folder, patch)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_this_node_answers_for_all, store_laws.check_a_flood),
        (_the_oldest_of_all_go, store_laws.test_the_file_is_bounded_and_the_greediest_gives_way),
        (_waiting_has_no_bound, waiting),
        (_a_damaged_file_ends_it, store_laws.test_a_damaged_file_is_moved_aside_and_what_can_be_read_is_kept),
        (_a_failing_disk_is_said_each_time, failing),
    ],
)
def test_the_law_of_the_file_finds_the_fault(monkeypatch, tmp_path, fault, law):
    assert_found(fault, lambda: law(tmp_path), monkeypatch)


def test_an_outsiders_word_that_makes_a_node_unhealthy_is_found(monkeypatch):
    def graver(patch):
        kind = replace(alerts_module.ALERTS["group-key-unknown"], level=Level.ERROR)
        patch.setitem(alerts_module.ALERTS, "group-key-unknown", kind)

    law = watch_laws.test_law_no_frame_of_an_outsider_makes_a_node_unhealthy
    assert_found(graver, lambda: law(watch_laws.Brain(monkeypatch)), monkeypatch)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (("FRAMES_MIN", 1), watch_laws.test_a_node_of_another_wire_is_named_until_it_is_silent),
        (("FRAMES_MIN", 1), watch_laws.test_rubbish_names_nobody_and_floods_are_bounded),
        (("SOURCES_MAX", 1_000), watch_laws.test_rubbish_names_nobody_and_floods_are_bounded),
        (("SILENT_S", 1e9), watch_laws.test_a_node_of_another_wire_is_named_until_it_is_silent),
    ],
)
def test_the_law_of_other_wires_finds_the_fault(monkeypatch, fault, law):
    assert_found(
        lambda patch: patch.setattr(other_wires_module, *fault), lambda: law(watch_laws.Brain(monkeypatch)), monkeypatch
    )


def _its_own_address_is_waited_for(self, now_s):
    return ", ".join(self._joins)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (("JOIN_S", 0.0), watch_laws.test_a_join_that_nobody_answers_stands_until_a_member_is_reached),
        (
            ("EventWatch._unanswered", _its_own_address_is_waited_for),
            watch_laws.test_who_waits_to_be_joined_waits_for_nobody,
        ),
        (("JOINS_MAX", 1_000), watch_laws.test_who_waits_to_be_joined_waits_for_nobody),
        (("SOURCE_SILENT_S", 0.0), watch_laws.test_a_source_that_gives_no_frames_is_an_alert_while_the_eye_runs),
        (
            ("_SEEING", ("running", "finished")),
            watch_laws.test_a_source_that_gives_no_frames_is_an_alert_while_the_eye_runs,
        ),
        (
            ("_UNKNOWN_KEY", ("does not hold",)),
            watch_laws.test_who_calls_with_another_fleets_key_is_an_alert_of_who_is_alone,
        ),
    ],
)
def test_the_law_of_a_newcomers_slips_finds_the_fault(monkeypatch, fault, law):
    brain = watch_laws.Brain(monkeypatch)
    name, value = fault
    where = f"swarmd.brain.event_watch.{name}"
    assert_found(lambda patch: patch.setattr(where, value), lambda: law(brain), monkeypatch)
