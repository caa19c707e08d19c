"""`swarmd demo --view`: real eyes and real daemons, live in the ground view."""

import http.client
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from tests.support.daemons import wait_for
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


def test_the_drones_fly_in_the_ground_view(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "swarmd", "demo", "--nodes", "2", "--seconds", "8", "--json", "--view"]
    command += ["--page", "127.0.0.1:0", "--out", str(tmp_path / "out")]
    log = tmp_path / "log"
    with log.open("wb") as err, (tmp_path / "summary").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)
    try:

        def pages() -> list[str]:
            return [line for line in log.read_text().splitlines() if line.startswith("ground view: ")]

        said = wait_for(pages, "the page", 120, log.read_text)
        port = int(said[0].rstrip("/").rpartition(":")[2])
        seen: dict[str, Any] = {}

        def look() -> bool:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
                connection.request("GET", "/api/v1/snapshot")
                seen.update(json.loads(connection.getresponse().read())["rows"])
                connection.close()
            except OSError:
                assert process.poll() is None, log.read_text()
                return False
            # What is heard of whom and when is chance; what is asked for is shown at one moment of the flight.
            states = {row["name"]: row["state"] for row in seen["member"]}
            is_whole = states == dict.fromkeys(("drone-1", "drone-2", "ground"), "alive") and bool(seen["cell"])
            return is_whole and bool(seen["object"]) and len(seen["position"]) == 2

        wait_for(
            look, "drones with a place, and something found", 120, lambda: {kind: len(seen[kind]) for kind in seen}
        )
        assert all(row["east_m"] is not None for row in seen["position"])
        assert process.wait(120) == 0, log.read_text()
        summary = json.loads((tmp_path / "summary").read_text())
        assert set(summary["members"].values()) == {3}
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)
