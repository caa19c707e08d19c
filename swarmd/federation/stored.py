"""A region's past in an object store: the same tree of Parquet files as `history.py` writes into a folder.

    s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&scheme=http&region=…      any store that speaks S3
    gs://BUCKET/PREFIX

The address is pyarrow's (extra `parquet`), and so are the credentials: AWS_ACCESS_KEY_ID and the like, or what the host
bears: never part of the address. In a store a file appears whole or not at all; `file://` is a folder, and written as
one. A question lists a swarm's files, 1,000 names a round trip, chooses those of its days by their names, and has
DuckDB (extra `duckdb`) read them through pyarrow; without it pyarrow answers.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swarmd.errors import DaemonError
from swarmd.federation.asking import import_duckdb, question
from swarmd.federation.history import arrow_of, ask_files, day_of, file_name, over, packed, tables_of, write_words
from swarmd.federation.rows import ObjectQuery

_FILE = re.compile(r"/objects/swarm=([^/]+)/day=([^/]+)/[^/]+\.parquet\Z")


class Stored(NamedTuple):
    """A place in an object store."""

    files: Any
    """pyarrow's `FileSystem`."""
    base: str
    """Bucket and prefix."""
    name: str
    """As people wrote it, without what follows a question mark."""

    @property
    def folder(self) -> Path | None:
        """What it is in this machine's own files (`file://`); None: a store."""
        return Path(self.base) if self.files.type_name == "local" else None


def is_address(text: str) -> bool:
    """Whether a history lies in an object store.

    >>> is_address("s3://bucket/past"), is_address("/srv/history")
    (True, False)
    """
    return "://" in text


def stored(address: str) -> Stored:
    """The place that an address means.

    Raises:
        DaemonError: It is none, it bears a key, or pyarrow is missing.
    """
    name = address.partition("?")[0]
    if "@" in name.partition("://")[2].partition("/")[0]:
        raise DaemonError(
            "no key belongs into the address of an object store: write s3://BUCKET/PREFIX, and the key "
            "into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    arrow = arrow_of()
    import pyarrow.fs

    try:
        files, base = pyarrow.fs.FileSystem.from_uri(address)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DaemonError(
            f"{name} is no address of an object store: {_words(error).replace(address, name)}; write s3://BUCKET/PREFIX"
        ) from error
    return Stored(files, base.rstrip("/"), name)


def write_stored(place: Stored, rows: Sequence[Mapping[str, Any]], number: int, log: str = "") -> None:
    """As `history.write_words`.

    Raises:
        DaemonError: The store takes nothing.
    """
    if place.folder is not None:
        write_words(place.folder, rows, number, log)
        return
    arrow = arrow_of()
    for (swarm, day), table in tables_of(rows):
        path = f"{place.base}/objects/swarm={swarm}/day={day}/{file_name(number, log)}"
        try:
            place.files.create_dir(path.rpartition("/")[0], recursive=True)
            if place.files.get_file_info(path).is_file:
                table = over(path, place.files, table)
            data = packed(table)  # First: what cannot be written as Parquet leaves no file.
            with place.files.open_output_stream(path) as out:
                out.write(data)
        except (arrow.ArrowException, OSError) as error:
            raise DaemonError(f"{place.name} takes nothing: {_words(error)}") from error


def stored_files(place: Stored, query: ObjectQuery, keys: Collection[str] = ()) -> list[str]:
    """As `history.files_of`.

    Raises:
        DaemonError: Nothing was exported there, or the store does not answer.
    """
    arrow = arrow_of()
    from pyarrow.fs import FileSelector

    first = day_of(query.since_ms) if query.since_ms else ""
    last = day_of(query.until_ms) if query.until_ms else "9999"
    tops = [f"{place.base}/objects/swarm={key}" for key in sorted(keys)] if keys else [f"{place.base}/objects"]
    found = []
    try:
        for top in tops:
            for one in place.files.get_file_info(FileSelector(top, recursive=True, allow_not_found=bool(keys))):
                named = _FILE.search(one.path)
                if named is not None and first <= named[2] <= last and one.path.startswith(f"{place.base}/objects/"):
                    found.append(one.path)
    except FileNotFoundError as error:
        raise DaemonError(f"{place.name}: nothing was exported there; swarmd region export") from error
    except (arrow.ArrowException, OSError) as error:
        raise DaemonError(f"{place.name} does not answer: {_words(error)}") from error
    return sorted(found)


def ask_stored(place: Stored, query: ObjectQuery, keys: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """As `asking.ask`.

    Raises:
        DaemonError: pyarrow is missing, nothing was exported there, the store does not answer, or a file is damaged.
    """
    files = stored_files(place, query, keys)
    if not files:
        return []
    if import_duckdb() is None:
        return ask_files(files, place.files, f"{place.base}/objects", place.name, query)
    return question(files, place.files, f"{place.base}/objects", place.name, query)


def _words(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
