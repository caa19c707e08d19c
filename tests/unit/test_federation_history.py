"""A region's past: exported once, by swarm and day, and the same question has the same answer there."""

import random
from pathlib import Path

import pytest

from swarmd.federation.history import ask, export
from swarmd.federation.rows import ObjectQuery
from tests.support.federation_world import World, make_world

pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")


@pytest.fixture
def world(tmp_path: Path) -> World:
    one = make_world(tmp_path, random.Random(3))
    one.misbehave(120)
    one.settle()
    return one


def test_the_same_question_has_the_same_answer_in_history(world: World, tmp_path: Path) -> None:
    assert world.store is not None
    keys = tuple(swarm.pin.key.hex() for swarm in world.swarms)
    waiting = len(world.store.history(10_000))
    assert export(world.store, tmp_path / "past") == waiting
    assert export(world.store, tmp_path / "past") == 0
    for query in (
        ObjectQuery(),
        ObjectQuery(label="hot-spot"),
        ObjectQuery(label="bird"),
        ObjectQuery(since_ms=1 << 42),
    ):
        present = world.store.objects(query, 0, 1).objects
        past = ask(tmp_path / "past", query, keys)
        assert {(row["swarm"], row["object"], row["digest"]) for row in past} == {
            (row["swarm"], row["object"], row["digest"]) for row in present
        }
    assert ask(tmp_path / "past", ObjectQuery(), keys[:1]) != ask(tmp_path / "past", ObjectQuery(), keys)
    world.close()


def test_an_export_that_was_cut_short_writes_nothing_twice(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.store is not None
    count = len(world.store.history(10_000))
    with monkeypatch.context() as patch:
        patch.setattr(type(world.store), "forget_history", lambda self, last: (_ for _ in ()).throw(OSError("cut")))
        with pytest.raises(OSError, match="cut"):
            export(world.store, tmp_path / "past")
    assert export(world.store, tmp_path / "past") == count
    import pyarrow.dataset

    assert pyarrow.dataset.dataset(str(tmp_path / "past")).count_rows() == count
    world.close()
