"""The files that a bundle's description names: within its folder, of bounded size, with the digest it says."""

import os
import re
from pathlib import Path

from swarmd_models.bounded_file import open_regular
from swarmd_models.tflite_file import digest_of
from swarmd_models.toml_reader import TomlReader

MAX_SIDE_BYTES = 256 << 20
"""Of a file beside it (golden vectors, a second stage), as much as a model."""


def inside(top: TomlReader, path: Path, name: str) -> Path | None:
    """The file that a bundle names, kept within the bundle's folder."""
    folder = path.parent.resolve()
    if _is_in_memory(folder / name):
        return folder / name
    found = (folder / name).resolve()
    if not found.is_relative_to(folder):
        top.problem(f"{name} leads out of the bundle's folder")
        return None
    return found


def _is_in_memory(path: Path) -> bool:
    """Whether it is a link to an anonymous file in memory, which is where the daemon keeps what is sealed on disk."""
    try:
        target = os.readlink(path) if path.is_symlink() else ""
    except OSError:
        return False
    return re.fullmatch(r"/proc/\d+/fd/\d+", target) is not None


def checked_file(top: TomlReader, path: Path, name: str, sha256: str, what: str) -> Path | None:
    """The file that a bundle names, if it has the digest that the bundle says; else a problem is told and None."""
    found = inside(top, path, name)
    if found is None:
        return None
    try:
        with open_regular(found) as file:
            data = file.read(MAX_SIDE_BYTES + 1)
        if len(data) > MAX_SIDE_BYTES:
            top.problem(f"{what} {name} is larger than {MAX_SIDE_BYTES >> 20} MiB")
            return None
        digest = digest_of(data)
    except OSError as error:
        top.problem(f"cannot read {what} {name}: {error.strerror}")
        return None
    if digest != sha256:
        top.problem(f"{what} {name} is not the file that the bundle was made with: its SHA-256 is {digest[:16]}…")
        return None
    return found
