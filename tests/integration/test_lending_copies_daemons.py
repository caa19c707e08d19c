"""Real daemons: two lenders work on each request, one is killed while requests flow, and none that was taken is lost.

Asked over plain HTTP and by NVIDIA's client, by a device that has not the model.
"""

import math
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd_models.bundle import ZOO, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.offload_client import ask_all

API = ("--no-eye", "--inference", "127.0.0.1:0")
CLIENTS, BEFORE, AFTER = 4, 12, 24
"""Programs at once, answers before one lender is killed, and requests that are asked after that."""
GREY = np.load(ZOO / "small-320.golden.npz")["image"]
Row = dict[str, Any]


class Flow:
    """Programs ask one request after the other, until so many were asked after the kill."""

    def __init__(self) -> None:
        self.asked = 0
        self._until = math.inf
        self._lock = threading.Lock()

    def goes_on(self, number: int) -> bool:
        """Whether this request, of which each number comes once and in turn, is asked."""
        with self._lock:
            self.asked = max(self.asked, number + 1) if number < self._until else self.asked
            return number < self._until

    def end(self, after: int = 0) -> None:
        """After so many more; those that programs have begun with are of them."""
        with self._lock:
            self._until = min(self._until, self.asked + after)


Ask = Callable[[str, Bundle, Callable[[Row], None], Flow], None]


def over_http(address: str, bundle: Bundle, told: Callable[[Row], None], flow: Flow) -> None:
    """`CLIENTS` programs that send the API's own requests."""
    ask_all(address, (bundle.name, bundle.digest), 0, CLIENTS, 30_000, "yes", told, copies=2, is_more=flow.goes_on)


def by_tritonclient(address: str, bundle: Bundle, told: Callable[[Row], None], flow: Flow) -> None:
    """The same by NVIDIA's client, as its documentation has it: several requests under way of one client."""
    triton = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed (make setup-extras)")
    image = triton.InferInput("image", [*GREY.shape, 1], "UINT8")
    image.set_data_from_numpy(GREY[..., None])

    numbers = count()

    # One client a thread: those of tritonclient are not to be shared.
    def one() -> None:
        with triton.InferenceServerClient(address, connection_timeout=60, network_timeout=60) as client:
            while flow.goes_on(number := next(numbers)):
                found = client.infer(
                    f"{bundle.name}.detect", [image], model_version=bundle.digest, timeout=30_000_000,
                    headers={"swarmd-borrow": "yes"}, parameters={"copies": 2},
                )  # fmt: skip
                labels = [text.decode() if isinstance(text, bytes) else text for text in found.as_numpy("labels")]
                told({"number": number, "status": 200, "labels": labels, "lender": ""})  # HTTP's headers are not shown.

    threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def counts(daemon: Daemon) -> dict[str, int]:
    return dict((daemon.status().get("lending") or {}).get("counts", {}))


@pytest.mark.parametrize("ask", [over_http, by_tritonclient])
def test_no_request_that_was_taken_is_lost_with_one_of_its_two_lenders(start: Start, tmp_path: Path, ask: Ask) -> None:
    model = unhurried(tmp_path / "model")
    bundle = load_bundle(model)
    detector = Detector.open(bundle, DetectorOptions())
    mine = [one.label for one in detector.detect(cv2.merge([GREY]))]
    detector.close()
    config = tmp_path / "models.toml"
    config.write_text(f'[inference]\nmodels = ["{model}"]\n[lending]\nlend = true\nmax_jobs_each = 8\n')
    none = tmp_path / "none.toml"
    none.write_text('[inference]\nmodels = ["zoo:tiny-224"]\n[lending]\nborrow = true\n')
    victim = start("victim", *API, "--config", str(config)).up()
    join = victim.status()["address"]
    other = start("other", *API, "--config", str(config), join=join).up()
    b = start("b", *API, "--config", str(none), join=join).up()

    def offers() -> Any:
        return sorted((b.status().get("lending") or {}).get("lenders", {}))

    wait_for(lambda: offers() == ["other", "victim"], "both offers", seen=b.log)
    wait_for(lambda: (b.status()["inference"] or {}).get("models"), "b's worker", seen=b.log)
    rows: list[Row] = []
    problems: list[BaseException] = []

    flow = Flow()

    def run() -> None:
        try:
            ask(b.status()["inference"]["address"], bundle, rows.append, flow)
        except BaseException as error:
            problems.append(error)

    program = threading.Thread(target=run)
    program.start()
    try:
        wait_for(lambda: len(rows) >= BEFORE or not program.is_alive(), "some answers", seen=lambda: (rows, counts(b)))
        # Both have had as many as there were answers, one or two on their way apart.
        lent = counts(victim).get("lent_taken", 0)
        victim.kill()
        died_at = len(rows)
        flow.end(AFTER)
    finally:
        flow.end(AFTER)
        program.join(120.0)
    assert not program.is_alive(), (len(rows), counts(b))
    assert not problems
    assert lent >= BEFORE // 2, "the one that died had worked on them"
    assert flow.asked >= died_at + AFTER, "it was killed while requests flowed"
    assert sorted(row["number"] for row in rows) == list(range(flow.asked)), "exactly one answer a request"
    assert [(row["status"], row["labels"]) for row in rows] == [(200, mine)] * flow.asked
    said = counts(b)
    assert said["borrow_copied"] >= BEFORE
    assert said.get("borrow_none", 0) == 0, "none was without an answer, not even to be asked again"
    assert {row["lender"] for row in rows[died_at + CLIENTS :]} <= {"other", ""}
    failed = {row["subject"] for one in (b, other) for row in one.events() if row["event"] == "failed"}
    assert failed <= {"victim"}
