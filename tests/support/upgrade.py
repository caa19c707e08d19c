"""What a version leaves on a device, kept as text for the versions after it.

    python -m tests.support.upgrade        writes tests/upgrades/VERSION from the code as it is

Run once for each tagged version, before the tag; what is there is never written again.
"""

import json
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

from swarmd import __version__
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.paths import ROOT

UPGRADES = ROOT / "tests" / "upgrades"
CONFIG = """# A device as it was set up with this version.
[node]
origin = [47.0, 8.0]

[transport]
listen = "127.0.0.1:0"

[mqtt]
enabled = false
host = "broker.example"
password_file = "/run/credentials/swarmd.service/swarmd_mqtt.password"

[dds]
peers_max_hz = 5.0

[pose]
share_s = 2.0

[claims]
cell_m = 20.0
"""


def daemon(folder: Path, name: str = "old", *flags: str) -> PlainDaemon:
    """A daemon on what lies in a folder: `swarmd.toml`, `fleet`, and its state."""
    arguments = ["--config", str(folder / "swarmd.toml"), "--dev-fleet", str(folder / "fleet"), "--name", name, *flags]
    return PlainDaemon(name, folder / name, arguments)


def unpack(kept: Path, folder: Path) -> dict[str, object]:
    """Lay a version's files out as they were on its device; what it said of itself then."""
    shutil.copy(kept / "swarmd.toml", folder / "swarmd.toml")
    (folder / "fleet").mkdir(mode=0o700)
    secret = folder / "fleet" / "fleet.secret"
    secret.write_bytes((kept / "fleet.secret").read_bytes())
    secret.chmod(0o600)
    state = folder / "old" / "state"
    state.mkdir(parents=True)
    for dump in kept.glob("*.sql"):
        with sqlite3.connect(state / f"{dump.stem}.sqlite") as base:
            base.executescript(dump.read_text())
        base.close()
    told: dict[str, object] = json.loads((kept / "status.json").read_text())
    return told


def main() -> int:
    """Write the files of this version; 1 where they are there already."""
    kept = UPGRADES / __version__
    if kept.exists():
        print(f"{kept} is there already: a version's files are never written again")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "swarmd.toml").write_text(CONFIG)
        (folder / "fleet").mkdir(mode=0o700)
        one = daemon(folder).start()
        rows = [{"label": "hot-spot", "score": 0.9, "east_m": 10.0 * i, "north_m": 5.0} for i in range(3)]
        one.ask("observe", detections=rows)
        wait_for(lambda: one.status()["detections"] == 3, "three detections")
        status = one.status()
        one.stop()
        kept.mkdir(parents=True)
        (kept / "swarmd.toml").write_text(CONFIG)
        (kept / "fleet.secret").write_bytes((folder / "fleet" / "fleet.secret").read_bytes())
        told = {key: status[key] for key in ("node", "node_id", "swarm", "version")}
        (kept / "status.json").write_text(json.dumps(told, indent=1) + "\n")
        for base in (folder / "old" / "state").glob("*.sqlite"):
            with sqlite3.connect(base) as connection:
                version = connection.execute("pragma user_version").fetchone()[0]
                lines = [f"PRAGMA user_version = {version};", *connection.iterdump()]
            connection.close()
            (kept / f"{base.stem}.sql").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
