"""One conformance suite for every runtime that is installed, and the order of fallback.

The suite runs LiteRT always, and the extras where they are installed (`pip install swarmd[onnx,openvino]`); it says
which were skipped. What TensorRT is asked for is in `test_tensorrt_contract.py`.
"""

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from swarmd_models.backends import BACKENDS, Artefact, Backend, backend_class, open_backend, probe_all
from swarmd_models.backends.base import Array
from swarmd_models.backends.layers import layers_of
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import BackendError
from swarmd_models.golden import check_golden, sqnr_db
from tests.support.bundles import ZOO_MODEL
from tests.support.tiers import few_fast

RNG = np.random.default_rng(11)
BUNDLE = load_bundle("zoo:small-320")


def _quiet(text: str) -> None:
    pass


OWN = [name for name in os.environ.get("SWARMD_TEST_BACKENDS", "").split(",") if name]
"""Runtimes of one's own, "package.module:Class", that the suite is to run on as well."""


@pytest.fixture(params=few_fast(sorted([*BACKENDS, *OWN], key=lambda name: name != "litert"), 1))
def kind(request: pytest.FixtureRequest) -> str:
    capability = backend_class(request.param).probe()
    if not capability.available:
        is_gpu_missing = request.param == "tensorrt" and not Path("/dev/nvidiactl").exists()
        # TensorRT's libraries are gigabytes; without a GPU they would only lie there.
        pytest.skip("no NVIDIA GPU here, for TensorRT" if is_gpu_missing else f"{request.param}: {capability.detail}")
    return str(request.param)


@pytest.fixture
def backend(kind: str) -> Backend:
    return backend_class(kind).load(BUNDLE.artefact(), 1, _quiet)


def _fill(backend: Backend, seed: int) -> None:
    view = backend.input_view()
    pixels = np.random.default_rng(seed).integers(0, 256, view.shape)
    if view.dtype.kind == "f":
        view[...] = pixels / 255.0
    else:
        view[...] = (pixels - (128 if view.dtype == np.int8 else 0)).astype(view.dtype)


def test_conformance_shapes_and_types(backend: Backend) -> None:
    assert len(backend.inputs) == 1
    assert backend.input_view().shape == backend.inputs[0].shape[1:]
    assert backend.input_view().dtype == backend.inputs[0].dtype
    backend.infer()
    for spec, view in zip(backend.outputs, backend.output_views(), strict=True):
        assert view.shape == spec.shape[1:]
        assert view.dtype == spec.dtype
    assert {spec.shape for spec in backend.outputs} == {(1, 1280, 11), (1, 1280, 4)}
    assert backend.runtime
    backend.close()


def test_conformance_the_input_is_writable_memory_that_lasts(backend: Backend) -> None:
    _fill(backend, 1)
    first = np.array(backend.input_view())
    assert np.array_equal(backend.input_view(), first)
    backend.close()


def test_conformance_same_input_same_output(backend: Backend) -> None:
    runs = []
    for seed in (1, 2, 1):
        _fill(backend, seed)
        backend.infer()
        runs.append([np.array(view) for view in backend.output_views()])
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], runs[2], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    backend.close()


def test_conformance_dropped_views_do_not_stop_the_next_run(backend: Backend) -> None:
    for seed in range(5):
        _fill(backend, seed)
        backend.infer()
        total = sum(float(view.astype(np.float64).sum()) for view in backend.output_views())
        assert np.isfinite(total)
    gc.collect()
    backend.close()


def test_conformance_closed_is_closed(backend: Backend) -> None:
    backend.close()
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        backend.infer()


def test_conformance_corrupt_and_missing_files(kind: str, tmp_path: Path) -> None:
    bad = tmp_path / "m.bin"
    bad.write_bytes(b"\x08\x07TFL3" + RNG.bytes(5000))
    found = backend_class(kind)
    with pytest.raises(BackendError):
        found.load(Artefact("m", bad, bad), 1, _quiet)
    with pytest.raises(BackendError):
        found.load(Artefact("m", None, None), 1, _quiet)
    gone = tmp_path / "gone"
    with pytest.raises(BackendError):
        found.load(Artefact("m", gone, gone), 1, _quiet)


OVERWRITTEN = """
import os, sys
import numpy as np
from pathlib import Path
from swarmd_models.backends import backend_class
from swarmd_models.backends.base import Artefact
folder, kind = Path(sys.argv[1]), sys.argv[2]
backend = backend_class(kind).load(Artefact("m", folder / "m.tflite", folder / "m.onnx"), 1, lambda text: None)
backend.input_view()[:] = 7
def run():
    backend.infer()
    return [view.copy() for view in backend.output_views()]
before = run()
for path in folder.iterdir():
    with path.open("r+b") as file:
        file.truncate(0)  # As `cp` and `scp` do.
        file.write(bytes(4096))
assert all(np.array_equal(one, other) for one, other in zip(before, run(), strict=True))
"""


def test_conformance_a_file_that_is_written_over_changes_nothing_that_runs(kind: str, tmp_path: Path) -> None:
    for path in (BUNDLE.model_path, BUNDLE.onnx_path):
        assert path is not None
        shutil.copyfile(path, tmp_path / f"m{path.suffix}")
    subprocess.run([sys.executable, "-c", OVERWRITTEN, str(tmp_path), kind], check=True)


def test_conformance_golden_vectors(kind: str) -> None:
    detector = Detector.open(BUNDLE, DetectorOptions((kind,)))
    assert check_golden(detector) == ""
    detector.close()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["nano-160", "tiny-224", "medium-640"])
def test_every_runtime_agrees_with_every_model_of_the_zoo(kind: str, model: str) -> None:
    detector = Detector.open(load_bundle(f"zoo:{model}"), DetectorOptions((kind, "litert")))
    assert detector.backend.kind == kind
    assert check_golden(detector) == ""
    detector.close()


@pytest.mark.slow
def test_openvino_computes_in_single_precision_on_every_processor() -> None:
    """Its own choice is bfloat16 where the processor has it, and no model of the zoo then agrees with its vectors."""
    pytest.importorskip("openvino", reason="OpenVINO is not installed (extra openvino)")
    backend = backend_class("openvino").load(BUNDLE.artefact(), 1, _quiet)
    compiled = backend._request.get_compiled_model()  # type: ignore[attr-defined]
    assert compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"
    backend.close()


def test_conformance_every_runtime_sees_the_same_things(kind: str) -> None:
    with np.load(BUNDLE.golden.path) as arrays:  # type: ignore[union-attr]
        image = arrays["image"]
    reference, ours = (Detector.open(BUNDLE, DetectorOptions((k,), score_threshold=0.3)) for k in ("litert", kind))
    theirs, found = reference.detect(image), ours.detect(image)
    assert theirs, "the golden picture shows something"
    strong = [d for d in theirs if d.score > 0.6]
    for want in strong:
        near = min(found, key=lambda d: sum(abs(a - b) for a, b in zip(d.box, want.box, strict=True)))
        assert near.label == want.label
        assert near.score == pytest.approx(want.score, abs=0.2)
        assert near.box == pytest.approx(want.box, abs=6)


def test_a_runtime_that_computes_another_model_is_caught(tmp_path: Path) -> None:
    detector = Detector.open(BUNDLE, DetectorOptions())
    fill = detector._preprocessor.fill

    class Darker:
        def fill(self, image: Array, view: Array) -> object:
            return fill(image // 4, view)

    detector._preprocessor = Darker()  # type: ignore[assignment]
    assert "steps; 8 are allowed" in check_golden(detector)
    assert sqnr_db(np.ones(4), np.ones(4) * 1.1) == pytest.approx(20.0)


def test_every_probe_answers_and_never_raises() -> None:
    found = probe_all()
    assert set(found) == {"litert", "onnx", "openvino", "tensorrt"}
    assert found["litert"].available
    for kind, capability in found.items():
        assert capability.detail, kind
        if not capability.available:
            assert "install" in capability.detail or "cannot" in capability.detail or "CUDA" in capability.detail


def test_the_fallback_is_announced_step_by_step(tmp_path: Path) -> None:
    bare = Artefact("m", ZOO_MODEL, None)
    said: list[str] = []
    backend = open_backend(bare, ("tensorrt", "openvino", "onnx", "litert"), 1, said.append)
    assert backend.kind == "litert"
    assert [text.split()[1] for text in said] == ["tensorrt", "openvino", "onnx"]
    assert all("cannot be used (" in text and text.endswith("trying the next") for text in said)
    with pytest.raises(BackendError, match=r"onnx: .*; openvino: "):
        open_backend(bare, ("onnx", "openvino"), 1, said.append)
    with pytest.raises(BackendError, match="no backend is called 'magic'; there are litert"):
        open_backend(bare, ("magic",), 1, said.append)


# --- Profiles --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_runtime_tells_the_time_of_its_layers(kind: str) -> None:
    backend = backend_class(kind).load(BUNDLE.artefact(), 1, _quiet)
    layers = layers_of(BUNDLE.artefact(), backend, 1)
    backend.close()
    assert isinstance(layers, list), layers
    assert sum("CONV" in str(layer["type"]).upper() for layer in layers) > 5
    assert [layer["ms"] for layer in layers] == sorted((layer["ms"] for layer in layers), reverse=True)
