"""Real daemons run one model in parts: the whole's answer to the bit, over two lenders, and when one of them dies."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd.worker.coding import packed
from swarmd_models.backends.base import Artefact
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.part_export import Cutter
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.paths import ROOT

API = ("--no-eye", "--inference", "127.0.0.1:0")


def ask(daemon: Daemon, *arguments: str) -> dict[str, Any]:
    """What `swarmd infer --split --json` says, or {"error": …}."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "swarmd", "infer", "--deadline-ms", "60000", *arguments, "--split", "--json"),
            *("--control", str(daemon.control)),
        ],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {"error": done.stderr}


def test_a_chain_of_three_over_two_lenders_is_the_whole_to_the_bit(start: Start, tmp_path: Path) -> None:
    model = unhurried(tmp_path / "model")
    bundle = load_bundle(model)
    parts = tmp_path / "parts"
    parts.mkdir()
    cutter = Cutter(bundle, [], parts, lambda data: len(packed(data) or data))
    rows = cutter.cuts()
    cuts = [rows[len(rows) // 4].tensor, rows[len(rows) // 2].tensor]
    split = cutter.write(cuts)
    path = {(a, b): parts / f"{bundle.name}-{a}-{b}.onnx" for a in range(3) for b in range(a + 1, 4)}
    digest = {ends: load_bundle(one).digest for ends, one in path.items()}
    borrows = f'borrow = true\nsplit = "{split}"\ntensors = "127.0.0.1:0"'
    daemons: dict[str, Daemon] = {}
    for name, models, lending in (
        ("front", [path[0, 1], path[1, 2]], "lend = true"),
        ("back", [path[2, 3]], "lend = true"),
        ("spare", [path[2, 3]], "lend = true"),
        ("camera", [], borrows),
        ("eye", [model, path[0, 1]], borrows),
    ):
        served = json.dumps(list(map(str, models)) or ["zoo:tiny-224"])
        (tmp_path / f"{name}.toml").write_text(
            f'[inference]\nmodels = {served}\nbackends = ["onnx"]\n[lending]\n{lending}\n'
        )
        join = daemons["front"].status()["address"] if daemons else ""
        daemons[name] = start(name, *API, "--config", str(tmp_path / f"{name}.toml"), join=join).up()
    camera, eye = daemons["camera"], daemons["eye"]

    def offers(daemon: Daemon) -> dict[str, Any]:
        return dict((daemon.status().get("lending") or {}).get("lenders", {}))

    wanted = {"front": {digest[0, 1], digest[1, 2]}, "back": {digest[2, 3]}, "spare": {digest[2, 3]}}

    def is_ready(daemon: Daemon) -> bool:
        is_served = bool((daemon.status()["inference"] or {}).get("models"))
        return is_served and {name: set(held) for name, held in offers(daemon).items()} == wanted

    for borrower in (camera, eye):
        wait_for(partial(is_ready, borrower), "offers and the own worker", seen=borrower.log)
        assert borrower.status()["inference"]["problem"] == ""

    artefact = bundle.artefact()
    whole = OnnxBackend.load(Artefact(bundle.name, None, artefact.onnx), 1, lambda text: None)
    tensor = np.random.default_rng(3).random(whole.inputs[0].shape).astype(whole.inputs[0].dtype)
    np.copyto(whole.input_view(), tensor[0])
    whole.infer()
    outputs = {spec.name: np.array(view) for spec, view in zip(whole.outputs, whole.output_views(), strict=True)}
    np.save(tmp_path / "tensor.npy", tensor)
    out = tmp_path / "out.npz"
    named = (bundle.name, "--input", str(tmp_path / "tensor.npy"), "--out", str(out))
    chain = [digest[0, 1], digest[1, 2], digest[2, 3]]

    def lenders_of(daemon: Daemon, *version: str) -> list[str]:
        """Who ran the parts that were lent; the answer is the whole's to the bit."""
        told = ask(daemon, *named, *version)
        assert "error" not in told, (told, daemon.status()["lending"], daemon.log())
        assert told["parts"].split(",") == chain
        assert told["version"] == bundle.digest
        with np.load(out) as found:
            assert set(found.files) == set(outputs)
            for name, array in outputs.items():
                assert found[name][0].tobytes() == array.tobytes(), name
        return str(told["lender"]).split(",")

    first, last = lenders_of(camera)
    assert (first, last in ("back", "spare")) == ("front", True), "a device without any part has all of them run"
    assert "front" in lenders_of(eye, "--version", bundle.digest)
    told = eye.status()["lending"]["counts"]  # A part that is slow, or whose connection breaks, is asked for once more.
    again = sum(told.get(f"borrow_{how}", 0) for how in ("hedged", "rerouted", "asked_again", "failed"))
    assert 2 <= told["borrow_requests"] <= 2 + again, (told, "the head runs where it is")

    picture = str(tmp_path / "picture.png")
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    assert cv2.imwrite(picture, grey)
    detector = Detector.open(bundle, DetectorOptions(backends=("onnx",)))
    mine = [(one.label, [round(side, 2) for side in one.box]) for one in detector.detect(grey)]
    detector.close()
    seen = ask(eye, bundle.name, "--input", picture)
    assert [(row["label"], row["box"]) for row in seen["detections"]] == mine
    assert seen["parts"].split(",") == chain
    assert "not served here" in ask(camera, bundle.name, "--input", picture)["error"], "who reads it needs the bundle"

    # The lender that has just run the last part dies; the others stand in from the cut that is held.
    dead, spare = daemons[last], "spare" if last == "back" else "back"
    dead.kill()
    for _ in range(3):
        assert lenders_of(camera) == ["front", spare]
    daemons[spare].kill()
    refused = ask(camera, *named[:3], "--deadline-ms", "3000")
    assert "(503)" in refused["error"] or "(504)" in refused["error"], refused
    assert camera.alive
    assert eye.alive


def test_a_file_of_parts_that_cannot_be_used_is_told_and_the_rest_is_served(start: Start, tmp_path: Path) -> None:
    split = tmp_path / "split.toml"
    split.write_text("[[split]]\n")
    config = tmp_path / "a.toml"
    config.write_text(f'[inference]\nmodels = ["zoo:tiny-224"]\n[lending]\nborrow = true\nsplit = "{split}"\n')
    a = start("a", *API, "--config", str(config)).up()
    wait_for(lambda: (a.status()["inference"] or {}).get("models"), "the model", seen=a.log)
    assert "lending.split" in a.status()["inference"]["problem"]
    tensor = str(tmp_path / "tensor.npy")
    np.save(tensor, np.zeros((1, 4), np.float32))
    assert "wants lending.borrow and lending.split" in ask(a, "solar-tiny-224", "--input", tensor)["error"]
