"""Deltas rebuild to the byte, refuse what is wrong, and are as small as they should be."""

import ctypes
import errno
import lzma
import os
import subprocess
import sys
import time
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import brotli
import numpy as np
import pytest

from swarmd.release.delta import blocks, bounded, child, codec, flatbuffer, jail
from swarmd.release.delta.varint import varint
from swarmd.release.errors import DeltaError
from tests.support.deltas import ZOO, head_only, tuned

pytestmark = pytest.mark.slow

OLD = ZOO.read_bytes()


@pytest.fixture(scope="module")
def gentle() -> bytes:
    return tuned(OLD, 0.03)


@pytest.fixture(scope="module")
def made(gentle: bytes) -> dict[str, bytes]:
    return codec.make_all(OLD, gentle)


def test_the_walk_finds_nearly_all_of_a_model() -> None:
    regions = flatbuffer.regions(OLD)
    assert sum(one.size for one in regions) > 0.85 * len(OLD)
    for one, other in pairwise(regions):
        assert one.start + one.size <= other.start


@pytest.mark.parametrize("name", codec.CODECS)
def test_every_codec_rebuilds_to_the_byte(name: str, made: dict[str, bytes], gentle: bytes) -> None:
    assert codec.codec_of(made[name]) == name
    assert codec.apply_delta(OLD, made[name], len(gentle)) == gentle


def test_a_gentle_update_is_small_and_a_head_smaller(made: dict[str, bytes], gentle: bytes) -> None:
    assert min(map(len, made.values())) <= 0.30 * len(gentle)
    head = tuned(OLD, 0.05, only=head_only)
    best = codec.make_best(OLD, head)
    assert best is not None
    assert len(best[1]) <= 0.03 * len(head)


def test_decoding_is_cheap(made: dict[str, bytes], gentle: bytes) -> None:
    for delta in made.values():
        began = time.process_time()
        codec.apply_delta(OLD, delta, len(gentle))
        assert time.process_time() - began <= 0.2


def test_another_layout_still_pairs_its_tensors(gentle: bytes) -> None:
    """Bytes before the tensors shift everything; pairing by name recovers it."""
    shifted = gentle + b"metadata" * 40
    best = codec.make_best(OLD, shifted)
    assert best is not None
    assert best[0].startswith("tflite")
    assert codec.apply_delta(OLD, best[1], len(shifted)) == shifted


def test_an_unrelated_file_gets_no_delta() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 50_000, np.uint8).tobytes()
    assert codec.make_best(OLD, noise) is None


def test_files_that_are_no_tflite_go_by_blocks() -> None:
    old = b"".join(b"line %d of some text\n" % number for number in range(3_000))
    new = old[:20_000] + b"inserted here" + old[20_100:50_000]
    name, delta = codec.make_best(old, new)  # type: ignore[misc]
    assert name == "blocks"
    assert len(delta) < 200
    assert codec.apply_delta(old, delta, len(new)) == new


def test_the_child_makes_the_same(made: dict[str, bytes], gentle: bytes) -> None:
    digest = sha256(gentle).digest()
    assert child.apply_in_child(OLD, made["tflite-brotli"], len(gentle), digest) == gentle
    with pytest.raises(DeltaError, match="bytes"):
        child.apply_in_child(OLD, made["tflite-brotli"], len(gentle) - 1, digest)
    with pytest.raises(DeltaError, match="another base"):
        child.apply_in_child(gentle, made["tflite-brotli"], len(gentle), digest)


def test_a_brain_that_is_killed_leaves_no_model_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base and delta lay in /dev/shm under names: each death in between took as much memory until the device's next
    start, and where memory ends is where the kernel kills."""
    found: list[list[Path]] = []

    def killed(*_: object, **__: object) -> None:
        found.append(list(tmp_path.iterdir()))
        raise DeltaError("killed here")

    monkeypatch.setattr(child, "_MEMORY", tmp_path)
    monkeypatch.setattr(child.subprocess, "run", killed)
    with pytest.raises(DeltaError, match="killed here"):
        child.apply_in_child(b"base", b"delta", 1, bytes(32))
    assert found == [[]]


TAKEN_OVER = """
import ctypes, mmap, os, resource, socket, sys
from swarmd.release.delta import child, codec

libc = ctypes.CDLL(None, use_errno=True)

def asked(call, *arguments):
    if call(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")

JAILED = (
    ("signal", lambda: os.kill(os.getppid(), 0)),
    ("memory of another", lambda: asked(libc.process_vm_readv, os.getppid(), None, 0, None, 0, 0)),
    ("another's registers", lambda: asked(libc.ptrace, 0x4206, os.getppid(), 0, 0)),
    ("removal", lambda: os.unlink(sys.argv[1] + "/base")),
    ("folder", lambda: os.mkdir(sys.argv[1] + "/folder")),
    ("fork", lambda: os.fork() or os._exit(0)),
    ("program", lambda: os.execv(sys.executable, [sys.executable, "-c", ""])),
    ("code", lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)),
) if sys.argv[2:] else ()

def evil(old, delta, size):
    found = []
    for name, attempt in (
        ("file", lambda: open(sys.executable, "rb")),
        ("new file", lambda: os.open(sys.argv[1] + "/left", os.O_CREAT | os.O_WRONLY)),
        ("socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
        ("pipe", os.pipe),
        *JAILED,
    ):
        try:
            attempt()
            found.append(name)
        except OSError:
            pass
    try:
        found.append(f"{resource.getrlimit(resource.RLIMIT_NPROC)[0]} processes")
    except OSError:
        found.append("0 processes")  # Nor is anybody told or given limits.
    bytearray(8 << 20)  # Memory is there.
    return ",".join(found).encode()

codec.apply_delta = evil
base, patch, out = (f"{sys.argv[1]}/{name}" for name in ("base", "delta", "out"))
sys.exit(child.main([base, patch, out, "1000", "67108864", "10"]))
"""


UNFILTERED = "\nfrom swarmd.release.delta import jail\njail.shut_in = bool"
FREE = UNFILTERED + "\nchild._become_nobody = bool"


def what_a_taken_over_decoder_may(folder: Path, script: str = TAKEN_OVER, *more: str) -> bytes:
    for name in ("base", "delta"):
        (folder / name).write_bytes(b"bytes")
    subprocess.run([sys.executable, "-c", script, str(folder), *more], check=True, timeout=60)
    return (folder / "out").read_bytes()


def test_whoever_takes_a_decoder_over_opens_nothing(tmp_path: Path) -> None:
    assert what_a_taken_over_decoder_may(tmp_path) == b"0 processes"
    assert not (tmp_path / "left").exists()


def takes_filters() -> bool:
    """Whether the kernel, and what this runs in, let a process shut itself in."""
    code = "import sys; from swarmd.release.delta import jail; sys.exit(not jail.shut_in())"
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_whoever_takes_a_decoder_over_reaches_nobody(tmp_path: Path) -> None:
    """Signals, memory, registers of others, files by their names, other programs and made code, as root too."""
    if takes_filters():  # Elsewhere the limits are what there is.
        assert what_a_taken_over_decoder_may(tmp_path, TAKEN_OVER, "jailed") == b"0 processes"
        assert (tmp_path / "base").exists()


THREADS = """
import os, threading
from swarmd.release.delta import jail
jailed, waits, found = threading.Event(), threading.Event(), []
def older():
    waits.set()
    jailed.wait()
    try:
        os.stat("/")
        found.append(b"free")
    except PermissionError:
        found.append(b"shut in")
thread = threading.Thread(target=older)
thread.start()
waits.wait()
if not jail.shut_in():
    found.append(b"no filter")
jailed.set()
thread.join()
os.write(1, b", ".join(found))
os._exit(0)
"""


def knows_all_threads() -> bool:
    """Whether the kernel takes a filter for all threads: it would look at the filter, which is none."""
    number = jail._SECCOMP.get(jail.platform.machine())
    if number is None:
        return False
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    refused = syscall(ctypes.c_long(number), 1, 1, ctypes.c_void_p(None))
    return refused == -1 and ctypes.get_errno() == errno.EFAULT


def test_a_thread_that_began_before_the_filter_is_shut_in_too() -> None:
    if takes_filters() and knows_all_threads():  # Elsewhere it holds the thread that decodes.
        done = subprocess.run([sys.executable, "-c", THREADS], check=True, timeout=60, stdout=subprocess.PIPE)
        assert done.stdout == b"shut in"


def test_a_kernel_that_knows_one_thread_alone_is_asked_for_that(tmp_path: Path) -> None:
    if takes_filters():
        other = "\nfrom swarmd.release.delta import jail\njail._SECCOMP = dict.fromkeys(jail._SECCOMP, 9_999)"
        script = TAKEN_OVER.replace("codec.apply_delta = evil", "codec.apply_delta = evil" + other)
        assert what_a_taken_over_decoder_may(tmp_path, script, "jailed") == b"0 processes"


@pytest.mark.parametrize(("machine", "pointer_bytes"), [("riscv64", 8), ("armv7l", 4), ("", 8), ("aarch64", 4)])
def test_on_other_machines_the_limits_are_what_there_is(
    machine: str, pointer_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of 32 bits on a kernel of 64 has other numbers than the machine's name says."""
    monkeypatch.setattr(jail.platform, "machine", lambda: machine)
    monkeypatch.setattr(jail.struct, "calcsize", lambda _: pointer_bytes)
    monkeypatch.setattr(jail.ctypes, "CDLL", lambda _: pytest.fail("the kernel is asked"))
    assert not jail.shut_in()


def without(protection: str) -> str:
    """What a decoder tries, but for what would not come back, where something is left out."""
    script = TAKEN_OVER.replace("codec.apply_delta = evil", "codec.apply_delta = evil" + protection)
    for name in ("program", "fork"):
        script = script.replace(f'("{name}", lambda: ', f'("{name}", lambda: 1 / 0 and ')
    return script.replace("except OSError", "except (OSError, ZeroDivisionError)")


def test_a_decoder_that_is_not_shut_in_is_found(tmp_path: Path) -> None:
    found = what_a_taken_over_decoder_may(tmp_path, without(FREE), "jailed")
    assert {b"signal", b"removal", b"folder", b"code"} <= set(found.split(b","))


def test_a_decoder_of_roots_is_a_user_of_its_own_without_any_filter(tmp_path: Path) -> None:
    """No signal, memory or file of anybody is within its reach, root's least of all."""
    if os.geteuid():  # Only root gives a process another user.
        return
    found = what_a_taken_over_decoder_may(tmp_path, without(UNFILTERED), "jailed")
    assert not {b"signal", b"another's registers", b"removal", b"folder"} & set(found.split(b","))
    assert (tmp_path / "base").exists()


def test_a_decoder_that_may_open_files_is_found(tmp_path: Path) -> None:
    script = TAKEN_OVER.replace(
        "codec.apply_delta = evil", "codec.apply_delta = evil\nresource.RLIMIT_NOFILE = 4" + FREE
    )
    assert b"socket" in what_a_taken_over_decoder_may(tmp_path, script)


def test_a_bomb_that_takes_memory_ends_in_the_child() -> None:
    """xz with a dictionary of 1 GiB: refused by the decoder's own memory limit, long before the child's."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 << 20}]
    bomb = lzma.compress(bytes(50 << 20), format=lzma.FORMAT_XZ, check=lzma.CHECK_NONE, filters=filters)
    delta = codec._file("tflite-xz", OLD, OLD, bomb)
    with pytest.raises(DeltaError, match="xz"):
        child.apply_in_child(OLD, delta, len(OLD), sha256(OLD).digest())


def test_library_limits_do_not_hold_and_ours_do() -> None:
    """Regression for the bomb table: the size given back is counted here, never believed."""
    bomb = brotli.compress(bytes(20 << 20), quality=5)
    assert len(bomb) < 1_000
    assert len(brotli.Decompressor().process(bomb, output_buffer_limit=1 << 20)) > 0
    with pytest.raises(DeltaError, match="more than its signed"):
        bounded.unbrotli(bomb, 1 << 20)
    packed = lzma.compress(bytes(20 << 20))
    with pytest.raises(DeltaError, match="more than its signed"):
        bounded.unxz(packed, 1 << 20)
    assert bounded.unbrotli(brotli.compress(b""), 0) == b""
    assert bounded.unxz(bounded.xzed(b"abc" * 99), 297) == b"abc" * 99
    assert bounded.unbrotli(bounded.brotlied(b"abc" * 99), 297) == b"abc" * 99


@pytest.mark.parametrize("cut", [1, 22, 40, 200, 1_000])
def test_a_cut_delta_is_refused(made: dict[str, bytes], gentle: bytes, cut: int) -> None:
    for delta in made.values():
        with pytest.raises(DeltaError):
            codec.apply_delta(OLD, delta[:-cut], len(gentle))


def test_a_codec_that_is_not_read_any_more_is_refused_by_name() -> None:
    delta = codec.MAGIC + bytes([3]) + bytes(20)
    with pytest.raises(DeltaError, match="tflite-rans are not read; the whole file is fetched"):
        codec.codec_of(delta)
    with pytest.raises(DeltaError, match="not a delta"):
        codec.codec_of(codec.MAGIC + bytes([9]) + bytes(20))


def test_blocks_cannot_copy_from_outside() -> None:
    steps = varint(0) + varint(100) + varint(2 * 1_000)
    with pytest.raises(DeltaError, match="outside"):
        blocks.apply(b"short", varint(len(steps)) + steps, 1_000)
