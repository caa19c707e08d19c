"""Laws of the loop that asks another judge: bounded, one at a time, no repeats, nothing half where somebody dies."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.brain.judging import LOOKS_MAX, REST_S, THINGS_MAX, TRIES_MAX, WAITING_MAX, Judging, Question
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import Judged, ObjectChanged, ObjectView

OWN, OTHER = NodeId(b"o" * 16), NodeId(b"x" * 16)
MODEL, NEWER = "aa" * 32, "bb" * 32
INTERVAL_S = 10.0
BEGAN_MS = 1_000


def change(
    thing: int, picture: int = 1, kind: str = "update", observers: tuple[NodeId, ...] = (OWN,), **more: object
) -> ObjectChanged:
    """Something that the own eye has seen; `picture` 0: without one."""
    words = {"confirmed": False, "evidence_milli": 700, "first_hlc": (BEGAN_MS + 5) << 16, **more}
    view = ObjectView(
        f"thing-{thing}", "cell", 700, 0, 0, (1, 0, 1), "", observers, words["first_hlc"], 9 << 40,  # type: ignore[arg-type]
        words["confirmed"], 1, thumb=bytes([picture]) * 16 if picture else b"",  # type: ignore[arg-type]
        review=str(words.get("review", "")), evidence_milli=words["evidence_milli"],  # type: ignore[arg-type]
    )  # fmt: skip
    return ObjectChanged(kind, view, "")


class Loop:
    """The rules with a clock, and all that was asked and said."""

    def __init__(self) -> None:
        self.rules = Judging(OWN, INTERVAL_S, 900, BEGAN_MS)
        self.now_s = 0.0
        self.digest = MODEL
        self.asked: list[Question] = []
        self.said: list[Judged] = []

    def ask(self, after_s: float = INTERVAL_S) -> Question | None:
        self.now_s += after_s
        question = self.rules.next(self.now_s, self.digest)
        if question is not None:
            self.asked.append(question)
        return question

    def answer(self, question: Question | None, score: float | None, digest: str = "") -> Judged | None:
        assert question is not None
        verdict = self.rules.answered(question.number, score, digest or self.digest)
        if verdict is not None:
            self.said.append(verdict)
            self.rules.said(verdict, True)
        return verdict

    def judged(self, score: float | None) -> Judged | None:
        return self.answer(self.ask(), score)


def test_a_candidate_is_asked_about_once_and_its_verdict_is_said() -> None:
    loop = Loop()
    loop.rules.hear(change(1))
    verdict = loop.judged(0.95)
    assert verdict == Judged("thing-1", 950, 900, bytes.fromhex(MODEL)[:8])
    for _ in range(5):
        loop.rules.hear(change(1))
        assert loop.ask() is None
    assert loop.rules.counts == {"asked": 1, "answered": 1, "stated": 1}


def test_a_better_picture_or_another_model_may_change_its_mind() -> None:
    loop = Loop()
    loop.rules.hear(change(1))
    loop.judged(0.95)
    loop.rules.hear(change(1, picture=2, confirmed=True))  # Its own verdict made it one.
    assert loop.judged(0.3) is not None
    loop.digest = NEWER
    verdict = loop.judged(0.0)
    assert verdict == Judged("thing-1", 0, 900, bytes.fromhex(NEWER)[:8])
    assert loop.ask() is None
    assert loop.rules.counts["withdrawn"] == 1


def test_what_is_nobodys_doubt_or_another_eyes_is_not_asked_about() -> None:
    loop = Loop()
    for at, more in enumerate(
        ({"observers": (OTHER,)}, {"picture": 0}, {"confirmed": True}, {"review": "rejected"}, {"kind": "expired"})
    ):
        loop.rules.hear(change(at, **more))  # type: ignore[arg-type]
    assert loop.ask() is None
    loop.rules.hear(change(7))
    loop.rules.hear(change(7, review="confirmed"))
    assert loop.ask() is None, "an operator was quicker"


def test_who_sees_nothing_says_nothing_unless_there_is_something_to_take_back() -> None:
    loop = Loop()
    loop.rules.hear(change(1))
    assert loop.judged(0.0) is None
    loop.rules.hear(change(2, first_hlc=(BEGAN_MS - 1) << 16))  # An earlier life may have judged it.
    assert loop.judged(0.0) == Judged("thing-2", 0, 900, bytes.fromhex(MODEL)[:8])


def stated(loop: Loop) -> None:
    """One thing has a verdict, and a newer picture of it is asked about."""
    loop.rules.hear(change(1))
    assert loop.judged(0.95) is not None
    loop.rules.hear(change(1, picture=2, confirmed=True))


def test_who_sees_what_may_be_a_neighbour_takes_nothing_back_and_is_not_asked_again() -> None:
    loop = Loop()
    stated(loop)
    assert loop.judged(None) is None
    loop.rules.hear(change(1, picture=2, confirmed=True))
    assert loop.ask() is None
    assert loop.rules.counts["unclear"] == 1
    loop.rules.hear(change(1, picture=3, confirmed=True))
    assert loop.judged(0.0) is not None, "a picture that says where the thing lies does"


def test_a_late_answer_takes_no_verdict_back() -> None:
    """While it was on its way a newer picture, a newer model or a new thing of that name has come."""
    loop = Loop()
    stated(loop)
    late = loop.ask()
    loop.rules.hear(change(1, picture=3, confirmed=True))
    assert loop.answer(late, 0.0) is None, "picture 3 is asked about next"
    assert loop.judged(0.0) is not None

    loop = Loop()
    stated(loop)
    late = loop.ask()
    loop.digest = NEWER
    loop.rules.model_is(NEWER)
    assert loop.answer(late, 0.0, MODEL) is None, "the newer model is asked next"
    assert loop.judged(0.0) is not None

    loop = Loop()
    stated(loop)
    late = loop.ask()
    loop.rules.hear(change(1, kind="expired"))
    loop.rules.hear(change(1, picture=4, first_hlc=(BEGAN_MS - 1) << 16))
    assert loop.answer(late, 0.95) is None, "another thing of that name"


def test_an_answer_about_what_a_person_has_settled_says_nothing() -> None:
    for score in (0.0, 0.95):
        loop = Loop()
        stated(loop)
        late = loop.ask()
        loop.rules.hear(change(1, picture=2, review="rejected"))
        assert loop.answer(late, score) is None
        assert loop.rules.counts["settled"] == 1


def test_nothing_is_taken_back_that_was_never_said() -> None:
    """However many things were forgotten: what this life has judged is remembered longer than what it has asked."""
    loop = Loop()
    loop.rules.hear(change(0))
    assert loop.judged(0.95) is not None
    for at in range(1, THINGS_MAX + 2):
        loop.rules.hear(change(at, evidence_milli=0))
    assert loop.rules.counts["forgotten"] > 0
    while (question := loop.ask()) is not None:
        assert loop.answer(question, 0.0) is None, question
    loop.rules.hear(change(0, picture=2, confirmed=True))
    assert loop.rules.waiting == 1, "it has a verdict, and is looked at again"
    assert loop.judged(0.0) is not None
    loop.rules.hear(change(0, picture=3))
    assert loop.judged(0.0) is None


def test_one_question_is_open_and_late_answers_say_nothing() -> None:
    loop = Loop()
    for at in range(3):
        loop.rules.hear(change(at))
    first = loop.ask()
    assert first is not None
    assert loop.ask(1e6) is None
    loop.rules.unanswered(first.number, loop.now_s)
    assert loop.answer(first, 0.9) is None, "the worker that was given up has answered after all"
    second = loop.ask(REST_S)
    assert second is not None
    assert loop.answer(first, 0.9) is None
    assert loop.answer(second, 0.9) is not None
    assert loop.answer(second, 0.9) is None
    assert len(loop.said) == 1


def test_a_judge_that_dies_leaves_nothing_and_is_asked_again_a_few_times() -> None:
    loop = Loop()
    loop.rules.hear(change(1))
    for _ in range(TRIES_MAX):
        question = loop.ask(REST_S)
        assert question is not None
        assert loop.rules.next(loop.now_s, MODEL) is None
        loop.rules.unanswered(question.number, loop.now_s)
        assert loop.ask(REST_S / 2) is None, "it rests"
        loop.rules.hear(change(1))
    assert loop.ask(1e6) is None
    assert (loop.said, loop.rules.counts["given_up"]) == ([], 1)
    loop.rules.hear(change(1, picture=2))
    assert loop.judged(0.9) is not None


def test_a_thing_that_goes_while_it_is_judged_has_no_verdict() -> None:
    loop = Loop()
    loop.rules.hear(change(1))
    question = loop.ask()
    loop.rules.hear(change(1, kind="expired"))
    assert loop.answer(question, 0.9) is None
    assert loop.rules.open is None


def test_a_picture_that_is_not_here_is_not_asked_for_again() -> None:
    loop = Loop()
    loop.rules.hear(change(1))
    question = loop.ask()
    assert question is not None
    loop.rules.skip(question.number, "no_picture")
    loop.rules.hear(change(1))
    assert loop.ask() is None
    assert loop.rules.counts["no_picture"] == 1


def test_the_surest_go_first_and_the_rest_has_a_bound() -> None:
    loop = Loop()
    for at in range(3 * THINGS_MAX):
        loop.rules.hear(change(at, evidence_milli=(at * 37) % 1000))
    assert loop.rules.waiting == WAITING_MAX
    assert len(loop.rules._things) == THINGS_MAX
    assert loop.rules.counts["left_out"] > THINGS_MAX
    sure = []
    while (question := loop.ask()) is not None:
        sure.append((int(question.object_id.removeprefix("thing-")) * 37) % 1000)
        loop.answer(question, 0.5)
    assert sure == sorted(sure, reverse=True)
    assert len(sure) == WAITING_MAX


Steps = list[tuple[str, int, int, float, float | None]]
STEP = st.tuples(
    st.sampled_from(["hear", "hear", "ask", "ask", "answer", "lose", "old", "gone", "model"]),
    st.integers(0, 3), st.integers(0, 4), st.floats(0, 20), st.sampled_from([0.0, 0.4, 0.95, None]),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=80))
def test_law_whatever_happens_questions_are_few_and_one_at_a_time(steps: Steps) -> None:
    run(steps)


def run(steps: Steps) -> None:
    """Steps in any order: rate, one at a time, a verdict only of the open question, no picture twice to one model."""
    loop = Loop()
    times: list[float] = []
    answered: list[tuple[str, bytes, str]] = []
    forgotten = set()
    for step, thing, picture, after_s, score in steps:
        match step:
            case "hear":
                loop.rules.hear(change(thing, picture))
            case "gone":
                loop.rules.hear(change(thing, kind="expired"))
                forgotten.add(f"thing-{thing}")
            case "model":
                loop.digest = NEWER if loop.digest == MODEL else MODEL
            case "ask":
                was = loop.rules.open
                if loop.ask(after_s) is not None:
                    assert was is None
                    times.append(loop.now_s)
            case "answer" if loop.rules.open is not None:
                question = loop.rules.open
                loop.answer(question, score)
                answered.append((question.object_id, question.picture, question.digest))
            case "lose" if loop.rules.open is not None:
                loop.rules.unanswered(loop.rules.open.number, loop.now_s)
            case "old" if loop.asked and loop.asked[-1] != loop.rules.open:
                before = len(loop.said)
                loop.answer(loop.asked[-1], score)
                assert len(loop.said) == before
    assert all(later - earlier >= INTERVAL_S for earlier, later in pairwise(times))
    for name in {one for one, _, _ in answered} - forgotten:
        mine = [digest for one, _, digest in answered if one == name]
        changes = sum(1 for one, other in pairwise(mine) if one != other)
        assert len(mine) <= LOOKS_MAX * (changes + 1)


def test_a_thing_is_shown_to_one_model_so_often_and_no_more() -> None:
    loop = Loop()
    for picture in range(1, 4 * LOOKS_MAX):
        loop.rules.hear(change(1, picture))
        if loop.ask() is not None:
            loop.answer(loop.rules.open, 0.5)
    assert len(loop.asked) == LOOKS_MAX
