"""The key for models at rest as a systemd credential: sealed by this host's TPM, by a key of the host, or by both.

`systemd-creds` seals and systemd unseals before the daemon starts; the daemon itself needs no TPM library and no right
to the device. What it seals with is told by the first 16 bytes of the credential.

Source: systemd.exec(5), LoadCredentialEncrypted; systemd-creds(1); the identifiers are those of systemd's creds-util.h.
"""

import base64
import binascii
import os
import shutil
import subprocess
from pathlib import Path

from swarmd.release.at_rest import CREDENTIAL, KEY_BYTES
from swarmd.release.errors import ReleaseError

STORE = Path("/etc/credstore.encrypted")
"""Where systemd looks for credentials that a unit names without a path."""
_SEALS = {
    "5a1c6a86df9d4096b1d5a65e0862f19a": "host",
    "0c7cc07b117645919c4b0bea08bc20fe": "tpm2",
    "93a894094874449090caf2fc93cab553": "host+tpm2",
}
_TIMEOUT_S = 30


def seal_key(out: Path, key: bytes | None = None, with_key: str = "auto", device: str = "") -> str:
    """Write the key for models at rest as a sealed credential.

    Args:
        out: The credential's file.
        key: 32 bytes to seal, such as those of a key file that is in use; new ones where absent.
        with_key: One of `WITH`; "auto" takes the TPM and the host's key where there is a TPM.
        device: The TPM, as `systemd-creds --tpm2-device` takes it; "" for the system's own.

    Returns:
        What it is sealed with.

    Raises:
        ReleaseError: It cannot be sealed; says why.
    """
    if out.exists():
        raise ReleaseError(f"{out} exists, and models may be sealed under its key; remove it first if you mean it")
    if key is not None and len(key) != KEY_BYTES:
        raise ReleaseError(f"the key has {len(key)} bytes; it must have {KEY_BYTES}")
    tool = shutil.which("systemd-creds")
    if tool is None:
        raise ReleaseError("systemd-creds is not here: it comes with systemd 250 and newer")
    command = [tool, "encrypt", f"--name={CREDENTIAL}", f"--with-key={with_key}"]
    command += [f"--tpm2-device={device}"] if device else []
    try:
        out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        done = subprocess.run(
            [*command, "-", str(out)],
            input=key or os.urandom(KEY_BYTES),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"the key cannot be sealed: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ReleaseError(f"systemd-creds cannot seal the key ({with_key}): {said[-1] if said else 'it says nothing'}")
    return sealed_with(out)


def sealed_with(credential: Path) -> str:
    """What a credential is sealed with: "host", "tpm2", "host+tpm2", or "unknown"."""
    try:
        head = base64.b64decode(credential.read_bytes()[:24], validate=True)[:16]
    except (OSError, binascii.Error):
        return "unknown"
    return _SEALS.get(head.hex(), "unknown")


def protection(folder: Path, store: Path = STORE) -> tuple[bool, str]:
    """Whether the key for models is kept apart from the models, and in words how.

    Args:
        folder: "releases" below the daemon's state folder.
        store: Where systemd keeps sealed credentials.
    """
    credential = store / CREDENTIAL
    if credential.exists():
        kind = sealed_with(credential)
        words = {
            "host": "by a key of this host",
            "tpm2": "by the TPM",
            "host+tpm2": "by the TPM and a key of this host",
        }
        where = words.get(kind, "somehow")
        return kind in ("tpm2", "host+tpm2"), f"the key is sealed {where} ({credential})"
    if (folder / "node.key").exists():
        return False, f"the key lies beside the models it opens ({folder / 'node.key'})"
    return False, "there is no key yet; the daemon will make one beside the models"
