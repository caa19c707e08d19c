"""The cameras of a traffic fleet: looks, judged by the own small model and, where a plan says so, by others.

Each look is a track that is new in a frame; its answer is wanted within `offload.deadline_ms` of that frame. With the
rule "ours" the device walks the plan of its release; what a user would write instead is "local" (the small model's
word), "always" (the largest model's, or nothing) and "if" (`confidence < 0.7 and bandwidth > 20 Mbit/s and 45 ms fit`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from swarmd_protocols.offload import requests
from swarmd_protocols.offload.cascade import Plan, Walk
from swarmd_sim.run.choices import MILLION, Choices, derived_seed
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload_device import Asked, Device, answer_to
from swarmd_sim.run.offload_fleet import TRAFFIC, judge_of
from swarmd_sim.run.processor import FRAME, OWN
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario
from swarmd_sim.world.judges import LARGER, LARGEST, SMALL, Look, learned_plan, look
from swarmd_sim.world.recorded_looks import recorded_look, recorded_plan

JUDGES = (LARGER, LARGEST)
"""Of the plan's steps."""
UNITS = (2.0, 5.0)
"""What one inference of each costs where it is lent: a gateway's milliseconds."""
_EARLY_NS = MILLION
"""A step ends so long before its look does: what is known then is still in time."""
_LEAST_NS = 6 * MILLION
"""With less left nobody is asked: the way there and back takes as long."""
_SHOWN = 16
"""Looks of a camera that may be seen again."""


@dataclass(slots=True)
class Seen:
    """One look of one camera, and what became of it."""

    host: int
    life: int
    number: int
    """Of what it shows; equal looks have equal ones."""
    look: Look
    at_ns: int
    deadline_ns: int
    version: int
    parts: list[bytes] = field(default_factory=list)
    """Bundles whose answers are in it."""
    said: float | None = None
    ended_ns: int = 0
    asked: list[bytes] = field(default_factory=list)
    """Bundles that were asked for."""
    answers: int = 0
    ends: int = 0
    own_ns: int = 0
    """When the own model had answered; 0: it has not."""


class Asking(Protocol):
    """What looks need of the world."""

    first_ns: int
    until_ns: int

    def is_asking(self, host: Host) -> bool:
        """Whether its programs can ask now."""

    def ask(self, device: Device, asked: Asked, local_ns: int) -> None:
        """A program asks."""


class Looks:
    """See the module.

    Args:
        world: Where requests are asked.
        scenario: What was asked for.
        choices: All randomness.
    """

    def __init__(self, world: Asking, scenario: Scenario, choices: Choices) -> None:
        self._world = world
        self._section = scenario.offload
        self._rate_mbit_s = scenario.radio.rate_mbit_s
        self._is_recorded = self._section.judges == "traffic"
        self._choices = choices
        self._shown: dict[int, deque[int]] = {}
        self._number = 0
        self.seen: list[Seen] = []
        self.version: dict[int, int] = {}
        """Of which release each camera's plan is."""
        self.on_end: Callable[[Device, Seen], None] = lambda device, seen: None
        """Told of each look that is through."""

    @property
    def rule(self) -> str:
        """Who decides."""
        return self._section.rule

    def plan(self, version: int) -> Plan:
        """Of a release."""
        learned = recorded_plan if self._is_recorded else learned_plan
        return learned(TRAFFIC[version], JUDGES, UNITS)

    def asks(self, device: Device) -> tuple[bytes, ...]:
        """Bundles that a camera's rule may ask others for."""
        digests = TRAFFIC[self.version.get(device.host.index, 0)]
        steps = {"ours": JUDGES, "always": (LARGEST,), "if": (LARGEST,)}
        return tuple(digests[judge] for judge in steps.get(self.rule, ()))

    def begin(self, device: Device) -> Callable[[], None] | None:
        """A frame comes: what is to happen when the small model has run; None: nothing new is in it."""
        host, section = device.host, self._section
        now_ns = host.engine.now_ns
        share = section.requests_per_s * device.about.frame_ns / NS_PER_S
        is_new = self._choices.choose("offload.look", MILLION) >= MILLION - share * MILLION
        is_time = self._world.first_ns <= now_ns < self._world.until_ns
        if not is_new or not is_time or not self._world.is_asking(host):
            return None
        shown = self._shown.setdefault(host.index, deque(maxlen=_SHOWN))
        if shown and self._choices.chance("offload.again", int(section.repeat_share * MILLION)):
            # The newer ones more often: what stands at a crossing goes when the light changes.
            place = min(self._choices.choose("offload.shown", len(shown)) for _ in range(2))
            number = shown[len(shown) - 1 - place]
        else:
            self._number += 1
            number = self._number
            shown.append(number)
        seed = derived_seed(self._choices.seed, f"look/{number}")
        one = recorded_look(host.index, seed) if self._is_recorded else look(seed)
        deadline_ns = now_ns + int(section.deadline_ms * MILLION)
        version = self.version.get(host.index, 0)
        seen = Seen(host.index, host.boots, number, one, now_ns, deadline_ns, version)
        self.seen.append(seen)
        if section.rule == "always":
            self._ask(device, seen, TRAFFIC[version][LARGEST], lambda score: self._end(device, seen, score))
            return None
        return lambda: self._own(device, seen)

    def _own(self, device: Device, seen: Seen) -> None:
        """The small model has run."""
        score = seen.look.scores[SMALL]
        seen.own_ns = device.host.engine.now_ns
        rule = self._section.rule
        if rule == "ours":
            walk = Walk(self.plan(seen.version))
            walk.add(TRAFFIC[seen.version][SMALL], score)
            self._go_on(device, seen, walk)
            return
        seen.parts = [TRAFFIC[seen.version][SMALL]]
        left_ns = seen.deadline_ns - device.host.engine.now_ns
        is_doubtful = max(score, 1.0 - score) < 0.7
        if rule == "if" and is_doubtful and self._rate_mbit_s > 20.0 and left_ns >= 45 * MILLION:
            digest = TRAFFIC[seen.version][LARGEST]
            self._ask(device, seen, digest, lambda said: self._end(device, seen, score if said is None else said))
            return
        self._end(device, seen, score)

    def _go_on(self, device: Device, seen: Seen, walk: Walk) -> None:
        left_ns = seen.deadline_ns - _EARLY_NS - device.host.engine.now_ns
        step = walk.next_step(left_ns) if left_ns > _LEAST_NS else None
        if step is None:
            seen.parts = list(walk.parts)
            self._end(device, seen, walk.confidence)
            return
        digest = step.digest

        def told(score: float | None) -> None:
            if score is not None:
                walk.add(digest, score)
            self._go_on(device, seen, walk)

        self._ask(device, seen, digest, told)

    def _ask(self, device: Device, seen: Seen, digest: bytes, then: Callable[[float | None], None]) -> None:
        section, now_ns = self._section, device.host.engine.now_ns
        data = seen.number.to_bytes(8, "big")
        data += bytes(max(0, section.input_bytes - len(data)))
        copies = 2 if self._choices.chance("offload.copies", int(section.copies_share * MILLION)) else 1
        seen.asked.append(digest)

        def settled(asked: Asked, settle: requests.Settle) -> None:
            seen.answers += settle.data is not None
            then(None if settle.data is None else self._read(seen, asked, settle.data))

        asked = Asked(
            seen.host, seen.life, 0, digest, data, now_ns, seen.deadline_ns - _EARLY_NS, 0, copies=copies,
            keep_ns=int(section.keep_s * NS_PER_S), then=settled,
        )  # fmt: skip
        unit_ns = device.unit_ns(digest) if section.rule == "ours" else 0
        # A pole has the larger model itself: behind the frame that runs and the next one.
        own_ns = unit_ns + device.processor.backlog_ns(FRAME, OWN) + device.about.units[SMALL] if unit_ns else 0
        self._world.ask(device, asked, own_ns)

    def _read(self, seen: Seen, asked: Asked, data: bytes) -> float:
        """The score in an answer: the judge's, where it is honest; a liar finds a car everywhere."""
        is_honest = data == answer_to(asked.digest, asked.data)
        return seen.look.scores[judge_of(data[32:])] if is_honest else 0.999

    def _end(self, device: Device, seen: Seen, said: float | None) -> None:
        if device.host.boots != seen.life:
            return
        seen.ends += 1
        seen.said, seen.ended_ns = said, device.host.engine.now_ns
        self.on_end(device, seen)
