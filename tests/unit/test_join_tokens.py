"""Joining by a token, against hostile devices and desks: wrong, used, over, played again, mangled, of another fleet."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.cli.main import main
from swarmd.identity import admission, join_tokens
from swarmd.identity.admission import ASKED_BURST, Desk
from swarmd.identity.desk import submit
from swarmd.identity.enrolment import decode_enrolment
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd.identity.join_channel import (
    REFUSED,
    Answer,
    JoinError,
    Question,
    ask,
    open_answer,
    open_question,
    seal_answer,
)
from swarmd.identity.join_tokens import Token, TokenError, kept_of, make_token, parse_token
from swarmd.identity.officers import Passphrases
from swarmd.identity.prepared import add_signature, read
from swarmd.identity.signers import open_signer
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.trust.trust import Trust

CRYPTO = NaClCrypto()
ROLES = {"root": (1, 1), "enrol": (1, 1), "revoke": (1, 1)}
SEED, OTHER = b"d" * 32, b"e" * 32


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = create_fleet(tmp_path / "fleet", "acme", ROLES)
    made.enrol("first", "farm")
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_800_000_000.0]
    for module in (admission, join_tokens):
        monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def desk(fleet: Fleet, *, keys: bool = True) -> Desk:
    paths = sorted((fleet.folder / "keys").glob("enrol-*.key")) if keys else []
    return Desk(fleet.folder, [open_signer(str(path), Passphrases()) for path in paths])


def join(at: Desk, token: Token, seed: bytes = SEED) -> Answer:
    question = ask(token, seed)
    return open_answer(token, question, at.answer(question.frame).frame)


def test_a_device_is_enrolled_by_a_token_and_its_key_never_travels(fleet: Fleet) -> None:
    token = make_token(fleet, "farm", "drone-1", ["10.0.0.5:7990"], roles=["gateway"])
    assert parse_token(token.text) == token
    question = ask(token, SEED)
    outcome = desk(fleet).answer(question.frame)
    answer = open_answer(token, question, outcome.frame)
    assert answer.kind == "enrolled"
    given_back = decode_enrolment(answer.payload)
    node = node_id_of(CRYPTO.public_key(SEED))
    assert outcome.enrolled == node
    certificate = fleet.trust_of("farm").certified(node)
    assert certificate is not None
    assert (certificate.name, certificate.roles) == ("drone-1", ("gateway",))
    for secret in (SEED, token.secret, token.key):
        assert secret not in question.frame + outcome.frame
    for group in given_back.group_keys:
        assert group not in outcome.frame, "the group key is sealed"
    assert "node " + node.hex() in outcome.told
    assert token.secret.hex() not in (fleet.folder / "tokens" / token.id.hex()).read_text()


def test_a_token_belongs_to_the_first_device_that_comes(fleet: Fleet) -> None:
    token = make_token(fleet, "farm", "drone-1", [])
    at = desk(fleet)
    first = join(at, token)
    assert first.kind == "enrolled"
    again = join(at, token)
    assert decode_enrolment(again.payload).certificate == decode_enrolment(first.payload).certificate, "a lost answer"
    second = join(at, token, OTHER)
    assert second.kind == "refused"
    assert "used by another device, with the key SHA256:" in second.text
    assert "revoke drone-1" in second.text
    assert second.payload == b""
    assert [one.name for one in fleet.nodes("farm")] == ["drone-1", "first"]


def test_a_token_is_over_in_time(fleet: Fleet, clock: list[float]) -> None:
    token = make_token(fleet, "farm", "drone-1", [], life_s=60)
    late = make_token(fleet, "farm", "drone-2", [], life_s=60)
    at = desk(fleet)
    clock[0] += 59
    assert join(at, token).kind == "enrolled"
    clock[0] += 2
    answer = join(at, late)
    assert (answer.kind, "is over" in answer.text) == ("refused", True)
    assert join(at, token).kind == "enrolled", "who has used it in time may ask again"
    clock[0] += 60 * 86_400
    make_token(fleet, "farm", "drone-3", [])
    assert kept_of(fleet.folder, token.id) is None, "and it is forgotten in the end"
    with pytest.raises(JoinError, match="refuses the token"):
        join(at, token)


def test_a_name_that_is_in_force_a_revoked_device_and_a_used_name(fleet: Fleet) -> None:
    at = desk(fleet)
    assert "is node" in join(at, make_token(fleet, "farm", "first", [])).text
    replaced = join(at, make_token(fleet, "farm", "first", [], replace=True))
    assert replaced.kind == "enrolled"
    fleet.revoke("farm", [node_id_of(CRYPTO.public_key(SEED))], "lost")
    for name in ("first", "drone-9"):
        answer = join(at, make_token(fleet, "farm", name, [], replace=True))
        assert (answer.kind, "revoked: lost" in answer.text, answer.payload) == ("refused", True, b"")


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_law_a_token_certifies_one_key_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever happened to a name since: by a token that was used nobody comes in whom the officers put out."""
    fleet = create_fleet(tmp_path_factory.mktemp("law") / "fleet", "acme", ROLES)
    fleet.enrol("first", "farm")
    seeds = [bytes([number]) * 32 for number in range(3)]
    used: dict[int, Token] = {}
    for number in data.draw(st.permutations(range(3))):
        token = make_token(fleet, "farm", "drone-1", [], replace=True)
        assert join(desk(fleet), token, seeds[number]).kind == "enrolled"
        used[number] = token
        if data.draw(st.booleans(), label="lost"):
            fleet.revoke("farm", [node_id_of(CRYPTO.public_key(seeds[number]))], "lost")
        if data.draw(st.booleans(), label="enrol keys replaced, and nothing kept"):
            fleet.change_role("enrol", 1, 1, stolen=True)

        def members(trust: Trust) -> set[NodeId]:
            known = [node_id_of(CRYPTO.public_key(seed)) for seed in seeds]
            return {node for node in known if trust.certified(node) is not None}

        before = members(fleet.trust_of("farm"))
        for again, old in used.items():
            answer = join(desk(fleet), old, seeds[again])
            assert (answer.kind == "enrolled") == (node_id_of(CRYPTO.public_key(seeds[again])) in before), answer
        assert members(fleet.trust_of("farm")) == before


def test_where_the_key_is_not_here_officers_sign_and_the_device_waits(fleet: Fleet, tmp_path: Path) -> None:
    token = make_token(fleet, "farm", "drone-1", [])
    at = desk(fleet, keys=False)
    answer = join(at, token)
    assert (answer.kind, "enrol takes 1 signatures" in answer.text) == ("waiting", True)
    assert join(at, token).kind == "waiting"
    assert join(at, token, OTHER).kind == "refused", "bound before it is signed"
    path = fleet.folder / "pending" / "enrol-drone-1"
    key = open_signer(str(fleet.folder / "keys" / "enrol-1.key"), Passphrases())
    submit(fleet.folder, add_signature(read(path), key))
    assert join(at, token).kind == "enrolled"

    # A root came meanwhile: what waits is prepared anew for the officers of now.
    other = make_token(fleet, "farm", "drone-2", [])
    assert join(at, other, OTHER).kind == "waiting"
    fleet.change_role("enrol", 1, 1)
    assert join(at, other, OTHER).kind == "waiting"
    key = open_signer(str(fleet.folder / "keys" / "enrol-2.key"), Passphrases())
    submit(fleet.folder, add_signature(read(fleet.folder / "pending" / "enrol-drone-2"), key))
    assert join(at, other, OTHER).kind == "enrolled"


def test_a_question_that_is_played_again_opens_nothing_and_is_bounded(fleet: Fleet) -> None:
    token = make_token(fleet, "farm", "drone-1", [])
    at = desk(fleet)
    question = ask(token, SEED)
    answers = [at.answer(question.frame).frame for _ in range(100)]
    assert sum(answer != REFUSED for answer in answers) == 1
    assert join(at, token).kind == "enrolled", "who plays it again takes nothing from the device"
    assert len([one for one in fleet.nodes("farm") if one.name == "drone-1"]) == 1
    assert len(list((fleet.folder / "swarms" / "farm").glob("node-drone-1-*"))) == 1, "nothing is signed twice"
    thief = Question(question.frame, question.head, bytes(31) + b"\1")
    with pytest.raises(JoinError, match="does not know the token"):
        open_answer(token, thief, answers[0])


def test_who_plays_a_question_again_does_not_keep_a_waiting_device_from_asking(fleet: Fleet) -> None:
    token = make_token(fleet, "farm", "drone-1", [])
    at = desk(fleet, keys=False)
    recorded = ask(token, SEED).frame
    at.answer(recorded)
    for _ in range(3 * ASKED_BURST):
        at.answer(recorded)
        at.answer(recorded[:-1] + bytes([recorded[-1] ^ 1]))
    assert join(at, token).kind == "waiting"


def test_who_finds_the_token_later_cannot_open_what_was_recorded(fleet: Fleet) -> None:
    token = make_token(fleet, "farm", "drone-1", [])
    question = ask(token, SEED)
    recorded = desk(fleet).answer(question.frame).frame
    later = ask(token, OTHER)
    with pytest.raises(JoinError):
        open_answer(token, Question(question.frame, question.head, later.secret), recorded)


def test_a_token_of_another_fleet_and_a_desk_that_does_not_know_it(fleet: Fleet, tmp_path: Path) -> None:
    other = create_fleet(tmp_path / "other", "acme", ROLES)
    other.enrol("x", "farm")
    token = make_token(other, "farm", "drone-1", [])
    assert desk(fleet).answer(ask(token, SEED).frame).frame == REFUSED
    with pytest.raises(JoinError, match="another fleet's"):
        join(desk(fleet), token)
    forged = msgspec.structs.replace(make_token(fleet, "farm", "drone-2", []), secret=bytes(32))
    assert desk(fleet).answer(ask(forged, SEED).frame).frame == REFUSED, "the id alone is nothing"
    liar = msgspec.structs.replace(token, secret=b"l" * 32)
    question = ask(token, SEED)
    asked = open_question(ask(liar, SEED).frame, liar.key)
    with pytest.raises(JoinError, match="does not know the token"):
        open_answer(token, question, seal_answer(asked, Answer("enrolled", "", b"x")))


def test_nobody_enrols_a_key_that_is_anothers(fleet: Fleet) -> None:
    """A question's signature is by the key that it brings, over this very exchange."""
    from swarmd.identity import join_channel

    token = make_token(fleet, "farm", "drone-1", [])
    honest = ask(token, OTHER)
    opened = open_question(honest.frame, token.key)
    mine = ask(token, SEED)
    stolen = join_channel._Request(opened.public, CRYPTO.sign(SEED, join_channel._signed(mine.head)))
    key = join_channel._derive(token.key, b"question", mine.head)
    frame = mine.head + join_channel._seal(key, mine.head, msgspec.msgpack.encode(stolen))
    assert desk(fleet).answer(frame).frame == REFUSED
    played = join_channel._Request(opened.public, CRYPTO.sign(OTHER, join_channel._signed(honest.head)))
    frame = mine.head + join_channel._seal(key, mine.head, msgspec.msgpack.encode(played))
    assert desk(fleet).answer(frame).frame == REFUSED, "a signature of another exchange"
    assert [one.name for one in fleet.nodes("farm")] == ["first"]


def test_tokens_are_listed_and_taken_back(fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, out = str(fleet.folder), tmp_path / "token"
    assert main(["keys", "token", place, "drone-1", "--at", "10.0.0.5:7990", "-o", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert main(["keys", "token", place, "drone-1", "-o", str(out)]) == 1
    assert "exists already" in capsys.readouterr().err
    token = parse_token(out.read_text())
    make_token(fleet, "farm", "drone-2", [])
    assert join(desk(fleet), token).kind == "enrolled"
    assert main(["keys", "tokens", place, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tokens"]
    assert [(row["node"], row["state"]) for row in rows] == [("drone-1", "used"), ("drone-2", "open")]
    assert rows[0]["key"].startswith("SHA256:")
    assert main(["keys", "tokens", place, "--take-back", "drone-3"]) == 1
    assert "did you mean 'drone-" in capsys.readouterr().err
    assert main(["keys", "tokens", place, "--take-back", "drone-1"]) == 0
    assert desk(fleet).answer(ask(token, SEED).frame).frame == REFUSED
    assert "drone-1" not in capsys.readouterr().out
    for words in (
        ["token", place, "..", "--at", "x:1"],
        ["token", place, "a", "--at", "x"],
        ["token", place, "a", "--minutes", "0"],
    ):
        assert main(["keys", *words]) == 1


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_mangled_questions_and_answers_are_refused(data: st.DataObject) -> None:
    token = Token(b"i" * 8, b"s" * 32, b"r" * 32, "drone-1", "farm", ())
    question = ask(token, SEED)
    answer = seal_answer(open_question(question.frame, token.key), Answer("enrolled", "ok", b"p" * 300))
    assert open_answer(token, question, answer).payload == b"p" * 300
    for frame, check in (
        (question.frame, lambda bad: open_question(bad, token.key)),
        (answer, lambda bad: open_answer(token, question, bad)),
    ):
        at = data.draw(st.integers(0, len(frame) - 1))
        flipped = frame[:at] + bytes([frame[at] ^ data.draw(st.integers(1, 255))]) + frame[at + 1 :]
        cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
        for bad in (flipped, cut, data.draw(st.binary(max_size=600)), frame + b"\0", bytes(32) + frame[32:]):
            with pytest.raises(JoinError):
                check(bad)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mangled_token_is_refused_with_a_sentence(data: st.DataObject) -> None:
    text = Token(b"i" * 8, b"s" * 32, b"r" * 32, "drone-1", "farm", ("10.0.0.5:7990",)).text
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ABCxyz019-_é\x00 "))
    for bad in (text[:at], text[:at] + other + text[at + 1 :], data.draw(st.text(max_size=3_000)), text + "AAAA"):
        if bad.strip() == text:
            continue
        with pytest.raises(TokenError):
            parse_token(bad)
