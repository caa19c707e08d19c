"""Mutants of the ground view's desk: each lets somebody act, overrule or go unwritten, and a law finds it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from swarmd.ground import operators as module
from swarmd.ground.audit import Audit
from swarmd.ground.guard import refusal
from swarmd.ground.operators import Desk
from swarmd_protocols.trust.envelopes import signed_bytes
from tests.support.mutants import assert_found, each_mutant
from tests.unit import test_ground_desk as laws


def a_challenge_is_answered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "_use", lambda self, challenge: None)


def a_challenge_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    until_s = Desk._until_s
    monkeypatch.setattr(Desk, "_until_s", lambda self, one: float("inf") if until_s(self, one) else 0.0)


def anybody_makes_challenges(monkeypatch: pytest.MonkeyPatch) -> None:
    until_s = Desk._until_s
    monkeypatch.setattr(Desk, "_until_s", lambda self, one: until_s(self, one) or self._clock() + 1)


def new_challenges_end_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    challenge = Desk.challenge

    def forgetful(self: Desk, origin: str) -> object:
        made = challenge(self, origin)
        self._asked = getattr(self, "_asked", 0) + 1  # type: ignore[attr-defined]
        if not self._asked % 64:  # type: ignore[attr-defined]
            self._secret = bytes(32)
        return made

    monkeypatch.setattr(Desk, "challenge", forgetful)


def what_does_not_fit_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never:
        def __get__(self, *_: object) -> bool:
            return False

        def __set__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(Audit, "_has_missed", Never(), raising=False)


def an_answer_does_for_any_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "login_message", lambda origin, value: signed_bytes("ground-login", value.encode()))


def any_key_may_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Everybody(tuple[bytes, ...]):
        def __contains__(self, key: object) -> bool:
            return True

    trust = laws.Swarm.trust

    def told(self: laws.Swarm) -> object:
        found = trust(self)
        found.operators = Everybody(found.operators)
        return found

    monkeypatch.setattr(laws.Swarm, "trust", told)


def a_token_outlives_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "_who", lambda self, token: self._logins.get(token) or _no())


def _no() -> None:
    raise module.NotAllowed("sign in with an operator's key first")


def a_token_lasts_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    who = Desk._who

    def lasting(self: Desk, token: str) -> object:
        if token in self._logins:
            self._logins[token].used_s = self._clock()
        return who(self, token)

    monkeypatch.setattr(Desk, "_who", lasting)


def anybody_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "_who", lambda self, token: module._Login(bytes(32), "x", 0.0))


def the_revision_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = laws.Swarm.subject
    seen: list[object] = []

    def first(self: laws.Swarm, object_id: str) -> object:
        seen.append(subject(self, object_id))
        return seen[0]

    monkeypatch.setattr(laws.Swarm, "subject", first)


def what_is_shown_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Desk.draft

    def careless(self: Desk, token: str, object_id: str, verdict: str, text: str, shown: Sequence[str]) -> object:
        return draft(self, token, object_id, verdict, text, ["00"] * module.REVIEWS_MAX)

    monkeypatch.setattr(Desk, "draft", careless)


def what_was_refused_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    reviewed = Audit.reviewed

    async def quiet(self: Audit, statement: bytes, object_id: str, outcome: str) -> None:
        if outcome == "taken":
            await reviewed(self, statement, object_id, outcome)

    monkeypatch.setattr(Audit, "reviewed", quiet)


def what_is_heard_is_written_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Audit, "_know", lambda self, digest: None)


def an_act_is_done_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    did = Audit.did

    async def late(self: Audit, what: str, by: str, key: str, **fields: str) -> None:
        if fields["outcome"] != "begun":
            await did(self, what, by, key, **fields)

    monkeypatch.setattr(Audit, "did", late)


@each_mutant(
    [
        (laws.asking_without_end_keeps_nobody_out, anybody_makes_challenges),
        (laws.asking_without_end_keeps_nobody_out, new_challenges_end_old_ones),
        (laws.what_a_full_disk_left_out_is_written_once_it_takes_lines, what_does_not_fit_is_forgotten),
        (laws.a_login_takes_a_fresh_answer_by_an_operators_key, a_challenge_is_answered_twice),
        (laws.a_login_takes_a_fresh_answer_by_an_operators_key, a_challenge_waits_for_ever),
        (laws.a_login_takes_a_fresh_answer_by_an_operators_key, an_answer_does_for_any_server),
        (laws.a_login_takes_a_fresh_answer_by_an_operators_key, any_key_may_sign_in),
        (laws.a_token_ends_with_the_role_and_with_time, a_token_outlives_the_role),
        (laws.a_token_ends_with_the_role_and_with_time, a_token_lasts_for_ever),
        (laws.a_token_ends_with_the_role_and_with_time, anybody_acts),
        (laws.a_review_is_on_the_revision_that_was_seen, the_revision_is_not_looked_at),
        (laws.a_review_is_on_the_revision_that_was_seen, what_is_shown_is_not_asked),
        (laws.a_review_is_on_the_revision_that_was_seen, what_was_refused_is_not_written),
        (laws.what_is_said_is_written_once_as_it_was_signed, what_is_heard_is_written_each_time),
        (laws.what_cannot_be_written_down_is_not_done, an_act_is_done_before_it_is_written),
    ]
)
def test_each_mutant_is_found(law: laws.Law, mutant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert_found(mutant, lambda: law(tmp_path), monkeypatch)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 0),
        ({"origin": ""}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example:7982", "origin": "http://evil.example:7982"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_post_is_json_of_this_servers_own_page(changed: dict[str, str], status: int) -> None:
    headers = {"host": "127.0.0.1:7982", "origin": "http://127.0.0.1:7982", "content-type": "application/json"}
    assert refusal("POST", "/api/v1/operator/act", headers | changed)[0] == status
    assert refusal("POST", "/api/v1/site", headers | changed)[0] in (405, 403)
    assert refusal("GET", "/api/v1/operator/act", headers)[0] == 405
