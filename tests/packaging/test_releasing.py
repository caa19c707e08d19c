"""A tag becomes a release by one command: what it builds is the same each time; a tag that promises too much fails."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support import changelog, older
from tests.support.paths import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TAG = f"v{VERSION}"
HEAD = f"## {VERSION} ("


def laid_out(folder: Path) -> Path:
    """What git holds at HEAD, in a folder."""
    folder.mkdir(parents=True)
    data = older.git("archive", "HEAD")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=data, check=True)
    return folder


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def built(tree: Path, out: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(out)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=300)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


@pytest.mark.slow
def test_two_builds_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    """Another folder, other times, another mask: the same wheel and the same source archive."""
    one = laid_out(tmp_path / "one")
    before = os.umask(0o077)
    try:
        two = laid_out(tmp_path / "elsewhere" / "two")
    finally:
        os.umask(before)
    for path in two.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    first = built(one, tmp_path / "a")
    assert first == built(two, tmp_path / "b")
    assert {name.rsplit(".", 1)[1] for name in first} == {"whl", "gz"}
    append(two / "swarmd" / "__init__.py", "# Not what was tagged.\n")
    assert first != built(two, tmp_path / "c"), "a changed tree gives another archive"


def dated(text: str) -> str:
    head, rest = text.split(HEAD, 1)
    return f"{head}{HEAD}2026-11-22){rest.split(')', 1)[1]}"


def test_a_tag_is_held_against_what_the_tree_says(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path in ("swarmd/__init__.py", "pyproject.toml"):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    (tree / "tests/upgrades" / VERSION).mkdir(parents=True)
    text = (ROOT / "CHANGELOG.md").read_text()
    (tree / "CHANGELOG.md").write_text(dated(text))
    assert changelog.problems(tree, TAG) == []
    assert len(changelog.problems(tree, "v99.0.0")) == 5
    assert [one.split()[0] for one in changelog.problems(tree, VERSION)] == ["swarmd/__init__.py", "pyproject.toml"]
    (tree / "CHANGELOG.md").write_text(text)
    if f"{HEAD}unreleased)" in text:
        assert ["has no date" in one for one in changelog.problems(tree, TAG)] == [True]
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{HEAD}2026-11-22)\n\nSoon.\n")
    assert ["says nothing" in one for one in changelog.problems(tree, TAG)] == [True]


@pytest.mark.slow
def test_the_command_builds_what_the_tag_says(tmp_path: Path) -> None:
    """In a clone with a tag of its own; the .deb, which fetches its libraries, is built by `test_deb_on_device.py`."""
    tool = ROOT / ".venv-package" / "bin" / "cyclonedx-py"
    if not tool.exists():
        pytest.skip("`make package` installs the tool of the bill of materials")
    clone = tmp_path / "clone"
    older.git("clone", "--quiet", "--shared", str(ROOT), str(clone))
    for name in (".venv", ".venv-package"):
        (clone / name).symlink_to(ROOT / name)

    def git(*words: str) -> None:
        who = ["-c", "user.name=Sam", "-c", "user.email=sam@localhost"]
        subprocess.run(["git", "-C", str(clone), *who, *words], check=True, capture_output=True)

    def release() -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"RELEASE_ARCHITECTURES": ""}
        command = [str(clone / ".ci/release"), TAG]
        return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)

    git("tag", "-f", TAG)
    text = (clone / "CHANGELOG.md").read_text()
    if f"{HEAD}unreleased)" in text:
        refused = release()
        assert refused.returncode == 1
        assert "has no date" in refused.stderr
    (clone / "CHANGELOG.md").write_text(dated(text))
    git("commit", "-qam", "Release")
    git("tag", "-f", TAG)
    append(clone / "swarmd" / "__init__.py", "# Lies in the folder, is not in the tag.\n")
    done = release()
    assert done.returncode == 0, done.stderr
    out = clone / "out" / "release"
    wheel = out / f"swarmd-{VERSION}-py3-none-any.whl"
    assert {path.name for path in out.iterdir()} == {
        "NOTES.md", "SHA256SUMS", wheel.name, f"swarmd-{VERSION}.tar.gz", "swarmd.cdx.json",
    }  # fmt: skip
    assert b"Lies in the folder" not in zipfile.ZipFile(wheel).read("swarmd/__init__.py")
    assert json.loads((out / "swarmd.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=False).returncode == 0


def test_an_upgrade_is_rolled_from_the_newest_tag_of_this_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there is a tag, and not from the tag that is being released."""
    other, earlier = older.of_another_wire(), older.git("rev-parse", "HEAD~3").decode().strip()
    clone = tmp_path / "clone"
    older.git("clone", "--quiet", "--shared", "--no-tags", str(ROOT), str(clone))
    monkeypatch.setattr(older, "ROOT", clone)
    assert older.to_roll_from() == older.of_this_wire(), "before the first tag"
    older.git("tag", "v0.0.1", other)
    assert older.to_roll_from() == older.of_this_wire(), "a tag of another wire is another swarm"
    older.git("tag", "v0.0.9", earlier)
    older.git("tag", TAG, "HEAD")
    assert older.to_roll_from() == earlier
    monkeypatch.setenv("SWARMD_UPGRADE_FROM", "v0.0.1")
    assert older.to_roll_from() == older.git("rev-parse", other).decode().strip(), "a name is taken at its word"
    monkeypatch.setenv("SWARMD_UPGRADE_FROM", "nonsense")
    with pytest.raises(older.NoSuchRevision, match="no tag or revision 'nonsense'"):
        older.to_roll_from()


@pytest.mark.parametrize(
    "command",
    [
        ["make", "test-upgrade", "FROM=nonsense"],
        ["make", "bench-gate", "FROM=nonsense"],
        [sys.executable, "-m", "tests.bench.gate", "--from", "nonsense"],
        ["make", "release", "TAG=nonsense"],
    ],
    ids=" ".join,
)
def test_a_revision_that_is_not_there_ends_with_one_sentence(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.count("nonsense") == 1, done.stderr
    assert "no tag" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_film_without_a_browser_ends_with_one_sentence_before_anything_is_installed(tmp_path: Path) -> None:
    for name in ("make", "bash", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        ["make", "recording"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "apt install chromium" in done.stderr.splitlines()[0]
