"""`swarmd check-config` tries what a daemon would open: each slip is named with its key before anything flies."""

from pathlib import Path

import pytest

from swarmd.cli.main import main

SLIPS = {
    "transport.listen": ("203.0.113.7:7946", "ip address"),
    "transport.advertise": ("10.0.0.1:7946+drone:7946", "drone"),
    "http.listen": ("203.0.113.7:7980", "ip address"),
    "swarm.join": ("10.0.0.300:7946", "10.0.0.300"),
    "pose.source": ("fixed:1,2", "needs LAT,LON,AGL"),
    "dedup.site_map": ("/nowhere/site.json", "/nowhere/site.json"),
    "claims.cells": ("/nowhere/cells.csv", "/nowhere/cells.csv"),
    "eye.source": ("flight.mp4", "ls /dev/video*"),
    "eye.fallback_models": ("zoo:smal-320", "smal-320"),
    "dds.interface": ("wlan77", "wlan77"),
    "inference.listen": ("0.0.0.0:7983", "loopback"),
    "inference.models": ("eye,zoo:smal-320", "smal-320"),
}
MORE = {"dds.interface": ["dds.enabled=true"], "inference.models": ["inference.listen=127.0.0.1:7983"]}


def check(folder: Path, *settings: str) -> int:
    (folder / "empty.toml").write_text("")
    flags = [part for setting in settings for part in ("--set", setting)]
    return main(["check-config", "-c", str(folder / "empty.toml"), *flags])


@pytest.mark.parametrize("key", sorted(SLIPS))
def test_a_slip_is_refused_by_its_key(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value, hint = SLIPS[key]
    assert check(tmp_path, f"{key}={value}", *MORE.get(key, [])) == 1
    said = capsys.readouterr().err
    assert key in said
    assert hint in said


def test_what_is_well_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "pose.source=fixed:47,8,30", "eye.source=0", "eye.model=zoo:small-320") == 0
    assert capsys.readouterr().err == ""


def test_broker_s_files_are_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    settings = ["mqtt.enabled=true", "mqtt.tls=true", f"mqtt.ca_file={tmp_path}/ca.pem"]
    assert check(tmp_path, *settings, f"mqtt.password_file={tmp_path}/none") == 1
    said = capsys.readouterr().err
    assert "mqtt.ca_file" in said
    assert "mqtt.password_file" in said


def test_the_files_of_the_operators_door_are_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("not a certificate")
    door = [f"operators.{name}_file={tmp_path}/{name}.pem" for name in ("ca", "cert", "key")]
    assert check(tmp_path, *door, "operators.allow=alice") == 0, "no door is opened"
    assert check(tmp_path, *door, "operators.allow=alice", "operators.listen=203.0.113.7:7981") == 1
    said = capsys.readouterr().err
    assert "operators.listen" in said
    assert "cannot use ca_file, cert_file, key_file" in said


def test_another_device_s_files_are_not_looked_for_when_asked(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    flags = ["--set", "transport.listen=203.0.113.7:7946", "--syntax-only"]
    assert main(["check-config", "-c", str(tmp_path / "empty.toml"), *flags]) == 0


def test_a_daemon_refuses_a_pose_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.toml").write_text("")
    arguments = ["run", "-c", str(tmp_path / "empty.toml"), "--dev-fleet", str(tmp_path / "fleet"), "--no-eye"]
    assert main([*arguments, "--pose", "fixed:1,2", "--state", str(tmp_path / "state"), "--name", "a"]) == 1
    assert "pose.source" in capsys.readouterr().err


def test_a_source_without_a_model_takes_the_best_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "eye.source=0") == 0
    assert 'model = "zoo:auto"' in capsys.readouterr().out
