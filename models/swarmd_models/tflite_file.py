"""What a `.tflite` file tells by itself: that it is one, and the labels that may hang on its end as a ZIP archive."""

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

from swarmd_models.errors import ArtefactError

MAX_MODEL_BYTES = 256 << 20
"""Of a model: a board with 1 GB still loads it."""
MAX_LABEL_BYTES = 1 << 20
"""Of a file of labels."""
MAX_LABELS = 65_536
"""Classes of a model; the largest public ones have 21,000."""
_ZIP_END, _ZIP_TAIL_BYTES = b"PK\x05\x06", 22 + 65_535
"""The signature of a ZIP's last record, and how far from the end it can begin."""
_MAX_ARCHIVED = 64
"""Files of such an archive that are looked at; exporters put in one or two."""
_MAX_DIRECTORY_BYTES = 1 << 20
"""Of such an archive's directory, which is read whole: each entry of 47 bytes takes half a kilobyte."""
_ZIP_END_BYTES, _ZIP64_LOCATOR, _ZIP64_LOCATOR_BYTES = 22, b"PK\x06\x07", 20
_HEADER_BYTES = 8
"""Of a FlatBuffer: root offset and the identifier TFL3."""


def read_model(path: Path) -> bytes:
    """The file's bytes, after the checks that need no runtime.

    Raises:
        ArtefactError: Missing, empty, too large, or no LiteRT model.
    """
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise ArtefactError(f"{path} is a folder; name the bundle's .toml or the .tflite file inside")
        if size > MAX_MODEL_BYTES:
            raise ArtefactError(f"{path} is {size >> 20} MiB; models may have {MAX_MODEL_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"cannot read model {path}: {error.strerror}") from error
    if len(data) < _HEADER_BYTES or data[4:8] != b"TFL3":
        raise ArtefactError(
            f"{path} is no LiteRT model: it lacks the mark TFL3 at byte 4 (truncated or another format)"
        )
    root = int.from_bytes(data[:4], "little")
    if root + 4 > len(data):
        raise ArtefactError(f"{path} is truncated: its root table lies at byte {root}, the file has {len(data)}")
    return data


def digest_of(data: bytes) -> str:
    """SHA-256 in hex: a model's identity everywhere in swarmd."""
    return hashlib.sha256(data).hexdigest()


def embedded_labels(data: bytes) -> tuple[str, ...]:
    """Labels from the ZIP archive at the model's end; empty when there is none that can be read.

    Source:
        TensorFlow Lite metadata: associated files are appended to the flatbuffer as a ZIP archive, stored or deflated;
        no other compression of ZIP is read. APPNOTE 4.3.16: an archive ends in its directory's end record and a
        comment of at most 64 KiB.
    """
    for name, text in archived(data, lambda name: name.endswith(".txt") and "label" in name):
        try:
            return parse_labels(text, name)
        except ArtefactError:
            return ()
    return ()


def archived(data: bytes, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of small files in the ZIP archive at a model's end.

    Args:
        data: The model's bytes.
        is_wanted: Says of a name whether its file is read.

    Yields:
        What can be read; an archive that is torn ends early.
    """
    if not has_small_directory(data):
        return
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist()[:_MAX_ARCHIVED]:
                is_read = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                if is_read and is_wanted(info.filename) and info.file_size <= MAX_LABEL_BYTES:
                    with archive.open(info) as file:
                        yield info.filename, file.read(MAX_LABEL_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError):
        return


def has_small_directory(data: bytes) -> bool:
    """Whether a ZIP archive ends here whose directory is small; ZIP64, which nobody needs for labels, is not read.

    Every record that a reader could take for the last one must say so.
    """
    tail, at = data[-_ZIP_TAIL_BYTES - _ZIP64_LOCATOR_BYTES :], -1
    found = 0
    while (at := tail.find(_ZIP_END, at + 1)) >= 0:
        record = tail[at : at + _ZIP_END_BYTES]
        before = tail[max(0, at - _ZIP64_LOCATOR_BYTES) : at]
        if int.from_bytes(record[12:16], "little") > _MAX_DIRECTORY_BYTES or before.startswith(_ZIP64_LOCATOR):
            return False
        found += 1
    return found > 0


def read_labels(path: Path) -> tuple[str, ...]:
    """Labels from a text file, one a line.

    Raises:
        ArtefactError: Missing, too large, not UTF-8 text, or empty.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LABEL_BYTES + 1)
    except OSError as error:
        raise ArtefactError(f"cannot read labels {path}: {error.strerror}") from error
    return parse_labels(data, str(path))


def parse_labels(data: bytes, name: str) -> tuple[str, ...]:
    """Labels out of text; trailing blank lines do not count.

    >>> parse_labels(b"person\\nbicycle\\n\\n", "x")
    ('person', 'bicycle')
    """
    if len(data) > MAX_LABEL_BYTES:
        raise ArtefactError(f"labels {name} are larger than {MAX_LABEL_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArtefactError(f"labels {name} are no UTF-8 text (byte {error.start})") from error
    labels = tuple(line.strip() for line in text.rstrip().splitlines())
    if not labels:
        raise ArtefactError(f"labels {name} are empty; write one label a line")
    if len(labels) > MAX_LABELS:
        raise ArtefactError(f"labels {name} have {len(labels)} lines; at most {MAX_LABELS}")
    if any("\x00" in label or len(label) > 200 for label in labels):
        raise ArtefactError(f"labels {name} are no list of labels: a line holds a zero byte or is over 200 characters")
    return labels
