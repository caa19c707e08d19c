"""Which candidates of the own eye another judge is asked about, when, and what is said then. No I/O.

Rules:

- Asked is about what the own eye has seen, whose newest picture is at hand: once a picture, and `LOOKS_MAX` times a
  thing and model. Another picture, or another model, may have it change its mind; nothing else has it asked again.
- One question is open at a time, so that there are never two verdicts on their way; they follow each other no quicker
  than the interval. An answer to a question that is no longer open says nothing, nor does one about a thing that has
  gone meanwhile, or that nobody doubts any more. A verdict is taken back by an answer about the newest picture, by the
  model that is served now: another one is on its way to be asked.
- What is not answered (the worker dies, nobody lends, the deadline passes) leaves no verdict and nothing half: it waits
  its turn again, after `REST_S`, `TRIES_MAX` times for one picture. An answer of which nobody knows whether it is about
  the thing or a neighbour says nothing either, and is not asked for again.
- `WAITING_MAX` wait, the surest first, and `THINGS_MAX` are remembered; what is beyond that is counted.
"""

from collections import Counter
from dataclasses import dataclass

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.dedup.judged import JUDGED_MAX
from swarmd_protocols.state.observations import Judged, ObjectChanged

WAITING_MAX = 64
"""Candidates that wait: ten minutes' at six a minute."""
THINGS_MAX = 1_024
"""Things of which it is remembered what was asked: a flight's; the oldest go, and may be asked about again."""
STATED_MAX = JUDGED_MAX
"""Things of which it is remembered that this life has judged them: the state takes no more verdicts of a node."""
LOOKS_MAX = 3
"""Questions about one thing to one model: thumbnails become better every ten seconds, and verdicts no surer."""
TRIES_MAX = 3
"""Questions about one picture that are not answered."""
REST_S = 30.0
"""Seconds without questions after one that was not answered."""


@dataclass(slots=True)
class _Thing:
    """What was asked of one."""

    picture: bytes = b""
    """The last that was answered."""
    digest: str = ""
    """Of the model that is meant to judge, when it answered."""
    looks: int = 0
    """By that model."""
    tries: int = 0
    """Of the picture that waits, unanswered."""
    has_verdict: bool = False
    """This node has said one, or may have in an earlier life."""
    since: int = 0
    """The newest question when it came: an answer to that one, or an older one, is about another thing of its name."""
    is_wanted: bool = True
    """As it was last heard of: it is a candidate, or this node has a verdict on it."""


@dataclass(frozen=True, slots=True)
class Question:
    """One that is asked now."""

    number: int
    object_id: str
    picture: bytes
    """Its name."""
    digest: str
    asked_s: float


class Judging:
    """See the module.

    Args:
        node: This node: its eye's candidates are meant.
        interval_s: Seconds between two questions, at least.
        need_milli: Score from which the judge is sure.
        began_ms: Swarm time of this life's beginning: a thing that is older may have a verdict of an earlier one.
    """

    def __init__(self, node: NodeId, interval_s: float, need_milli: int, began_ms: int) -> None:
        self._node, self._interval_s, self._need_milli, self._began_ms = node, interval_s, need_milli, began_ms
        self._things: dict[str, _Thing] = {}
        self._waiting: dict[str, tuple[int, bytes]] = {}
        """How sure, and the picture's name."""
        self._stated: dict[str, None] = {}
        """Things on which the state holds a verdict of this life, the forgotten ones too."""
        self._numbers = 0
        self._digest = ""
        self._due_s = 0.0
        self.open: Question | None = None
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def hear(self, change: ObjectChanged) -> None:
        """An object is new, is another, or has gone."""
        view, name = change.view, change.view.object_id
        if change.kind not in ("new", "update"):
            for kept in (self._waiting, self._things, self._stated):
                kept.pop(name, None)
            return
        thing = self._things.get(name)
        has_verdict = name in self._stated if thing is None else thing.has_verdict
        is_wanted = view.tier == "candidate" or (has_verdict and view.tier == "confirmed")
        if self._node not in view.observers or not view.thumb or not is_wanted:
            self._waiting.pop(name, None)
            if thing is not None:
                thing.is_wanted = False
            return
        if thing is None:
            is_old = stamp_ms(view.first_hlc) < self._began_ms
            thing = _Thing(has_verdict=is_old or name in self._stated, since=self._numbers)
            self._things[name] = thing
            if len(self._things) > THINGS_MAX:
                oldest = next(iter(self._things))
                del self._things[oldest]
                self._waiting.pop(oldest, None)
                self.counts["forgotten"] += 1
        thing.is_wanted = True
        self._want(name, thing, view.evidence_milli, view.thumb)

    def model_is(self, digest: str) -> None:
        """Which model judges here now, hexadecimal; "": none is served here. Another one is shown everything anew."""
        if not digest or digest == self._digest:
            return
        if self._digest:
            for name, thing in list(self._things.items()):
                if thing.picture and thing.digest != digest:
                    thing.looks = 0
                    self._put(name, 0, thing.picture)
        self._digest = digest

    def next(self, now_s: float, digest: str) -> Question | None:
        """What is asked now.

        Args:
            now_s: Monotonic.
            digest: Of the model that is served here to judge, hexadecimal; "": it is not known before it answers.
        """
        self.model_is(digest)
        if self.open is not None or now_s < self._due_s or not self._waiting:
            return None
        name = max(self._waiting, key=lambda one: self._waiting[one][0])
        _, picture = self._waiting.pop(name)
        self._numbers += 1
        self._due_s = now_s + self._interval_s
        self.open = Question(self._numbers, name, picture, self._digest, now_s)
        self.counts["asked"] += 1
        return self.open

    def answered(self, number: int, score: float | None, digest: str) -> Judged | None:
        """What is said now that a judge has answered; None: nothing.

        Args:
            number: Of the question.
            score: 0 to 1; 0: it sees nothing; None: it sees something, and whether that is the thing is not known.
            digest: Of the bundle that has answered, hexadecimal.
        """
        question = self._close(number)
        if question is None:
            self.counts["too_late"] += 1
            return None
        thing = self._things.get(question.object_id)
        if thing is None or thing.since >= number:
            self.counts["gone"] += 1
            return None
        thing.picture, thing.digest, thing.tries = question.picture, question.digest, 0
        thing.looks += 1
        self.counts["answered"] += 1
        if not thing.is_wanted:
            self.counts["settled"] += 1
            return None
        if score is None:
            self.counts["unclear"] += 1
            return None
        milli = min(1000, max(0, round(score * 1000)))
        if not milli and not thing.has_verdict:
            self.counts["sees_nothing"] += 1
            return None
        is_other = bool(question.digest) and question.digest != self._digest
        if is_other:
            self._put(question.object_id, 0, question.picture)
        if not milli and question.object_id in self._waiting:
            self.counts["outdated"] += 1
            return None
        return Judged(question.object_id, milli, self._need_milli, bytes.fromhex(digest)[:8])

    def said(self, verdict: Judged, is_taken: bool) -> None:
        """Whether the node's state took the verdict."""
        self.counts[("stated" if verdict.score_milli else "withdrawn") if is_taken else "refused"] += 1
        if not is_taken:
            return
        self._stated.pop(verdict.object_id, None)
        if verdict.score_milli:
            self._stated[verdict.object_id] = None
            if len(self._stated) > STATED_MAX:
                del self._stated[next(iter(self._stated))]
        thing = self._things.get(verdict.object_id)
        if thing is not None:
            thing.has_verdict = verdict.score_milli > 0

    def unanswered(self, number: int, now_s: float) -> None:
        """Nobody answers this question."""
        question = self._close(number)
        if question is None:
            return
        self.counts["unanswered"] += 1
        self._due_s = max(self._due_s, now_s + REST_S)
        thing = self._things.get(question.object_id)
        if thing is None or thing.since >= number or question.object_id in self._waiting:
            return
        thing.tries += 1
        if thing.tries < TRIES_MAX:
            self._put(question.object_id, 0, question.picture)
        else:
            self.counts["given_up"] += 1
            thing.picture, thing.digest, thing.tries = question.picture, question.digest, 0

    def skip(self, number: int, why: str) -> None:
        """The question cannot be asked, for a reason that stays: its picture is not here."""
        question = self._close(number)
        if question is not None:
            self.counts[why] += 1
            thing = self._things.get(question.object_id)
            if thing is not None and thing.since < number:
                thing.picture, thing.digest = question.picture, question.digest

    # --- inside -----------------------------------------------------------------------------------------------------

    def _close(self, number: int) -> Question | None:
        question = self.open
        if question is None or question.number != number:
            return None
        self.open = None
        return question

    def _want(self, name: str, thing: _Thing, evidence_milli: int, picture: bytes) -> None:
        if self.open is not None and (self.open.object_id, self.open.picture) == (name, picture):
            return
        if thing.picture == picture or thing.looks >= LOOKS_MAX:
            return
        self._put(name, evidence_milli, picture)

    def _put(self, name: str, evidence_milli: int, picture: bytes) -> None:
        self._waiting[name] = (evidence_milli, picture)
        if len(self._waiting) > WAITING_MAX:
            least = min(self._waiting, key=lambda one: self._waiting[one][0])
            del self._waiting[least]
            self.counts["left_out"] += 1
