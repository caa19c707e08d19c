"""Real daemons: a lender dies while requests wait at it; each is asked of another, and has exactly one answer."""

import threading
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.offload_client import ask_all

API = ("--no-eye", "--inference", "127.0.0.1:0")
REQUESTS, CLIENTS = 12, 8


def counts(daemon: Daemon) -> dict[str, int]:
    return dict((daemon.status().get("lending") or {}).get("counts", {}))


def test_what_waits_at_a_lender_that_dies_is_answered_by_another(start: Start, tmp_path: Path) -> None:
    """One lender takes requests and says nothing; more of them wait at it than hedges can make good; it is killed."""
    model = unhurried(tmp_path / "model")
    bundle = load_bundle(model)
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    detector = Detector.open(bundle, DetectorOptions())
    mine = [one.label for one in detector.detect(cv2.merge([grey]))]
    detector.close()
    config = tmp_path / "models.toml"
    # What comes back from the silent one must find room at the other at once.
    config.write_text(f'[inference]\nmodels = ["{model}"]\n[lending]\nmax_jobs_each = 16\n')
    none = tmp_path / "none.toml"
    none.write_text('[inference]\nmodels = ["zoo:tiny-224"]\n')
    silent = start("silent", *API, "--set", "lending.lend=true", "--config", str(config))
    silent.close()
    silent.command[1:3] = ["-m", "tests.support.lying_daemon", "stall"]
    silent.start()
    silent.up()
    join = silent.status()["address"]
    good = start("good", *API, "--set", "lending.lend=true", "--config", str(config), join=join).up()
    b = start("b", *API, "--set", "lending.borrow=true", "--config", str(none), join=join).up()

    def offers() -> Any:
        return sorted((b.status().get("lending") or {}).get("lenders", {}))

    wait_for(lambda: offers() == ["good", "silent"], "both offers", seen=b.log)
    wait_for(lambda: (b.status()["inference"] or {}).get("models"), "b's worker", seen=b.log)
    address = b.status()["inference"]["address"]
    rows: list[dict[str, Any]] = []
    bundle_named = (bundle.name, bundle.digest)
    client = threading.Thread(
        target=lambda: ask_all(address, bundle_named, REQUESTS, CLIENTS, 60_000, "yes", rows.append)
    )
    client.start()

    def stuck() -> int:
        """Requests that wait at the silent one while all the others are through; 0: not yet."""
        waiting = int(silent.status()["lending"]["jobs"])
        return waiting if len(rows) + waiting >= REQUESTS or not client.is_alive() else 0

    wait_for(lambda: stuck() or not client.is_alive(), "the rest to be answered", seen=lambda: (len(rows), counts(b)))
    silent.kill()
    client.join(90.0)
    assert not client.is_alive(), (len(rows), counts(b))
    assert sorted(row["number"] for row in rows) == list(range(REQUESTS)), "exactly one answer a request"
    assert [(row["status"], row["lender"], row["labels"]) for row in rows] == [(200, "good", mine)] * REQUESTS
    # By its connection, or where that was idle and closed, by membership.
    lost = b.status()["lending"]["lost"]
    assert {row["lender"] for row in lost} <= {"silent"}
    assert sum(row["rerouted"] for row in lost) == counts(b).get("borrow_rerouted", 0)
    failed = {row["subject"] for one in (b, good) for row in one.events() if row["event"] == "failed"}
    assert failed <= {"silent"}
