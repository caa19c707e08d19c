"""A mutant for each rule of thumbnails: break the rule, and a law that stands for it must fail."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from swarmd.bridges.record import thumbs as record
from swarmd.eye import thumbs as eye
from swarmd.ground import thumbs as ground
from swarmd_models import redaction
from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.state.crdt import facts
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.thumbs import fetching, form, messages, shelf
from swarmd_protocols.thumbs.fetching import Fetching
from swarmd_protocols.thumbs.shelf import Shelf
from swarmd_protocols.thumbs.thumbs import Thumbs
from tests.property import test_thumbs_laws as laws
from tests.support.mutants import Law, Mutant, assert_found, each_mutant
from tests.unit import test_eye_thumbs as eye_laws
from tests.unit import test_findings_only as findings_laws
from tests.unit import test_ground_thumb_source as ground_laws
from tests.unit import test_record_thumbs as record_laws
from tests.unit import test_redaction as redaction_laws
from tests.unit import test_thumbs_form as form_laws
from tests.unit import test_thumbs_vectors as vectors
from tests.unit import test_track_pictures as feed_laws


def another_picture_under_a_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "name_of", lambda jpeg: laws.name_of(laws.GOOD))


def any_form_is_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "problem_of", lambda data: "")


def a_bomb_is_a_picture(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(form, "WIDTH_MAX", 65_535)
    patch.setattr(form, "HEIGHT_MAX", 65_535)


def what_follows_the_scan_is_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(form, "_problem_of_scan", lambda segment, coded, components: "")


def the_answer_of_anybody_is_taken(patch: pytest.MonkeyPatch) -> None:
    def on_here(self: Fetching, sender: Any, name: bytes, jpeg: bytes, now_ns: int) -> list[Any]:
        self._wanted.pop(name, None)
        self._keep(name, sender, jpeg)
        return [fetching._learned(name, jpeg)]

    patch.setattr(Fetching, "on_here", on_here)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetching, "_keep", lambda self, name, author, jpeg: None)


def strangers_are_answered(patch: pytest.MonkeyPatch) -> None:
    on_peers = Thumbs.on_peers

    def everybody(self: Thumbs, peers: Any, now_ns: int) -> list[Any]:
        effects = on_peers(self, peers, now_ns)
        self._members |= frozenset(laws.id_of(index) for index in range(9))
        return effects

    patch.setattr(Thumbs, "on_peers", everybody)


def everybody_gets_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenBucket, "take", lambda self, now_ns: True)


def what_has_expired_is_given(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shelf, "_given", lambda self, name: self._held.get(name, b""))


def who_asks_most_is_next(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shelf, "_next", lambda self: max(self._askers, key=lambda one: len(self._askers[one].names)))


def nothing_that_waits_is_let_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shelf, "WAIT_NS", 1 << 62)


def nothing_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shelf, "sweep", lambda self: [])


def the_shelf_has_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shelf, "_is_full", lambda self, more_bytes: False)


def whoever_is_first_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetching, "_make_room", lambda self, author, now_ns: [])


def authors_have_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching._Held, "oldest_of", lambda self, author: next(iter(self.pictures)))


def a_failure_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "FAILED_NS", 0)


def people_are_pictured(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eye.ThumbMaker, "_is_private", lambda self, label: False)


def nobody_is_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redaction.Redactor, "shows_somebody", lambda self, image: False)


def what_was_found_is_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redaction, "without_private_parts", lambda image, detections: image)


def who_cannot_look_shows(patch: pytest.MonkeyPatch) -> None:
    find = redaction.Redactor.find
    patch.setattr(redaction.Redactor, "find", lambda self, image: find(self, image) or [])


def all_is_a_finding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redaction, "only_findings", lambda image, boxes: image)


def a_thumbnail_shows_its_surroundings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eye, "only_findings", lambda image, boxes: image)


def words_cover_nothing_in_frames(patch: pytest.MonkeyPatch) -> None:
    begin = redaction.Redactor.__init__
    patch.setattr(redaction.Redactor, "__init__", lambda self, *a, **b: begin(self, *a, **b | {"never": ()}))


def masks_are_none(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redaction, "read_masks", lambda texts: ())


def parts_are_not_searched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redaction, "TILED_FROM_PX", 1 << 30)


def who_stands_beside_is_pictured(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eye, "_touch", lambda a, b: False)


def a_person_is_gone_as_soon_as_he_is_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eye, "PRIVATE_NS", 0)


def pictures_come_with_every_frame(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eye, "AGAIN_NS", 0)


def names_travel_though_there_are_none(patch: pytest.MonkeyPatch) -> None:
    encode = facts._ENCODE

    def wordy(body: Any) -> bytes:
        fields = [getattr(body, name, ()) for name in facts._Pictured.__struct_fields__]
        return encode(facts._Pictured(*fields))

    patch.setattr(facts, "_ENCODE", wordy)


def the_page_believes_the_daemon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ground, "checked", lambda name, jpeg: "")


def a_label_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    def pictured(self: Any, detection: Any) -> Any:
        crop = self._crops.pop(detection.track_id, None)
        return detection if crop is None else feed_laws.replace(detection, thumb=laws.name_of(crop.jpeg))

    patch.setattr(feed_laws.TrackFeed, "_pictured", pictured)


def the_last_picture_is_not_said(patch: pytest.MonkeyPatch) -> None:
    worth = OwnSightings._worth_saying
    patch.setattr(
        OwnSightings,
        "_worth_saying",
        lambda self, said, row, ending: worth(self, said._replace(thumb=row.thumb), row, ending),
    )


def a_recording_believes_the_bus(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record, "name_of", lambda jpeg: laws.name_of(record_laws.jpeg(1)))


def a_recording_takes_any_form(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record, "problem_of", lambda data: "")


def a_strangers_recording_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ground, "problem_of", lambda data: "")


def of_a_strangers_recording() -> None:
    with pytest.MonkeyPatch.context() as patch:
        record_laws.test_a_strangers_recording_shows_pictures_of_the_form_or_none(patch)


def askers_that_agree() -> None:
    laws.test_askers_that_agree_leave_another_its_turn(12)


def a_bomb_has_not_the_form() -> None:
    form_laws.test_nothing_else_has_it("a bomb")


def a_second_scan_has_not_the_form() -> None:
    form_laws.test_nothing_else_has_it("two scans")


def another_picture_is_never_shown() -> None:
    laws.test_what_is_not_the_picture_of_its_name_is_never_shown("another picture under the name")


def without_its_model() -> None:
    with tempfile.TemporaryDirectory() as folder:
        redaction_laws.test_without_its_model_no_picture_leaves_and_it_is_said_once(Path(folder))


def a_person_never() -> None:
    eye_laws.test_people_never("person")


def who_stands_beside() -> None:
    with tempfile.TemporaryDirectory() as folder:
        findings_laws.test_whoever_stands_beside_a_finding_is_in_nothing_that_leaves(Path(folder))


def a_rider() -> None:
    with tempfile.TemporaryDirectory() as folder:
        findings_laws.test_a_private_finding_shows_nothing_of_itself("rider on a bike", Path(folder))


PAIRS: list[tuple[Law, Mutant]] = [
    (another_picture_is_never_shown, another_picture_under_a_name),
    (a_bomb_has_not_the_form, any_form_is_good),
    (a_bomb_has_not_the_form, a_bomb_is_a_picture),
    (a_second_scan_has_not_the_form, what_follows_the_scan_is_not_read),
    (laws.test_what_nobody_asked_for_is_not_taken, the_answer_of_anybody_is_taken),
    (laws.test_a_picture_comes_and_is_fetched_once, nothing_is_kept),
    (laws.test_only_members_are_answered_and_only_they_are_asked, strangers_are_answered),
    (laws.test_nobody_makes_a_node_give_more_than_its_rate, everybody_gets_all),
    (askers_that_agree, who_asks_most_is_next),
    (laws.test_what_waits_for_a_turn_is_answered_or_let_go, nothing_that_waits_is_let_go),
    (laws.test_one_asker_leaves_room_for_the_others, everybody_gets_all),
    (laws.test_what_no_sighting_names_is_neither_asked_for_nor_given, what_has_expired_is_given),
    (laws.test_what_no_sighting_names_is_neither_asked_for_nor_given, nothing_expires),
    (laws.test_what_is_held_is_bounded_in_all_and_of_each_author, the_shelf_has_no_end),
    (laws.test_a_flood_of_one_author_does_not_push_out_the_others, authors_have_no_bound),
    (laws.test_what_is_wanted_of_one_author_leaves_room_for_the_others, whoever_is_first_is_waited_for),
    (laws.test_who_is_out_of_reach_is_not_asked_and_that_is_said, a_failure_is_forgotten),
    (a_person_never, people_are_pictured),
    (redaction_laws.test_a_thumbnail_with_somebody_is_not_made_and_tried_again_later, nobody_is_looked_for),
    (redaction_laws.test_what_it_finds_is_covered_though_the_running_model_saw_nothing, what_was_found_is_shown),
    (without_its_model, who_cannot_look_shows),
    (who_stands_beside, all_is_a_finding),
    (who_stands_beside, a_thumbnail_shows_its_surroundings),
    (a_rider, words_cover_nothing_in_frames),
    (findings_laws.test_a_private_finding_opens_no_margin_around_itself, words_cover_nothing_in_frames),
    (redaction_laws.test_masks_are_covered_whatever_is_found_and_without_the_detector_too, masks_are_none),
    (redaction_laws.test_a_large_picture_is_searched_in_parts_too, parts_are_not_searched),
    (eye_laws.test_nobody_is_ever_in_a_picture, who_stands_beside_is_pictured),
    (a_person_never, a_person_is_gone_as_soon_as_he_is_missed),
    (eye_laws.test_a_better_look_comes_after_a_while_or_with_the_end, pictures_come_with_every_frame),
    (vectors.test_off_means_not_one_byte, names_travel_though_there_are_none),
    (ground_laws.test_what_is_not_the_picture_never_gets_to_the_page, the_page_believes_the_daemon),
    (record_laws.test_what_is_not_the_picture_of_its_name_is_not_written, a_recording_believes_the_bus),
    (record_laws.test_what_is_not_the_picture_of_its_name_is_not_written, a_recording_takes_any_form),
    (of_a_strangers_recording, a_strangers_recording_is_believed),
    (feed_laws.test_a_picture_of_another_label_is_not_told, a_label_does_not_matter),
    (feed_laws.test_the_first_picture_and_the_last_are_said, the_last_picture_is_not_said),
]


@each_mutant(PAIRS)
def test_the_law_finds_it(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
