"""The brain's side of learning: what is trained when, what is told, and that nothing else ever follows from it."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from swarmd.brain import learning_link
from swarmd.brain.learning_link import LearningLink, Surroundings
from swarmd.config.learning import LearningSection
from swarmd.errors import LearnerError
from swarmd.learner import words
from swarmd.logs import Logger
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import Session, sign_delta
from swarmd_protocols.learning.learning import Learning, LearningConfig
from swarmd_protocols.learning.messages import Give, encode
from swarmd_protocols.learning.requests import NAME, HeadMerged, Learn, Train, Trained
from swarmd_protocols.subprotocol import Peer
from tests.support.learning_world import Member

DIGEST = "d1" * 32
PATIENCE_S = 90.0
SECTION = LearningSection(enabled=True, labels="/labels", share=0.5, rounds=4)
DESCRIBED = words.Described("small", DIGEST, 8)
TAUGHT = words.Taught((0.5,) * 8, 30, 10, 0.7, 0.8, ("s1",), ())


class Desk(LearningLink):
    """A link whose child is a function, and whose every command is kept."""

    def __init__(self, folder: Path, model: Callable[[], tuple[str, str]] = lambda: ("zoo:small", DIGEST)) -> None:
        self.rest = ""
        self.said: list[object] = []
        self.asked: list[words.ToLearner] = []
        self.answers: Callable[[words.ToLearner], Awaitable[words.FromLearner]] = usual
        one = Member(0)
        protocol = Learning(one.id, one.signer, one.trust, LearningConfig(), Random(1), {})
        around = Surroundings(model, lambda: self.rest, lambda: -1, nothing, lambda node: node.hex()[:4])
        self.protocol = protocol
        super().__init__(SECTION, protocol, self.told, around, folder, "", Logger("t", stream=io.StringIO()))

    def told(self, name: str, request: object) -> None:
        assert name == NAME
        self.said.append(request)
        self.protocol.on_command(request, 0)

    async def _ask(self, task: words.ToLearner) -> words.FromLearner:
        self.asked.append(task)
        return await self.answers(task)


async def usual(task: words.ToLearner) -> words.FromLearner:
    return DESCRIBED if isinstance(task, words.Describe) else TAUGHT


async def nothing() -> AsyncIterator[dict[str, Any]]:
    for one in ():
        yield one


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look() -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(learning_link, "next_look", look)


def session() -> Session:
    return Session(bytes.fromhex(DIGEST), 8, 4, 4)


def turn(desk: Desk, done: Callable[[], Any], turns: int = 2_000) -> None:
    """Run it until something holds, or for so many turns of the loop."""

    async def main() -> None:
        task = asyncio.ensure_future(desk.run())
        for _ in range(turns):
            await asyncio.sleep(0)
            if task.done() or done():
                break
        if task.done():
            task.result()
        task.cancel()
        await asyncio.wait((task,))

    asyncio.run(main())


def trained(desk: Desk) -> list[Trained]:
    return [one for one in desk.said if isinstance(one, Trained)]


def test_a_session_begins_once_its_pictures_are_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    turn(desk, lambda: desk.said)
    assert desk.said == [Learn(session())]
    assert [type(one).__name__ for one in desk.asked] == ["Describe", "Teach"]
    assert desk.status()["own_rows"] == 30


def test_what_is_ordered_is_trained_and_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.carry_out(Train(session(), 0, [0] * 8))
    turn(desk, lambda: trained(desk))
    assert trained(desk) == [Trained(session().id, 0, TAUGHT.change, 30)]
    assert desk.counts["trained"] == 1


def law_nothing_is_trained_while_the_device_rests(folder: Path) -> None:
    desk = Desk(folder)
    turn(desk, lambda: desk.said)
    before = len(desk.asked)
    desk.rest = "the battery is at 20 %"
    desk.carry_out(Train(session(), 0, [0] * 8))
    turn(desk, lambda: False, 200)
    assert len(desk.asked) == before
    assert desk.status()["resting"] == "the battery is at 20 %"
    desk.rest = ""
    turn(desk, lambda: trained(desk))
    assert len(trained(desk)) == 1  # What was put off is done then.


def test_law_nothing_is_trained_while_the_device_rests(tmp_path: Path) -> None:
    law_nothing_is_trained_while_the_device_rests(tmp_path)


def law_a_task_in_hand_ends_where_the_device_must_rest(folder: Path) -> None:
    desk = Desk(folder)
    turn(desk, lambda: desk.said)
    ended: list[bool] = []

    async def endless(task: words.ToLearner) -> words.FromLearner:
        desk.rest = "hot"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(True)
            raise
        return TAUGHT

    desk.answers = endless
    desk.carry_out(Train(session(), 0, [0] * 8))

    async def main() -> None:
        task = asyncio.ensure_future(desk.run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not desk.counts["rested"]:
                    await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait((task,))

    asyncio.run(main())
    assert ended
    assert trained(desk) == []
    assert desk.counts["rested"] == 1


def test_law_a_task_in_hand_ends_where_the_device_must_rest(tmp_path: Path) -> None:
    law_a_task_in_hand_ends_where_the_device_must_rest(tmp_path)


def test_a_child_that_fails_is_said_and_the_next_round_is_tried(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    turn(desk, lambda: desk.said)

    async def fails(task: words.ToLearner) -> words.FromLearner:
        raise LearnerError("the learner ended without an answer; see the log")

    desk.answers = fails
    desk.carry_out(Train(session(), 0, [0] * 8))
    turn(desk, lambda: desk.counts["failed"])
    assert desk.status()["problem"].startswith("the learner ended without an answer")
    desk.answers = usual
    desk.carry_out(Train(session(), 1, [0] * 8))
    turn(desk, lambda: trained(desk))
    assert [one.round for one in trained(desk)] == [1]
    assert desk.status()["problem"] == ""


def test_a_device_that_is_slower_than_rounds_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    turn(desk, lambda: desk.said)
    desk._took_s = 301.0
    desk._judge_pace(is_first=True)  # Reading all pictures takes its time, once.
    assert desk.status()["problem"] == ""
    desk._judge_pace(is_first=False)
    assert "raise learning.round_s" in desk.status()["problem"]


@pytest.mark.parametrize(("now", "is_said"), [(0.62, True), (0.68, False), (0.8, False), (None, False)])
def test_a_head_that_is_worse_than_the_start_is_said(tmp_path: Path, now: float | None, is_said: bool) -> None:
    desk = Desk(tmp_path)

    async def worse(task: words.ToLearner) -> words.FromLearner:
        found = words.Taught((0.5,) * 8, 30, 10, 0.7 if now is not None else None, now, (), ())
        return DESCRIBED if isinstance(task, words.Describe) else found

    desk.answers = worse
    turn(desk, lambda: desk.said)
    assert ("the merged head" in desk.status()["problem"]) == is_said


def test_weights_that_are_no_numbers_are_a_problem_and_no_crash(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    turn(desk, lambda: desk.said)
    desk.protocol._asked = 0

    async def wild(task: words.ToLearner) -> words.FromLearner:
        return words.Taught((1e9,) * 8, 30, 0, None, None, (), ())

    desk.answers = wild
    desk.carry_out(Train(session(), 0, [0] * 8))
    turn(desk, lambda: desk.counts["failed"])
    assert "no numbers" in desk.status()["problem"]


@pytest.mark.parametrize(
    "answer", [words.Failed("no head of it can be taught"), words.Described("other", "d2" * 32, 8), TAUGHT]
)
def test_a_model_that_cannot_be_taught_is_no_session(tmp_path: Path, answer: words.FromLearner) -> None:
    desk = Desk(tmp_path)

    async def answers(task: words.ToLearner) -> words.FromLearner:
        return answer

    desk.answers = answers
    turn(desk, lambda: desk.said)
    assert desk.said == [Learn(None)]
    assert desk.status()["problem"]
    with pytest.raises(LearnerError, match="nothing is merged yet"):
        desk.head()


def test_another_model_is_another_session(tmp_path: Path) -> None:
    now = ["zoo:small", DIGEST]
    desk = Desk(tmp_path, lambda: (now[0], now[1]))
    turn(desk, lambda: desk.said)
    head = HeadMerged(session(), 4, [7] * 8, 3, 90, 0)
    desk.on_notice(StateChanged(NAME, head))
    assert desk.head()["moved"] == [7] * 8
    now[:] = ["new", "d2" * 32]

    async def other(task: words.ToLearner) -> words.FromLearner:
        return words.Described("new", "d2" * 32, 8) if isinstance(task, words.Describe) else TAUGHT

    desk.answers = other
    turn(desk, lambda: len(desk.said) == 2)
    assert desk.said[-1] == Learn(Session(bytes.fromhex("d2" * 32), 8, 4, 4))
    with pytest.raises(LearnerError):  # What another model learned is no candidate for this one.
        desk.head()


def law_what_comes_out_is_kept_and_nothing_else(folder: Path) -> None:
    """The end of a session orders a judgement of the child, and no word to anybody."""
    desk = Desk(folder)
    turn(desk, lambda: desk.said)
    said, asked = list(desk.said), len(desk.asked)
    desk.on_notice(StateChanged(NAME, HeadMerged(session(), 4, [9] * 8, 3, 90, 1)))
    turn(desk, lambda: len(desk.asked) > asked + 1, 300)
    assert desk.said == said
    (judged,) = desk.asked[asked:]
    assert isinstance(judged, words.Teach)
    assert judged.moved == (9,) * 8
    assert desk.status()["is_over"]


def test_law_what_comes_out_is_kept_and_nothing_else(tmp_path: Path) -> None:
    law_what_comes_out_is_kept_and_nothing_else(tmp_path)


def test_names_of_liars_are_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    turn(desk, lambda: desk.said)
    other = Member(1)
    desk.protocol._trust.admit_certificate(other.identity.certificate)
    desk.protocol.on_peers([Peer(other.id, "n1", other.identity.claims().public_key, True)], 0)
    for value in (5, -5):
        raw = sign_delta(other.id, session().id, 0, 9, 10, [(1, value)], other.signer).raw
        desk.protocol.on_message(NodeId(other.id), encode(Give((raw,))), 0)
    assert desk.status()["liars"] == [other.id.hex()[:4]]
    assert desk.status()["authors"] == []
    assert desk._gauges()["liars"] == 1.0


def test_a_child_that_cannot_be_started_leaves_a_session_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first child has its place; for the second there is no room just then."""

    async def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    desk = Desk(tmp_path)

    async def real(task: words.ToLearner) -> words.FromLearner:
        return DESCRIBED if isinstance(task, words.Describe) else await LearningLink._ask(desk, task)

    desk.answers = real
    turn(desk, lambda: desk.said)
    assert desk.said == [Learn(session())]
    assert desk.status()["problem"] == "the learner cannot be started: Resource temporarily unavailable"


def test_the_learner_takes_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "msgspec", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    said = asyncio.run(LearningLink._ask(Desk(tmp_path), words.Describe("zoo:small-320")))
    assert isinstance(said, words.Described)
