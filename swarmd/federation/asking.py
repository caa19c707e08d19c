"""The question of `fleet objects` asked of a region's past: which files, and by which engine.

Files are chosen here by the names of their folders, so that what a question costs grows with the days that it asks for
and not with the years that are kept. DuckDB (extra `duckdb`) answers where it is installed, within `MEMORY`, on the
disk beyond; pyarrow (extra `parquet`) elsewhere, in memory. Both give the same rows in the same order.
"""

import glob
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swarmd.errors import DaemonError
from swarmd.federation.history import WORD_COLUMNS, arrow_of, dataset_of, files_of, wanted_of, word_names
from swarmd.federation.history import ask as ask_arrow
from swarmd.federation.rows import ObjectQuery

MEMORY = "512MB"
"""What DuckDB may take: beyond, a question to a year of many swarms sorts on the disk, and a small machine lives."""


def import_duckdb() -> Any:
    """The engine, or None where it is not installed."""
    try:
        import duckdb
    except ImportError:
        return None
    return duckdb


def ask(folder: Path, query: ObjectQuery, keys: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Of each object the greatest word that the question allows, the newest first.

    Args:
        folder: What `history.export` wrote.
        query: As asked of the present table; its `swarm` is a key here.
        keys: Only of these swarms; empty: of all.

    Raises:
        DaemonError: No engine is installed, nothing was exported there, or a file is damaged.
    """
    if import_duckdb() is None:
        return ask_arrow(folder, query, keys)
    return ask_duckdb(folder, query, keys)


def ask_duckdb(folder: Path, query: ObjectQuery, keys: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """As `ask`, by DuckDB.

    Raises:
        DaemonError: DuckDB is missing, nothing was exported there, or a file is damaged.
    """
    duckdb = import_duckdb()
    if duckdb is None:
        raise DaemonError("questions to history need DuckDB: pip install 'swarmd[duckdb]'")
    files = files_of(folder, query, keys)
    if not files:
        return []
    wanted, values = ["tier <> 'candidate'", "review <> 'rejected'"], []
    wanted += [f"{name} IS NOT NULL" for name in WORD_COLUMNS]
    for column, sign, value in (
        ("label", "=", query.label),
        ("tier", "=", query.tier),
        ("last_ms", ">=", query.since_ms),
        ("last_ms", "<", query.until_ms),
    ):
        if value:
            wanted.append(f"{column} {sign} ?")
            values.append(value)
    # Swarm and day are those of the last folders: further up anybody may have called one `swarm=` too.
    text = (
        "SELECT * EXCLUDE (filename), split_part(filename, '/', -3)[7:] AS swarm, "
        "split_part(filename, '/', -2)[5:] AS day "
        "FROM read_parquet(?, hive_partitioning = false, filename = true, union_by_name = {}) "
        f"WHERE {' AND '.join(wanted)} "
        "QUALIFY row_number() OVER (PARTITION BY swarm, object ORDER BY stamp DESC, digest DESC) = 1 "
        "ORDER BY last_ms DESC, swarm, object LIMIT ?"
    )
    # What lies in the folder is data: the engine loads no extension and opens nothing else.
    settings = {"memory_limit": MEMORY, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="swarmd-history-") as spill,
            duckdb.connect(":memory:", config={**settings, "temp_directory": spill}) as engine,
        ):
            # The engine takes each name for a pattern: `[`, `*` and `?` of a folder would lead it into others.
            given = [list(map(glob.escape, files)), *values, query.limit]
            try:
                return _words(engine.execute(text.format("false"), given), is_all=False)
            except (duckdb.InvalidInputException, duckdb.BinderException, KeyError):
                # Files of several versions, which takes more memory for each, or a damaged one.
                return _words(engine.execute(text.format("true"), given), is_all=True)
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
        raise DaemonError(f"{folder}: {why}; a file that is damaged is put back from a copy, or moved away") from error


def _words(found: Any, *, is_all: bool) -> list[dict[str, Any]]:
    """The rows of an answer, with the columns that are known here; null where `is_all` of the files have none.

    Raises:
        KeyError: A column is missing, and other files may have it.
    """
    at = {column[0]: place for place, column in enumerate(found.description)}
    names = word_names()
    if not is_all and not at.keys() >= set(names):
        raise KeyError("a column")
    return [{name: row[at[name]] if name in at else None for name in names} for row in found.fetchall()]


def question(files: Sequence[str], system: Any, base: str, name: str, query: ObjectQuery) -> list[dict[str, Any]]:
    """As `ask_duckdb`, of files that pyarrow reads: what a question allows, and the columns, are chosen there.

    Args:
        files: At least one.
        system: pyarrow's `FileSystem`.
        base: The folder of the partitions.
        name: Of the place, for people.
        query: What is asked.

    Raises:
        DaemonError: An engine is missing, or a file is damaged.
    """
    duckdb, arrow = import_duckdb(), arrow_of()
    text = (
        "SELECT * FROM words "
        "QUALIFY row_number() OVER (PARTITION BY swarm, object ORDER BY stamp DESC, digest DESC) = 1 "
        "ORDER BY last_ms DESC, swarm, object LIMIT ?"
    )
    settings = {"memory_limit": MEMORY, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    try:
        reader = dataset_of(files, system, base).scanner(filter=wanted_of(query)).to_reader()
        with (
            tempfile.TemporaryDirectory(prefix="swarmd-history-") as spill,
            duckdb.connect(":memory:", config={**settings, "temp_directory": spill}) as engine,
        ):
            engine.register("words", reader)
            found = engine.execute(text, [query.limit])
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except (duckdb.Error, arrow.ArrowException, OSError) as error:
        raise DaemonError(f"{name}: {str(error).splitlines()[0]}") from error
