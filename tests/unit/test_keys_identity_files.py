"""Identities on disk: permissions, damage, many processes at once, systemd credentials."""

import multiprocessing
import os
from pathlib import Path

import pytest

from swarmd.identity.files import (
    FLEET_SECRET_FILE,
    IDENTITY_FILE,
    IdentityFileError,
    curve_keys,
    dev_fleet_secret,
    dev_fleet_warning,
    load_credentials,
    load_identity,
    open_dev_fleet,
    read_secret_file,
    write_secret_file,
)
from swarmd.identity.names import NameRefused


def enrolled(folder: Path, name: str = "drone-1") -> Path:
    identity = open_dev_fleet(folder / "fleet", name)
    home = folder / name
    home.mkdir()
    write_secret_file(home / IDENTITY_FILE, identity.to_bytes())
    return home


def test_an_identity_comes_back_as_it_was_written(tmp_path: Path) -> None:
    home = enrolled(tmp_path)
    identity = load_identity(home)
    assert identity == open_dev_fleet(tmp_path / "fleet", "drone-1")
    assert load_identity(home / IDENTITY_FILE) == identity
    assert (home / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in home.iterdir()) == [IDENTITY_FILE]  # No draft is left behind.


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o606])
def test_a_secret_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    home = enrolled(tmp_path)
    (home / IDENTITY_FILE).chmod(mode)
    with pytest.raises(IdentityFileError, match=r"chmod 600"):
        load_identity(home)


def test_what_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(IdentityFileError, match=r"no .*node\.identity.*swarmd keys enrol"):
        load_identity(tmp_path)
    with pytest.raises(IdentityFileError, match=r"no .*absent"):
        load_identity(tmp_path / "absent")


def test_links_and_folders_in_place_of_a_secret_are_refused(tmp_path: Path) -> None:
    home = enrolled(tmp_path)
    (tmp_path / "link").symlink_to(home / IDENTITY_FILE)
    with pytest.raises(IdentityFileError, match="symbolic link"):
        read_secret_file(tmp_path / "link", "")
    with pytest.raises(IdentityFileError, match="regular file"):
        read_secret_file(home, "")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(IdentityFileError, match="regular file"):
        read_secret_file(tmp_path / "pipe", "")


def test_every_truncation_and_many_flips_are_refused_in_a_sentence(tmp_path: Path) -> None:
    home = enrolled(tmp_path)
    path = home / IDENTITY_FILE
    data = path.read_bytes()
    damaged = [data[:size] for size in range(0, len(data), 17)]
    damaged += [bytes([*data[:at], data[at] ^ 0x40, *data[at + 1 :]]) for at in range(0, len(data), 23)]
    for content in damaged:
        write_secret_file(path, content)
        with pytest.raises(IdentityFileError, match="does not hold"):
            load_identity(home)


def test_an_oversized_file_is_refused(tmp_path: Path) -> None:
    write_secret_file(tmp_path / IDENTITY_FILE, bytes(5 * 1024 * 1024))
    with pytest.raises(IdentityFileError, match="exceeds"):
        load_identity(tmp_path)


def test_a_credential_of_systemd_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert load_credentials() is None
    home = enrolled(tmp_path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert load_credentials() is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(home))
    (home / IDENTITY_FILE).chmod(0o440)  # As systemd sets it up for a group.
    assert load_credentials() == open_dev_fleet(tmp_path / "fleet", "drone-1")
    (home / IDENTITY_FILE).chmod(0o600)
    (home / IDENTITY_FILE).write_bytes(b"nothing of ours")
    with pytest.raises(IdentityFileError, match="does not hold"):
        load_credentials()


def test_the_same_name_is_the_same_node_and_another_is_not(tmp_path: Path) -> None:
    one = open_dev_fleet(tmp_path / "fleet", "a")
    assert open_dev_fleet(tmp_path / "fleet", "a") == one
    assert open_dev_fleet(tmp_path / "fleet", "b").node != one.node
    assert open_dev_fleet(tmp_path / "fleet", "a", swarm="other").node != one.node
    assert open_dev_fleet(tmp_path / "elsewhere", "a").node != one.node


def test_a_development_fleet_guards_its_secret(tmp_path: Path) -> None:
    secret = dev_fleet_secret(tmp_path / "deep" / "fleet")
    path = tmp_path / "deep" / "fleet" / FLEET_SECRET_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secret) == 32
    assert "DEVELOPMENT" in dev_fleet_warning(path.parent)
    assert secret.hex() not in dev_fleet_warning(path.parent)
    path.chmod(0o644)
    with pytest.raises(IdentityFileError, match="chmod 600"):
        dev_fleet_secret(path.parent)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(IdentityFileError, match=r"remove .* for a new fleet"):
        dev_fleet_secret(path.parent)


def test_a_fleet_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityFileError, match="development fleet"):
        open_dev_fleet(tmp_path / "file" / "fleet", "a")
    with pytest.raises(NameRefused, match="cannot name a node"):
        open_dev_fleet(tmp_path / "fleet", "x" * 65)


def _enrol_in_a_process(directory: str, name: str, queue: "multiprocessing.Queue[tuple[str, bytes]]") -> None:
    identity = open_dev_fleet(Path(directory), name)
    queue.put((name, identity.roots[0]))


@pytest.mark.slow
def test_many_processes_at_once_make_one_fleet(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[tuple[str, bytes]] = context.Queue()
    processes = [
        context.Process(target=_enrol_in_a_process, args=(str(tmp_path / "fleet"), f"n{i}", queue)) for i in range(6)
    ]
    for process in processes:
        process.start()
    answers = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    queue.close()
    queue.join_thread()
    assert {name for name, _ in answers} == {f"n{i}" for i in range(6)}
    assert len({root for _, root in answers}) == 1


def test_curve_keys_are_shared_by_the_group_and_own_to_the_node(tmp_path: Path) -> None:
    a = curve_keys(open_dev_fleet(tmp_path / "fleet", "a"))
    b = curve_keys(open_dev_fleet(tmp_path / "fleet", "b"))
    assert (a.group_public, a.group_secret) == (b.group_public, b.group_secret)
    assert a.own_secret != b.own_secret
    assert a.own_secret.hex() not in repr(a)
    assert repr(a.own_secret) not in repr(a)
