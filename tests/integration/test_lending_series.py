"""Real daemons: a device without a model has a sound and a battery's log judged by a lender, by every door."""

import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np

import swarmd
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import DetectorOptions
from swarmd_models.service import SERIES, Service
from swarmd_recipes.sounds import flight, sound
from tests.support.daemons import Daemon, Start, wait_for

API = ("--no-eye", "--inference", "127.0.0.1:0", "--set", "inference.deadline_ms=60000")


def judged(model: str, samples: np.ndarray) -> swarmd.Heard:
    service = Service.open(load_bundle(model), DetectorOptions(), lambda text: None)
    run = service.steps(SERIES, {"samples": samples.astype(np.float32)})
    run.step()
    (found,) = swarmd.records.heard(run.result())
    service.close()
    return found


def heard(node: Daemon, model: str, samples: np.ndarray, borrow: str) -> swarmd.Heard:
    """The answer, asked for again while the lender's offer is not heard: a machine may stand still for longer."""

    def ask() -> list[swarmd.Heard] | None:
        try:
            return swarmd.connect(node.control).hear(model, samples, borrow=borrow)
        except swarmd.WorkerError as error:
            if "(503)" not in str(error):
                raise
            return None

    (found,) = wait_for(ask, "an answer", seen=node.log)
    return found


def test_a_device_without_ears_has_others_listen(start: Start, tmp_path: Path) -> None:
    models = ("zoo:propeller-experts", "zoo:battery-minutes")
    (tmp_path / "a.toml").write_text(f"[inference]\nmodels = {json.dumps(models)}\n[lending]\nlend = true\n")
    (tmp_path / "c.toml").write_text("[inference]\nmodels = []\n[lending]\nborrow = true\n")
    a = start("a", *API, "--config", str(tmp_path / "a.toml")).up()
    c = start("c", *API, "--config", str(tmp_path / "c.toml"), join=a.status()["address"]).up()
    digests = [load_bundle(model).digest for model in models]

    def offered() -> bool:
        found = (c.status().get("lending") or {}).get("lenders", {})
        return all(digest in found.get("a", ()) for digest in digests)

    wait_for(offered, "the offer of both", seen=c.log)
    wait_for(lambda: (c.status()["inference"] or {}).get("address"), "c's worker", seen=c.log)
    rng = np.random.default_rng(7)
    noise, (log, _) = sound(rng, "quad", "loose"), flight(rng)

    # The façade, borrowed by digest and at home by name, is what the bundle itself says.
    for node, model, samples, borrow in (
        (c, models[0], noise[:, None], "yes"), (a, models[0], noise[:, None], ""), (c, models[1], log, "yes"),
    ):  # fmt: skip
        found = heard(node, model, samples, borrow)
        wanted = judged(model, samples)
        assert (found.label, found.by) == (wanted.label, wanted.by)
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-3, atol=1e-4)

    # The command, a file as a microphone writes it, longer than a request may be.
    with wave.open(str(tmp_path / "flight.wav"), "wb") as file:
        file.setparams((1, 2, 8_000, 0, "NONE", ""))
        file.writeframes(np.rint(np.tile(noise, 12) * 32_767).astype("<i2").tobytes())
    command = [
        sys.executable, "-m", "swarmd", "infer", models[0], "--input", str(tmp_path / "flight.wav"), "--borrow",
        "--json", "--control", str(c.control),
    ]  # fmt: skip

    def told() -> str | None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0 or "(503)" in done.stderr, done.stderr
        return done.stdout or None

    row = json.loads(wait_for(told, "every window", seen=c.log))
    assert row["lenders"] == {"a": 3}
    assert row["version"] == digests[0]
    assert [one["at_s"] for one in row["windows"]] == [round(at * 0.512, 3) for at in range(23)]
    assert row["windows"][0]["label"] == judged(models[0], noise[:, None]).label
