"""The real install code, killed and refused by the kernel at every k-th call (strace); skipped where strace is absent.

A killed process keeps its page cache, so this cannot find a missing fsync (`test_slots_crash.py` does); it finds wrong
orders, half-written names, and errors that are swallowed.
"""

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from swarmd.release.at_rest import SealedBlobs
from swarmd.release.fsx import RealFiles
from swarmd_protocols.releases.slots import fresh_slot
from tests.support.slots import Slots

OLD, NEW = b"old-model" * 500, b"new-model" * 500
SCRIPT = """
import sys
from hashlib import sha256
from swarmd.release.at_rest import SealedBlobs
from swarmd.release.fsx import RealFiles
from swarmd_protocols.releases.slots import fresh_slot
from tests.support.slots import Slots
files = RealFiles(sys.argv[1])
blobs = SealedBlobs(files, b"k" * 32)
slots = Slots(files, blobs, "slots/m")
slots.load()
new = b"new-model" * 500
print("begin", flush=True)
blobs.put(new)
slots.install(fresh_slot(b"n" * 32, {"m.tflite": sha256(new).digest()}, "m.tflite"))
slots.begin_trial()
slots.promote()
print("told", flush=True)
slots.collect()
"""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def prepare(folder: Path) -> None:
    files = RealFiles(str(folder))
    blobs = SealedBlobs(files, b"k" * 32)
    slots = Slots(files, blobs, "slots/m")
    blobs.put(OLD)
    slots.install(fresh_slot(b"o" * 32, {"m.tflite": sha256(OLD).digest()}, "m.tflite"))
    slots.begin_trial()
    slots.promote()
    slots.raise_floor((1, 1))


def injected(folder: Path, call: str, what: str, when: int) -> subprocess.CompletedProcess[str]:
    command = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:{what}:when={when}",
    ]
    return subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )


def check(folder: Path, told: bool) -> None:
    """After any end: a readable record, a sound active release, the floor kept, and nothing told that was lost."""
    files = RealFiles(str(folder))
    slots = Slots(files, SealedBlobs(files, b"k" * 32), "slots/m")
    slot = slots.start()
    assert slot is not None
    assert slot.release in (b"o" * 32, b"n" * 32)
    assert slots.record.floor >= (1, 1)
    assert not slots.record.rejected
    if told:
        assert slot.release == b"n" * 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "what"),
    [("fsync", "signal=KILL"), ("rename", "signal=KILL"), ("fsync", "error=EIO"), ("fsync", "error=ENOSPC"),
     ("rename", "error=EIO"), ("unlink", "signal=KILL")],
)  # fmt: skip
def test_every_kth_call(tmp_path: Path, call: str, what: str) -> None:
    for when in range(1, 12):
        folder = tmp_path / str(when)
        folder.mkdir()
        prepare(folder)
        done = injected(folder, call, what, when)
        check(folder, "told" in done.stdout)
        if done.returncode == 0:
            assert "told" in done.stdout
            return
    pytest.fail(f"{call} is called more than eleven times; the loop never ended un-injected")
