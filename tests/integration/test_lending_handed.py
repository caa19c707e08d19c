"""Real daemons: a head, a middle and a tail hand on what lies between them, and the borrower's bytes shrink."""

import json
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from swarmd.worker.coding import packed
from swarmd.worker.oip import Wanted, write_answer, write_question
from swarmd_models.backends.base import Artefact
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import load_bundle
from swarmd_models.part_export import Cutter
from tests.integration.test_lending_split import API, ask
from tests.support.daemons import Daemon, Start, wait_for

HEADS_BYTES = 4_096
"""What stands beside the tensors of three requests and their answers."""


def counts(daemon: Daemon) -> dict[str, int]:
    """What the worker has counted, with its last pulse."""
    with urllib.request.urlopen(f"http://{daemon.status()['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    rows = [line for line in lines if line.startswith("swarmd_inference_total{")]
    return {row.split('"')[1]: int(float(row.split()[-1])) for row in rows}


def test_a_chain_of_three_lenders_hands_its_tensors_on(start: Start, tmp_path: Path) -> None:
    bundle = load_bundle("zoo:small-320")
    parts = tmp_path / "parts"
    parts.mkdir()
    cutter = Cutter(bundle, [], parts, lambda data: len(packed(data) or data))
    rows = cutter.cuts()
    split = cutter.write([rows[len(rows) // 4].tensor, rows[len(rows) // 2].tensor])
    path = {(a, b): parts / f"{bundle.name}-{a}-{b}.onnx" for a in range(3) for b in range(a + 1, 4)}
    digest = {ends: load_bundle(one).digest for ends, one in path.items()}
    chain = [(0, 1), (1, 2), (2, 3)]
    lane = 'tensors = "127.0.0.1:0"'
    daemons: dict[str, Daemon] = {}
    for name, models, lending in (
        ("head", [path[0, 1]], f"lend = true\n{lane}"),
        ("middle", [path[1, 2]], f"lend = true\n{lane}"),
        ("tail", [path[2, 3]], f"lend = true\n{lane}"),
        ("camera", [], f'borrow = true\nsplit = "{split}"\n{lane}'),
    ):
        served = json.dumps(list(map(str, models)) or ["zoo:tiny-224"])
        (tmp_path / f"{name}.toml").write_text(
            f'[inference]\nmodels = {served}\nbackends = ["onnx"]\n[lending]\n{lending}\n'
        )
        join = daemons["head"].status()["address"] if daemons else ""
        daemons[name] = start(
            name, *API, "--http", "127.0.0.1:0", "--config", str(tmp_path / f"{name}.toml"), join=join
        ).up()
    camera = daemons["camera"]

    def is_ready() -> bool:
        lenders = (camera.status().get("lending") or {}).get("lenders", {})
        return len(lenders) == 3 and bool((camera.status()["inference"] or {}).get("models"))

    wait_for(is_ready, "the offers of three and the own worker", seen=camera.log)

    artefact = bundle.artefact()
    whole = OnnxBackend.load(Artefact(bundle.name, None, artefact.onnx), 1, lambda text: None)
    tensor = np.random.default_rng(5).random(whole.inputs[0].shape).astype(whole.inputs[0].dtype)
    np.copyto(whole.input_view(), tensor[0])
    whole.infer()
    outputs = {spec.name: np.array(view)[None] for spec, view in zip(whole.outputs, whole.output_views(), strict=True)}
    np.save(tmp_path / "tensor.npy", tensor)
    out = tmp_path / "out.npz"

    (taken,) = [spec.name for spec in whole.inputs]
    question, _ = write_question({taken: tensor}, 1)
    answer, _ = write_answer({}, outputs, [Wanted(one, True, True) for one in outputs])
    without_cuts_bytes = len(question) + sum(map(len, answer)) + HEADS_BYTES
    assert min(row.packed_bytes for row in (rows[len(rows) // 4], rows[len(rows) // 2])) > 2 * HEADS_BYTES
    before: dict[str, int] = {}

    def was_handed_on() -> bool:
        """A walk in which both tensors went by themselves; on a busy machine one may come here first now and then."""
        told: dict[str, Any] = ask(camera, bundle.name, "--input", str(tmp_path / "tensor.npy"), "--out", str(out))
        assert told.get("parts", "").split(",") == [digest[ends] for ends in chain], (told, camera.log())
        with np.load(out) as found:
            assert set(found.files) == set(outputs)
            for name, array in outputs.items():
                assert found[name].tobytes() == array.tobytes(), name
        now = wait_for(partial(_newer, camera, before), "the worker's next pulse", seen=camera.log)
        more = {name: count - before.get(name, 0) for name, count in now.items()}
        before.update(now)
        walk = tuple(more.get(name, 0) for name in ("split_lent", "split_handed", "split_unhanded"))
        # What lies between went by the lenders alone.
        return walk == (3, 2, 0) and more["split_bytes"] < without_cuts_bytes

    wait_for(was_handed_on, "a walk over lenders alone", seen=lambda: (camera.log(), counts(camera)))


def _newer(daemon: Daemon, before: dict[str, int]) -> dict[str, int]:
    """What is counted once the worker has told of three more parts, a whole walk; {}: not yet."""
    now = counts(daemon)
    return now if now.get("split_lent", 0) >= before.get("split_lent", 0) + len(("head", "middle", "tail")) else {}
