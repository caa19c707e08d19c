"""What lies on the disk is sealed, chunks on their way too; what the runtime reads lies in anonymous memory."""

import errno
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from swarmd.release.at_rest import MemoryFolders, SealedBlobs, seal_chunk, unseal_chunk
from swarmd.release.chunks import FileChunks
from swarmd.release.errors import SlotError
from swarmd.release.fsx import RealFiles
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_protocols.releases.stores import describe

KEY = b"k" * 32
DATA = b"the weights of a model " * 2_000


def every_byte(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def store(folder: Path, encrypt: bool) -> FileChunks:
    files = RealFiles(str(folder))
    return FileChunks(files, SealedBlobs(files, KEY), 64 << 20, encrypt)


def fetch(chunks: FileChunks, count: int | None = None) -> None:
    blob, hashes = describe(DATA)
    chunks.put_hashes(blob, hashes)
    for index in range(blob.chunk_count if count is None else count):
        assert chunks.write(blob, index, DATA[index * blob.chunk_bytes : (index + 1) * blob.chunk_bytes])
    if count is None:
        assert list(chunks.finish(blob))[-1]


def test_half_a_fetch_lies_sealed_on_the_disk_and_is_found_again_after_a_restart(tmp_path: Path) -> None:
    blob, _ = describe(DATA)
    fetch(store(tmp_path, True), 5)
    assert b"weights" not in every_byte(tmp_path)
    again = store(tmp_path, True)
    assert again.have(blob) == 0b11111
    assert again.read(blob, 3) == DATA[3 * blob.chunk_bytes : 4 * blob.chunk_bytes]


def test_a_whole_fetch_becomes_a_sealed_blob(tmp_path: Path) -> None:
    chunks = store(tmp_path, True)
    fetch(chunks)
    assert chunks.get(sha256(DATA).digest()) == DATA
    assert b"weights" not in every_byte(tmp_path)


def test_a_release_may_ask_to_be_sealed_where_the_node_seals_nothing_else(tmp_path: Path) -> None:
    chunks = store(tmp_path, False)
    chunks.secret = frozenset({sha256(DATA).digest()})
    fetch(chunks)
    chunks.put(b"an open model")
    assert b"weights" not in every_byte(tmp_path)
    assert b"an open model" in every_byte(tmp_path)


def test_what_a_publisher_put_before_its_release_was_known_is_sealed_then(tmp_path: Path) -> None:
    chunks = store(tmp_path, False)
    chunks.put(DATA)
    assert b"weights" in every_byte(tmp_path)
    chunks.hide([sha256(DATA).digest()])
    assert b"weights" not in every_byte(tmp_path)
    assert chunks.get(sha256(DATA).digest()) == DATA


def test_a_sealed_chunk_opens_at_its_place_only() -> None:
    digest = sha256(DATA).digest()
    sealed = seal_chunk(b"chunk", digest, 3, KEY)
    assert unseal_chunk(sealed, digest, 3, KEY) == b"chunk"
    assert unseal_chunk(sealed, digest, 4, KEY) is None
    assert unseal_chunk(sealed, bytes(32), 3, KEY) is None
    assert unseal_chunk(sealed, digest, 3, b"o" * 32) is None
    for at in range(len(sealed)):
        assert unseal_chunk(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], digest, 3, KEY) is None
        assert unseal_chunk(sealed[:at], digest, 3, KEY) is None


def zoo_files() -> dict[str, bytes]:
    bundle = load_bundle("zoo:small-320")
    paths = [bundle.model_path.with_suffix(".toml"), *bundle.files()]
    return {path.name: path.read_bytes() for path in paths}


def test_a_bundle_is_read_from_memory_and_no_file_system_holds_it(tmp_path: Path) -> None:
    memory, folder = MemoryFolders(), tmp_path / "v1"
    memory.fill(folder, zoo_files())
    assert memory.kind == "memfd"
    assert all(path.is_symlink() for path in folder.iterdir())
    bundle = load_bundle(folder / "small-320.toml")
    with pytest.raises(OSError, match=r"."):
        bundle.model_path.write_bytes(b"changed")
    memory.close()
    assert not list(folder.iterdir())
    with pytest.raises(ArtefactError):
        load_bundle(folder / "small-320.toml")


def test_the_memory_of_old_models_is_given_back_but_not_that_of_the_one_that_runs(tmp_path: Path) -> None:
    memory, before = MemoryFolders(), len(os.listdir("/proc/self/fd"))
    for version in range(8):
        memory.fill(tmp_path / "running", {"m": b"running"})
        memory.fill(tmp_path / f"v{version}", {"m": bytes([version])})
    assert (tmp_path / "running" / "m").read_bytes() == b"running"
    assert len(os.listdir("/proc/self/fd")) - before <= 3
    memory.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_memfd_it_says_so_and_uses_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    memory = MemoryFolders()
    memory.fill(tmp_path / "v1", {"m": b"model"})
    assert memory.kind == "tmpfs"
    assert (tmp_path / "v1" / "m").read_bytes() == b"model"
    memory.close()
    assert not list((tmp_path / "v1").iterdir())


def test_a_bundle_may_not_lead_out_of_its_folder_by_other_links(tmp_path: Path) -> None:
    for name, data in zoo_files().items():
        (tmp_path / "real").mkdir(exist_ok=True)
        (tmp_path / "real" / name).write_bytes(data)
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "small-320.toml").write_bytes((tmp_path / "real" / "small-320.toml").read_bytes())
    for path in (tmp_path / "real").iterdir():
        if path.suffix != ".toml":
            (folder / path.name).symlink_to(path)
    with pytest.raises(ArtefactError, match="leads out"):
        load_bundle(folder / "small-320.toml")


@pytest.mark.parametrize("call", ["memfd_create", "symlink", "mkdir"])
def test_a_bundle_for_which_there_is_no_room_is_not_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """What was laid out of it before the room ended was taken for the whole of it at the next try."""
    memory, files, before = MemoryFolders(), {"a": b"1", "b": b"2"}, len(os.listdir("/proc/self/fd"))
    real, left = getattr(os, call), [0 if call == "mkdir" else 1]

    def until_full(*arguments: Any, **more: Any) -> Any:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        return real(*arguments, **more)

    monkeypatch.setattr(os, call, until_full)
    if call == "memfd_create":  # Without it files are used, which find no room either.
        monkeypatch.setattr(Path, "write_bytes", until_full)
    with pytest.raises(SlotError, match="No space left"):
        memory.fill(tmp_path / "v1", files)
    assert not list((tmp_path / "v1").glob("*"))
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    memory.fill(tmp_path / "v1", files)
    assert {path.name: path.read_bytes() for path in (tmp_path / "v1").iterdir()} == files
    memory.close()
