"""Three real daemons, cut 2 : 1 while all detect and claim, one killed inside the cut: nothing lost, little done twice.

The cut lasts SWARMD_CUT_S seconds (12; `make test-long` takes 60).
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.support import netlab
from tests.support.daemons import PlainDaemon, all_see, wait_for
from tests.support.exclusive import own_name
from tests.support.netlab import Lab

pytestmark = netlab.marks(300)
CUT_S = float(os.environ.get("SWARMD_CUT_S", "12"))
CELLS = round(60 + 8 * CUT_S)
"""More than three drones can finish: a side that has done all it may goes on with the other's, as it should."""
WORK_S = 1.0


class Drone:
    """Detects one new thing at every step and works on cells, by asking its daemon."""

    def __init__(self, daemon: PlainDaemon, number: int) -> None:
        self.daemon = daemon
        self.number = number
        self.labels: list[str] = []
        self._began: dict[str, float] = {}

    def step(self) -> None:
        label = f"{self.daemon.name}-{len(self.labels)}"
        row = {
            "label": label,
            "score": 0.9,
            "east_m": 100.0 * self.number,
            "north_m": 15.0 * len(self.labels),
            "covariance_m2": [0.04, 0.0, 0.04],
            "track": label,
            "event": "new",
        }
        assert self.daemon.ask("observe", detections=[row])["taken"] == 1
        self.labels.append(label)
        now = time.monotonic()
        for cell in self.daemon.ask("cell_next", east_m=100.0 * self.number, north_m=0.0)["cells"]:
            name = str(cell["id"])
            if now - self._began.setdefault(name, now) >= WORK_S:
                self.daemon.ask("cell_done", cell=name)


def work(drones: list[Drone], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for drone in drones:
            drone.step()
        time.sleep(0.25)


def digests(lab: Lab) -> set[str]:
    return {str(daemon.ask("status")["digest"]) for daemon in lab.daemons}


def cells_of(lab: Lab) -> list[dict[str, Any]]:
    """The cells that are done, as the first daemon sees them."""
    return [row for row in lab.daemons[0].ask("cells")["cells"] if row["state"] == "done"]


def test_a_cut_with_a_death_inside_loses_nothing(tmp_path: Path) -> None:
    cells = tmp_path / "cells.csv"
    rows = [f"c{i:03},{10.0 * (i % 10)},{10.0 * (i // 10)}" for i in range(CELLS)]
    cells.write_text("cell_id,east_m,north_m\n" + "\n".join(rows) + "\n")
    config = tmp_path / "site.toml"
    config.write_text("[node]\norigin = [-18.88, -70.11]\n")
    lab = Lab(own_name("ss"), tmp_path, 3, ["--config", str(config), "--cells", str(cells)])
    try:
        lab.start()
        drones = [Drone(daemon, number) for number, daemon in enumerate(lab.daemons)]
        work(drones, 3)
        wait_for(lambda: len(digests(lab)) == 1, "equal digests before the cut", seen=lambda: digests(lab))
        settled = {str(row["id"]): row["done_by"] for row in cells_of(lab)}
        lab("partition", "1,2/3")
        work(drones, CUT_S / 3)
        victim = lab.daemons[1]
        victim.stop(signal.SIGKILL)
        work([drones[0], drones[2]], CUT_S / 3)
        victim.start(["10.77.0.1:7946"])
        work(drones, CUT_S / 3)
        lab("heal")
        healed = time.monotonic()
        wait_for(lambda: len(digests(lab)) == 1, "equal digests", seen=lambda: digests(lab))
        took_s = time.monotonic() - healed
        print(f"equal digests {took_s:.1f} s after the heal; the bar of 3 s is for a quiet machine")
        all_see(lab.daemons, lab.everybody("alive"))
        wanted = {label for drone in drones for label in drone.labels}
        for daemon in lab.daemons:
            found = {str(row["label"]) for row in daemon.ask("detections")["detections"]}
            assert wanted <= found, f"{daemon.name} lost {sorted(wanted - found)[:5]}"
        done = {str(row["id"]): row["done_by"] for row in cells_of(lab)}
        assert len(done) > len(settled)
        assert {cell: done.get(cell) for cell in settled} == settled, "what all knew as done was done again"
        # What each side reached inside the cut nobody can prevent; on one side two may meet only around the death.
        same_side = {cell: names for cell, names in done.items() if len(set(names) - {"n3"}) > 1}
        assert len(same_side) <= 2, same_side
    finally:
        lab.close()
