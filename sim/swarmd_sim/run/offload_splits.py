"""A fleet that runs one model in parts: each request of a device walks them, here and at lenders, beside an oracle.

The oracle looks at every way through the parts, each part here or at the best lender that has it, by what each
processor has to do at the moment of the request; nothing is lost on its radio and it needs no ticket.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from swarmd_protocols.offload import requests
from swarmd_protocols.offload.shards import Part, Shards, Step, Walk, ways
from swarmd_sim.run.choices import MILLION
from swarmd_sim.run.offload_device import Asked, Device, answer_to
from swarmd_sim.run.offload_fleet import PARTS, SIZES
from swarmd_sim.run.processor import FRAME, LENT, OWN, Task
from swarmd_sim.run.sections import Scenario

_WARM = 12
"""First requests of a life that are measured apart: ways that nobody has measured are tried once each."""


@dataclass(slots=True)
class Split:
    """One request of one device."""

    host: int
    life: int
    at_ns: int
    deadline_ns: int
    number: int
    """Of this life."""
    oracle_ns: int
    """0: nobody could have answered."""
    alone_ns: int
    """What the own parts would have taken; 0: there is none that leads to the end."""
    walk: Walk
    frame: bytes
    ended_ns: int = 0
    is_answered: bool = False
    is_wrong: bool = False
    ends: int = 0


class Asking(Protocol):
    """What walks need of the world."""

    devices: dict[int, Device]

    def ask(self, device: Device, asked: Asked, local_ns: int) -> None:
        """A program asks."""

    def way_ns(self, size_bytes: int, back_bytes: int) -> int:
        """The way there of so many bytes, and of others back."""


class Splits:
    """See the module.

    Args:
        world: Where parts are lent.
        scenario: What was asked for.
    """

    def __init__(self, world: Asking, scenario: Scenario) -> None:
        self._world = world
        self._section = scenario.offload
        self._shards: dict[tuple[int, int], Shards] = {}
        self.all: list[Split] = []

    def begin(self, device: Device) -> None:
        """A program of a device has a frame."""
        host, now_ns = device.host, device.host.engine.now_ns
        life = host.index, host.boots
        shards = self._shards.get(life)
        if shards is None:
            shards = self._shards[life] = Shards(PARTS)
        deadline_ns = now_ns + int(self._section.deadline_ms * MILLION)
        frame = len(self.all).to_bytes(8, "big").ljust(SIZES[0], b"\0")
        number = sum(one.host == host.index and one.life == host.boots for one in self.all)
        split = Split(
            host.index, host.boots, now_ns, deadline_ns, number, self._oracle_ns(device), self._alone_ns(device),
            Walk(shards, deadline_ns), frame,
        )  # fmt: skip
        self.all.append(split)
        self._go_on(device, split, frame)

    def _go_on(self, device: Device, split: Split, held: bytes) -> None:
        host, walk = device.host, split.walk
        if host.boots != split.life or not host.process_up:
            return
        now_ns = host.engine.now_ns
        step = walk.next_step(self._own(device), now_ns)
        if step is None:
            split.ended_ns, split.is_answered = now_ns, walk.is_through
            split.ends += 1
            split.is_wrong = walk.is_through and held != _expected(split)
            return
        if step.is_own:
            self._here(device, split, step, held)
        else:
            self._there(device, split, step, held)

    def _here(self, device: Device, split: Split, step: Step, held: bytes) -> None:
        def done() -> None:
            split.walk.on_done(step)
            self._go_on(device, split, answer_to(step.part.digest, held))

        unit_ns = device.unit_ns(step.part.digest)
        device.processor.put(Task(OWN, unit_ns, device.host.engine.now_ns, done))

    def _there(self, device: Device, split: Split, step: Step, held: bytes) -> None:
        began_ns = device.host.engine.now_ns
        part = step.part

        def settled(asked: Asked, settle: requests.Settle) -> None:
            now_ns = device.host.engine.now_ns
            if settle.data is None:
                split.walk.on_failed(step, now_ns)
                self._go_on(device, split, held)
                return
            size_bytes = len(held) + len(settle.data)
            lenders = [one for one in self._world.devices.values() if one.host.node_id == settle.lender]
            ran_ns = lenders[0].unit_ns(part.digest) if lenders else 0
            split.walk.shards.note_lent(part, size_bytes, now_ns - began_ns, ran_ns, now_ns)
            split.walk.on_done(step)
            self._go_on(device, split, settle.data)

        asked = Asked(
            split.host, split.life, 0, part.digest, held, began_ns, step.until_ns, 0,
            has_own=step.has_own_rest, then=settled,
        )  # fmt: skip
        self._world.ask(device, asked, 0)

    def _own(self, device: Device) -> dict[bytes, int]:
        backlog_ns = device.processor.backlog_ns(FRAME, OWN)
        return {
            part.digest: backlog_ns + unit_ns for part in PARTS.parts if (unit_ns := device.unit_ns(part.digest))
        }  # fmt: skip

    def _alone_ns(self, device: Device) -> int:
        own = self._own(device)
        times = [
            sum(own[part.digest] for part in way) for way in ways(PARTS, 0) if all(part.digest in own for part in way)
        ]
        return min(times, default=0)

    def _oracle_ns(self, device: Device) -> int:
        """The best of an exhaustive search."""
        times = [sum(costs) for way in ways(PARTS, 0) for costs in self._costs(device, way)]
        return min(times, default=0)

    def _costs(self, device: Device, way: Sequence[Part]) -> Iterator[list[int]]:
        if not way:
            yield []
            return
        part, places = way[0], list[int]()
        if unit_ns := device.unit_ns(part.digest):
            places.append(device.processor.backlog_ns(FRAME, OWN) + unit_ns)
        for other in self._world.devices.values():
            unit_ns = other.unit_ns(part.digest)
            if other is device or not other.about.lends or not unit_ns or not other.host.process_up:
                continue
            backlog_ns = other.processor.backlog_ns(FRAME, OWN, LENT)
            places.append(backlog_ns + unit_ns + self._world.way_ns(SIZES[part.begin], SIZES[part.end]))
        for rest in self._costs(device, way[1:]):
            if places:
                yield [min(places), *rest]

    # --- Figures ------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, object]:
        """What running in parts was worth."""
        done = [one for one in self.all if one.ends]
        warm = [one for one in done if one.is_answered and one.number >= _WARM and one.oracle_ns]
        took = sum(one.ended_ns - one.at_ns for one in warm)
        alone = [one for one in warm if one.alone_ns]
        steps = [step for one in done for step in one.walk.done]
        return {
            "splits": len(done),
            "splits_answered_share": round(sum(one.is_answered for one in done) / max(1, len(done)), 4),
            "splits_wrong": sum(one.is_wrong for one in done),
            "splits_late": sum(one.ended_ns > one.deadline_ns for one in done if one.is_answered),
            "split_mean_ms": round(took / max(1, len(warm)) / MILLION, 2),
            "split_of_best": round(took / max(1, sum(one.oracle_ns for one in warm)), 3),
            "split_of_alone": round(
                sum(one.ended_ns - one.at_ns for one in alone) / max(1, sum(one.alone_ns for one in alone)), 3
            ),
            "split_ways": _ways_taken(done),
            "split_own_parts": sum(step.is_own for step in steps),
            "split_lent_parts": sum(not step.is_own for step in steps),
            "split_failed_parts": sum(one.walk.failures for one in done),
            "splits_rescued": sum(one.is_answered and one.walk.failures > 0 for one in done),
        }


def _expected(split: Split) -> bytes:
    """What honest devices make of the frame by the parts that the walk took: each part's work on the one before."""
    held = split.frame
    for step in split.walk.done:
        held = answer_to(step.part.digest, held)
    return held


def _ways_taken(done: Sequence[Split]) -> dict[str, int]:
    """How often each way was taken: parts by their ends, in brackets where they were lent."""
    found: dict[str, int] = {}
    for one in done:
        if one.is_answered:
            names = (
                f"{step.part.begin}-{step.part.end}" if step.is_own else f"({step.part.begin}-{step.part.end})"
                for step in one.walk.done
            )  # fmt: skip
            key = " ".join(names)
            found[key] = found.get(key, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))
