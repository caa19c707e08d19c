"""Older revisions of this repository, laid out beside the one under test and run by the same interpreter."""

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.daemons import PlainDaemon
from tests.support.paths import ROOT

CHANNEL = "protocols/swarmd_protocols/channel"
_WIRE = re.compile(r"^WIRE_VERSION = (\d+)$", re.MULTILINE)


def git(*arguments: str) -> bytes:
    """What git says; skips the test where this tree has no history."""
    if shutil.which("git") is None:
        pytest.skip("no older revision of this tree here: git is not installed")
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"no older revision of this tree here: {done.stderr.decode().strip()[:80]}")
    return done.stdout


def wire_of(revision: str) -> int:
    """The wire version that a revision speaks."""
    for path in (f"{CHANNEL}/channel.py", f"{CHANNEL}.py"):
        shown = subprocess.run(
            ["git", "-C", str(ROOT), "show", f"{revision}:{path}"], capture_output=True, text=True, check=False
        )
        if found := _WIRE.search(shown.stdout):
            return int(found[1])
    return 0


def of_this_wire() -> str:
    """The oldest revision whose golden vectors are those of today."""
    return git("log", "-1", "--format=%H", "--", "protocols/vectors").decode().strip()


def of_another_wire() -> str:
    """The newest revision that speaks another version of the wire."""
    own = wire_of("HEAD")
    for revision in git("log", "--format=%H", "-G", "^WIRE_VERSION = ", "--", "protocols").decode().split():
        if wire_of(f"{revision}^") not in (0, own):
            return f"{revision}^"
    pytest.skip("no older revision of this tree here speaks another wire")


class NoSuchRevision(LookupError):
    """Somebody named a revision that is not here: a mistake, and no fact about this machine."""


def to_roll_from() -> str:
    """What `SWARMD_UPGRADE_FROM` names, else the newest tag before this revision that speaks this wire, else the oldest
    revision that has this wire's golden vectors.

    Raises:
        NoSuchRevision: The variable names none of this repository.
    """
    if named := os.environ.get("SWARMD_UPGRADE_FROM"):
        command = [
            "git",
            "-C",
            str(ROOT),
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{named}^{{commit}}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoSuchRevision(f"no tag or revision {named!r} in this repository (git fetch --tags, then git tag)")
        return done.stdout.strip()
    here = git("rev-parse", "HEAD").decode().strip()
    for tag in git("tag", "--merged", "HEAD", "--sort=-creatordate").decode().split():
        revision = git("rev-parse", f"{tag}^{{commit}}").decode().strip()
        if revision != here and wire_of(revision) == wire_of("HEAD"):
            return revision
    return of_this_wire()


def lay_out(revision: str, folder: Path, *more: str) -> Path:
    """The program of a revision, in a folder of its own, with what else is named of its tree."""
    data = git("archive", revision, "swarmd", "protocols", "models", "sim", *more)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class OlderDaemon(PlainDaemon):
    """A daemon of an older revision."""

    def __init__(self, name: str, folder: Path, arguments: list[str], tree: Path) -> None:
        super().__init__(name, folder, arguments)
        rooms = [str(tree), *(str(tree / room) for room in ("protocols", "models", "sim"))]
        program = (
            f"import sys; sys.path[:0] = {rooms!r}\n"
            "import swarmd, swarmd_protocols\n"
            f"assert all(one.__file__.startswith({str(tree)!r}) for one in (swarmd, swarmd_protocols))\n"
            "from swarmd.cli.main import main\n"
            "sys.exit(main())"
        )
        at = self._command.index("-m")
        self._command[at : at + 2] = ["-c", program]
