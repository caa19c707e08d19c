"""A disk that fails in the middle of any verb of `keys`: nothing half-written, and the verb works when run again."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.identity import officers
from swarmd.identity.fleet import Fleet
from swarmd.identity.prepared import read
from tests.support.officers import officer

PASSPHRASE = "correct horse battery"
WRITES_MAX = 40
"""More than any verb makes."""


def one_folder() -> None:
    assert main(["keys", "root", "fleet", "--name", "acme", "--role", "root=1/1", "--role", "revoke=1/1"]) == 0
    assert main(["keys", "enrol", "fleet", "drone-1", "--swarm", "farm", "--out", "d1"]) == 0


def officers_fleet() -> None:
    one = officer("alice")
    Path("alice.key").write_bytes(officers.seal_key(one.seed, "alice", PASSPHRASE, operations=1, memory_kib=8))
    Path("alice.key").chmod(0o600)
    roles = [w for r in ("enrol", "revoke", "release", "floor", "heartbeat") for w in ("--role", r, "1", "alice.key")]
    assert main(["keys", "root", "fleet", "--name", "acme", "--root", "1", "alice.key", *roles]) == 0


def founded() -> None:
    officers_fleet()
    signed("fleet/root-1.prepared")
    assert main(["keys", "submit", "fleet/root-1.prepared", "--fleet", "fleet"]) == 0


def signed(path: str) -> None:
    assert sign(path) == 0


def sign(path: str) -> int:
    ours, theirs = os.pipe()
    os.write(theirs, f"{PASSPHRASE}\n".encode())
    os.close(theirs)
    try:
        return main(["keys", "sign", path, "--yes", "--key", "alice.key", "--passphrase-fd", str(ours)])
    finally:
        os.close(ours)


def first_group() -> None:
    founded()
    assert main(["keys", "prepare", "group-key", "fleet", "--swarm", "farm", "--first", "-o", "group"]) == 0
    signed("group")


def next_root() -> None:
    founded()
    one = officer("bob")
    Path("bob.pub").write_text(one.half.line + "\n")
    assert main(["keys", "prepare", "root", "fleet", "--role", "heartbeat", "1", "bob.pub", "-o", "root-2"]) == 0
    signed("root-2")


def nothing() -> None:
    pass


def verb(*words: str) -> Callable[[], int]:
    return lambda: main(["keys", *words])


VERBS: dict[str, tuple[Callable[[], None], Callable[[], int]]] = {
    "root in one folder": (nothing, verb("root", "fleet", "--name", "acme")),
    "role": (one_folder, verb("role", "fleet", "release", "--need", "2", "--keys", "3")),
    "enrol": (one_folder, verb("enrol", "fleet", "drone-2", "--swarm", "farm", "--out", "d2")),
    "rotate": (one_folder, verb("rotate", "fleet", "--swarm", "farm")),
    "revoke": (one_folder, verb("revoke", "fleet", "drone-1", "--swarm", "farm", "--reason", "x")),
    "node new": (nothing, verb("node", "new", "d2", "--name", "drone-2")),
    "prepare": (founded, verb("prepare", "heartbeat", "fleet", "1", "-o", "beat")),
    "sign": (officers_fleet, lambda: sign("fleet/root-1.prepared")),
    "submit a first root": (
        lambda: (officers_fleet(), signed("fleet/root-1.prepared"))[0],
        verb("submit", "fleet/root-1.prepared", "--fleet", "fleet"),
    ),
    "submit a group key": (first_group, verb("submit", "group", "--fleet", "fleet")),
    "submit a root": (next_root, verb("submit", "root-2", "--fleet", "fleet")),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_disk_that_fails_at_any_write_leaves_nothing_half_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, run = VERBS[name]
    whole = os.replace
    for failing in range(WRITES_MAX):
        home = tmp_path / str(failing)
        home.mkdir()
        monkeypatch.chdir(home)
        prepare()
        writes = 0

        def replace(source: str, target: str, failing: int = failing) -> None:
            nonlocal writes
            writes += 1
            if writes == failing + 1:
                raise OSError(errno.EIO, "the disk fails")
            whole(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            status = run()
        if writes <= failing:
            assert status == 0
            return
        assert status == 1 or (name == "revoke" and writes == 2), "the group key is said to be due, the thief is out"
        assert not [path for path in home.rglob(".*") if path.is_file() and path.name != ".lock"], "no draft stays"
        if (home / "fleet" / "roots" / "0001.root").exists():
            fleet = Fleet(home / "fleet")
            for swarm in fleet.swarms():
                fleet.trust_of(swarm)
        for path in home.rglob("*.prepared"):
            read(path)
        assert run() == 0, f"{name} works again after write {failing + 1} failed"
    raise AssertionError(f"{name} makes more than {WRITES_MAX} writes")


def test_a_daemon_that_is_not_there_is_found_out_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first_group()
    before = sorted(tmp_path.rglob("*"))
    assert main(["keys", "submit", "group", "--fleet", "fleet", "--control", "nobody"]) == 3
    assert sorted(tmp_path.rglob("*")) == before
    one_folder_home = tmp_path / "other"
    one_folder_home.mkdir()
    monkeypatch.chdir(one_folder_home)
    one_folder()
    before = sorted(one_folder_home.rglob("*"))
    for words in (
        ["role", "fleet", "release", "--need", "2", "--keys", "3"],
        ["rotate", "fleet", "--swarm", "farm"],
        ["revoke", "fleet", "drone-1", "--swarm", "farm", "--reason", "x"],
    ):
        assert main(["keys", *words, "--control", "nobody"]) == 3
    assert sorted(one_folder_home.rglob("*")) == before
