"""The key for models at rest, sealed by systemd-creds: with the host's key, and with a TPM (a software one, if it is
installed); what opens is what was sealed."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.release.at_rest import CREDENTIAL, open_node_key
from swarmd.release.errors import ReleaseError
from swarmd.release.sealing import protection, seal_key, sealed_with
from tests.support.exclusive import own_port

pytestmark = [
    pytest.mark.skipif(shutil.which("systemd-creds") is None, reason="systemd-creds is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root here, and the host's key is root's"),
]


def unseal(credential: Path, *flags: str) -> bytes:
    command = ["systemd-creds", "decrypt", f"--name={CREDENTIAL}", *flags, str(credential), "-"]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def is_listening(port: int) -> bool:
    """Without a connection, which the software TPM would take for its only one."""
    wanted = f"0100007F:{port:04X}"
    return any(line.split()[1] == wanted for line in Path("/proc/net/tcp").read_text().splitlines()[1:])


@pytest.fixture
def tpm(tmp_path: Path) -> Iterator[str]:
    if shutil.which("swtpm") is None:
        pytest.skip("swtpm is not installed")
    port = own_port()  # The TPM's library expects its control port behind it.
    (tmp_path / "tpm").mkdir()
    command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={tmp_path / 'tpm'}"]
    command += ["--server", f"type=tcp,port={port}", "--ctrl", f"type=tcp,port={port + 1}"]
    process = subprocess.Popen([*command, "--flags", "not-need-init,startup-clear"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and not is_listening(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    yield f"swtpm:host=127.0.0.1,port={port}"
    process.kill()
    process.wait()


def sealed_or_skip(*arguments: object) -> str:
    try:
        return seal_key(*arguments)  # type: ignore[arg-type]
    except ReleaseError as error:
        pytest.skip(f"no systemd-creds here that works: {error}")


def test_a_new_key_is_sealed_with_the_hosts_key_and_opens(tmp_path: Path) -> None:
    out = tmp_path / "store" / CREDENTIAL
    assert sealed_or_skip(out, None, "host") == "host"
    assert len(unseal(out)) == 32
    assert protection(tmp_path, out.parent) == (False, f"the key is sealed by a key of this host ({out})")
    with pytest.raises(ReleaseError, match="exists"):
        seal_key(out, None, "host")


def test_the_key_in_use_is_taken_along_and_the_daemon_takes_the_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    folder = tmp_path / "releases"
    before = open_node_key(folder)
    assert before.source == "file"
    out = tmp_path / CREDENTIAL
    sealed_or_skip(tmp_path / "probe", None, "host")
    assert main(["model", "key", "--with", "host", "--from", str(folder / "node.key"), "-o", str(out)]) == 0
    assert "shred" in capsys.readouterr().out
    given = tmp_path / "credentials"
    given.mkdir()
    (given / CREDENTIAL).write_bytes(unseal(out))  # What systemd does.
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given))
    after = open_node_key(folder)
    assert (after.key, after.source) == (before.key, "credential")


@pytest.mark.parametrize("with_key", ["tpm2", "host+tpm2"])
def test_a_key_sealed_to_a_tpm_opens_with_that_tpm_only(tmp_path: Path, tpm: str, with_key: str) -> None:
    out = tmp_path / CREDENTIAL
    assert sealed_or_skip(out, b"k" * 32, with_key, tpm) == with_key
    assert unseal(out, f"--tpm2-device={tpm}") == b"k" * 32
    assert protection(tmp_path, tmp_path)[0]
    with pytest.raises(subprocess.CalledProcessError):
        unseal(out, "--tpm2-device=swtpm:host=127.0.0.1,port=1")


def test_where_no_tpm_is_the_sentence_says_so(tmp_path: Path) -> None:
    if any(Path("/dev").glob("tpm*")):
        pytest.skip("a TPM is here")
    with pytest.raises(ReleaseError, match="cannot seal the key"):
        seal_key(tmp_path / CREDENTIAL, None, "tpm2")


def test_what_is_no_credential_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"not base64 at all, never")
    assert sealed_with(tmp_path / "x") == "unknown"
    assert sealed_with(tmp_path / "absent") == "unknown"
    assert not protection(tmp_path, tmp_path)[0]
    with pytest.raises(ReleaseError, match="must have 32"):
        seal_key(tmp_path / "new", b"short")
