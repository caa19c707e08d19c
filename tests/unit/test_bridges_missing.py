"""A bridge whose library is missing is an error at start, with the way to get it; the others are not even looked at."""

import subprocess
import sys
from pathlib import Path

import pytest

from swarmd.bridges import make_bridges
from swarmd.config.bridges import DdsConfig, MavlinkConfig, MqttConfig, OtelConfig, PluginsConfig, RecordConfig
from swarmd.errors import DaemonError

OFF = (MqttConfig(), DdsConfig(), MavlinkConfig(), RecordConfig(), OtelConfig(), PluginsConfig())


def without(library: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device where the extra is not installed."""
    for name in [name for name in sys.modules if name == library or name.startswith((library + ".", package + "."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)


def test_nothing_is_switched_on_by_itself() -> None:
    assert make_bridges(*OFF) == []


def test_missing_cyclonedds_is_said_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without("cyclonedds", "swarmd.bridges.ros2", monkeypatch)
    with pytest.raises(DaemonError, match=r"dds\.enabled.*pip install 'swarmd\[dds\]'.*Arm.*cyclonedds-dev"):
        make_bridges(OFF[0], DdsConfig(enabled=True), *OFF[2:])


def test_a_cyclonedds_without_its_c_library_is_said_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises no ImportError then, but an exception of its own."""
    without("cyclonedds", "swarmd.bridges.ros2", monkeypatch)
    monkeypatch.delitem(sys.modules, "cyclonedds")
    package = tmp_path / "cyclonedds"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('The CycloneDDS library could not be located.')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DaemonError, match=r"could not be located.*cyclonedds-dev"):
        make_bridges(OFF[0], DdsConfig(enabled=True), *OFF[2:])


def test_missing_pymavlink_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    without("pymavlink", "swarmd.bridges.mavlink", monkeypatch)
    with pytest.raises(DaemonError, match=r"pip install 'swarmd\[mavlink\]'"):
        make_bridges(*OFF[:2], MavlinkConfig(enabled=True), *OFF[3:])


def test_missing_mcap_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    without("mcap", "swarmd.bridges.record", monkeypatch)
    with pytest.raises(DaemonError, match=r"pip install 'swarmd\[record\]'"):
        make_bridges(*OFF[:3], RecordConfig(enabled=True), *OFF[4:])


def test_a_plugin_that_is_not_installed_is_said() -> None:
    with pytest.raises(DaemonError, match=r"plugins\.detectors names 'radar', which no installed package offers"):
        make_bridges(*OFF[:5], PluginsConfig(detectors=("radar",)))


@pytest.mark.slow
def test_the_daemon_says_it_and_ends(tmp_path: Path) -> None:
    program = "import sys; sys.modules['cyclonedds'] = None; from swarmd.cli.main import main; sys.exit(main())"
    config = tmp_path / "a.toml"
    config.write_text("[dds]\nenabled = true\n[http]\nlisten = 'off'\n")
    flags = ["run", "-c", str(config), "--no-eye", "--name", "a", "--dev-fleet", str(tmp_path / "fleet")]
    flags += ["--listen", "127.0.0.1:0", "--state", str(tmp_path / "s"), "--control", str(tmp_path / "a.sock")]
    done = subprocess.run([sys.executable, "-c", program, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'swarmd[dds]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_dds_security_in_the_users_settings_is_refused_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")
    from swarmd.bridges.ros2.participant import Ros2Participant

    security = '<CycloneDDS><Domain id="any"><Security><Authentication/></Security></Domain></CycloneDDS>'
    monkeypatch.setenv("CYCLONEDDS_URI", security)
    with pytest.raises(DaemonError, match=r"domain 98.*Security"):
        Ros2Participant(98, "swarmd_x", "lo")
