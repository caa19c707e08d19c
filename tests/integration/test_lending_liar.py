"""Two daemons, one of which lies: the other finds it out by its own model, and from then on answers by itself."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.offload_client import ask_all

API = ("--no-eye", "--inference", "127.0.0.1:0")


def counts(daemon: Daemon, what: str) -> dict[str, int]:
    found = daemon.status().get(what) or {}
    return dict(found.get("counts", {}))


@pytest.mark.parametrize("how", ["faulty"])
def test_a_liar_is_found_out_within_twenty_checks(start: Start, tmp_path: Path, how: str) -> None:
    model = unhurried(tmp_path / "model")
    bundle = load_bundle(model)
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    mine = [one.label for one in Detector.open(bundle, DetectorOptions()).detect(cv2.merge([grey]))]
    assert mine, "a lie must differ"
    config = tmp_path / "models.toml"
    # One request waits at most: what comes beside it is borrowed.
    config.write_text(f'[inference]\nmodels = ["{model}"]\nmax_requests = 1\n')
    liar = start("liar", *API, "--set", "lending.lend=true", "--config", str(config))
    liar.close()
    liar.command[1:3] = ["-m", "tests.support.lying_daemon", how]
    liar.start()
    liar.up()
    b = start("b", *API, "--set", "lending.borrow=true", "--config", str(config), join=liar.status()["address"]).up()

    def offers() -> Any:
        return (b.status().get("lending") or {}).get("lenders", {}).get("liar", [])

    wait_for(lambda: bundle.digest in offers(), "the liar's offer", seen=b.log)
    wait_for(lambda: (b.status()["inference"] or {}).get("models"), "b's own model", seen=b.log)
    address = b.status()["inference"]["address"]

    def ask(requests: int) -> list[dict[str, Any]]:
        return ask_all(address, (bundle.name, bundle.digest), requests, 6, 30_000, "yes")

    def wrong_checks() -> int:
        return counts(b, "lending").get("borrow_checked_wrong", 0)

    rows: list[dict[str, Any]] = []

    def is_found_out() -> bool:
        rows.extend(ask(12))
        return wrong_checks() >= 4

    wait_for(is_found_out, "four lies to be found", seen=lambda: (counts(b, "lending"), rows[-3:]))
    wait_for(lambda: counts(b, "lending")["borrow_checked_wrong"] >= 4, "the checks")
    assert wrong_checks() <= 20
    lies = [row for row in rows if row["status"] == 200 and row["labels"] != mine]
    assert lies
    assert {row["lender"] for row in lies} == {"liar"}, "the own model is right"

    after = ask(24)
    assert {row["lender"] for row in after} == {""}, "it is asked no more"
    answered = [row for row in after if row["status"] == 200]
    assert answered
    assert all(row["labels"] == mine for row in answered)
    assert {row["status"] for row in after} <= {200, 503}
