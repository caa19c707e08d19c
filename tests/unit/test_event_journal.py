"""How far events were delivered, out of the journal: what a disk damaged silences nobody."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd_protocols.effects import Persist
from swarmd_protocols.swim import event_journal
from swarmd_protocols.swim.event_journal import EventJournal
from tests.support.mutants import assert_found

ORIGIN, OTHER = bytes(range(16)), bytes(range(16, 32))
SEQUENCE = (3 << 20) + 17


def journal(written: dict[bytes, bytes]) -> EventJournal:
    """One that writes there, and at once."""

    def emit(effect: Persist) -> None:
        assert effect.value is not None
        written[effect.key] = effect.value

    port = SimpleNamespace(emit=emit)
    core: Any = SimpleNamespace(port=port, now_ns=0, counters=Counter())
    core.scheduler = SimpleNamespace(at=lambda due_ns, call: due.append(call))
    due: list[Any] = []
    made = EventJournal(core)
    made.note(ORIGIN, SEQUENCE)
    made.note(OTHER, SEQUENCE + 1)
    for call in due:
        call(None)
    return made


def no_flipped_bit_silences_anybody() -> None:
    written: dict[bytes, bytes] = {}
    begun = journal(written)
    (key,) = [key for key in written if key.endswith(ORIGIN)]
    for bit in range(8 * (len(key) + len(written[key]))):
        record = bytearray(key + written[key])
        record[bit // 8] ^= 1 << bit % 8
        damaged = {one: value for one, value in written.items() if one != key}
        damaged[bytes(record[: len(key)])] = bytes(record[len(key) :])
        restored = EventJournal(begun.core)
        restored.restore(damaged)
        assert (restored.told(ORIGIN), restored.told(OTHER), len(restored._told)) == (0, SEQUENCE + 1, 1)


def test_what_is_whole_is_restored() -> None:
    written: dict[bytes, bytes] = {}
    restored = EventJournal(journal(written).core)
    restored.restore(written)
    assert (restored.told(ORIGIN), restored.told(OTHER)) == (SEQUENCE, SEQUENCE + 1)


def test_no_flipped_bit_silences_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    no_flipped_bit_silences_anybody()
    assert_found(
        lambda patch: patch.setattr(event_journal, "fingerprint", lambda _: 0),
        no_flipped_bit_silences_anybody,
        monkeypatch,
    )
