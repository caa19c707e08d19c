"""`swarmd doctor`: what is wrong is found, and every finding that is not ok names its remedy."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli import diagnosis, installed
from swarmd.cli.diagnosis import Finding, diagnose
from swarmd.cli.main import main
from swarmd.config.loading import load
from swarmd.config.sections import Config
from swarmd.identity.files import IDENTITY_FILE, open_dev_fleet, write_secret_file


def configured(tmp_path: Path, **settings: Any) -> Config:
    values = {"transport.listen": "127.0.0.1:0", "state.dir": str(tmp_path / "state")}
    values |= {name.replace("__", "."): value for name, value in settings.items()}
    (tmp_path / "empty.toml").write_text("")
    return load(tmp_path / "empty.toml", {}, values).config


def look(config: Config) -> dict[str, Finding]:
    findings = list(diagnose(config))
    assert all(finding.remedy for finding in findings if finding.verdict != "ok"), findings
    return {finding.check: finding for finding in findings}


def test_a_good_device_is_healthy(tmp_path: Path) -> None:
    home = tmp_path / "identity"
    home.mkdir()
    write_secret_file(home / IDENTITY_FILE, open_dev_fleet(tmp_path / "fleet", "a").to_bytes())
    found = look(configured(tmp_path, swarm__identity=str(home)))
    assert not [finding for finding in found.values() if finding.verdict == "fail"]
    assert found["identity"].verdict == "ok"
    assert found["zeromq"].verdict == "ok"
    assert found["mtu"].verdict == "ok"


def test_a_port_in_use_is_found_on_either_protocol(tmp_path: Path) -> None:
    for kind, name in ((socket.SOCK_DGRAM, "udp port"), (socket.SOCK_STREAM, "tcp port")):
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.bind(("127.0.0.1", 0))
            if kind == socket.SOCK_STREAM:
                sock.listen(1)
            port = sock.getsockname()[1]
            finding = look(configured(tmp_path, transport__listen=f"127.0.0.1:{port}"))[name]
            assert finding.verdict == "warn"
            assert f"sport = :{port}" in finding.remedy


def test_an_address_that_no_interface_has_is_found(tmp_path: Path) -> None:
    found = look(configured(tmp_path, transport__listen="203.0.113.7:7946"))
    assert found["udp port"].verdict == "fail"
    assert "no interface has 203.0.113.7" in found["udp port"].found


def test_an_address_that_is_none_is_found(tmp_path: Path) -> None:
    assert look(configured(tmp_path, transport__listen="drone:7946"))["address"].verdict == "fail"


def test_identities_that_will_not_do_are_found(tmp_path: Path) -> None:
    assert look(configured(tmp_path))["identity"].verdict == "fail"
    assert look(configured(tmp_path, swarm__dev_fleet=str(tmp_path / "fleet")))["identity"].verdict == "warn"
    finding = look(configured(tmp_path, swarm__identity=str(tmp_path / "absent")))["identity"]
    assert finding.verdict == "fail"
    assert "node.identity" in finding.found


@pytest.mark.parametrize(
    ("name", "replacement", "check", "verdict"),
    [
        ("_clock_state", lambda: 5, "clock", "warn"),
        ("_clock_state", lambda: None, "clock", "ok"),
        ("_hear_own_multicast", lambda host: False, "multicast", "warn"),
        ("interface_of", lambda host: None, "mtu", "warn"),
    ],
)
def test_each_look_at_the_device_leads_to_its_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    replacement: Callable[..., object],
    check: str,
    verdict: str,
) -> None:
    monkeypatch.setattr(diagnosis, name, replacement)
    assert look(configured(tmp_path))[check].verdict == verdict


def test_a_clock_that_was_never_set_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis.time, "time", lambda: 86_400.0)
    assert "1970-01-02" in look(configured(tmp_path))["clock"].found


def test_few_open_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis.resource, "getrlimit", lambda _: (256, 4_096))
    finding = look(configured(tmp_path))["open files"]
    assert (finding.verdict, "LimitNOFILE" in finding.remedy) == ("warn", True)


def test_a_check_that_breaks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(host: str) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(diagnosis, "interface_of", broken)
    finding = look(configured(tmp_path))["mtu"]
    assert finding.verdict == "fail"
    assert "ZeroDivisionError" in finding.found


def test_the_command_line_says_it_in_both_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text("")
    flags = ["-c", str(tmp_path / "c.toml"), "--listen", "127.0.0.1:0", "--state", str(tmp_path)]
    assert main(["doctor", *flags, "--dev-fleet", str(tmp_path / "fleet"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["healthy"] is True
    assert {row["verdict"] for row in shown["findings"]} <= {"ok", "warn"}
    assert main(["doctor", *flags]) == 1
    out = capsys.readouterr().out
    assert "remedy: swarmd enrol" in out


def test_an_installed_node_has_the_identity_that_systemd_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credential is the unit's: a person's `swarmd doctor` finds it where `swarmd install` put it."""
    credentials, state = tmp_path / "credentials", tmp_path / "lib"
    credentials.mkdir()
    state.mkdir()
    write_secret_file(credentials / IDENTITY_FILE, open_dev_fleet(tmp_path / "fleet", "a").to_bytes())
    monkeypatch.setattr(installed, "CREDENTIALS", credentials)
    monkeypatch.setattr(installed, "STATE", state)
    found = look(configured(tmp_path, state__dir=""))
    assert found["identity"].verdict == "ok"
    assert found["identity"].found.startswith("a, node ")
    assert str(state) in found["state"].found


def test_a_unit_that_hides_the_package_s_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "etc", tmp_path / "lib"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "swarmd.service").write_text("[Unit]")
    monkeypatch.setattr(installed, "_UNITS_OF_ADMIN", ours)
    monkeypatch.setattr(installed, "_UNITS_OF_PACKAGE", (theirs,))
    assert "hides the unit" in look(configured(tmp_path))["unit"].found
