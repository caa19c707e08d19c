"""Time by layer of a model in a runtime, for `swarmd bench infer`. Measured apart from the model at work."""

import importlib
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from swarmd_models.backends.base import Artefact, Backend
from swarmd_models.backends.litert import quiet_stderr, runtime_module
from swarmd_models.backends.onnx import options_for
from swarmd_models.backends.openvino import SETTINGS
from swarmd_models.backends.tensorrt import TensorRtBackend
from swarmd_models.errors import BackendError

MAX_LAYERS = 400
"""Rows of a report, the slowest first; a larger network's rest is noise."""
RUNS = 10
"""Timed runs: the best of them, or the mean of what a runtime profiles."""
_WARM_UP = 3
"""Runs that are not timed: caches and lazy kernels fill in them."""


def layers_of(artefact: Artefact, backend: Backend, threads: int) -> list[dict[str, Any]] | str:
    """Layers, the dearest first, as {"layer", "type", "ms"}; else the sentence that says why there are none.

    Args:
        artefact: The model's files.
        backend: The runtime that has it loaded.
        threads: For inference.
    """
    try:
        if backend.kind == "litert" and artefact.tflite is not None:
            return _by_time(_litert(artefact.tflite, threads))
        if backend.kind == "onnx" and artefact.onnx is not None:
            return _by_time(_onnx(artefact.onnx, threads))
        if backend.kind == "openvino" and artefact.onnx is not None:
            return _by_time(_openvino(artefact.onnx, threads))
        if isinstance(backend, TensorRtBackend):
            return _by_time((name, "", ms) for name, ms in backend.layer_times(RUNS).items())
    except (RuntimeError, OSError, ValueError, KeyError, ImportError, AttributeError, BackendError) as error:
        return f"the runtime's profile could not be read: {error}"
    return f"{backend.runtime.split(',')[0]} tells no layer times"


def _litert(path: Path, threads: int) -> Iterable[tuple[str, str, float]]:
    """LiteRT tells no layer times through Python: the graph is cut after each layer, and what a layer adds is its time.

    The runtime joins neighbouring layers where it can, and takes slower ways for a cut that ends in an odd place. So
    what counts up to a layer is the least time of any cut from there on; all together take as long as the model.
    """
    schema = importlib.import_module("ai_edge_litert.schema_py_generated")
    kinds = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    data = path.read_bytes()
    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    for buffer in model.buffers:
        if buffer.offset > 1:  # Weights may lie behind the flatbuffer, which is packed anew here.
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    graph = model.subgraphs[0]
    operators = list(graph.operators)
    model.signatureDefs = None
    named, took = [], []
    for count, operator in enumerate(operators, 1):
        graph.operators, graph.outputs = operators[:count], operator.outputs
        took.append(_litert_ms(schema, model, threads))
        code = model.operatorCodes[operator.opcodeIndex]
        name = graph.tensors[operator.outputs[0]].name
        kind = kinds.get(max(code.builtinCode, code.deprecatedBuiltinCode), "?")
        named.append((_plain(name.decode(errors="replace") if isinstance(name, bytes) else str(name)), kind))
    up_to = np.minimum.accumulate(np.array(took)[::-1])[::-1]
    return [(name, kind, float(ms)) for (name, kind), ms in zip(named, np.diff(up_to, prepend=0.0), strict=True)]


def _plain(name: str) -> str:
    """A tensor's name without what converters put in front of every part.

    >>> _plain("a.b.Wrapper/x.y.Net_wrapped/torch.nn.Sequential_stem/x.Activation_1;;a.b;")
    'Sequential_stem/Activation_1'
    """
    parts = [part.rsplit(".", 1)[-1] for part in name.split(";")[0].split("/")]
    return "/".join(parts[2:] if len(parts) > 2 else parts)


def _litert_ms(schema: Any, model: Any, threads: int) -> float:
    """The least time of some runs of a graph."""
    flatbuffers = importlib.import_module("flatbuffers")
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    with quiet_stderr():
        interpreter = runtime_module().Interpreter(model_content=bytes(builder.Output()), num_threads=threads)
        interpreter.allocate_tensors()
    best = float("inf")
    for run in range(_WARM_UP + RUNS):
        started = time.perf_counter()
        interpreter.invoke()
        if run >= _WARM_UP:
            best = min(best, (time.perf_counter() - started) * 1e3)
    return best


def _onnx(path: Path, threads: int) -> Iterable[tuple[str, str, float]]:
    ort = importlib.import_module("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        options = options_for(ort, threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "p")
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        node = session.get_inputs()[0]
        feed = {node.name: np.zeros(node.shape, np.float32)}
        for _ in range(RUNS):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            sums[event["name"].removesuffix("_kernel_time"), event["args"]["op_name"]] += event["dur"] / 1e3 / RUNS
    return [(name, op, ms) for (name, op), ms in sums.items()]


def _openvino(path: Path, threads: int) -> Iterable[tuple[str, str, float]]:
    module = importlib.import_module("openvino")
    settings = {**SETTINGS, "INFERENCE_NUM_THREADS": threads, "PERF_COUNT": "YES"}
    request = module.Core().compile_model(str(path), "CPU", settings).create_infer_request()
    for _ in range(_WARM_UP):
        request.infer()
    return [(i.node_name, i.node_type, i.real_time.total_seconds() * 1e3) for i in request.profiling_info]


def _by_time(layers: Iterable[tuple[str, str, float]]) -> list[dict[str, Any]]:
    ordered = sorted(layers, key=lambda layer: -layer[2])[:MAX_LAYERS]
    return [{"layer": name, "type": op, "ms": round(ms, 4)} for name, op, ms in ordered if ms > 0]
