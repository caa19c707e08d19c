"""The desk of operators: who may act, on which revision, and what is written of it. Mutants are held against these."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from swarmd.api.remote import Remote
from swarmd.api.reviewing import draft
from swarmd.errors import DaemonError
from swarmd.ground import audit as written
from swarmd.ground import operators as module
from swarmd.ground.audit import Audit
from swarmd.ground.operators import Desk, NotAllowed, Stale
from swarmd.release.errors import ReleaseError
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.state.crdt.places import ASSET
from swarmd_protocols.state.crdt.reviews import basis_of, join_review, open_review
from swarmd_protocols.state.observations import ObjectChanged, ObjectView, ReviewSubject, SayReview
from swarmd_protocols.state.reviews import Reviews

CRYPTO = NaClCrypto()
ALICE, BOB, MALLORY = (bytes([number]) * 32 for number in (1, 2, 3))
HERE, ELSEWHERE = "http://127.0.0.1:7982", "http://127.0.0.1:9999"
THING = "4f1c000000000000"
TARGET = (b"", "hot-spot", ASSET, "t01")


class Swarm:
    """A daemon that holds one thing, with the real rules of reviews."""

    def __init__(self) -> None:
        self.reviews = Reviews("farm", {}, CRYPTO.verify)
        self.commands: list[str] = []
        self.told: Callable[[object], None] = lambda event: None
        self.in_parts = SimpleNamespace(review_subject=self.subject, objects=self.parts)
        self.name(ALICE, BOB)

    def name(self, *seeds: bytes) -> None:
        self.reviews.know_operators(frozenset(map(CRYPTO.public_key, seeds)))

    def trust(self) -> Any:
        return SimpleNamespace(operators=tuple(self.reviews.operators))

    def info(self) -> Any:
        return SimpleNamespace(name="laptop")

    def members(self) -> list[Any]:
        return []

    def subscribe(self, callback: Callable[[object], None]) -> Callable[[], None]:
        self.told = callback
        return lambda: None

    def view(self) -> ObjectView:
        said = self.reviews.of([TARGET])
        return ObjectView(THING, "hot-spot", 900, 0, 0, None, "t01", (), 0, 0, True, 1, "", "", said)

    def parts(self) -> Iterator[list[ObjectView]]:
        yield [self.view()]

    def subject(self, object_id: str) -> ReviewSubject | None:
        if object_id != THING:
            return None
        said = self.reviews.of([TARGET])
        revision = 1 + max((one.revision for one in said), default=0)
        basis = basis_of(one.digest for one in said)
        return ReviewSubject("farm", b"", "hot-spot", ASSET, "t01", "hot-spot", basis, revision)

    def ask(self, subprotocol: str, request: SayReview) -> None:
        said = open_review(request.statement)
        self.reviews.check(said)
        self.reviews.take(said)
        self.told(StateChanged("state", ObjectChanged("update", self.view(), "")))

    def command(self, verb: str, arguments: object, by: str) -> dict[str, object]:
        self.commands.append(verb)
        return {}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class World:
    """A desk, its swarm and its clock."""

    def __init__(self, folder: Path) -> None:
        self.swarm, self.clock = Swarm(), Clock()
        self.audit = Audit(folder / "operators")
        self.desk = Desk(self.swarm, self.audit, self.clock)  # type: ignore[arg-type]
        self.swarm.subscribe(self.desk._on_event)

    async def login(self, seed: bytes, name: str, origin: str = HERE, challenge: str = "") -> str:
        asked = self.desk.challenge(HERE)
        signature = CRYPTO.sign(seed, module.login_message(origin, challenge or asked.challenge))
        public = CRYPTO.public_key(seed)
        return (await self.desk.login(HERE, public, challenge or asked.challenge, signature, name)).token

    def draft(self, token: str, verdict: str, text: str = "", shown: list[str] | None = None) -> bytes:
        if shown is None:
            shown = [one.digest.hex() for one in self.swarm.reviews.of([TARGET])]
        return bytes.fromhex(self.desk.draft(token, THING, verdict, text, shown).payload)

    async def review(self, token: str, seed: bytes, payload: bytes) -> None:
        signature = CRYPTO.sign(seed, module.message_of(payload))
        await self.desk.review(token, THING, payload, signature)

    async def lines(self, what: str) -> list[Any]:
        return [line for line in await self.audit.lines(500) if line["what"] == what]


Law = Callable[[Path], None]


def a_login_takes_a_fresh_answer_by_an_operators_key(folder: Path) -> None:
    async def run() -> None:
        world = World(folder)
        with pytest.raises(NotAllowed, match="does not name the key"):
            await world.login(MALLORY, "alice")
        with pytest.raises(NotAllowed, match="not signed"):
            await world.login(ALICE, "alice", origin=ELSEWHERE)
        challenge = world.desk.challenge(HERE).challenge
        with pytest.raises(NotAllowed, match="does not name the key"):
            await world.login(MALLORY, "alice", challenge=challenge)
        with pytest.raises(NotAllowed, match="unknown or too old"):
            await world.login(ALICE, "alice", challenge=challenge)
        challenge = world.desk.challenge(HERE).challenge
        assert await world.login(ALICE, "alice", challenge=challenge)
        with pytest.raises(NotAllowed, match="unknown or too old"):
            await world.login(ALICE, "alice", challenge=challenge)
        challenge = world.desk.challenge(HERE).challenge
        world.clock.now_s += module.CHALLENGE_S + 1
        with pytest.raises(NotAllowed, match="unknown or too old"):
            await world.login(ALICE, "alice", challenge=challenge)
        outcomes = [(line["by"], line["outcome"]) for line in await world.lines("login")]
        assert outcomes == [("alice", "taken"), *2 * [("alice", "refused: no operator")]]

    asyncio.run(run())


def asking_without_end_keeps_nobody_out(folder: Path) -> None:
    """Anybody on this machine may ask for challenges: what an operator holds stays good, and this takes no room."""

    async def run() -> None:
        world = World(folder)
        asked = world.desk.challenge(HERE)
        for _ in range(5_000):
            world.desk.challenge(HERE)
        changed = asked.challenge[:-1] + ("0" if asked.challenge.endswith("1") else "1")
        for forged in ("zz", "00" * 32, asked.challenge + "00", "00" + asked.challenge, changed):
            with pytest.raises(NotAllowed, match="unknown or too old"):
                await world.login(ALICE, "alice", challenge=forged)
        try:
            await world.login(ALICE, "alice", challenge=asked.challenge)
        except NotAllowed as error:
            pytest.fail(f"an operator was kept out: {error}")
        for number in range(module.USED_MAX + 5):
            with pytest.raises(NotAllowed):
                await world.login(bytes([number % 250 + 4]) * 32, "mallory")
        assert (len(world.desk._used), len(world.desk._spoiled)) == (1, module.USED_MAX)

    asyncio.run(run())


def what_a_full_disk_left_out_is_written_once_it_takes_lines(folder: Path) -> None:
    """Far more is said than waits in memory: all of it is in the chain once the disk takes it, each line once."""

    async def run() -> None:
        world = World(folder)
        subject = world.swarm.subject(THING)
        assert subject is not None
        payloads = [draft(subject, "note", f"note {number}", 0).payload for number in range(23)]
        views = []
        for payload in payloads:
            statement = join_review(CRYPTO.public_key(ALICE), CRYPTO.sign(ALICE, module.message_of(payload)), payload)
            views.append(SimpleNamespace(digest=open_review(statement).digest, statement=statement))
        is_full = [True]
        real = world.audit._log.add_all

        def add_all(entries: Any) -> bool:
            if is_full[0]:
                raise ReleaseError("no space left on device")
            return real(entries)

        world.audit._log.add_all = add_all  # type: ignore[method-assign]

        async def hear_all() -> None:
            world.audit.heard(THING, views)  # type: ignore[arg-type]

        for _ in range(3):
            await world.audit.catch_up(hear_all)
            await hear_all()
        assert "no space left" in world.audit.problem
        assert len(world.audit._heard) == 4
        is_full[0] = False
        for _ in range(len(views)):
            await world.audit.catch_up(hear_all)
        assert sorted(line["digest"] for line in await world.lines("heard")) == sorted(
            one.digest.hex() for one in views
        )
        assert (await world.audit.verify())[2] is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "HEARD_MAX", 4)
        asyncio.run(run())


def a_token_ends_with_the_role_and_with_time(folder: Path) -> None:
    async def run() -> None:
        world = World(folder)
        token = await world.login(ALICE, "alice")
        world.clock.now_s += module.IDLE_S - 1
        world.draft(token, "confirm")
        world.clock.now_s += module.IDLE_S - 1
        world.draft(token, "confirm")
        world.swarm.name(BOB)
        with pytest.raises(NotAllowed, match="does not name this key"):
            world.draft(token, "confirm")
        world.swarm.name(ALICE, BOB)
        with pytest.raises(NotAllowed, match="sign in"):
            world.draft(token, "confirm")
        token = await world.login(ALICE, "alice")
        world.clock.now_s += module.IDLE_S + 1
        with pytest.raises(NotAllowed, match="sign in"):
            await world.desk.act(token, "dismiss", "drone-1", 0)
        for wrong in ("", "x"):
            with pytest.raises(NotAllowed, match="sign in"):
                await world.desk.act(wrong, "dismiss", "drone-1", 0)
        assert world.swarm.commands == []

    asyncio.run(run())


def a_review_is_on_the_revision_that_was_seen(folder: Path) -> None:
    async def run() -> None:
        world = World(folder)
        alice, bob = await world.login(ALICE, "alice"), await world.login(BOB, "bob")
        first, second = world.draft(alice, "confirm"), world.draft(bob, "reject")
        await world.review(alice, ALICE, first)
        with pytest.raises(Stale):
            await world.review(bob, BOB, second)
        with pytest.raises(Stale):
            world.draft(bob, "reject", shown=[])
        assert [one.operator for one in world.swarm.reviews.of([TARGET])] == ["alice"]
        await world.review(bob, BOB, world.draft(bob, "reject"))
        assert {one.operator for one in world.swarm.reviews.of([TARGET])} == {"alice", "bob"}
        outcomes = sorted((line["by"], line["outcome"].partition(":")[0]) for line in await world.lines("review"))
        assert outcomes == [("alice", "taken"), ("bob", "refused"), ("bob", "taken")]
        # Whoever stole a token signs nothing with it.
        with pytest.raises(DaemonError, match="not signed by the key"):
            await world.review(alice, MALLORY, world.draft(alice, "reject"))

    asyncio.run(run())


def what_is_said_is_written_once_as_it_was_signed(folder: Path) -> None:
    async def run() -> None:
        world = World(folder)
        alice = await world.login(ALICE, "alice")
        await world.review(alice, ALICE, world.draft(alice, "confirm"))
        elsewhere = World(folder / "elsewhere")
        bob = await elsewhere.login(BOB, "bob")
        await elsewhere.review(bob, BOB, elsewhere.draft(bob, "reject"))
        [said] = elsewhere.swarm.reviews.of([TARGET])
        for _ in range(3):
            world.swarm.ask("state", SayReview(said.statement))
        assert [line["by"] for line in await world.lines("heard")] == ["bob"]
        again = World(folder)  # The next life of the same station.
        for one in world.swarm.reviews.of([TARGET]):
            again.swarm.ask("state", SayReview(one.statement))
        assert [line["by"] for line in await again.lines("heard")] == ["bob"]
        assert [line["by"] for line in await again.lines("review")] == ["alice"]
        for line in [*await again.lines("heard"), *await again.lines("review")]:
            kept = open_review(bytes.fromhex(line["statement"]))
            assert kept.holds(CRYPTO.verify)
            assert (kept.review.basis.hex(), kept.review.revision) == (line["basis"], line["revision"])
        assert (await again.audit.verify())[2] is None

    asyncio.run(run())


def what_cannot_be_written_down_is_not_done(folder: Path) -> None:
    async def run() -> None:
        world = World(folder)
        token = await world.login(ALICE, "alice")
        path = folder / "operators" / "audit.jsonl"
        path.rename(path.with_suffix(".kept"))
        path.mkdir()
        with pytest.raises(DaemonError, match="cannot be written"):
            await world.desk.act(token, "dismiss", "drone-1", 0)
        assert world.swarm.commands == []
        path.rmdir()
        path.with_suffix(".kept").rename(path)
        await world.desk.act(token, "dismiss", "drone-1", 0)
        assert world.swarm.commands == ["forget"]
        assert [line["outcome"] for line in await world.lines("dismiss")] == ["done", "begun"]
        assert (await world.audit.verify())[2] is None

    asyncio.run(run())


LAWS: tuple[Law, ...] = (
    asking_without_end_keeps_nobody_out,
    what_a_full_disk_left_out_is_written_once_it_takes_lines,
    a_login_takes_a_fresh_answer_by_an_operators_key,
    a_token_ends_with_the_role_and_with_time,
    a_review_is_on_the_revision_that_was_seen,
    what_is_said_is_written_once_as_it_was_signed,
    what_cannot_be_written_down_is_not_done,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_of_the_desk(law: Law, tmp_path: Path) -> None:
    law(tmp_path)


def test_tokens_and_answers_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USED_MAX", 2 * module.SESSIONS_MAX)

    async def run() -> None:
        world = World(tmp_path)
        first = await world.login(ALICE, "alice")
        for number in range(module.SESSIONS_MAX):
            world.clock.now_s += 1
            await world.login(BOB, f"bob-{number}")
        with pytest.raises(NotAllowed):
            world.draft(first, "confirm")
        for _ in range(module.USED_MAX - module.SESSIONS_MAX - 1):
            await world.login(BOB, "bob")
        with pytest.raises(NotAllowed, match="are too many"):
            await world.login(BOB, "bob")
        assert len(world.desk._used) == module.USED_MAX
        world.clock.now_s += module.CHALLENGE_S + 1
        await world.login(BOB, "bob")
        assert len(world.desk._used) == 1

    asyncio.run(run())


def test_who_is_no_operator_cannot_fill_the_audit(tmp_path: Path) -> None:
    """Anybody on this machine can make keys and try; what operators did must not be pushed out by that."""

    async def run() -> None:
        world = World(tmp_path)
        for number in range(40):
            with pytest.raises(NotAllowed, match="does not name the key"):
                await world.login(bytes([number + 100]) * 32, "mallory")
        assert len(await world.lines("login")) == module.REFUSED_BURST
        world.clock.now_s += 1 / module.REFUSED_PER_S
        with pytest.raises(NotAllowed):
            await world.login(MALLORY, "mallory")
        lines = await world.lines("login")
        assert (len(lines), lines[0]["count"]) == (module.REFUSED_BURST + 1, 40 - module.REFUSED_BURST + 1)

    asyncio.run(run())


def test_a_line_that_is_no_line_ends_no_ground_station(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "audit.jsonl").write_text("[]\n3\n" + "[" * 100_000 + "\n")
    audit = Audit(tmp_path / "operators")
    assert asyncio.run(audit.lines(10)) == []
    assert asyncio.run(audit.verify())[2] is not None


class Door:
    """A member's door, which says who it is and keeps what it is asked."""

    name = "drone-1"
    asked: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, where: Remote, timeout_s: float) -> None:
        self.host = where.host

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def call(self, verb: str, **arguments: object) -> dict[str, object]:
        self.asked.append((self.host, verb))
        return {"node": self.name, "node_id": self.name.encode().hex()}


@pytest.mark.parametrize("there", ["drone-1", "drone-2"])
def test_what_is_meant_for_one_member_is_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """A member can say another's address: its door is not the one that was meant."""
    monkeypatch.setattr(module, "ControlClient", Door)
    monkeypatch.setattr(Door, "name", there)
    monkeypatch.setattr(Door, "asked", [])

    async def run() -> None:
        world = World(tmp_path)
        at = "10.0.0.5:7946+10.1.0.5:7946"
        world.swarm.members = lambda: [SimpleNamespace(name="drone-1", node=b"drone-1", address=at)]  # type: ignore[method-assign]
        token = await world.login(ALICE, "alice")
        if there == "drone-1":
            await world.desk.act(token, "eye_stop", "drone-1", 0)
        else:
            with pytest.raises(DaemonError, match="nothing was done"):
                await world.desk.act(token, "eye_stop", "drone-1", 0)

    asyncio.run(run())
    wanted = [("10.0.0.5", "status")] + [("10.0.0.5", "eye_stop")] * (there == "drone-1")
    assert Door.asked == wanted
