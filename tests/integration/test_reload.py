"""`swarmd reload`, which systemd runs: a refusal is a failure with every problem, and the daemon runs on."""

import subprocess
import sys
from pathlib import Path

from tests.support.daemons import PlainDaemon


def reload(daemon: PlainDaemon) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarmd", "reload", "--control", str(daemon.folder / "control")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_refused_reload_fails_and_says_why(tmp_path: Path) -> None:
    config = tmp_path / "swarmd.toml"
    config.write_text('[log]\nlevel = "info"\n')
    flags = ["--config", str(config), "--dev-fleet", str(tmp_path / "fleet"), "--name", "a", "--listen", "127.0.0.1:0"]
    daemon = PlainDaemon("a", tmp_path / "a", flags).start()
    try:
        config.write_text('[log]\nlevel = "loud"\n[mqtt]\nprot = 1\n')
        done = reload(daemon)
        assert done.returncode == 1
        assert "log.level" in done.stderr
        assert "did you mean `port`" in done.stderr
        assert daemon.alive
        config.write_text('[log]\nlevel = "debug"\n[mqtt]\nport = 1884\n')
        done = reload(daemon)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "applied: log.level\nneeds a restart: mqtt.port\n"
    finally:
        daemon.stop()
