"""A disk that fails in the middle of any verb of `keys`: nothing half-written, and the verb works when run again."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.errors import DaemonError
from swarmd.identity import files, officers
from swarmd.identity.admission import Desk
from swarmd.identity.duties import duties
from swarmd.identity.fleet import Fleet
from swarmd.identity.join_channel import ask, open_answer
from swarmd.identity.join_tokens import make_token, parse_token
from swarmd.identity.prepared import read
from swarmd.identity.role_keys import read_role_key
from swarmd.identity.signers import open_signer
from tests.support.officers import officer
from tests.support.tiers import few_fast

PASSPHRASE = "correct horse battery"
KILLED = 137
WRITES_MAX = 40
"""More than any verb makes."""


def one_folder() -> None:
    assert main(["keys", "root", "fleet", "--name", "acme", "--role", "root=1/1", "--role", "revoke=1/1"]) == 0
    assert main(["keys", "enrol", "fleet", "drone-1", "--swarm", "farm", "--out", "d1"]) == 0


def token_given() -> None:
    one_folder()
    Path("token").write_text(make_token(Fleet(Path("fleet")), "farm", "d", []).text)


def admitted() -> int:
    token = parse_token(Path("token").read_text())
    question = ask(token, b"d" * 32)
    try:
        signer = open_signer("fleet/keys/enrol-1.key", officers.Passphrases())
        frame = Desk(Path("fleet"), [signer]).answer(question.frame).frame
    except DaemonError:
        return 1
    return int(open_answer(token, question, frame).kind != "enrolled")


def requested() -> None:
    one_folder()
    assert main(["enrol", "--identity", "dev", "--request", "r", "--name", "d"]) == 0


def replaced_enrol() -> None:
    one_folder()
    assert main(["keys", "enrol", "fleet", "drone-2", "--out", "d2"]) == 0
    assert main(["keys", "role", "fleet", "enrol", "--need", "1", "--keys", "1"]) == 0


def device_key() -> None:
    one_folder()
    assert main(["keys", "node", "new", "dev", "--name", "d"]) == 0


def enrolled_device() -> None:
    device_key()
    assert main(["keys", "enrol", "fleet", "d", "--public", "dev/d.pub", "--out", "d"]) == 0


def given_enrolment() -> None:
    enrolled_device()
    assert main(["keys", "enrolment", "fleet", "d", "-o", "given"]) == 0


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


def with_passphrase(*words: str) -> int:
    ours, theirs = os.pipe()
    os.write(theirs, f"{PASSPHRASE}\n".encode())
    os.close(theirs)
    try:
        return main(["keys", *words, "--passphrase-fd", str(ours)])
    finally:
        os.close(ours)


def sign(path: str) -> int:
    return with_passphrase("sign", path, "--yes", "--key", "alice.key")


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
    "officer new": (nothing, lambda: with_passphrase("officer", "new", "bob")),
    "token": (one_folder, verb("token", "fleet", "d", "--at", "10.0.0.5:7990")),
    "a device with a token": (token_given, admitted),
    "a device's request": (nothing, lambda: main(["enrol", "--identity", "d", "--request", "r", "--name", "d"])),
    "sign-request": (requested, verb("sign-request", "fleet", "r", "--out", "d")),
    "renew": (replaced_enrol, verb("renew", "fleet")),
    "enrol of a device's key": (device_key, verb("enrol", "fleet", "d", "--public", "dev/d.pub", "--out", "d")),
    "enrolment": (enrolled_device, verb("enrolment", "fleet", "d", "-o", "given")),
    "node install": (given_enrolment, verb("node", "install", "dev", "given")),
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

QUICK = ("revoke", "token")
SPREAD = few_fast(sorted(VERBS, key=lambda name: name not in QUICK), len(QUICK))


@pytest.mark.parametrize("name", SPREAD)
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


def killed_at(step: int, run: Callable[[], int], before: bool) -> bool:
    """Run a verb in a process that dies at its `step`-th change of the disk; whether it came so far."""
    process = os.fork()
    if process == 0:
        changes = 0
        for name in ("replace", "rename", "unlink"):
            whole = getattr(os, name)

            def change(*words: object, whole: Callable[..., None] = whole, **named: object) -> None:
                nonlocal changes
                changes += 1
                if changes == step and before:
                    os._exit(KILLED)
                whole(*words, **named)
                if changes == step:
                    os._exit(KILLED)

            setattr(os, name, change)
        try:
            os._exit(run())
        except BaseException:
            os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, KILLED), "the verb works, or was killed"
    return status == KILLED


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("name", SPREAD)
def test_a_verb_that_is_killed_at_any_change_is_completed_by_the_next_run(
    name: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare, run = VERBS[name]
    monkeypatch.setattr(files, "DRAFT_S", -60.0)
    for step in range(1, WRITES_MAX):
        home = tmp_path / str(step)
        home.mkdir()
        monkeypatch.chdir(home)
        prepare()
        if not killed_at(step, run, before):
            return
        if run() != 0:
            # Everything was done, and it says so; it would have changed nothing more.
            assert not before
            assert re.search("already|nothing was written", capfd.readouterr().err)
            (tmp_path / f"{step}-whole").mkdir()
            monkeypatch.chdir(tmp_path / f"{step}-whole")
            prepare()
            assert not killed_at(step + 1, run, before=True), f"{name} was killed at change {step} and is not completed"
            continue
        assert not [path for path in home.rglob(".*") if path.is_file() and path.name != ".lock"], "no draft stays"
        if (home / "fleet" / "roots" / "0001.root").exists():
            fleet = Fleet(home / "fleet")
            assert not [duty for swarm in fleet.swarms() for duty in duties(fleet, swarm)], "nothing stays due"
            wanted = {key for role in fleet.root().roles for key in role.key_ids}
            held = [read_role_key(path) for path in (home / "fleet" / "keys").glob("*.key")]
            assert not held or wanted <= {key.key_id for key in held}, "no key that the root names is lost"
    raise AssertionError(f"{name} makes more than {WRITES_MAX} changes")


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
