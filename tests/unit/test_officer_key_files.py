"""An officer's key file, its public half, the places a passphrase comes from, and the one rule for names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.identity.files import IdentityFileError
from swarmd.identity.names import NameRefused, check_known, check_name
from swarmd.identity.officers import (
    OfficerKeyError,
    Passphrases,
    PublicHalf,
    change_passphrase,
    distinct,
    new_key,
    open_key,
    parse_public,
    parse_sealed,
    read_public,
    seal_key,
)
from swarmd.identity.signers import open_signer
from swarmd_protocols.crypto import NaClCrypto
from tests.support.paths import ROOT

CRYPTO = NaClCrypto()
SEED = bytes(range(32))
PASSPHRASE = "correct horse battery"


def cheap(seed: bytes = SEED, name: str = "alice", passphrase: str = PASSPHRASE) -> bytes:
    """A key's file whose passphrase costs no time to check."""
    return seal_key(seed, name, passphrase, operations=1, memory_kib=8)


def passphrases(*lines: str) -> Passphrases:
    ours, theirs = os.pipe()
    os.write(theirs, "".join(f"{line}\n" for line in lines).encode())
    os.close(theirs)
    try:
        return Passphrases(ours)
    finally:
        os.close(ours)


def test_a_key_is_opened_by_its_passphrase_alone() -> None:
    data = cheap()
    assert open_key(data, PASSPHRASE) == SEED
    assert SEED.hex() not in data.decode()
    with pytest.raises(OfficerKeyError, match="passphrase is not the one"):
        open_key(data, PASSPHRASE + " ")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_never_opens_and_never_raises_anything_else(at: int, flip: int) -> None:
    data = bytearray(cheap())
    at %= len(data)
    data[at] ^= flip
    try:
        assert parse_sealed(bytes(data)).memory_kib <= 1 << 20
        if data[at] in b"0123456789" and parse_sealed(bytes(data)).memory_kib > 1024:
            return  # Somebody asks for more work: bounded, not worth a test's time.
        assert open_key(bytes(data), PASSPHRASE) == SEED
    except OfficerKeyError:
        return
    # Hexadecimal digits and Base64 padding have more than one spelling; the key is the same then.
    assert parse_sealed(bytes(data)).half.public == CRYPTO.public_key(SEED)


def test_the_head_of_a_key_cannot_be_changed_by_who_lacks_the_passphrase() -> None:
    """Neither the name, nor the work that a guess costs."""
    for old, new in ((b" alice\n", b" mallo\n"), (b"argon2id 1 8 ", b"argon2id 2 8 ")):
        changed = cheap().replace(old, new)
        assert changed != cheap()
        with pytest.raises(OfficerKeyError, match="passphrase is not the one"):
            open_key(changed, PASSPHRASE)


@pytest.mark.parametrize("asked", ["99999 8", "1 2000000", "17 8", "0 8", "1 7", "-1 8", "1 8 8", "x 8"])
def test_a_file_cannot_ask_for_unbounded_work(asked: str) -> None:
    with pytest.raises(OfficerKeyError):
        parse_sealed(cheap().replace(b"argon2id 1 8 ", f"argon2id {asked} ".encode()))


def test_a_short_passphrase_is_refused() -> None:
    with pytest.raises(OfficerKeyError, match="it takes 10"):
        cheap(passphrase="123456789")


def test_a_public_half_survives_the_way_to_another_desk() -> None:
    half = PublicHalf(CRYPTO.public_key(SEED), "alice")
    assert parse_public(half.line + "\n") == half
    assert parse_public(half.line.replace(" alice", " alice@laptop")).name == "alice"
    assert parse_public(half.line.removesuffix(" alice"), "desk").name == "desk"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ssh-rsa AAAA alice",
        "ssh-ed25519",
        "ssh-ed25519 !!!! alice",
        "ssh-ed25519 AAAA alice",
        # No point on the curve:
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA alice",
        "two\nlines",
        "x" * 5_000,
    ],
)
def test_what_is_no_public_half_is_refused(line: str) -> None:
    with pytest.raises(OfficerKeyError):
        parse_public(line, "desk")


def test_openssh_reads_a_public_half_and_prints_the_same_fingerprint(tmp_path: Path) -> None:
    half = PublicHalf(CRYPTO.public_key(SEED), "alice")
    path = tmp_path / "alice.pub"
    path.write_text(half.line + "\n")
    try:
        told = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no ssh-keygen here (Debian: openssh-client)")
    assert half.fingerprint in told
    assert told.rstrip().endswith("alice (ED25519)")


@pytest.mark.slow
def test_a_new_key_lies_beside_its_public_half_and_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    half = new_key(path, "alice", PASSPHRASE)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_public(path) == read_public(tmp_path / "alice.key.pub") == half
    before = path.read_bytes()
    with pytest.raises(OfficerKeyError, match="exists already"):
        new_key(path, "alice", PASSPHRASE)
    assert path.read_bytes() == before
    signature = open_signer(str(path), passphrases(PASSPHRASE)).sign(b"swarmd/x")
    assert CRYPTO.verify(half.public, b"swarmd/x", signature)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    path.write_bytes(cheap())
    path.chmod(0o644)
    with pytest.raises(IdentityFileError, match="chmod 600"):
        open_signer(str(path), Passphrases())


def test_passphrases_come_line_by_line_in_the_order_of_the_keys() -> None:
    given_lines = passphrases("one of them", "another one")
    assert [given_lines.get("a"), given_lines.get("b")] == ["one of them", "another one"]
    with pytest.raises(OfficerKeyError, match="no passphrase for c"):
        given_lines.get("c")


def test_a_passphrase_comes_from_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alice").write_text("from systemd\n")
    with pytest.raises(OfficerKeyError, match="CREDENTIALS_DIRECTORY"):
        Passphrases(credential="alice").get("alice")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert Passphrases(credential="alice").get("alice") == "from systemd"
    with pytest.raises(OfficerKeyError):
        Passphrases(credential="../alice").get("alice")


def test_a_flood_of_passphrases_is_refused() -> None:
    with pytest.raises(OfficerKeyError, match="more than"):
        passphrases("x" * 5_000)


def test_one_key_under_two_names_and_two_keys_under_one_are_refused() -> None:
    alice, bob = (PublicHalf(CRYPTO.public_key(bytes([n]) * 32), name) for n, name in ((1, "alice"), (2, "bob")))
    assert distinct([alice, bob]) == [alice, bob]
    with pytest.raises(OfficerKeyError, match="are one key"):
        distinct([alice, PublicHalf(alice.public, "bob")])
    with pytest.raises(OfficerKeyError, match="two different keys"):
        distinct([alice, PublicHalf(bob.public, "alice")])


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a+b", "a#b", "", "-f", "a b", "a\n", "ä", "x" * 65, "a\0", "$x"])
def test_what_cannot_be_a_file_or_a_topic_is_no_name(name: str) -> None:
    with pytest.raises(NameRefused, match="cannot name a node"):
        check_name(name, "a node")


def test_an_unknown_word_is_refused_with_the_nearest() -> None:
    roles = ("root", "enrol", "revoke", "release")
    assert check_known("release", roles, "role") == "release"
    with pytest.raises(NameRefused, match="did you mean 'release'"):
        check_known("relaese", roles, "role")
    with pytest.raises(NameRefused, match="known: enrol, release, revoke, root"):
        check_known("bogus", roles, "role")


def test_without_a_terminal_no_passphrase_is_read_from_a_pipe(tmp_path: Path) -> None:
    """Where it would be shown, or lie in a shell's history, it is not asked for."""
    command = [sys.executable, "-m", "swarmd", "keys", "officer", "new", str(tmp_path / "alice")]
    typed = f"{PASSPHRASE}\n" * 2
    done = subprocess.run(command, input=typed, capture_output=True, text=True, start_new_session=True, cwd=ROOT)
    assert done.returncode == 1
    assert "give --passphrase-fd" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_key_gets_another_passphrase_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "alice"
    path.write_bytes(cheap())
    path.chmod(0o600)
    before = path.read_bytes()
    for lines, words in (
        (("the wrong one", "another passphrase"), "not the one"),
        ((PASSPHRASE, "short"), "it takes 10"),
        ((PASSPHRASE,), "no passphrase for alice"),
    ):
        with pytest.raises(OfficerKeyError, match=words):
            change_passphrase(path, passphrases(*lines))
        assert path.read_bytes() == before
    change_passphrase(path, passphrases(PASSPHRASE, "another passphrase"))
    assert open_key(path.read_bytes(), "another passphrase") == SEED
    assert path.stat().st_mode & 0o777 == 0o600
