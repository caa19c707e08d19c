"""Laws of events that only one node holds: they outlast its restart, bounded, and none comes twice."""

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd_protocols.effects import Persist, UserEvent
from swarmd_protocols.swim import event_shelf
from swarmd_protocols.swim.event_journal import EventJournal
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.event_shelf import EventShelf
from swarmd_protocols.swim.user_events import UserEvents
from tests.support.mutants import Law, Mutant, assert_found, each_mutant
from tests.support.swim_net import Net

A, B = b"a" * 16, b"b" * 16


def line(count: int = 3, seed: int = 1) -> Net:
    """Nodes that hear their two neighbours only, once all have met."""
    net = Net(count, seed=seed)
    assert net.run_until(net.formed, 10) is not None
    net.run(2)
    for a in range(count):
        net.cut([a], [b for b in range(count) if abs(a - b) > 1])
    return net


def heard(net: Net, index: int) -> list[str]:
    return [effect.name for _, at, effect in net.delivered() if at == index]


def what_only_the_one_between_holds_outlasts_its_restart() -> None:
    """Also after what its first answer said has become undeniable (`event_baseline.py`)."""
    for seed in (1, 2):
        net = line(seed=seed)
        net.cut([1], [2])
        for number in range(3):
            net.feed(0, UserEvent(f"e{number}", b""))
        net.run(1.5)
        assert heard(net, 1) == ["e0", "e1", "e2"]
        net.kill(1)
        net.run(0.2)
        net.restart(1)
        net.run(32)
        net.blocked -= {(1, 2), (2, 1)}
        net.run(8)
        assert heard(net, 2) == ["e0", "e1", "e2"]
        assert heard(net, 1) == ["e0", "e1", "e2"]


def what_nobody_has_heard_outlasts_a_restart_of_who_said_it() -> None:
    for seed in (1, 2):
        net = line(seed=seed)
        net.cut([0], [1])
        net.feed(0, UserEvent("e", b""))
        net.kill(0)
        net.run(0.2)
        net.restart(0)
        net.run(1)
        net.blocked -= {(0, 1), (1, 0)}
        net.run(8)
        assert (heard(net, 0), heard(net, 1), heard(net, 2)) == (["e"], ["e"], ["e"])


def restarts_deliver_nothing_twice_and_in_order() -> None:
    """Random restarts and events on a line; who has restarted may have missed some, by its baseline."""
    for seed in range(4):
        rng, net = Random(seed), line(4, seed=seed + 1)
        for number in range(24):
            net.feed(rng.randrange(4), UserEvent(f"{number:02d}", b""))
            net.run(rng.random())
            if number % 4 == 3:
                index = rng.randrange(4)
                net.run(1.1)  # How far it has delivered is in its journal a second later.
                net.kill(index)
                net.run(rng.random())
                net.restart(index)
                net.run(2)
        net.run(6)
        for index in range(4):
            assert max(Counter(heard(net, index)).values(), default=0) <= 1
            by_origin: dict[bytes, list[str]] = {}
            for _, at, effect in net.delivered():
                if at == index:
                    by_origin.setdefault(effect.origin, []).append(effect.name)
            assert all(names == sorted(names) for names in by_origin.values())


def shelf(written: dict[bytes, bytes]) -> EventShelf:
    def emit(effect: Persist) -> None:
        if effect.value is None:
            del written[effect.key]
        else:
            written[effect.key] = effect.value

    core: Any = SimpleNamespace(
        port=SimpleNamespace(emit=emit), counters=Counter(), now_ns=0, own=SimpleNamespace(node=A)
    )
    return EventShelf(core)


def the_journal_holds_the_newest_within_its_bounds() -> None:
    for seed in range(12):
        stays_within_bounds(Random(seed), (40, 4_000, 40_000)[seed % 3])


def stays_within_bounds(rng: Random, largest: int) -> None:
    written: dict[bytes, bytes] = {}
    made = shelf(written)
    for _ in range(100):
        made.put(rng.choice([A, B]), rng.randrange(200), bytes(rng.randrange(largest)))
        if rng.random() < 0.5:
            made.write()
        assert len(written) <= event_shelf._KEPT_MAX
        assert sum(len(value) - 8 for value in written.values()) <= event_shelf._KEPT_BYTES_MAX
    made.write()
    again = shelf(dict(written))
    again.restore(written)
    assert len(again) == len(written) == len(made)
    for events in again.taken_back().values():
        assert [sequence for sequence, _ in events] == sorted(sequence for sequence, _ in events)


def who_says_events_without_end_wears_nobodys_flash() -> None:
    """Fifty a second, which membership delivers; what a member writes of it has a rate, and so has what is removed."""
    net = Net(3, seed=1)
    assert net.run_until(net.formed, 10) is not None
    net.run(2)
    seconds, flashes = 30, [Flash(host.journal) for host in net.hosts]
    for host, flash in zip(net.hosts, flashes, strict=True):
        host.journal = flash
    for _ in range(50 * seconds):
        net.feed(0, UserEvent("e", bytes(800)))
        net.run(0.02)
    assert len(heard(net, 1)) > 40 * seconds
    for flash in flashes[1:]:
        assert 0 < flash.written_bytes <= event_shelf._KEPT_BYTES_MAX + event_shelf._WORN_BYTES_PER_S * (seconds + 5)


class Flash(dict[bytes, bytes]):
    """A journal that counts what of events is written to it, checks aside."""

    written_bytes = 0

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if key.startswith(event_shelf._KEY):
            self.written_bytes += len(key) + len(value) - 8
        super().__setitem__(key, value)


def no_flipped_bit_brings_back_another_event() -> None:
    written: dict[bytes, bytes] = {}
    made = shelf(written)
    made.put(A, 7, b"said")
    made.write()
    ((key, value),) = written.items()
    for bit in range(8 * (len(key) + len(value))):
        record = bytearray(key + value)
        record[bit // 8] ^= 1 << bit % 8
        damaged = {bytes(record[: len(key)]): bytes(record[len(key) :])}
        again = shelf(dict(damaged))
        again.restore(damaged)
        assert again.taken_back() == {}


def _nothing_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventShelf, "write", lambda self: None)


def _nothing_is_taken_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UserEvents, "_take_back", lambda self: None)


def _own_events_wait(patch: pytest.MonkeyPatch) -> None:
    original, writes = EventShelf.write, EventJournal._write
    patch.setattr(EventShelf, "write", lambda self: None)

    def write(self: EventJournal, argument: object) -> None:
        patch.setattr(EventShelf, "write", original)
        writes(self, argument)

    patch.setattr(EventJournal, "_write", write)


def _taken_back_is_not_delivered(patch: pytest.MonkeyPatch) -> None:
    original = EventLog.take_back

    def take_back(self: EventLog, sequence: int, encoded: bytes) -> None:
        before = self.delivered
        original(self, sequence, encoded)
        self.delivered = before

    patch.setattr(EventLog, "take_back", take_back)


def _nothing_is_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventShelf, "_trim", lambda self: None)


def _flash_is_cheap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventShelf, "_may_wear", lambda self, size_bytes: True)


def _nothing_is_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_shelf, "_check", lambda key, encoded: bytes(8))


LAWS = [
    (what_only_the_one_between_holds_outlasts_its_restart, _nothing_is_taken_back),
    (what_only_the_one_between_holds_outlasts_its_restart, _nothing_is_written),
    (what_nobody_has_heard_outlasts_a_restart_of_who_said_it, _own_events_wait),
    (what_nobody_has_heard_outlasts_a_restart_of_who_said_it, _taken_back_is_not_delivered),
    (the_journal_holds_the_newest_within_its_bounds, _nothing_is_dropped),
    (who_says_events_without_end_wears_nobodys_flash, _flash_is_cheap),
    (no_flipped_bit_brings_back_another_event, _nothing_is_checked),
]


@each_mutant(LAWS)
def test_a_law_of_the_shelf_holds_and_finds_its_mutant(
    law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    law()
    assert_found(mutant, law, monkeypatch)


def test_restarts_deliver_nothing_twice_and_in_order() -> None:
    restarts_deliver_nothing_twice_and_in_order()
