"""A region's past as Parquet partitions, and the question of `fleet objects` asked of them.

    FOLDER/objects/swarm=KEY/day=YYYY-MM-DD/NUMBER-LOG.parquet        the day of `last_ms`, UTC

One row a word: everything that the region accepted, with the columns of the present table. An export writes what came
since the last one and then takes it out of the region's file, so a word lies in one place; an export that is cut short
is written again under the same names. What lies there under a name stays in it: a region's file that was put back from
a backup gives its numbers again to other words. LOG is drawn with a region's file, so that regions which write into one
place at once never write one name: an object store has no lock, and who came last there would be all that is left. A
word that two regions have heard lies there twice, and a question takes it once.

A file is there whole or not at all, and durable before the region forgets (`whole_files.py`). `asking.py` asks; any
engine that reads Parquet can (docs/federation.md). Needs the extra `parquet`.
"""

import datetime
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from swarmd.errors import DaemonError
from swarmd.federation.rows import OBJECT_COLUMNS, ObjectQuery
from swarmd.federation.store import Store
from swarmd.federation.whole_files import alone_in, write_whole
from swarmd_protocols.federation.wire import EPOCH_BYTES

EXPORT_ROWS = 50_000
"""Words of one turn, some 40 MB in memory."""
FILE_ROWS_MAX = 4 * EXPORT_ROWS
"""Words of one file that pyarrow reads: columns that say one thing over and over take no bytes, and all the memory."""
_FOOTERS = 16
"""Files whose ends are read at once, as many as pyarrow would read of a store."""
_DAY_MS = 86_400_000
Write: TypeAlias = Callable[[Sequence[Mapping[str, Any]], int, str], None]
"""(words, number of the first, which region's file counts them)."""
_PARTITIONS = ("swarm", "day")
_NAMES = ("[0-9]" * 12, "[0-9]" * 12 + "-" + "[0-9a-f]" * 2 * EPOCH_BYTES)
"""What files are called, those of before names had a LOG first."""
_FILES = [f"objects/swarm=*/day=*/{name}.parquet" for name in _NAMES]
_TYPES = {"TEXT": "string", "INTEGER": "int64", "REAL": "float64"}


def arrow_of() -> Any:
    """The library.

    Raises:
        DaemonError: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError as error:
        raise DaemonError("Parquet needs pyarrow: pip install 'swarmd[parquet]'") from error
    return pyarrow


def export(store: Store, folder: Path, write: Write | None = None) -> int:
    """Write down what the region has heard since the last export; returns how many words.

    Args:
        store: The region's.
        folder: Where to.
        write: Takes words, the number of the first and `log`, and is done when they are durable; None: into the folder.

    Raises:
        DaemonError: pyarrow is missing, the folder cannot be written, or another export is about it.
    """
    if write is None:
        with alone_in(folder, *_FILES):
            return export(store, folder, partial(write_words, folder))
    count = 0
    while rows := store.history(EXPORT_ROWS):
        write([row for _, row in rows], rows[0][0], store.log.hex())
        store.forget_history(rows[-1][0])
        count += len(rows)
    return count


def file_name(number: int, log: str) -> str:
    """What a file is called.

    >>> file_name(7, "0011223344556677"), file_name(7, "")
    ('000000000007-0011223344556677.parquet', '000000000007.parquet')
    """
    return "-".join(filter(None, (f"{number:012}", log))) + ".parquet"


def write_words(folder: Path, rows: Sequence[Mapping[str, Any]], number: int, log: str = "") -> None:
    """Write words into their partitions, one file each.

    Args:
        folder: Of all partitions.
        rows: With the names of `OBJECT_COLUMNS`.
        number: Of the first; names the files.
        log: Whose number that is: 16 hex digits of the region's file, or "".

    Raises:
        DaemonError: pyarrow is missing, or the folder cannot be written.
    """
    for (swarm, day), table in tables_of(rows):
        path = folder / "objects" / f"swarm={swarm}" / f"day={day}" / file_name(number, log)
        try:
            if path.exists():
                table = over(path, None, table)
            write_whole(path, packed(table))
        except OSError as error:
            raise DaemonError(f"{path.parent} cannot be written: {error.strerror or error}") from error


def over(path: str | Path, system: Any, table: Any) -> Any:
    """pyarrow's table of words with all that a file holds beside them.

    Args:
        path: The file.
        system: pyarrow's `FileSystem`; None: this machine's.
        table: What is to be written there.

    Raises:
        DaemonError: The file is damaged.
    """
    arrow = arrow_of()
    try:
        with arrow.parquet.ParquetFile(path, filesystem=system) as file:
            _judge_rows([file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)], path)
            held = file.read()
        named = ("object", "stamp", "digest")
        mine = set(zip(*(table[name].to_pylist() for name in named), strict=True))
        others = [word not in mine for word in zip(*(held[name].to_pylist() for name in named), strict=True)]
        return arrow.concat_tables([table, held.filter(others)], promote_options="default") if any(others) else table
    except (arrow.ArrowException, OSError, KeyError) as error:
        raise DaemonError(f"{path} cannot be read: {str(error).splitlines()[0]}; move it away") from error


def packed(table: Any) -> memoryview:
    """One of pyarrow's tables as a Parquet file."""
    arrow = arrow_of()
    data = arrow.BufferOutputStream()
    arrow.parquet.write_table(table, data, compression="zstd")
    return memoryview(data.getvalue())


WORD_COLUMNS = ("object", "stamp", "digest", "last_ms")
"""By which words are told apart and ordered: what lacks one of them is none."""


def schema_of() -> Any:
    """pyarrow's schema of a file."""
    arrow = arrow_of()
    return arrow.schema(
        [(name, getattr(arrow, _TYPES[kind])()) for name, kind in OBJECT_COLUMNS if name not in _PARTITIONS]
    )


def word_names() -> tuple[str, ...]:
    """Columns of a word of history, those of its folders last, whichever version wrote its file."""
    return (*(name for name, _ in OBJECT_COLUMNS if name not in _PARTITIONS), *_PARTITIONS)


def tables_of(rows: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[str, str], Any]]:
    """((swarm, day), pyarrow's table) of each partition that words belong to.

    Args:
        rows: With the names of `OBJECT_COLUMNS`.

    Raises:
        DaemonError: pyarrow is missing.
    """
    arrow = arrow_of()
    schema = schema_of()
    columns = schema.names
    parts: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault((row["swarm"], day_of(row["last_ms"])), []).append(row)
    return [
        (part, arrow.Table.from_pylist([{name: row[name] for name in columns} for row in held], schema=schema))
        for part, held in parts.items()
    ]


def ask(folder: Path, query: ObjectQuery, keys: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Of each object the greatest word that the question allows, the newest first.

    Args:
        folder: What `export` wrote.
        query: As asked of the present table; its `swarm` is a key here.
        keys: Only of these swarms; empty: of all.

    Raises:
        DaemonError: pyarrow is missing, nothing was exported there, or a file is damaged.
    """
    files = files_of(folder, query, keys)
    return ask_files(files, None, str(folder / "objects"), str(folder), query) if files else []


def dataset_of(files: Sequence[str], system: Any, base: str) -> Any:
    """pyarrow's dataset of files, with the columns `swarm` and `day` of their folders' names.

    Args:
        files: At least one.
        system: pyarrow's `FileSystem`; None: this machine's.
        base: The folder of the partitions.

    Raises:
        DaemonError: A file holds more words than any export writes.
    """
    arrow = arrow_of()
    flavour = arrow.dataset.partitioning(
        arrow.schema([("swarm", arrow.string()), ("day", arrow.string())]), flavor="hive"
    )
    schema = schema_of().append(arrow.field("swarm", arrow.string())).append(arrow.field("day", arrow.string()))
    made = arrow.dataset.dataset(
        list(files), schema, filesystem=system, format="parquet", partitioning=flavour, partition_base_dir=base
    )
    # What is read of each stays known to the dataset. Side by side: a store answers after some ten milliseconds each.
    with ThreadPoolExecutor(_FOOTERS) as pool:
        for _ in pool.map(_judge_file, made.get_fragments()):
            pass
    return made


def _judge_file(file: Any) -> None:
    file.ensure_complete_metadata()  # Which lets other threads go on; `row_groups` by itself would not.
    _judge_rows([group.num_rows for group in file.row_groups], file.path)


def _judge_rows(counts: Sequence[int], path: str | Path) -> None:
    if (rows := sum(counts)) > FILE_ROWS_MAX:
        raise DaemonError(f"{path} holds {rows:,} words, and an export writes {EXPORT_ROWS:,} at most; move it away")


def wanted_of(query: ObjectQuery) -> Any:
    """What a question allows, as pyarrow's expression."""
    field = arrow_of().dataset.field
    wanted = (field("tier") != "candidate") & (field("review") != "rejected")
    for name in WORD_COLUMNS:
        wanted &= field(name).is_valid()
    if query.label:
        wanted &= field("label") == query.label
    if query.tier:
        wanted &= field("tier") == query.tier
    if query.since_ms:
        wanted &= field("last_ms") >= query.since_ms
    if query.until_ms:
        wanted &= field("last_ms") < query.until_ms
    return wanted


def ask_files(files: Sequence[str], system: Any, base: str, name: str, query: ObjectQuery) -> list[dict[str, Any]]:
    """As `ask`, of these files.

    Args:
        files: At least one.
        system: pyarrow's `FileSystem`; None: this machine's.
        base: The folder of the partitions.
        name: Of the place, for people.
        query: What is asked.

    Raises:
        DaemonError: pyarrow is missing, or a file is damaged.
    """
    arrow = arrow_of()
    best: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        for batch in dataset_of(files, system, base).to_batches(filter=wanted_of(query)):
            for row in batch.to_pylist():
                key = (row["swarm"], row["object"])
                held = best.get(key)
                if held is None or (held["stamp"], held["digest"]) < (row["stamp"], row["digest"]):
                    best[key] = row
    except (arrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise DaemonError(f"{name}: {why}; a file that is damaged is put back from a copy, or moved away") from error
    rows = sorted(best.values(), key=lambda row: (-row["last_ms"], row["swarm"], row["object"]))
    return rows[: query.limit]


def files_of(folder: Path, query: ObjectQuery, keys: Collection[str] = ()) -> list[str]:
    """The files that a question has to read.

    Args:
        folder: What `history.export` wrote.
        query: Its times.
        keys: Swarms; empty: all.

    Raises:
        DaemonError: Nothing was exported there, or the folder cannot be read.
    """
    place = folder / "objects"
    first = day_of(query.since_ms) if query.since_ms else ""
    last = day_of(query.until_ms) if query.until_ms else "9999"
    wanted = {f"swarm={key}" for key in keys}
    found = []
    try:
        if not place.is_dir():
            raise DaemonError(f"{place}: nothing was exported there; swarmd region export")
        for swarm in sorted(entry.path for entry in _folders(place) if not wanted or entry.name in wanted):
            for day in sorted(_folders(swarm), key=lambda entry: entry.name):
                if day.name.startswith("day=") and first <= day.name[4:] <= last:
                    names = sorted(name for name in os.listdir(day.path) if name.endswith(".parquet"))
                    found += [os.path.join(day.path, name) for name in names]
    except OSError as error:
        where = error.filename or place
        raise DaemonError(f"{where} cannot be read: {error.strerror or error}; let this account read it") from error
    return found


def _folders(place: str | Path) -> list["os.DirEntry[str]"]:
    return [entry for entry in os.scandir(place) if "=" in entry.name and entry.is_dir()]


def day_of(at_ms: int) -> str:
    """The UTC day of a time; of one that has none the nearest that has.

    >>> day_of(0), day_of(-1 << 60)
    ('1970-01-01', '0001-01-01')
    """
    days = at_ms // _DAY_MS + datetime.date(1970, 1, 1).toordinal()
    return datetime.date.fromordinal(min(max(days, 1), datetime.date.max.toordinal())).isoformat()
