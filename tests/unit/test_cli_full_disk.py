"""Verbs on a disk that takes nothing more: a sentence, and what was there is as it was."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarmd.cli.installer import Installer
from swarmd.cli.main import main
from swarmd.errors import ConfigError, DaemonError
from swarmd.federation.settings import SwarmEntry, add_pin, make_region, read_config, read_pins, read_seed
from swarmd.identity.fleet import create_fleet
from swarmd.release.author import read_statement, sign_file
from swarmd_protocols.releases.statements import Floor
from swarmd_protocols.trust.envelopes import Envelope


@contextmanager
def full_disk(size: int = 0) -> Iterator[None]:
    """The kernel refuses every byte of a file, or those beyond a size."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("verb", [["version"], ["check-config", "--reference"]])
def test_an_answer_that_a_full_disk_does_not_take_is_a_sentence(verb: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "swarmd", *verb], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1, done.stderr.decode()
    assert b"No space left on device" in done.stderr


def test_a_statement_that_is_signed_on_a_full_disk_keeps_the_signatures_it_has(tmp_path: Path) -> None:
    """It was emptied: the other officers had signed in vain."""
    path = tmp_path / "floor.swm"
    path.write_bytes(Envelope("floor", Floor("eye", 1, 7).payload()).encode())
    sign_file(path, [b"a" * 32])
    with full_disk(), pytest.raises(DaemonError):
        sign_file(path, [b"b" * 32])
    assert len(read_statement(path).signatures) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_statement_goes_where_a_name_leads_and_replaces_no_pipe(tmp_path: Path) -> None:
    """`-o /dev/stdout`, as root, put a file in the place of that name; and a link became a file beside its own."""
    path, link, pipe = tmp_path / "floor.swm", tmp_path / "latest.swm", tmp_path / "pipe"
    path.write_bytes(Envelope("floor", Floor("eye", 1, 7).payload()).encode())
    link.symlink_to(path)
    sign_file(link, [b"a" * 32])
    assert link.is_symlink()
    assert len(read_statement(path).signatures) == 1
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        signed = sign_file(path, [b"b" * 32], pipe)
        assert pipe.is_fifo()
        assert os.read(reader, 1 << 16) == signed.encode()
    finally:
        os.close(reader)


def test_a_small_statement_is_written_over_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme"]) == 0
    floor = ["model", "floor", "4", "--model", "eye", "-o", "floor.swm", "--fleet", "fleet"]
    assert main(floor) == 0
    before = Path("floor.swm").read_bytes()
    capsys.readouterr()
    with full_disk():
        assert main([*floor[:2], "5", *floor[3:]]) == 1
    assert "floor.swm" in capsys.readouterr().err
    assert Path("floor.swm").read_bytes() == before


def test_what_is_installed_is_on_the_disk_when_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who installs removes the key's medium next: a power cut left an empty identity."""
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    Installer(tmp_path, Path("/opt/swarmd"))._write("etc/swarmd/credentials/node.identity", b"secret", 0o600)
    folder = tmp_path / "etc/swarmd/credentials"
    assert synced[-1] == str(folder)
    assert synced[0].startswith(f"{folder}/.node.identity.")
    assert (folder / "node.identity").stat().st_mode & 0o777 == 0o600


def test_a_region_that_is_begun_on_a_full_disk_is_begun_again(tmp_path: Path) -> None:
    """Half a key was in the way of every other one, and no region."""
    with full_disk(), pytest.raises(ConfigError):
        make_region(tmp_path / "region")
    seed = make_region(tmp_path / "region")
    assert read_seed(tmp_path / "region") == seed
    with pytest.raises(ConfigError, match="already"):
        make_region(tmp_path / "region")


def test_a_swarm_that_a_full_disk_does_not_let_in_keeps_no_other_out(tmp_path: Path) -> None:
    """Half an entry in region.toml kept the region from starting."""
    region = tmp_path / "region"
    make_region(region)
    farm, lake = (create_fleet(tmp_path / name, name).roots()[0] for name in ("farm", "lake"))
    with (region / "region.toml").open("a") as file:
        file.write("# what a person notes\n" * 400)  # Longer than a root.
    add_pin(region, SwarmEntry("farm", "farm"), farm)
    before = (region / "region.toml").read_bytes()
    size = len(before) + 20  # The disk takes some of it.
    with full_disk(size), pytest.raises((DaemonError, OSError)):
        add_pin(region, SwarmEntry("lake", "lake"), lake)
    assert (region / "region.toml").read_bytes() == before
    add_pin(region, SwarmEntry("lake", "lake"), lake)
    assert [one.name for one in read_pins(region, read_config(region))] == ["farm", "lake"]


def test_what_an_operator_signs_for_other_swarms_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty note was left in the place of the one before."""
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme"]) == 0
    assert main(["keys", "role", "fleet", "operator", "--keys", "1", "--need", "1"]) == 0
    key = "fleet/keys/operator-1.key"
    note = ["fleet", "note", "wind", "strong", "--swarm", "farm", "--key", key, "--out", "note.fact"]
    assert main([*note, "--revision", "1"]) == 0
    before = Path("note.fact").read_bytes()
    capsys.readouterr()
    with full_disk():
        assert main([*note, "--revision", "2"]) == 1
    assert "note.fact" in capsys.readouterr().err
    assert Path("note.fact").read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_swarm_that_root_lets_in_leaves_the_file_to_whom_it_belongs(tmp_path: Path, mode: int) -> None:
    """A region that another account runs could not read it any more."""
    region = tmp_path / "region"
    make_region(region)
    os.chown(region / "region.toml", 1234, 1235)
    (region / "region.toml").chmod(mode)
    add_pin(region, SwarmEntry("farm", "farm"), create_fleet(tmp_path / "farm", "farm").roots()[0])
    held = (region / "region.toml").stat()
    assert (held.st_uid, held.st_gid, held.st_mode & 0o777) == (1234, 1235, mode)
