"""Lending over an emulated radio: 10 Mbit/s, 20 ms, 2 and 10 % loss; a lender is killed while it works.

Needs root and the lab beside the checkout (`../shared/lab/netlab`); skipped, and says so, without.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support import netlab
from tests.support.bundles import unhurried
from tests.support.daemons import wait_for
from tests.support.exclusive import own_name
from tests.support.netlab import Lab
from tests.support.paths import ROOT

REQUESTS, KILL_AT = 40, 15

pytestmark = netlab.marks(400)


@pytest.fixture(params=[2, 10])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """Two lenders of small-320, and a borrower that has only tiny-224."""
    name = own_name("b")
    made = Lab(name, tmp_path, 3, ["--inference", "127.0.0.1:0"])
    try:
        for index, daemon in enumerate(made.daemons):
            models = [unhurried(tmp_path / "model")] if index < 2 else ["zoo:tiny-224"]
            config = tmp_path / f"{index}.toml"
            config.write_text(
                f"[inference]\nmodels = {json.dumps(models)}\n[lending]\n{'lend' if index < 2 else 'borrow'} = true\n"
            )
            daemon._command += ["--config", str(config)]
        made("link", "1,2,3", "--rate", "10mbit", "--delay", "10", "--loss", str(request.param))
        made.start()
        yield made
    finally:
        made.close()


def test_a_killed_lender_costs_no_answer(lab: Lab, tmp_path: Path, record_property: Any) -> None:
    """Every request has exactly one answer, the right one; nobody but the dead is given up."""
    bundle = load_bundle(unhurried(tmp_path / "model"))
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    mine = [one.label for one in Detector.open(bundle, DetectorOptions()).detect(cv2.merge([grey]))]
    borrower = lab.daemons[2]

    def lenders() -> list[str]:
        found = (borrower.status().get("lending") or {}).get("lenders", {})
        return sorted(name for name, digests in found.items() if bundle.digest in digests)

    wait_for(lambda: lenders() == ["n1", "n2"], "both offers", seen=lenders)
    address = wait_for(lambda: (borrower.status()["inference"] or {}).get("address"), "the worker", seen=borrower.log)
    client = subprocess.Popen(
        [
            *("ip", "netns", "exec", f"{lab._name}-3", sys.executable, "-m", "tests.support.offload_client"),
            *(address, bundle.name, bundle.digest, str(REQUESTS), "2", "60000", "yes"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert client.stdout is not None
    rows: list[dict[str, Any]] = []
    killed, killed_ns = "", 0
    for line in client.stdout:
        rows.append(json.loads(line))
        if len(rows) == KILL_AT:
            killed = rows[-1]["lender"]
            victim = next(daemon for daemon in lab.daemons if daemon.name == killed)
            killed_ns = time.monotonic_ns()
            victim.kill()
    client.stdout.close()
    assert client.wait() == 0
    assert sorted(row["number"] for row in rows) == list(range(REQUESTS)), "exactly one answer a request"
    assert [row["status"] for row in rows] == [200] * REQUESTS
    assert all(row["labels"] == mine for row in rows)
    late = [row for row in rows if row["began_ns"] > killed_ns]
    assert {row["lender"] for row in late[2:]} == {"n1", "n2"} - {killed}
    failed = {event["subject"] for daemon in lab.daemons for event in daemon.events() if event["event"] == "failed"}
    assert failed <= {killed}
    times = sorted(row["ms"] for row in rows)
    rerouted = max(row["ms"] for row in rows if row["began_ns"] <= killed_ns <= row["began_ns"] + row["ms"] * 1e6)
    figures = {"p50_ms": times[len(times) // 2], "p99_ms": times[-1], "around_the_kill_ms": rerouted}
    record_property("figures", json.dumps(figures))
    print(json.dumps(figures), borrower.status()["lending"]["counts"])
