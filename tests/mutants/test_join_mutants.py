"""Each check on devices that join by a token is removed in turn, and the law that it keeps is then seen to break."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd.cli.admit import Listener
from swarmd.identity import admission
from swarmd.identity.fleet import Fleet, create_fleet
from tests.integration import test_join_network as network
from tests.support.mutants import assert_found
from tests.unit import test_join_tokens as tokens


def test_a_token_that_certifies_again_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def forgets(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(admission, "was_certified", lambda *_: False)

    law = tokens.test_law_a_token_certifies_one_key_once
    assert_found(forgets, lambda: law(tmp_path_factory), monkeypatch)


def test_a_desk_that_remembers_no_question_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def forgets(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(admission, "HEARD_MAX", 0)

    def law() -> None:
        fleet = create_fleet(tmp_path / "fleet", "acme", tokens.ROLES)
        fleet.enrol("first", "farm")
        tokens.test_a_question_that_is_played_again_opens_nothing_and_is_bounded(fleet)

    assert_found(forgets, law, monkeypatch)


fleet, address = network.fleet, network.address


def test_a_desk_that_makes_no_room_is_found(
    fleet: Fleet, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hoards(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Listener, "_make_room", lambda _: None)
        patch.setattr(network, "wait_for", _soon)

    law = network.test_who_only_connects_keeps_no_device_out
    assert_found(hoards, lambda: law(fleet, address, tmp_path, monkeypatch), monkeypatch)


def _soon(condition: Callable[[], object], *_: object) -> None:
    until_s = time.monotonic() + 2
    while not condition():
        assert time.monotonic() < until_s, "it does not come to pass"
        time.sleep(0.02)
