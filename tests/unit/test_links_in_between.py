"""Whose folder it is may put a link to another's file there at any moment: nobody, root least, changes that file."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarmd.federation.settings import SwarmEntry, add_pin, make_region
from swarmd.federation.store import FILE_NAME, Store
from swarmd.identity.fleet import create_fleet
from swarmd.sqlite_files import open_sound

SCHEMA = "CREATE TABLE IF NOT EXISTS rows (number INTEGER)"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another account")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.touch()
    path.chmod(0o644)
    return path


def put_link(place: Path, target: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def test_a_link_that_is_put_there_while_a_file_is_opened_changes_no_mode(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect

    def connect(path: Path, **named: Any) -> sqlite3.Connection:
        found = real(path, **named)
        put_link(path, victim)
        return found

    monkeypatch.setattr(sqlite3, "connect", connect)
    with contextlib.suppress(sqlite3.Error):  # SQLite may find that the file went.
        open_sound(tmp_path / "file", (), SCHEMA).close()
    assert victim.stat().st_mode & 0o777 == 0o644


@needs_root
@pytest.mark.parametrize("is_there", [True, False])
def test_root_follows_no_link_of_another_account(tmp_path: Path, victim: Path, is_there: bool) -> None:
    folder = tmp_path / "region"
    make_region(folder)
    os.chown(folder, 4711, 4712)
    put_link(folder / FILE_NAME, victim)
    os.lchown(folder / FILE_NAME, 4711, 4712)
    if not is_there:
        victim.unlink()
    with pytest.raises(Exception, match="a link of another account") as refused:
        Store(folder / FILE_NAME)
    assert FILE_NAME in str(refused.value)
    assert victim.exists() is is_there
    if is_there:
        assert (victim.stat().st_size, victim.stat().st_mode & 0o777) == (0, 0o644)


def test_a_link_of_ones_own_is_followed_and_what_it_leads_to_is_private(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    for place in ("new", "old"):
        target, link = tmp_path / "large-disk" / place, tmp_path / place
        if place == "old":
            target.touch()
            target.chmod(0o644)
        put_link(link, target)
        open_sound(link, (), SCHEMA).close()
        assert target.stat().st_mode & 0o777 == 0o600
        assert link.is_symlink()


def test_a_file_is_made_private_and_keeps_its_locks(tmp_path: Path) -> None:
    """Who closes a file lets go of all locks that its process has on it: another would write into a transaction."""
    path = tmp_path / "file"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute(SCHEMA)
    path.chmod(0o644)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        open_sound(path, ("busy_timeout=0",), SCHEMA)
    assert path.stat().st_mode & 0o777 == 0o600
    text = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('INSERT INTO rows VALUES (1)')"
    other = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30)
    assert "database is locked" in other.stderr
    writer.close()


def test_a_link_that_is_put_there_while_a_swarm_is_let_in_changes_nobodys_file(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, config = tmp_path / "region", tmp_path / "region" / "region.toml"
    make_region(region)
    config.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(config, 4711, 4712)
    root, real = create_fleet(tmp_path / "farm", "farm").roots()[0], os.replace

    def replace(draft: Path, path: Path) -> None:
        real(draft, path)
        if path == config:
            assert path.stat().st_mode & 0o777 == 0o640, "never for a moment another's, or open to others"
            put_link(path, victim)

    monkeypatch.setattr(os, "replace", replace)
    add_pin(region, SwarmEntry("farm", "farm"), root)
    assert (victim.stat().st_uid, victim.stat().st_mode & 0o777) == (os.geteuid(), 0o644)
