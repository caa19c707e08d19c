"""Devices of runtimes: found, tried, judged by the golden vectors, and fallen back from with a word why."""

from dataclasses import replace
from pathlib import Path

import pytest

from swarmd_models.backends import in_order, open_backend
from swarmd_models.backends.litert import LiteRtBackend
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import BackendError
from tests.support.wrong_device import NAME, WrongDevice

BUNDLE = load_bundle("zoo:small-320")


def _open(*order: str) -> tuple[Detector, list[str]]:
    said: list[str] = []
    detector = Detector.open(replace(BUNDLE, second=None), DetectorOptions(order), said.append)
    return detector, said


def test_a_delegate_that_is_missing_is_said_and_passed_over() -> None:
    if "edgetpu" in LiteRtBackend.devices():
        pytest.skip("a fact about this machine: it has libedgetpu")
    detector, said = _open("litert@edgetpu", "litert")
    assert said == [
        one for one in said if one.startswith("backend litert@edgetpu cannot be used (the delegate edgetpu")
    ]
    assert len(said) == 1
    assert "edgetpu" not in detector.backend.runtime
    with pytest.raises(BackendError, match="the delegate edgetpu cannot be loaded"):
        _open("litert@edgetpu")


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("/nowhere/libdelegate.so", "the delegate /nowhere/libdelegate.so cannot be loaded"),
        ("/nowhere/lib.so?cache=1&x=y", "the delegate /nowhere/lib.so cannot be loaded"),
        ("npu", "LiteRT has no device 'npu'; it may have plain, edgetpu or a library"),
    ],
)
def test_delegates_that_are_none(device: str, sentence: str) -> None:
    with pytest.raises(BackendError, match=sentence.replace("?", r"\?")):
        _open(f"litert@{device}")


def test_a_library_that_is_no_delegate_is_refused(tmp_path: Path) -> None:
    import math

    if not getattr(math, "__file__", ""):
        pytest.skip("a fact about this Python: it has no library of its own to show")
    with pytest.raises(BackendError, match="is no delegate: it lacks tflite_plugin_create_delegate"):
        _open(f"litert@{math.__file__}")
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(BackendError, match="cannot be loaded"):
        _open(f"litert@{text}")


def test_plain_kernels_compute_the_same_model() -> None:
    detector, said = _open("litert@plain")
    assert not said
    assert ", plain," in detector.backend.runtime


def test_a_device_that_computes_another_model_is_refused_by_the_golden_vectors() -> None:
    WrongDevice.closed.clear()
    detector, said = _open(f"{NAME}@npu", "litert")
    assert type(detector.backend) is LiteRtBackend
    assert len(said) == 1
    assert "npu computes another model than the bundle's: the golden output" in said[0]
    assert WrongDevice.closed == ["npu"], "what was refused is freed"


def test_auto_is_every_device_that_is_here_and_the_cpu_last() -> None:
    assert in_order(["litert", f"{NAME}@auto"]) == ("litert", f"{NAME}@npu", f"{NAME}@gone", f"{NAME}@fpga", NAME)
    detector, said = _open(f"{NAME}@auto")
    assert isinstance(detector.backend, WrongDevice)
    assert detector.backend.device == "fpga"
    assert ["golden output" in said[0], "gone was taken out" in said[1], len(said)] == [True, True, 2]


def test_without_a_golden_vector_nobody_judges_and_that_is_said() -> None:
    said: list[str] = []
    bare = replace(BUNDLE, second=None, golden=None)
    Detector.open(bare, DetectorOptions((f"{NAME}@npu",)), said.append)
    assert len(said) == 1
    assert "has no golden vector that would judge this device" in said[0]


def test_onnx_runtime_says_which_provider_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime")
    if "cuda" in OnnxBackend.devices():
        pytest.skip("a fact about this machine: its ONNX Runtime has CUDA")
    detector, said = _open("onnx@cuda", "onnx")
    assert detector.backend.kind == "onnx"
    assert "was built without CUDAExecutionProvider" in said[0]
    with pytest.raises(BackendError, match="ONNX Runtime has no device 'gpu'; it may have tensorrt, cuda"):
        _open("onnx@gpu")
    # Built with it, and its libraries are missing: the session falls back to the CPU without a word of its own.
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(BackendError, match=r"could not begin with CUDAExecutionProvider|refuses"):
        _open("onnx@cuda")


def test_openvino_says_which_devices_it_has() -> None:
    openvino = pytest.importorskip("openvino")
    here = openvino.Core().available_devices
    absent = next(one for one in ("NPU", "GPU", "GNA") if one not in here)
    with pytest.raises(BackendError, match=f"OpenVINO finds no {absent} here; it has .*CPU"):
        _open(f"openvino@{absent.lower()}")
    detector, said = _open("openvino@cpu")
    assert ", CPU," in detector.backend.runtime
    assert not said, "it was judged, and agrees"


def test_a_second_stage_runs_on_the_cpu_of_the_same_runtime() -> None:
    detector = Detector.open(BUNDLE, DetectorOptions(("litert@plain",)))
    assert detector.second is not None
    assert "plain" in detector.backend.runtime
    assert "plain" not in detector.second.backend.runtime


def test_an_order_of_devices_alone_may_be_of_none() -> None:
    with pytest.raises(BackendError, match=r"litert@edgetpu: .*; onnx@qnn: "):
        open_backend(BUNDLE.artefact(), ("litert@edgetpu", "onnx@qnn"), 1, lambda text: None)
