"""Mutants of first contact: each breaks one rule of what strangers are given, and a law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.channel import contact as contact_module
from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.channel import Channel
from swarmd_protocols.channel.contact import Contacts
from swarmd_protocols.swim.first_contact import FirstContact
from tests.property import test_stranger_laws as laws
from tests.support.mutants import Mutant, assert_found
from tests.unit import test_swim_hostile as hostile


def full_answer_to_a_frame_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FirstContact, "unopened", lambda self, source, _: self._sender.hello(source, True))


def hellos_open_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact_module, "_NONCES_MAX", 0)


def cookie_without_address(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Channel._cookie
    monkeypatch.setattr(Channel, "_cookie", lambda self, source, epoch: genuine(self, "", epoch))


def cookie_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contacts, "on_cookie", lambda self, source, frame, now_ns: None)


def notice_always_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contacts, "on_notice", lambda self, frame, last_counter: 1)


def notice_under_the_newest_key(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Channel.seal_notice
    monkeypatch.setattr(Channel, "seal_notice", lambda self, frame, group=None: genuine(self, frame))


def notice_under_the_key_of_the_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Channel.seal_notice
    monkeypatch.setattr(Channel, "seal_notice", lambda self, frame, group=None: genuine(self, frame, 1))


def only_the_newest_key_greets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact_module, "_TURNS", 1 << 60)


def only_the_newest_key_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "older_group", lambda self, turn: None)


def one_bucket_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[int, TokenBucket] = {}

    def begin(self: Contacts, *arguments: object) -> None:
        genuine(self, *arguments)  # type: ignore[arg-type]
        bucket = shared.setdefault(id(self), self._own)
        self._own = self._unproven = self._proven = self._notice_bucket = self._cookie_bucket = bucket

    genuine = Contacts.__init__
    monkeypatch.setattr(Contacts, "__init__", begin)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (full_answer_to_a_frame_that_does_not_open, laws.test_answers_to_strangers_are_no_longer_than_what_they_sent),
        (hellos_open_twice, laws.test_a_frame_that_is_played_again_earns_nothing),
        (cookie_without_address, laws.test_under_load_only_a_returned_cookie_is_answered_in_full),
        (cookie_never_returned, laws.test_a_newcomer_returns_its_cookie_when_nothing_is_left_without),
        (notice_always_believed, laws.test_a_notice_is_believed_once_it_names_a_frame_of_this_boot),
        (notice_under_the_newest_key, lambda: laws.test_two_notices_reach_whoever_holds_either_group_key(1)),
        (notice_under_the_key_of_the_hello, lambda: laws.test_two_notices_reach_whoever_holds_either_group_key(2)),
        (
            only_the_newest_key_greets,
            lambda: hostile.test_who_alone_was_told_the_newest_group_key_meets_the_others(is_known=False),
        ),
        (
            only_the_newest_key_is_spoken,
            lambda: hostile.test_who_alone_was_told_the_newest_group_key_meets_the_others(is_known=True),
        ),
        (one_bucket_for_all, laws.test_junk_spends_nothing_of_what_newcomers_need),
    ],
)
def test_the_law_finds_the_mutant(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
