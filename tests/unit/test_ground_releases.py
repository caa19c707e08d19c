"""The board of releases tells what the protocol counts, and an order that is prepared on it is one that nodes take."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from swarmd.api.daemon import Operations
from swarmd.api.verbs import Verbs
from swarmd.errors import DaemonError
from swarmd.ground import rows
from swarmd.ground.picture import Picture
from swarmd.ground.releases import ReleaseFeed
from swarmd.identity import prepared
from swarmd.release import board
from swarmd.release.board import Board
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.releases.rollout import due_count, ranks
from tests.support.release_world import MODEL, World, make_release

CRYPTO = NaClCrypto()
HOSTILE = "=1+1 \u202e<img src=x>\n"


class Watched:
    """One node of a swarm in virtual time, as the ground view sees it."""

    def __init__(self, world: World, at: int = 0) -> None:
        self.world = world
        self.verbs = Verbs()
        service = SimpleNamespace(protocol=world.nodes[at])
        names = {node: f"p{number:02}" for number, node in enumerate(world.ids)}
        Board(cast("Any", service), lambda: names).register(self.verbs)
        self.picture = Picture()
        self.marks: list[rows.Mark] = []
        self.feed = ReleaseFeed(cast("Operations", self), self.picture, self.marks.append)

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "") -> Mapping[str, object]:
        return self.verbs.answer_inside(verb, arguments)

    def look(self) -> tuple[list[rows.Release], list[rows.Vote]]:
        self.feed.look()
        held = self.picture.frozen()
        return (
            [msgspec.json.decode(row, type=rows.Release) for row in held["release"].values()],
            [msgspec.json.decode(row, type=rows.Vote) for row in held["vote"].values()],
        )

    def prepare(self, **arguments: object) -> rows.Prepared:
        return asyncio.run(self.feed.prepare(arguments))


def published(count: int = 6, **options: Any) -> tuple[World, bytes]:
    """A swarm to which a release was given, and the release's digest."""
    world = World(count, crypto=CRYPTO, **options)
    envelope = world.keys.sign("release", make_release().payload(), "release")
    world.run(2)
    world.publish(0, [envelope], b"model-bytes" * 1000)
    return world, envelope.digest


def test_the_board_tells_what_the_protocol_counts() -> None:
    world, digest = published(12)
    watched = Watched(world)
    for _ in range(40):
        world.run(1)
        (release,), votes = watched.look()
        node = world.nodes[0]
        standing = node.standing(MODEL, digest, node.release(MODEL, digest) or pytest.fail("it counts"))
        told = (release.stage, release.cohort, release.passes, release.needed, release.fails)
        assert told == (standing.stage, standing.cohort, standing.passes, standing.needed, standing.fails)
        order = ranks(digest, node.policy.participants(MODEL))
        assert [(vote.node, vote.rank) for vote in votes] == [(one.hex(), rank) for one, rank in order.items()]
        if not standing.promoted:
            due = due_count(standing.cohort, len(order))
            told_turns = [vote.turn for vote in votes]
            canaries = min(standing.cohort, len(order))
            assert told_turns[:canaries] == ["canary"] * canaries
            assert set(told_turns[canaries:due]) <= {"stand-in"}
            assert set(told_turns[due:]) <= {"later"}
        assert sum(vote.verdict == "PASS" for vote in votes) >= release.passes
    assert release.state == "promoted"
    assert release.is_desired
    assert len(release.signers) == 2
    assert {vote.runs for vote in votes} == {1}
    assert {(vote.verdict, vote.reason, vote.soak_s, vote.samples) for vote in votes} == {("PASS", "gates", 5, 50)}
    assert all(vote.heard_s is not None for vote in votes)
    assert any(mark.text.endswith("→ promoted") for mark in watched.marks)


def test_fails_halt_it_and_say_why() -> None:
    world, _ = published(6, healthy=lambda node, release: False)
    watched = Watched(world)
    watched.look()
    world.run(60)
    (release,), votes = watched.look()
    assert release.state == "halted"
    assert release.fails >= release.fails_to_halt == 2
    assert {vote.reason for vote in votes if vote.verdict == "FAIL"} == {"gates"}
    assert [mark.level for mark in watched.marks].count("warning") >= 3


@pytest.mark.parametrize(("what", "kind", "count"), [("halt", "halt", 1), ("revoke", "model-revoke", 1)])
def test_an_order_is_prepared_signed_elsewhere_and_followed_to_its_end(what: str, kind: str, count: int) -> None:
    """Nothing changes until the officers' keys have signed the very file; then the board says who signed and why."""
    world, digest = published()
    world.run(30)
    watched = Watched(world, at=1)
    made = watched.prepare(what=what, model=MODEL, release=digest.hex(), reason="it sees ghosts")
    assert any("it sees ghosts" in line for line in made.does)
    assert any(digest.hex() in line for line in made.does)
    assert (made.kind, made.role, made.need, len(made.keys)) == (kind, "revoke", count, 3)
    assert made.commands[-1].startswith(f"swarmd keys submit {made.name}")
    world.run(5)
    assert watched.look()[0][0].statements == []

    read = prepared.decode(made.text.encode())
    assert read.signatures == ()
    envelope = world.keys.sign(read.kind, read.payload, "revoke", count)
    world.publish(2, [envelope])
    world.run(20)
    (release,), votes = watched.look()
    (signed,) = release.statements
    assert release.state == ("halted" if what == "halt" else "revoked")
    assert (signed.kind, signed.issued_s, signed.reason) == (made.kind, made.issued_s, "it sees ghosts")
    assert set(signed.signers) <= set(made.keys)
    assert {vote.runs for vote in votes} == {0}, "every node went back"


def test_a_shut_stage_is_forced_and_an_open_one_is_not() -> None:
    world, digest = published(12, healthy=lambda node, release: True)
    watched = Watched(world)
    (release,), _ = watched.look()
    assert release.stage == 0
    for stage in (-1, 0, 4, 9):
        with pytest.raises(DaemonError, match="cannot be forced"):
            watched.prepare(what="force", model=MODEL, release=digest.hex(), stage=stage)
    made = watched.prepare(what="force", model=MODEL, release=digest.hex(), stage=2)
    assert (made.role, made.need) == ("release", 2)
    assert made.commands[-1].count(".prepared") == 2, "each of two officers signs an own copy"
    read = prepared.decode(made.text.encode())
    world.publish(0, [world.keys.sign(read.kind, read.payload, "release")])
    (release,), _ = watched.look()
    assert release.stage == 2
    assert [(one.kind, one.stage) for one in release.statements] == [("force", 2)]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"reason": " \n "}, "say why"),
        ({"release": "00" * 32}, "no such release"),
        ({"release": "no hex"}, "no such release"),
        ({"model": "other"}, "no such release"),
        ({"what": "bless"}, "there are halt, revoke, force"),
        ({"reason": "x" * 257}, "at most 256"),
    ],
)
def test_what_would_do_nothing_is_refused_in_words(changed: dict[str, object], words: str) -> None:
    world, digest = published(2)
    asked = {"what": "halt", "model": MODEL, "release": digest.hex(), "reason": "ghosts"} | changed
    with pytest.raises(DaemonError, match=words):
        Watched(world).prepare(**asked)


def test_a_hostile_reason_is_one_line_of_text() -> None:
    world, digest = published(2)
    made = Watched(world).prepare(what="halt", model=MODEL, release=digest.hex(), reason=HOSTILE)
    assert not any(character in "\u202e\n\r" for line in made.does for character in line)
    assert HOSTILE.strip() not in made.name


def test_votes_have_a_bound_whatever_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first in the order of trying are told; how many there are in all is told too."""
    monkeypatch.setattr(board, "VOTES_MAX", 5)
    world, digest = published(9)
    previous = digest
    for version in range(2, 6):
        release = make_release(b"m" * version * 1_000, version, previous)
        envelope = world.keys.sign("release", release.payload(), "release")
        world.publish(0, [envelope])
        previous = envelope.digest
    releases, votes = Watched(world).look()
    assert [release.version for release in releases] == [5, 4, 3, 2, 1]
    assert {release.nodes for release in releases} == {9}
    assert [vote.rank for vote in votes] == [0, 1, 2, 3, 4]


def test_a_daemon_without_releases_shows_none() -> None:
    class Without:
        def command(self, verb: str, arguments: Mapping[str, object], by: str = "") -> Mapping[str, object]:
            raise DaemonError(f"this daemon knows no verb {verb!r}")

    picture = Picture()
    ReleaseFeed(cast("Operations", Without()), picture, lambda mark: None).look()
    assert picture.seq == 0
