"""`swarmd install` below another root: what it writes, keeps, refuses and says."""

import json
import stat
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.config.loading import load
from swarmd.identity.files import IDENTITY_FILE, load_identity, open_dev_fleet


def install(root: Path, *more: str) -> int:
    return main(["install", "--root", str(root), "--program", "/opt/swarmd/bin/swarmd", *more])


def enrolled(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    path = folder / IDENTITY_FILE
    path.write_bytes(open_dev_fleet(folder / "fleet", "rover-3").to_bytes())
    path.chmod(0o600)
    return folder


def test_it_writes_configuration_identity_and_units_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, keys = tmp_path / "root", enrolled(tmp_path / "keys")
    assert install(root, "--identity", str(keys), "--set", "swarm.join=10.0.0.1:7946", "--set", "log.level=debug") == 0
    said = capsys.readouterr().out
    assert "this device is 'rover-3' of swarm 'dev'" in said
    config = load(root / "etc/swarmd/swarmd.toml").config
    assert config.swarm.join == ("10.0.0.1:7946",)
    assert config.log.level == "debug"
    credential = root / "etc/swarmd/credentials" / IDENTITY_FILE
    assert stat.S_IMODE(credential.stat().st_mode) == 0o600
    assert stat.S_IMODE(credential.parent.stat().st_mode) == 0o700
    assert load_identity(credential.parent).name == "rover-3"
    unit = (root / "usr/local/lib/systemd/system/swarmd.service").read_text()
    assert "ExecStart=/opt/swarmd/bin/swarmd run" in unit
    assert "ExecReload=/opt/swarmd/bin/swarmd reload" in unit
    assert (root / "usr/local/lib/sysusers.d/swarmd.conf").exists()
    assert (root / "usr/local/lib/tmpfiles.d/swarmd.conf").exists()
    assert not (root / "etc/systemd").exists()


def test_a_second_run_keeps_what_people_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(tmp_path) == 0
    mine = tmp_path / "etc/swarmd/swarmd.toml"
    mine.write_text('[node]\nname = "mine"\n')
    capsys.readouterr()
    assert install(tmp_path, "--json") == 0
    assert f"kept {mine}" in json.loads(capsys.readouterr().out)["done"]
    assert "mine" in mine.read_text()


def test_a_dry_run_and_a_refusal_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(tmp_path / "a", "--dry-run") == 0
    assert install(tmp_path / "a", "--set", "log.level=loud") == 1
    assert "may be one of" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / IDENTITY_FILE).write_text("nothing")
    (tmp_path / "keys" / IDENTITY_FILE).chmod(0o600)
    assert install(tmp_path / "b", "--identity", str(tmp_path / "keys")) == 1
    assert not (tmp_path / "b/etc/swarmd/credentials").exists()


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert install(tmp_path / "file") == 1
    assert "run as root, or give --root" in capsys.readouterr().err


def test_a_package_s_unit_is_never_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a drop-in with what differs; whole units that an older version copied are put out of the way."""
    package, own = tmp_path / "usr/lib/systemd/system", tmp_path / "etc/systemd/system"
    for folder in (package, own):
        folder.mkdir(parents=True)
        for name in ("swarmd.service", "swarmd@.service"):
            (folder / name).write_text("[Unit]\nDescription=swarmd\n[Service]\nWatchdogSec=10\n")
    assert install(tmp_path) == 0
    assert "it hid the unit of the installed version" in capsys.readouterr().out
    units = {path.relative_to(tmp_path).as_posix() for path in own.rglob("*") if path.is_file()}
    assert units == {
        "etc/systemd/system/swarmd.service.old",
        "etc/systemd/system/swarmd@.service.old",
        "etc/systemd/system/swarmd.service.d/10-install.conf",
        "etc/systemd/system/swarmd@.service.d/10-install.conf",
    }
    drop_in = (own / "swarmd@.service.d/10-install.conf").read_text()
    assert "ExecStart=\nExecStart=/opt/swarmd/bin/swarmd run --config /etc/swarmd/%i.toml\n" in drop_in
    assert "WatchdogSec" not in drop_in
    assert main(["install", "--root", str(tmp_path), "--program", "/usr/bin/swarmd"]) == 0
    assert not list(own.rglob("10-install.conf"))
