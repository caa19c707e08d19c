"""A region whose file was lost, or is put back from a backup: what it exported stays, what it sends arrives."""

import random
import shutil
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swarmd.federation.marks import Marks
from swarmd.federation.outbox import Done
from swarmd.federation.store import FILE_NAME, Store
from swarmd_protocols.federation.wire import Down, FactKind
from tests.support.federation_world import Gateway, World, make_world


def backed_up(folder: Path) -> World:
    """A world whose region was backed up after its first words."""
    world = make_world(folder, random.Random(1), 1, 1)
    assert world.store is not None
    world.swarms[0].gateways[0].say(1, 500)
    world.settle()
    world.store.send_down(world.swarms[0].pin.key.hex(), FactKind.FACT, b"first", b"1")
    world.store._db.execute("VACUUM INTO ?", (str(folder / "backup.sqlite"),))
    return world


def lose(world: World, backup: Path | None, *, opens: bool = True) -> None:
    """The region ends, and its file is another one."""
    assert world.store is not None
    world.store.close()
    world.store = None
    for suffix in ("", "-wal", "-shm"):
        (world.folder / (FILE_NAME + suffix)).unlink(missing_ok=True)
    if backup is not None:
        shutil.copy(backup, world.folder / FILE_NAME)
    time.sleep(0.002)  # A clock in milliseconds.
    if opens:
        world.open()


def exported_words_stay(folder: Path, backup: str, is_stored: bool = False) -> None:
    pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
    from swarmd.federation.history import export
    from swarmd.federation.stored import Stored, write_stored
    from tests.support.export_laws import words_in

    write = None
    if is_stored:
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        place = Stored(SubTreeFileSystem(str(folder), LocalFileSystem()), "past", "x://past")
        write = partial(write_stored, place)

    world = backed_up(folder)
    [gateway] = world.swarms[0].gateways
    gateway.say(2, 600)
    world.settle()
    assert world.store is not None
    assert export(world.store, folder / "past", write) == 2
    lose(world, folder / backup if backup else None)
    gateway.say(3, 700)
    world.settle()
    export(world.store, folder / "past", write)
    assert words_in(folder / "past") == 3, "an export has written over another, or has written a word twice"
    world.close()


def what_is_sent_arrives(folder: Path) -> None:
    world = backed_up(folder)
    assert world.store is not None
    [gateway], swarm = world.swarms[0].gateways, world.swarms[0].pin.key.hex()
    for name in (b"second", b"third"):
        world.store.send_down(swarm, FactKind.FACT, name, b"2")
    gateway.outbox.have = (world.store.log, world.store.down_count())  # All of them are taken in.
    lose(world, folder / "backup.sqlite", opens=False)
    # Before the region runs again.
    world.store = Store(folder / FILE_NAME)
    assert world.store.log == gateway.outbox.have[0]
    world.store.send_down(swarm, FactKind.STATEMENT, b"revocation", b"3")
    told = [row.body for row in world.store.down(swarm, gateway.outbox.have[1], 10)]
    assert told == [b"3"], "what is sent after a backup was put back never arrives"
    world.close()


def who_knows_more_says_it_again(folder: Path) -> None:
    """A gateway that has heard of what the region has forgotten is told so, once; another restart tells nobody."""
    world = backed_up(folder)
    knows, knows_not = world.swarms[0].gateways[0], Gateway(world, world.swarms[0], 1)
    world.swarms[0].gateways.append(knows_not)
    knows_not.say(5, 500)
    changed: dict[bytes, list[bytes]] = {knows.node: [], knows_not.node: []}

    def hear(gateway: Gateway) -> None:
        real = gateway._on_down

        def on_down(down: Down, done: Sequence[Done]) -> None:
            if down.log != gateway.outbox.have[0]:
                changed[gateway.node].append(down.log)
                gateway.outbox.have = (down.log, 0)
            if down.rows:
                gateway.outbox.have = (down.log, down.rows[-1].seq)
            real(down, done)

        gateway.sending._on_down = on_down

    for gateway in (knows, knows_not):
        hear(gateway)
    world.settle()
    assert world.store is not None
    log = world.store.log
    world.open()
    world.region.tidy(0.0)
    for gateway in (knows, knows_not):
        gateway.say(6, 500)
    world.settle()
    assert {name for names in changed.values() for name in names} == {log}, "a restart has gateways say all again"
    copied = knows_not.outbox.have
    world.store._db.execute("VACUUM INTO ?", (str(folder / "later.sqlite"),))
    world.region._marks._marked_s.clear()
    world.region.tidy(0.0)
    knows.say(2, 600)
    world.settle()
    knows_not.outbox.have = copied
    lose(world, folder / "later.sqlite")
    for gateway in (knows, knows_not):
        changed[gateway.node].clear()
        for thing in range(7, 10):
            gateway.say(thing, 700)
            world.settle()
    assert world.store is not None
    names = changed[knows.node]
    assert len(names) == 2, "who knows more than the region is not told, or without end"
    assert names[0] != log
    assert names[1] == log == world.store.log
    assert changed[knows_not.node] == [], "who knows no more than the region says all again"
    world.close()


def test_who_knows_more_than_the_region_says_it_again(tmp_path: Path) -> None:
    who_knows_more_says_it_again(tmp_path)


@pytest.mark.parametrize("mutant", ["no look", "no gaps", "no marks", "marks are told of as gaps"])
def test_the_law_of_marks_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    if mutant == "no look":
        monkeypatch.setattr(Marks, "name_for", lambda self, log, have: self._store.log)
    elif mutant == "no marks":
        monkeypatch.setattr(Marks, "say", lambda *_: None)
    else:
        real = Marks.__init__
        gaps = [] if mutant == "no gaps" else [(0, 1 << 61)]

        def begin(self: Marks, *given: Any) -> None:
            real(self, *given)
            self._gaps = gaps

        monkeypatch.setattr(Marks, "__init__", begin)
    with pytest.raises(AssertionError):
        who_knows_more_says_it_again(tmp_path)


def test_a_swarm_that_is_seldom_there_has_its_marks(tmp_path: Path) -> None:
    """Whoever is heard for a minute in twenty, never when others are told, knows no less of the region's log."""
    world = make_world(tmp_path, random.Random(1), 2, 1)
    assert world.store is not None
    always, seldom = (swarm.pin.key for swarm in world.swarms)
    marks = Marks(world.store, 0)
    marks.say([always], 0.0)
    marks.say([always, seldom], 90.0)
    told = {key: [row.kind for row in world.store.down(key.hex(), 0, 10)] for key in (always, seldom)}
    assert told == {always: [FactKind.MARK], seldom: [FactKind.MARK]}
    seen = world.store.down_count()
    marks.say([always, seldom], 599.0)
    assert world.store.down_count() == seen, "marks come more often than they should"
    marks.say([always, seldom], 600.0)
    assert [row.seq > seen for key in (always, seldom) for row in world.store.down(key.hex(), 0, 10)] == [True, False]
    world.close()


def test_a_mark_that_the_disk_does_not_take_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 1)
    assert world.store is not None
    swarm, marks = world.swarms[0].pin.key, Marks(world.store, 0)
    with monkeypatch.context() as full:
        full.setattr("swarmd.federation.marks.put_down", partial(_raise, sqlite3.OperationalError("disk is full")))
        with pytest.raises(sqlite3.OperationalError):
            marks.say([swarm], 0.0)
    marks.say([swarm], 30.0)
    assert [row.kind for row in world.store.down(swarm.hex(), 0, 10)] == [FactKind.MARK]
    world.close()


def test_who_is_told_twice_before_it_speaks_says_all_again_once(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 1)
    assert world.store is not None
    marks, log = Marks(world.store, 1_000), world.store.log
    assert {marks.name_for(log, have) for have in (1, 1, 500, 2_000)} == {marks._none} != {log}
    assert marks.name_for(marks._none, 0) == log
    world.close()


def _raise(error: Exception, *_: object) -> None:
    raise error


@pytest.mark.parametrize("is_stored", [False, True], ids=["folder", "store"])
@pytest.mark.parametrize("backup", ["backup.sqlite", ""], ids=["put back", "lost"])
def test_an_export_writes_over_no_other(tmp_path: Path, backup: str, is_stored: bool) -> None:
    exported_words_stay(tmp_path, backup, is_stored)


def test_what_is_sent_after_a_backup_was_put_back_arrives(tmp_path: Path) -> None:
    what_is_sent_arrives(tmp_path)


def test_an_export_that_forgets_what_lies_there_breaks_the_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from swarmd.federation import history

    monkeypatch.setattr(history, "over", lambda path, system, table: table)
    with pytest.raises(AssertionError):
        exported_words_stay(tmp_path, "backup.sqlite")


def test_numbers_without_a_clock_break_the_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    with pytest.raises(AssertionError):
        what_is_sent_arrives(tmp_path)
