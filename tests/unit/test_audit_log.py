"""The audit log shows every change, cut and reordering; blobs at rest open for their node only."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import pytest

from swarmd.cli.main import main
from swarmd.release import at_rest
from swarmd.release import audit as module
from swarmd.release.audit import FILE_NAME, KEPT_FILES, AuditLog, FolderCheck, newest_lines, verify_folder
from swarmd.release.chunks import FileChunks
from swarmd.release.errors import ReleaseError, SlotError
from swarmd.release.fsx import RealFiles
from swarmd_protocols.releases.stores import describe
from tests.support.mutants import assert_found


def filled(folder: Path, count: int = 5) -> AuditLog:
    log = AuditLog(folder)
    for number in range(count):
        log.add("accepted", 1_700_000_000 + number, kind="release", digest=f"{number:064x}")
    return log


def test_a_log_verifies_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    filled(tmp_path)
    again = AuditLog(tmp_path)
    again.add("refused", 1, reason="too few signatures")
    assert verify_folder(tmp_path) == (6, again.last, None)
    assert main(["audit", "verify", str(tmp_path)]) == 0


@pytest.mark.parametrize("line", range(5))
def test_a_changed_line_is_found(tmp_path: Path, line: int) -> None:
    filled(tmp_path)
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    lines[line] = lines[line].replace("accepted", "rejected")
    path.write_text("".join(lines))
    count, _, problem = verify_folder(tmp_path)
    assert count == line
    assert problem is not None
    assert main(["audit", "verify", str(tmp_path)]) == 1


def test_missing_and_swapped_lines_are_found(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    for kept in ([*lines[:2], *lines[3:]], [lines[0], lines[2], lines[1], *lines[3:]]):
        path.write_text("".join(kept))
        assert verify_folder(tmp_path)[2] is not None


def test_a_cut_tail_is_found_by_an_anchor(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert main(["audit", "verify", str(tmp_path)]) == 0
    assert main(["audit", "verify", str(tmp_path), "--anchor", log.last]) == 1


def test_a_torn_tail_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-30])
    AuditLog(tmp_path).add("accepted", 2)
    count, _, problem = verify_folder(tmp_path)
    assert (count, problem) == (5, None)


def test_a_full_file_is_continued(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, max_bytes=2_000)
    for number in range(30):
        log.add("accepted", number)
    count, last, problem = verify_folder(tmp_path)
    assert problem is None
    assert last == log.last
    assert count == 30


def test_blobs_at_rest_open_for_their_node_only(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1_000
    digest = sha256(data).digest()
    mine, other = b"m" * 32, b"o" * 32
    sealed = at_rest.seal(data, digest, mine)
    assert at_rest.unseal(sealed, digest, mine) == data
    assert at_rest.unseal(sealed, digest, other) is None
    assert at_rest.unseal(sealed, sha256(b"x").digest(), mine) is None
    assert data[:64] not in sealed
    moved = at_rest.rewrap(sealed, digest, mine, other)
    assert moved is not None
    assert at_rest.unseal(moved, digest, other) == data
    assert at_rest.rewrap(sealed, digest, other, mine) is None


def test_frames_cannot_change_places() -> None:
    data = bytes(at_rest.FRAME_BYTES) + b"b" * at_rest.FRAME_BYTES
    digest = sha256(data).digest()
    sealed = at_rest.seal(data, digest, b"k" * 32)
    head, size = at_rest.HEAD_BYTES, at_rest.FRAME_BYTES + 16
    swapped = sealed[:head] + sealed[head + size :] + sealed[head : head + size]
    assert at_rest.unseal(swapped, digest, b"k" * 32) is None


def test_the_node_key_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    key = at_rest.open_node_key(tmp_path)
    assert key.source == "file"
    assert at_rest.open_node_key(tmp_path) == key
    (tmp_path / at_rest.KEY_FILE).chmod(0o644)
    with pytest.raises(SlotError, match="chmod 600"):
        at_rest.open_node_key(tmp_path)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / at_rest.CREDENTIAL).write_bytes(b"c" * 32)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert at_rest.open_node_key(tmp_path) == at_rest.NodeKey(b"c" * 32, "credential")


@pytest.mark.parametrize("encrypt", [False, True])
def test_chunks_become_a_blob_and_survive_a_restart(tmp_path: Path, encrypt: bool) -> None:
    data = bytes(range(256)) * 100
    blob, hashes = describe(data, 4_096)

    def store(quota: int = 1 << 20) -> FileChunks:
        files = RealFiles(str(tmp_path))
        return FileChunks(files, at_rest.SealedBlobs(files, b"k" * 32), quota, encrypt)

    first = store()
    first.put_hashes(blob, hashes)
    for index in (0, 3, 5):
        assert first.write(blob, index, data[index * 4_096 :][:4_096])
    part = tmp_path / "cache" / f"{blob.sha256.hex()}.part"
    raw = bytearray(part.read_bytes())
    raw[5 * (4_096 + (at_rest.CHUNK_OVERHEAD if encrypt else 0))] ^= 1
    part.write_bytes(bytes(raw))
    again = store()
    assert again.have(blob) == 0b001001, "the damaged chunk is fetched anew"
    for index in range(blob.chunk_count):
        assert again.write(blob, index, data[index * 4_096 :][:4_096])
    assert list(again.finish(blob))[-1]
    assert again.has_blob(blob.sha256)
    assert again.get(blob.sha256) == data
    assert again.read(blob, 2) == data[2 * 4_096 :][:4_096]
    assert (tmp_path / "blobs" / blob.sha256.hex()).exists() is not encrypt
    assert not store(quota=10).write(describe(b"other" * 999)[0], 0, b"other" * 999)
    assert again.collect(frozenset(), []) > 0
    assert not again.has_blob(blob.sha256)


@pytest.mark.parametrize("text", ["hot\u2028spot", "hot\x85spot", "hot\u2029", "\r\n", "\x1c", "\ufeff"])
def test_what_unicode_ends_lines_with_breaks_no_chain(tmp_path: Path, text: str) -> None:
    """Labels are other members' words: one that holds such a character must not look like a forged log."""
    AuditLog(tmp_path).add("review", 1, seen=text)
    assert verify_folder(tmp_path)[2] is None
    again = AuditLog(tmp_path)
    again.add("review", 2, seen=text)
    assert verify_folder(tmp_path) == (2, again.last, None)


def test_a_disk_that_takes_half_a_line_leaves_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path)
    real, room = os.write, 40

    def write(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real(descriptor, data[:room])
        room -= taken
        return taken

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(ReleaseError, match="No space left"):
            log.add("accepted", 1)
    log.add("accepted", 2)
    assert verify_folder(tmp_path) == (6, log.last, None)


def test_a_torn_tail_is_cut_to_the_byte(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"what": "\xff\xfe')
    AuditLog(tmp_path)
    assert path.read_bytes() == whole


def test_lines_cut_off_in_front_are_found(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
    assert verify_folder(tmp_path)[2] is not None


def test_an_anchor_that_stands_in_a_text_is_none(tmp_path: Path) -> None:
    anchor = filled(tmp_path).last
    (tmp_path / FILE_NAME).unlink()
    AuditLog(tmp_path).add("accepted", 1, reason=anchor)
    assert main(["audit", "verify", str(tmp_path), "--anchor", anchor]) == 1


def law_who_asks_often_makes_nobody_read_the_whole_log(folder: Path) -> None:
    """Of nine files only what has changed is read again; what was changed is found all the same."""
    log = AuditLog(folder, max_bytes=2_000)
    for number in range(60):
        log.add("accepted", number, digest=f"{number:064x}")
    check, read, real = FolderCheck(folder), [], module._lines

    def counting(data: bytes) -> list[str]:
        read.append(len(data))
        return real(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_lines", counting)
        assert check.verify() == verify_folder(folder)
        assert len(read) == 2 * 9
        read.clear()
        assert check.verify()[2] is None
        assert not read
        log.add("accepted", 61)
        assert check.verify()[2] is None
        assert read == [(folder / FILE_NAME).stat().st_size]
        older = folder / f"{FILE_NAME}.3"
        before = older.stat()
        older.write_text(older.read_text().replace('"what": "accepted"', '"what": "acceptex"', 1))
        os.utime(older, ns=(before.st_atime_ns, before.st_mtime_ns))  # Its change time is not anybody's to set.
        assert check.verify()[2] is not None


def test_who_asks_often_makes_nobody_read_the_whole_log(tmp_path: Path) -> None:
    law_who_asks_often_makes_nobody_read_the_whole_log(tmp_path)


@pytest.mark.parametrize("mutant", ["nothing is remembered", "only the size is looked at"])
def test_a_check_that_reads_too_much_or_too_little_is_found(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderCheck.verify

    def forgetful(self: FolderCheck) -> tuple[int, str, str | None]:
        self._checked.clear()
        return real(self)

    kept: dict[int, tuple[int, str, str | None]] = {}

    def careless(self: FolderCheck) -> tuple[int, str, str | None]:
        size = sum(one.stat().st_size for one in tmp_path.iterdir())
        kept[size] = kept.get(size) or real(self)
        return kept[size]

    wrong = forgetful if mutant == "nothing is remembered" else careless
    assert_found(
        lambda patch: patch.setattr(FolderCheck, "verify", wrong),
        lambda: law_who_asks_often_makes_nobody_read_the_whole_log(tmp_path),
        monkeypatch,
    )


@pytest.mark.parametrize("block_bytes", [1, 7, 300, 65_536])
def test_the_newest_lines_are_read_from_the_end(
    block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block_bytes)
    filled(tmp_path, 9)
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines()
    for most in (1, 2, 8, 9, 10):
        with path.open("rb") as file:
            assert newest_lines(file, most) == lines[: -most - 1 : -1]


def law_a_log_is_read_while_its_writer_begins_a_new_file(folder: Path) -> None:
    """Whenever the files get their new names, a reader sees the log as it stood before or after."""
    log = AuditLog(folder, max_bytes=1_000)
    for number in range(12):
        log.add("accepted", number, digest=f"{number:064x}")
    real_open, real_exists = Path.open, Path.exists
    for when in range(2 * KEPT_FILES):
        steps = 0

        def step(path: Path, when: int = when) -> None:
            nonlocal steps
            steps += 1
            if steps - 1 == when and path.parent == folder:
                while not log.add_all([{"what": "accepted", "t_s": 1, "digest": "f" * 64}]):
                    pass

        def opening(path: Path, mode: str = "r", *args: object) -> object:
            step(path)
            return real_open(path, mode, *args)  # type: ignore[call-overload]

        def existing(path: Path, **how: object) -> bool:
            step(path)
            return real_exists(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "open", opening)
            patch.setattr(Path, "exists", existing)
            try:
                count, _, problem = verify_folder(folder)
                with module.opened(folder) as files:
                    lines = [line for _, file in files for line in file.read().splitlines()]
            except FileNotFoundError as error:
                pytest.fail(f"renamed meanwhile: {error}")
        assert problem is None, problem
        assert count
        numbers = [json.loads(line)["n"] for line in lines]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_log_is_read_while_its_writer_begins_a_new_file(tmp_path: Path) -> None:
    law_a_log_is_read_while_its_writer_begins_a_new_file(tmp_path)


@pytest.mark.parametrize("looks", ["at once", "by name"])
def test_who_reads_a_log_by_its_names_alone_is_found(
    looks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def by_name(folder: Path, name: str = FILE_NAME) -> Iterator[list[tuple[Path, BinaryIO]]]:
        with contextlib.ExitStack() as stack:
            yield [(path, stack.enter_context(path.open("rb"))) for path in module._files(folder, name)]

    def mutant(patch: pytest.MonkeyPatch) -> None:
        if looks == "by name":
            patch.setattr(module, "opened", by_name)
        else:
            patch.setattr(module, "_LOOKS_MAX", 1)

    assert_found(mutant, lambda: law_a_log_is_read_while_its_writer_begins_a_new_file(tmp_path), monkeypatch)


@pytest.mark.parametrize("begun", [None, b"", b'{"n": 5, "wh'])
def test_a_log_goes_on_where_power_was_cut_as_a_new_file_began(begun: bytes | None, tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for number in range(4):
        log.add("begun", number)
    (tmp_path / FILE_NAME).rename(tmp_path / f"{FILE_NAME}.1")
    if begun is not None:
        (tmp_path / FILE_NAME).write_bytes(begun)
    AuditLog(tmp_path).add("went on", 4)
    assert verify_folder(tmp_path)[::2] == (5, None)
    assert json.loads((tmp_path / FILE_NAME).read_text())["n"] == 5
