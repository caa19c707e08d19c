"""A region's past: exported once, by swarm and day, and the same question has the same answer there."""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from swarmd.cli.main import main
from swarmd.errors import DaemonError
from swarmd.federation import asking
from swarmd.federation.asking import ask_duckdb
from swarmd.federation.history import FILE_ROWS_MAX, ask, day_of, export, files_of, schema_of, write_words
from swarmd.federation.rows import OBJECT_COLUMNS, ObjectQuery
from swarmd.federation.settings import make_region
from swarmd.federation.store import FILE_NAME
from swarmd.federation.stored import ask_stored, stored, stored_files, write_stored
from tests.support import export_laws
from tests.support.federation_world import World, make_world

pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
Ask: TypeAlias = Callable[..., list[dict[str, Any]]]


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


@pytest.mark.parametrize("step", ["half", "named", "forgets"])
def test_an_export_that_is_killed_leaves_whole_files_and_the_next_has_each_word_once(step: str) -> None:
    export_laws.kill_leaves_whole_files(step)


@pytest.mark.parametrize(
    "law",
    [
        export_laws.a_file_is_durable_before_it_is_named,
        export_laws.a_disk_that_refuses_leaves_the_old_file,
        export_laws.two_exports_do_not_write_into_each_other,
        export_laws.only_drafts_of_the_exports_own_files_go,
    ],
    ids=lambda law: law.__name__,
)
def test_the_law_holds(law: Callable[[Path], None], tmp_path: Path) -> None:
    law(tmp_path)


def test_an_address_of_this_machine_is_exported_to_as_a_folder_is(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The draft of an export that was killed is removed there too."""
    assert world.store is not None
    count = len(world.store.history(10_000))
    world.close()
    region = tmp_path / "region"
    make_region(region)
    (file,) = tmp_path.rglob(FILE_NAME)
    file.replace(region / FILE_NAME)
    draft = tmp_path / "past" / "objects" / "swarm=a" / "day=2026-11-01" / "000000000001.parquet.new"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b"half")
    place = f"{tmp_path.as_uri()}/past"
    assert main(["region", "export", str(region), place]) == 0
    assert capsys.readouterr().out == f"{count} words are in {place}\n"
    assert export_laws.words_in(tmp_path / "past") == count
    assert not draft.exists()


def test_duckdb_gives_the_same_rows_in_the_same_order(world: World, tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed (extra duckdb)")
    assert world.store is not None
    keys = tuple(swarm.pin.key.hex() for swarm in world.swarms)
    rows = [row for _, row in world.store.history(10_000)]
    export(world.store, tmp_path / "past")
    # The same words on later days, with other labels and tiers: what a question must tell apart.
    day_ms = 86_400_000
    for number, (label, tier, review) in enumerate(
        (("bird", "confirmed", ""), ("hot-spot", "candidate", ""), ("hot-spot", "reviewed", "rejected"))
    ):
        later = [
            {**row, "stamp": row["stamp"] + number + 1, "last_ms": row["last_ms"] + (number + 1) * day_ms,
             "label": label, "tier": tier, "review": review}
            for row in rows
        ]  # fmt: skip
        write_words(tmp_path / "past", later, 10_000 + number)
    at_ms = rows[0]["last_ms"]
    for query in (
        ObjectQuery(),
        ObjectQuery(label="bird"),
        ObjectQuery(label="hot-spot", tier="confirmed"),
        ObjectQuery(since_ms=at_ms + day_ms),
        ObjectQuery(until_ms=at_ms + day_ms),
        ObjectQuery(since_ms=at_ms + 10 * day_ms),
        ObjectQuery(limit=2),
    ):
        for only in (keys, keys[:1], ()):
            said = ask_duckdb(tmp_path / "past", query, only)
            assert said == ask(tmp_path / "past", query, only)
    assert ask_duckdb(tmp_path / "past", ObjectQuery(), keys)
    world.close()


def test_a_question_opens_the_files_of_its_days_and_swarms_alone(tmp_path: Path) -> None:
    for swarm in ("aa", "bb"):
        for day in ("2026-11-20", "2026-11-21", "2026-11-22"):
            place = tmp_path / "objects" / f"swarm={swarm}" / f"day={day}"
            place.mkdir(parents=True)
            (place / "000000000001.parquet").touch()
            (place / "000000000002.new").touch()
    at_ms = 1_795_219_200_000  # 2026-11-21, the first moment.
    assert day_of(at_ms) == "2026-11-21"
    assert len(files_of(tmp_path, ObjectQuery())) == 6
    assert len(files_of(tmp_path, ObjectQuery(since_ms=at_ms))) == 4
    assert len(files_of(tmp_path, ObjectQuery(since_ms=at_ms), ["bb"])) == 2
    assert len(files_of(tmp_path, ObjectQuery(since_ms=at_ms, until_ms=at_ms + 1), ["bb"])) == 1


def _word(label: str) -> dict[str, object]:
    kinds: dict[str, object] = {"TEXT": "", "INTEGER": 1, "REAL": 1.0}
    return {name: kinds[kind] for name, kind in OBJECT_COLUMNS} | {
        "swarm": "aa", "object": "01", "label": label, "tier": "confirmed", "last_ms": 1_795_219_200_000,
    }  # fmt: skip


ENGINES = pytest.mark.parametrize(
    ("ask_it", "extra"), [(ask, "pyarrow"), (ask_duckdb, "duckdb")], ids=["pyarrow", "duckdb"]
)


@ENGINES
def test_a_folder_is_what_its_name_says_and_no_pattern(tmp_path: Path, ask_it: Ask, extra: str) -> None:
    pytest.importorskip(extra)
    write_words(tmp_path / "site[ab]", [_word("own")], 1)
    write_words(tmp_path / "sitea", [_word("of another region")], 1)
    assert [row["label"] for row in ask_it(tmp_path / "site[ab]", ObjectQuery())] == ["own"]


@ENGINES
@pytest.mark.parametrize("name", ["swarm=zz", "day=2020-01-01", "north=1"])
def test_folders_above_say_nothing_of_swarm_or_day(tmp_path: Path, ask_it: Ask, extra: str, name: str) -> None:
    pytest.importorskip(extra)
    write_words(tmp_path / name, [_word("own")], 1)
    (row,) = ask_it(tmp_path / name, ObjectQuery())
    assert (row["swarm"], row["day"]) == ("aa", "2026-11-21")
    assert row.keys() == {name for name, _ in OBJECT_COLUMNS} | {"day"}


@ENGINES
def test_what_else_lies_in_the_folder_is_in_nobodys_way(tmp_path: Path, ask_it: Ask, extra: str) -> None:
    """A file that an export was cut short in, too, which stays until the next one."""
    pytest.importorskip(extra)
    write_words(tmp_path, [_word("own")], 1)
    (tmp_path / "objects" / "README").write_text("of a person")
    (place,) = (tmp_path / "objects").glob("swarm=*/day=*")
    (place / "000000000002.new").write_bytes(b"PAR1, and no more")
    assert [row["label"] for row in ask_it(tmp_path, ObjectQuery())] == ["own"]


@ENGINES
def test_a_damaged_file_is_named_and_raises_nothing_else(tmp_path: Path, ask_it: Ask, extra: str) -> None:
    pytest.importorskip(extra)
    place = tmp_path / "objects" / "swarm=aa" / "day=2026-11-20"
    place.mkdir(parents=True)
    (place / "000000000001.parquet").write_bytes(b"no Parquet at all")
    with pytest.raises(DaemonError, match=r"000000000001\.parquet"):
        ask_it(tmp_path, ObjectQuery())


def test_an_object_store_gives_the_same_rows_as_a_folder(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pyarrow's own file system of this machine: the same calls as over S3, files whole or not at all apart."""
    pytest.importorskip("duckdb", reason="duckdb is not installed (extra duckdb)")
    assert world.store is not None
    keys = tuple(swarm.pin.key.hex() for swarm in world.swarms)
    rows = [row for _, row in world.store.history(10_000)]
    (tmp_path / "bucket").mkdir()
    place = stored(f"{(tmp_path / 'bucket').as_uri()}/past")
    assert export(world.store, tmp_path, partial(write_stored, place)) == len(rows)
    later = [
        {**row, "stamp": row["stamp"] + 1, "last_ms": row["last_ms"] + 86_400_000, "label": "bird"} for row in rows
    ]
    for write in (partial(write_words, tmp_path / "past"), partial(write_stored, place)):
        write(later, 10_000)
    write_words(tmp_path / "past", rows, 1)
    at_ms = rows[0]["last_ms"]
    queries = (
        ObjectQuery(),
        ObjectQuery(label="bird"),
        ObjectQuery(label="hot-spot", tier="confirmed"),
        ObjectQuery(since_ms=at_ms + 86_400_000),
        ObjectQuery(until_ms=at_ms + 1),
        ObjectQuery(limit=2),
    )
    for query in queries:
        for only in (keys, keys[:1], ()):
            known = ask(tmp_path / "past", query, only)
            assert ask_stored(place, query, only) == known
            with monkeypatch.context() as patch:
                patch.setattr("swarmd.federation.stored.import_duckdb", lambda: None)
                assert ask_stored(place, query, only) == known
    assert len(stored_files(place, ObjectQuery(since_ms=at_ms + 86_400_000), keys[:1])) < len(
        stored_files(place, ObjectQuery(), keys)
    )
    world.close()


def test_what_is_wrong_with_an_object_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="write s3://BUCKET/PREFIX"):
        stored("nothing://known")
    place = stored(f"{tmp_path.as_uri()}/past")
    with pytest.raises(DaemonError, match="swarmd region export"):
        ask_stored(place, ObjectQuery())
    write_stored(place, [_word("own")], 1)
    (file,) = (tmp_path / "past").rglob("*.parquet")
    file.write_bytes(b"no Parquet at all")
    with pytest.raises(DaemonError, match="past"):
        ask_stored(place, ObjectQuery())


def test_times_that_no_calendar_has_are_asked_for_too(tmp_path: Path) -> None:
    write_words(tmp_path, [_word("own")], 1)
    for query in (ObjectQuery(since_ms=-(1 << 60)), ObjectQuery(until_ms=1 << 60)):
        assert len(ask(tmp_path, query)) == 1


def test_without_duckdb_pyarrow_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "import_duckdb", lambda: None)
    monkeypatch.setattr(asking, "ask_arrow", lambda *given: [{"asked": given}])
    assert asking.ask(tmp_path, ObjectQuery(), ("k",)) == [{"asked": (tmp_path, ObjectQuery(), ("k",))}]
    with pytest.raises(DaemonError, match=r"swarmd\[duckdb\]"):
        ask_duckdb(tmp_path, ObjectQuery())


@pytest.mark.parametrize(
    "address", ["s3://KEY:hush@bucket/past", "s3://hush@bucket?region=x", "nothing://known?a=hush"]
)
def test_no_key_is_repeated_from_an_address(address: str) -> None:
    with pytest.raises(DaemonError) as told:
        stored(address)
    assert "hush" not in str(told.value)
    assert "s3://BUCKET/PREFIX" in str(told.value)


def test_a_swarm_that_is_not_pinned_is_named_where_history_is_asked(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.store is not None
    export(world.store, tmp_path / "past")
    world.close()
    region = tmp_path / "region"
    make_region(region)
    (file,) = tmp_path.rglob(FILE_NAME)
    file.replace(region / FILE_NAME)
    ask_past = ["fleet", "objects", "--region", str(region), "--history", str(tmp_path / "past")]
    assert main([*ask_past, "--swarm", "nosuch"]) == 1
    assert "the region pins no swarm 'nosuch'" in capsys.readouterr().err


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("change", ["more", "less"])
@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_files_of_another_version_are_asked_together_with_ours(
    tmp_path: Path, engine: str, change: str, is_first: bool
) -> None:
    """A column more, or one less: the rows are the same, in whichever order the files come."""
    import pyarrow
    import pyarrow.parquet

    if engine == "duckdb":
        pytest.importorskip("duckdb", reason="duckdb is not installed (extra duckdb)")
    past = tmp_path / "past"
    for number, thing in ((5, "aa"), (9 - 8 * is_first, "bb")):
        row = {name: {"TEXT": "x", "INTEGER": 7, "REAL": 0.5}[kind] for name, kind in OBJECT_COLUMNS}
        write_words(past, [row | {"object": thing, "tier": "confirmed", "review": ""}], number)
    (other,) = past.rglob(f"{9 - 8 * is_first:012}.parquet")
    table = pyarrow.parquet.read_table(other, partitioning=None)
    more = table.append_column("later", pyarrow.array([1]))
    pyarrow.parquet.write_table(more if change == "more" else table.drop_columns(["picture"]), other)
    rows = (ask if engine == "pyarrow" else ask_duckdb)(past, ObjectQuery(), ("x",))
    assert [(row["object"], row["picture"]) for row in rows] == [("aa", "x"), ("bb", "x" if change == "more" else None)]
    assert not any("later" in row for row in rows)


@pytest.mark.parametrize("column", ["object", "stamp", "digest", "last_ms"])
@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_what_lacks_its_number_or_its_time_is_no_word(tmp_path: Path, engine: str, column: str) -> None:
    """Somebody else wrote that file: it ended a question with a traceback."""
    import pyarrow.parquet

    if engine == "duckdb":
        pytest.importorskip("duckdb", reason="duckdb is not installed (extra duckdb)")
    past = tmp_path / "past"
    for number, thing in ((5, "aa"), (1, "bb"), (3, "aa")):
        row = {name: {"TEXT": "x", "INTEGER": 7, "REAL": 0.5}[kind] for name, kind in OBJECT_COLUMNS}
        write_words(past, [row | {"object": thing, "tier": "confirmed", "review": ""}], number)
    for number in (1, 3):
        (other,) = past.rglob(f"{number:012}.parquet")
        table = pyarrow.parquet.read_table(other, partitioning=None)
        pyarrow.parquet.write_table(table.drop_columns([column]), other)
    rows = (ask if engine == "pyarrow" else ask_duckdb)(past, ObjectQuery(), ("x",))
    assert [row["object"] for row in rows] == ["aa"]


def test_a_file_that_holds_something_else_is_named_by_an_export(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    row = {name: {"TEXT": "x", "INTEGER": 7, "REAL": 0.5}[kind] for name, kind in OBJECT_COLUMNS}
    write_words(tmp_path, [row], 1)
    (path,) = tmp_path.rglob("*.parquet")
    for table in ({"a": [1]}, {"object": ["x"], "stamp": ["seven"], "digest": ["x"]}):
        pyarrow.parquet.write_table(pyarrow.table(table), path)
        with pytest.raises(DaemonError, match=r"cannot be read: .*; move it away"):
            write_words(tmp_path, [row], 1)


def test_a_file_of_more_words_than_an_export_writes_is_not_read_into_memory(tmp_path: Path) -> None:
    """Columns that say one thing over and over take next to no bytes of a file."""
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    row = _word("own")
    write_words(tmp_path / "past", [row], 1)
    (path,) = tmp_path.rglob("*.parquet")
    columns = [arrow.repeat(arrow.scalar(row[one.name], one.type), FILE_ROWS_MAX // 2 + 1) for one in schema_of()]
    table = arrow.table(columns, schema=schema_of())
    with pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd") as out:
        out.write_table(table)
        out.write_table(table)
    del table, columns
    place = stored(f"{tmp_path.as_uri()}/past")
    asked: list[Callable[[], object]] = [
        lambda: ask(tmp_path / "past", ObjectQuery()),
        lambda: ask_stored(place, ObjectQuery()),
        lambda: write_words(tmp_path / "past", [row], 1),
    ]
    for one in asked:
        before_s = time.process_time()
        with pytest.raises(DaemonError, match=r"parquet holds 200,002 words, and an export writes 50,000 at most"):
            one()
        assert time.process_time() - before_s < 1.0
