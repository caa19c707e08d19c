"""The brain's side of learning in the swarm: which head is learned, who trains it when, and what came out.

Training runs in a child of its own (`swarmd.learner`), one task at a time, and never on the loop. It rests while the
battery is low, the device is hot, or the worker has requests that wait; a task in hand is ended then and begun again
later. What the swarm merges is kept for `swarmd learning export` and used for nothing else: a candidate becomes a model
by a release, with officers' signatures and canaries, or not at all.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from swarmd.api.bus import Notice
from swarmd.api.metrics import Metrics
from swarmd.brain.supervise import next_look
from swarmd.config.learning import LearningSection
from swarmd.errors import LearnerError
from swarmd.eye.supervisor import environment_of_eye
from swarmd.learner import words
from swarmd.logs import Logger
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import ENTRIES_MAX, Session
from swarmd_protocols.learning.learning import Learning, LearningConfig
from swarmd_protocols.learning.merging import AUTHORS_MIN
from swarmd_protocols.learning.privacy import Privacy
from swarmd_protocols.learning.requests import JOURNAL, NAME, HeadMerged, Learn, Train, Trained
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.trust.identity import Identity
from swarmd_protocols.trust.trust import Trust

TASK_MAX_S = 3_600.0
"""Seconds that a child may take: one that runs only when the device idles may wait long for its turn."""
RETRY_S = 60.0
"""Seconds until a model that could not be read is looked at again."""
WORSE = 0.05
"""Fewer of the faults held back named right, as a share, from which a head is worse: two standard errors of a hundred
faults, of which nine in ten are right."""
REVIEWS_MAX = 2_000
"""Reviewed objects of which a task is told: a megabyte."""


def make_learning(
    section: LearningSection, identity: Identity, trust: Trust, crypto: Crypto, records: Mapping[bytes, bytes]
) -> Learning:
    """The sub-protocol, as the configuration has it.

    Args:
        section: `[learning]`.
        identity: This node's.
        trust: Who counts.
        crypto: Signs and verifies.
        records: What the journal held.
    """
    privacy = Privacy(section.clip_length, section.noise) if section.noise else None
    config = LearningConfig(round(section.round_s * 1e9), bytes_s=section.kib_s << 10, privacy=privacy)
    kept = {key: record for key, record in records.items() if key.startswith(JOURNAL)}
    signer = NodeSigner(crypto, identity.seed)
    # Noise that somebody could guess would hide nothing.
    return Learning(identity.node, signer, trust, config, random.SystemRandom(), kept)


class Surroundings(msgspec.Struct, frozen=True):
    """What the link asks of the rest of the brain."""

    model: Callable[[], tuple[str, str]]
    """Bundle that runs, and its digest in hexadecimal; the digest is "" where nobody runs it, the bundle where there
    is none yet."""
    why_rest: Callable[[], str]
    """Why nothing may be trained just now; "": it may."""
    gate_fd: Callable[[], int]
    """Where the eye shows when it works; -1: there is none."""
    reviews: Callable[[], AsyncIterator[dict[str, Any]]]
    """Objects that operators have judged, as GeoJSON features."""
    name_of: Callable[[NodeId], str]


class LearningLink:
    """Joins the sub-protocol, the child that trains, and who asks."""

    def __init__(
        self,
        section: LearningSection,
        protocol: Learning,
        command: Callable[[str, object], None],
        around: Surroundings,
        folder: Path,
        frames: str,
        log: Logger,
    ) -> None:
        """Start nothing; `run` does.

        Args:
            section: `[learning]`.
            protocol: Decides.
            command: Gives a sub-protocol a request; raises `StateError`.
            around: The rest of the brain.
            folder: The link's own, below the daemon's.
            frames: Where the eye keeps frames; "": nowhere.
            log: Where heads and problems are told.
        """
        self._section, self._protocol, self._command, self._around = section, protocol, command, around
        self._folder, self._frames, self._log = folder, frames, log
        self._seen: tuple[str, str] = ("", "")
        self._looked_s = -RETRY_S
        self._described: words.Described | None = None
        self._order: Train | None = None
        self._to_judge: HeadMerged | None = None
        self._head: HeadMerged | None = None
        self._taught: words.Taught | None = None
        """What the last task found."""
        self._took_s = 0.0
        """The last training."""
        self._resting = ""
        self._problem = ""
        self.counts = dict.fromkeys(("trained", "failed", "rested"), 0)

    @property
    def gate_fd(self) -> int:
        """What the eye is given; -1: there is none."""
        return self._around.gate_fd()

    # --- what the brain tells ---------------------------------------------------------------------------------------

    def carry_out(self, order: object) -> None:
        """What the protocol orders: to train, from a head on."""
        assert isinstance(order, Train)
        self._order = order

    def on_notice(self, notice: Notice) -> None:
        """A round is merged."""
        if not (isinstance(notice, StateChanged) and isinstance(notice.detail, HeadMerged)):
            return
        head = self._head = notice.detail
        is_over = head.round >= head.session.rounds
        self._to_judge = head if is_over else None
        what = "learning_candidate" if is_over else "learning_round"
        self._log.info(what, round=head.round, authors=head.authors, rows=head.rows, liars=head.liars)

    # --- what people ask --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """For `swarmd learning status`."""
        view, taught, described, name_of = self._protocol.view(), self._taught, self._described, self._around.name_of
        session, head = view.session, self._own_head()
        return {
            "model": self._seen[0],
            "model_digest": "" if described is None else described.digest,
            "session": "" if session is None else session.id.hex(),
            "weights": 0 if session is None else session.dim,
            "round": 0 if head is None else head.round,
            "rounds": 0 if session is None else session.rounds,
            "is_over": head is not None and head.round >= head.session.rounds,
            "deltas": list(view.deltas),
            "rows": view.rows,
            "authors": [name_of(NodeId(one)) for one in view.authors],
            "authors_min": AUTHORS_MIN,
            "liars": [name_of(NodeId(one)) for one in view.liars],
            "own_rows": 0 if taught is None else taught.rows,
            "held_rows": 0 if taught is None else taught.held,
            "start_accuracy": None if taught is None else taught.start,
            "accuracy": None if taught is None else taught.now,
            "sets": [] if taught is None else list(taught.sets),
            "set_problems": [] if taught is None else list(taught.problems),
            "epsilon": view.epsilon,
            "training_s": self._took_s,
            "resting": self._resting,
            "problem": self._problem,
            "counts": {**view.counts, **self.counts},
        }

    def head(self) -> dict[str, Any]:
        """What the swarm has merged so far, for `swarmd learning export`.

        Raises:
            LearnerError: Nothing is merged yet.
        """
        head = self._own_head()
        if head is None or self._described is None:
            raise LearnerError(f"nothing is merged yet; {self._problem or 'see swarmd learning status'}")
        return {**self.status(), "moved": list(head.moved)}

    def register(self, metrics: Metrics) -> None:
        """Tell the metrics where to read."""
        counts = lambda: {**self._protocol.view().counts, **self.counts}  # noqa: E731
        metrics.counters(
            "swarmd_learning", "Learning in the swarm: deltas, bytes, rounds and trainings.", "what", counts
        )
        metrics.gauges("swarmd_learning_measure", "Where learning in the swarm stands.", "what", self._gauges)

    def _gauges(self) -> dict[str, float]:
        said = self.status()
        found = {name: float(said[name]) for name in ("round", "rounds", "rows", "own_rows", "held_rows")}
        found |= {"authors": float(len(said["authors"])), "liars": float(len(said["liars"]))}
        shares = {name: said[name] for name in ("start_accuracy", "accuracy", "epsilon") if said[name] is not None}
        return {**found, **shares, "resting": float(bool(said["resting"])), "problem": float(bool(said["problem"]))}

    def _own_head(self) -> HeadMerged | None:
        """The last that was merged in the session that runs."""
        session = self._protocol.view().session
        return self._head if self._head is not None and self._head.session == session else None

    # --- the task in hand -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look once a second what is to be done, and have it done."""
        while True:
            await next_look()
            self._resting = self._around.why_rest()
            await self._follow_model()
            if self._resting:
                continue
            if self._order is not None:
                await self._train(self._order)
            elif self._to_judge is not None:
                await self._judge(self._to_judge)

    async def _follow_model(self) -> None:
        """Another model is another session; one that has no head that can be taught is none."""
        model, digest = self._around.model()
        is_known = (model, digest) == self._seen and (self._described is not None or not self._problem)
        if not model or is_known or (self._resting and self._described is None):
            return
        now_s = time.monotonic()
        if (model, digest) == self._seen and now_s < self._looked_s + RETRY_S:
            return
        self._seen, self._looked_s, self._described = (model, digest), now_s, None
        self._taught = None
        session: Session | None = None
        try:
            found = await self._ask(words.Describe(model, self._common()))
            if not isinstance(found, words.Described):
                raise LearnerError(found.text if isinstance(found, words.Failed) else "no answer to what was asked")
            if digest and found.digest != digest:
                raise LearnerError(f"the eye runs another bundle than {model}; name it in learning.model")
            entries = min(max(1, round(found.weights * self._section.share)), ENTRIES_MAX)
            session = Session(bytes.fromhex(found.digest), found.weights, entries, self._section.rounds)
            self._described, self._problem = found, ""
        except (LearnerError, ProtocolError, ValueError) as error:
            self._tell_problem(str(error))
        if session is not None:
            # The pictures are read before the first round: a node that enters it can answer.
            await self._task([0] * session.dim, lambda: self._around.model() != (model, digest))
        if self._order is not None and self._order.session != session:
            self._order = None
        if self._to_judge is not None and self._to_judge.session != session:
            self._to_judge = None
        self._command(NAME, Learn(session))

    async def _train(self, order: Train) -> None:
        found = await self._task(order.moved, lambda: self._order is not order)
        if found is None:
            return
        self._order = None
        if isinstance(found, words.Taught):
            try:
                self._command(NAME, Trained(order.session.id, order.round, found.change, found.rows))
            except ProtocolError as error:
                self._fail(str(error))
            else:
                self.counts["trained"] += 1

    async def _judge(self, head: HeadMerged) -> None:
        """What has come out is judged by what was held back here."""
        if await self._task(head.moved, lambda: self._to_judge is not head) is not None:
            self._to_judge = None

    async def _task(self, moved: Any, is_stale: Callable[[], bool]) -> words.FromLearner | None:
        """Run a task while it may run; None: it was ended, or is no longer wanted."""
        described, section = self._described, self._section
        if described is None:
            self._order = self._to_judge = None
            return None
        reviews: list[dict[str, Any]] = []
        if self._frames and section.reviews:
            async for one in self._around.reviews():
                reviews.append(one)
                if len(reviews) >= REVIEWS_MAX:
                    break
        task = words.Teach(
            self._seen[0], described.digest, section.labels, str(self._folder), tuple(moved), self._frames,
            tuple(reviews), self._common(),
        )  # fmt: skip
        began_s = time.monotonic()
        job = asyncio.ensure_future(self._ask(task))
        try:
            while not job.done() and not is_stale() and not self._resting:
                await asyncio.wait((job,), timeout=1.0)
                self._resting = self._around.why_rest()
            if not job.done():
                self.counts["rested"] += 1
                return None
            found = job.result()
        except LearnerError as error:
            found = words.Failed(str(error))
        finally:
            job.cancel()
            await asyncio.wait((job,))
        self._took_s = round(time.monotonic() - began_s, 3)
        if isinstance(found, words.Taught):
            self._taught, self._problem = found, ""
            self._judge_pace(is_first=not any(moved))
            self._judge_head(found)
        else:
            self._fail(found.text if isinstance(found, words.Failed) else "no answer to what was asked")
        return None if is_stale() else found

    def _judge_pace(self, *, is_first: bool) -> None:
        """Who trains longer than a round lasts has others train from heads that lag: then they may not settle."""
        if self._took_s > self._section.round_s and not is_first:  # The first one reads all pictures.
            self._tell_problem(
                f"a training took {self._took_s:.0f} s and a round {self._section.round_s:.0f}: raise learning.round_s "
                "on all members, or heads may not settle"
            )

    def _judge_head(self, found: words.Taught) -> None:
        """What the swarm merged is worse here than what it began with: nobody runs it, and people should know."""
        if found.start is not None and found.now is not None and found.now < found.start - WORSE:
            self._tell_problem(
                f"the merged head names {found.now:.3f} of what was held back here right, the start {found.start:.3f}"
            )

    def _common(self) -> words.Common:
        fd = self.gate_fd
        return words.Common(is_idle=fd >= 0, gate_fd=fd)

    def _fail(self, text: str) -> None:
        self.counts["failed"] += 1
        self._tell_problem(text)

    def _tell_problem(self, text: str) -> None:
        if text != self._problem:
            self._log.warning("learning_problem", text=text)
        self._problem = text

    async def _ask(self, task: words.ToLearner) -> words.FromLearner:
        """One child, from its beginning to its end.

        Raises:
            LearnerError: It said nothing that anybody understands.
        """
        descriptors = (task.common.gate_fd,) if task.common.gate_fd >= 0 else ()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "swarmd.learner", pass_fds=descriptors, env=environment_of_eye(),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=words.MAX_LINE_BYTES,
            )  # fmt: skip
        except OSError as error:  # No room for another process, or no descriptors: an answer like any other.
            raise LearnerError(f"the learner cannot be started: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(TASK_MAX_S):
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(await asyncio.to_thread(words.encode, task))
                    await process.stdin.drain()
                process.stdin.close()
                return words.decode_from_learner(await process.stdout.readline())
        except TimeoutError as error:
            raise LearnerError(f"a training took more than {TASK_MAX_S:.0f} s and was ended") from error
        except (ValueError, msgspec.DecodeError) as error:
            raise LearnerError("the learner ended without an answer; see the log") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
