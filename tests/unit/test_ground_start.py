"""The observer's files: read beside the daemon's loop, and written whatever the clock does."""

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra ground)")

from swarmd.errors import DaemonError
from swarmd.ground import observer as module
from swarmd.ground.observer import Observer
from swarmd.ground.past import BLOCK_S, BLOCKS_MAX, Past
from tests.support.bridge_world import World


def written(past: Past) -> set[float]:
    """When the blocks that are on the disk began."""
    rows = past._thread.submit(lambda: past._database.execute("SELECT began_s FROM minutes").fetchall()).result()
    return {row[0] for row in rows}


async def test_the_loop_waits_for_neither_history_nor_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are read through at a start: a gigabyte took the loop for seconds, and the swarm missed this node."""
    opened_by: dict[str, int] = {}

    def note(name: str) -> None:
        real = getattr(module, name)

        def make(*given: Any) -> Any:
            opened_by[name] = threading.get_ident()
            return real(*given)

        monkeypatch.setattr(module, name, make)

    def end(*_: object) -> None:
        raise DaemonError("far enough")

    note("Ground")
    note("Audit")
    monkeypatch.setattr(module, "LiveFeed", end)
    observer = Observer("127.0.0.1:0", [], lambda info: tmp_path, False)
    with pytest.raises(DaemonError, match="far enough"):
        await observer.run(World("alice"))  # type: ignore[arg-type]
    observer._sockets.pop().close()
    assert set(opened_by) == {"Ground", "Audit"}
    assert threading.get_ident() not in opened_by.values()
    # Who cannot go on is tried again for ever: nothing of a try may stay.
    assert not [one for one in threading.enumerate() if one.name.startswith("history")]


def test_after_a_clock_was_set_back_the_past_is_written_each_minute(tmp_path: Path) -> None:
    """The open block began in what is the future now: nothing was on the disk for as long as the clock was set back."""
    past = Past(tmp_path / "history.sqlite", dict)
    past.begin(100_000.0)
    past.tick(100_001.0)
    for second in range(round(2 * BLOCK_S)):
        past.tick(50_000.0 + second)
    assert 50_000.0 in written(past)
    past.close()


def test_a_clock_that_is_ahead_for_a_while_costs_no_past(tmp_path: Path) -> None:
    """One block of next year made all others a month old, and they went."""
    names = map(str, itertools.count())
    past = Past(tmp_path / "history.sqlite", lambda: {"object": {next(names): b"{}" * 50}})  # Each block by itself.
    for began_s in (0.0, 1_000.0, 2_000.0, 365 * 86_400.0, 365 * 86_400.0 + 1_000, 3_000.0, 4_000.0):
        past.tick(began_s)
    assert {0.0, 1_000.0, 2_000.0} <= written(past)
    for number in range(BLOCKS_MAX + 1):
        past.tick(40 * 86_400.0 + 1_000.0 * number)
    assert not {0.0, 1_000.0, 2_000.0, 3_000.0} & written(past)
    past.close()
