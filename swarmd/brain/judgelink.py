"""Between the state, the thumbnails and the worker: has another judge look at candidates of the own eye.

What is asked and said is `judging.py`'s. Here are the clock, the pictures and the gates: nothing is asked while the
battery is below `lending.battery_min` or the device too hot to lend, and the worker itself stays out of the eye's way.
"""

import asyncio
import time
from collections.abc import Callable

from swarmd.brain.judging import Judging
from swarmd.brain.lending import LendingLink
from swarmd.brain.parts import Parts
from swarmd.brain.workerlink import WorkerLink
from swarmd.bridges.trace import trace_of_view
from swarmd.logs import Logger
from swarmd.worker import words
from swarmd_models.device import temperature_c
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.state.observations import DetectionLearned, DetectionView, Judged, ObjectChanged
from swarmd_protocols.thumbs.fetching import NAME as THUMBS
from swarmd_protocols.thumbs.thumbs import Thumbs

_CAUSES_MAX = 256
"""Own sightings whose traces are remembered, for what is asked about them; the oldest go first."""
TICK_S = 1.0
"""Seconds between two looks at what waits: a judge is asked some times a minute."""
GRACE_S = 5.0
"""Seconds beyond its deadline that an answer is waited for: who has worked on it until then says so."""


class JudgeLink:
    """The daemon's loop that asks a judge."""

    def __init__(self, parts: Parts, worker: WorkerLink, thumbs: Thumbs, is_hot: Callable[[], bool]) -> None:
        """Listen to the state; `run` asks.

        Args:
            parts: The brain's.
            worker: Asks, here or elsewhere.
            thumbs: Has the pictures.
            is_hot: Whether the device is too hot to lend.
        """
        self._parts, self._worker, self._thumbs, self._is_hot = parts, worker, thumbs, is_hot
        self._settings = parts.config.judge
        self._causes: dict[str, str] = {}
        """`traceparent` of the newest own sighting of each object."""
        self._log: Logger = parts.log
        began_ms = parts.replica.clock.physical_ms(time.monotonic_ns())
        self.judging = Judging(
            parts.identity.node, 60.0 / self._settings.per_minute, round(self._settings.need * 1000), began_ms
        )
        self._cost: dict[str, int] = {"own_us": 0, "borrowed_us": 0, "borrowed": 0, "resting": 0}
        self._told = ""
        worker.on_looked, worker.judge_counts = self.on_looked, self.counts
        parts.bus.subscribe(self._on_notice)
        parts.metrics.counters("swarmd_judge", "Another judge's questions by what became of them.", "what", self.counts)
        parts.metrics.gauges(
            "swarmd_judge_waiting", "Candidates that another judge is to see.", "",
            lambda: {"": float(self.judging.waiting)},
        )  # fmt: skip

    def counts(self) -> dict[str, int]:
        """What became of questions; `own_us` and `borrowed_us` are what they cost, here and elsewhere."""
        return {**self.judging.counts, **self._cost}

    async def run(self) -> None:
        """Ask for as long as this daemon lives."""
        while True:
            self.tick(time.monotonic())
            await asyncio.sleep(TICK_S)

    def tick(self, now_s: float) -> None:
        """Give up what nobody answered; ask what is due."""
        judging, settings = self.judging, self._settings
        asked = judging.open
        if asked is not None and now_s - asked.asked_s > settings.deadline_s + GRACE_S:
            judging.unanswered(asked.number, now_s)
        if judging.open is not None or not judging.waiting or not self._worker.address:
            return
        if self._rests():
            self._cost["resting"] += 1
            return
        question = judging.next(now_s, self._served())
        if question is None:
            return
        jpeg = self._thumbs.own(question.picture)
        if jpeg is None:
            judging.skip(question.number, "no_picture")
            return
        borrow = "yes" if settings.borrow else ""
        left_ms, cause = round(settings.deadline_s * 1e3), self._causes.get(question.object_id, "")
        eye = self._parts.eye
        scale = 0.0 if eye is None else eye.pixel_m_of(question.picture)
        place = None if eye is None else eye.place_in(question.picture)
        look = words.Look(question.number, settings.model, jpeg, left_ms, borrow, cause, scale, place)
        if not self._worker.say(look):
            judging.unanswered(question.number, now_s)

    def on_looked(self, said: words.Looked) -> None:
        """The worker has an answer, or says why there is none."""
        if said.score is None and not said.is_unclear:
            if said.reason != self._told:
                self._told = said.reason
                self._log.warning("judge_unanswered", reason=said.reason)
            self.judging.unanswered(said.number, time.monotonic())
            return
        asked, now_s = self.judging.open, time.monotonic()
        if asked is not None and now_s - asked.asked_s > self._settings.deadline_s + GRACE_S:
            self.judging.unanswered(asked.number, now_s)  # A loop that was held up looks at the answer first.
        self.judging.model_is(self._served())
        self._told = ""
        self._cost["borrowed_us" if said.lender else "own_us"] += said.took_us
        self._cost["borrowed"] += bool(said.lender)
        verdict = self.judging.answered(said.number, said.score, said.digest)
        if verdict is not None:
            self.judging.said(verdict, self._state(verdict))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_notice(self, notice: object) -> None:
        if isinstance(notice, StateChanged) and isinstance(notice.detail, DetectionLearned):
            self._remember(notice.detail.view)
        if not isinstance(notice, StateChanged) or not isinstance(notice.detail, ObjectChanged):
            return
        change = notice.detail
        # Pictures of others, who may name new ones without end, take no turn of what is at hand.
        if change.kind not in ("new", "update") or self._thumbs.own(change.view.thumb) is not None:
            self.judging.hear(change)

    def _remember(self, view: DetectionView) -> None:
        """Which trace an object's own sighting has."""
        own, traces = self._parts.identity.node, self._parts.config.otel
        if view.origin != own or not view.object_id or not traces.enabled:
            return
        self._causes.pop(view.object_id, None)
        self._causes[view.object_id] = trace_of_view(view).traceparent(own, traces.sample_ratio)
        while len(self._causes) > _CAUSES_MAX:
            del self._causes[next(iter(self._causes))]

    def _state(self, verdict: Judged) -> bool:
        try:
            self._parts.driver.command("state", verdict)
        except StateError as error:
            self._log.warning("judge_refused", object=verdict.object_id, error=str(error))
            return False
        return True

    def _rests(self) -> bool:
        battery = self._parts.battery_milli()
        is_low = battery is not None and battery < round(self._parts.config.lending.battery_min * 1000)
        return is_low or self._is_hot()

    def _served(self) -> str:
        """Digest of the judge as it is served here; "": it is not."""
        return self._worker.digest_of(self._settings.model)


def keep_worker(parts: Parts, lending: LendingLink | None) -> WorkerLink:
    """Have the worker run, and the loop that asks a judge where one is configured."""
    worker = parts.worker = WorkerLink(parts.config, lambda: parts.eye, parts.log, lending)
    parts.supervisor.keep("inference", worker.run)
    thumbs = parts.node.subprotocol(THUMBS)
    if parts.config.judge.model and isinstance(thumbs, Thumbs):
        hot_c = parts.config.lending.temperature_max_c
        link = JudgeLink(parts, worker, thumbs, lambda: (temperature_c() or -273.0) > hot_c)
        parts.supervisor.keep("judge", link.run)
    return worker
