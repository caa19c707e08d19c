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
