"""The file in which `swarmd infer --session` keeps how a text goes on."""

import os
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.infer_text import _keep, _read
from swarmd.errors import WorkerError


def test_a_session_takes_the_place_of_the_one_before_whole(tmp_path: Path) -> None:
    path = tmp_path / "session"
    _keep(path, "first")
    with path.open("r") as reader:
        _keep(path, "second")
        assert reader.read() == "first\n", "who reads the old one while it is replaced reads it to its end"
    assert (_read(path), path.stat().st_mode & 0o777) == ("second", 0o600)
    assert os.listdir(tmp_path) == ["session"]


def test_a_full_disk_leaves_the_session_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "session"
    _keep(path, "first")

    def full(descriptor: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkerError, match="No space left"):
        _keep(path, "second")
    assert (_read(path), os.listdir(tmp_path)) == ("first", ["session"])
