"""A swarm with a gateway of its own at the same region and brokers can do nothing to another swarm."""

from pathlib import Path

import pytest

from tests.support.federation_hostile import (
    attack_as_another,
    be_answered_at_length,
    be_told_after_revocation,
    flood_another,
    keep_another_from_being_told,
    keep_newcomers_away,
    keep_the_dead_alive,
    play_back,
    push_the_past_out,
    read_another,
)


def test_a_swarm_cannot_write_as_another(tmp_path: Path) -> None:
    attack_as_another(tmp_path)


def test_what_is_played_back_uses_up_nobodys_quota(tmp_path: Path) -> None:
    play_back(tmp_path)


def test_a_flood_stays_within_its_own_quota(tmp_path: Path) -> None:
    flood_another(tmp_path)


def test_nobody_reads_what_another_says_or_is_told(tmp_path: Path) -> None:
    read_another(tmp_path)


def test_a_swarm_cannot_push_the_past_of_another_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_the_past_out(tmp_path, monkeypatch)


def test_a_gateway_that_was_shut_out_is_told_nothing(tmp_path: Path) -> None:
    be_told_after_revocation(tmp_path)


def test_what_is_played_back_keeps_no_dead_site_alive(tmp_path: Path) -> None:
    keep_the_dead_alive(tmp_path)


def test_what_is_played_back_of_one_gateway_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    keep_another_from_being_told(tmp_path)


def test_small_frames_have_no_large_answers_without_end(tmp_path: Path) -> None:
    be_answered_at_length(tmp_path)


def test_strangers_at_one_place_keep_no_newcomer_of_another_away(tmp_path: Path) -> None:
    keep_newcomers_away(tmp_path)
