"""Keys in `ssh-agent`: a real agent of OpenSSH signs, and an agent that answers nonsense is refused."""

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.cli.main import main
from swarmd.identity import ssh_agent
from swarmd.identity.officers import OfficerKeyError, Passphrases, read_public
from swarmd.identity.signers import open_signer
from swarmd.identity.ssh_agent import AgentError, parse_keys, parse_signature, public_blob
from swarmd_protocols.crypto import NaClCrypto


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real ssh-agent with keys of alice and bob, and an RSA key that cannot sign here."""
    place = tmp_path / "agent"
    try:
        process = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("no ssh-agent here (Debian: openssh-client)")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
    try:
        while not place.exists():
            assert process.poll() is None, "the agent runs"
        for name, kind in (("alice", "ed25519"), ("bob", "ed25519"), ("old", "rsa")):
            path = str(tmp_path / name)
            subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", f"{name}@desk", "-f", path], check=True)
            subprocess.run(["ssh-add", "-q", path], check=True)
        yield place
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@pytest.mark.slow
def test_a_real_agent_signs_what_anybody_can_verify(agent: Path, tmp_path: Path) -> None:
    alice, bob = ssh_agent.list_keys(agent)
    assert [alice.comment, bob.comment] == ["alice@desk", "bob@desk"]
    assert read_public(tmp_path / "alice.pub").public == alice.public
    message = b"swarmd/revoke/v1\0" + bytes(1_000)
    assert NaClCrypto().verify(alice.public, message, ssh_agent.sign(agent, alice.public, message))


@pytest.mark.slow
def test_a_key_in_the_agent_is_found_by_comment_fingerprint_id_and_public_half(agent: Path, tmp_path: Path) -> None:
    half = read_public(tmp_path / "bob.pub")
    for reference in (
        "agent:bob@desk",
        f"agent:{half.fingerprint}",
        f"agent:{half.key_id.hex()[:8]}",
        str(tmp_path / "bob.pub"),
    ):
        signer = open_signer(reference, Passphrases())
        assert (signer.half, len(signer.sign(b"swarmd/x"))) == (half, 64)
    with pytest.raises(OfficerKeyError, match="it holds: alice@desk, bob@desk"):
        open_signer("agent:carol", Passphrases())


@pytest.mark.slow
def test_a_key_that_was_removed_and_a_locked_agent_are_said(agent: Path, tmp_path: Path) -> None:
    signer = open_signer("agent:alice@desk", Passphrases())
    subprocess.run(["ssh-add", "-q", "-d", str(tmp_path / "alice")], check=True)
    with pytest.raises(AgentError, match="refused to sign"):
        signer.sign(b"swarmd/x")


def test_no_agent_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(AgentError, match="SSH_AUTH_SOCK is not set"):
        open_signer("agent:alice", Passphrases())
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "none"))
    with pytest.raises(AgentError, match="cannot ask the ssh-agent"):
        open_signer("agent:alice", Passphrases())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "hung up"),
        (b"\0\0\0\0", "answers 0 bytes"),
        (b"\xff\xff\xff\xff", "answers 4294967295 bytes"),
        (b"\0\0\0\x09\x0c\0\0", "hung up"),
        (b"\0\0\0\x01\x05", "does not list"),
        (b"\0\0\0\x05\x0c\xff\xff\xff\xff", "at most 2048"),
        (b"\0\0\0\x05\x0c\0\0\0\x01", "ends too early"),
    ],
)
def test_an_agent_that_answers_nonsense_is_refused(tmp_path: Path, answer: bytes, words: str) -> None:
    place = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(1)

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(4_096)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(AgentError, match=words):
                ssh_agent.list_keys(place)
        finally:
            thread.join(10)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x0c\0\0\0\x01", b"\x0e\0\0\0\x53\0\0\0\x0bssh-ed25519"]))
def test_any_answer_is_read_or_refused(data: bytes, head: bytes) -> None:
    for parse in (parse_keys, parse_signature):
        with contextlib.suppress(AgentError):
            parse(head + data)


def test_a_key_of_another_length_is_refused() -> None:
    blob = public_blob(b"k" * 31)
    with pytest.raises(AgentError, match="32 bytes"):
        parse_keys(b"\x0c\0\0\0\x01" + len(blob).to_bytes(4, "big") + blob + bytes(4))


@pytest.mark.slow
def test_a_fleet_is_founded_by_a_key_in_the_agent(
    agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    roles = [word for role in ("enrol", "release") for word in ("--role", role, "1", "agent:bob@desk")]
    assert main(["keys", "root", "fleet", "--name", "acme", "--root", "2", "alice.pub", "bob.pub", *roles]) == 0
    prepared = "fleet/root-1.prepared"
    assert main(["keys", "sign", prepared, "--yes", "--key", "agent:alice@desk", "--key", "bob.pub"]) == 0
    assert main(["keys", "submit", prepared, "--fleet", "fleet"]) == 0
    capsys.readouterr()
    assert main(["keys", "show", "fleet"]) == 0
    assert "alice bob" in capsys.readouterr().out
    words = ["keys", "enrol", "fleet", "a", "--swarm", "farm", "--out", "a", "--key", "agent:bob@desk"]
    assert main(words) == 1
    assert "it signs prepared statements" in capsys.readouterr().err
