"""A model cut in parts: the parts one after the other compute what the whole does, to the bit."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from swarmd.cli.main import main
from swarmd.worker.coding import packed
from swarmd.worker.splitting import read_splits
from swarmd_models.backends.base import Array, Artefact
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.onnx_file import read_onnx
from swarmd_models.onnx_parts import OnnxGraph
from swarmd_models.part_export import Cutter
from swarmd_protocols.offload.shards import ways

MODEL = ZOO / "tiny-224.qdq.onnx"


def load(path: Path) -> OnnxBackend:
    return OnnxBackend.load(Artefact(path.stem, None, path), 1, lambda text: None)


def through(backend: OnnxBackend, item: Array) -> dict[str, Array]:
    np.copyto(backend.input_view(), item, casting="no")
    backend.infer()
    return {spec.name: np.array(view) for spec, view in zip(backend.outputs, backend.output_views(), strict=True)}


def inputs(backend: OnnxBackend, count: int) -> list[Array]:
    rng = np.random.default_rng(4)
    shape, dtype = backend.inputs[0].shape[1:], backend.inputs[0].dtype
    if dtype.kind == "f":
        return [rng.random(shape, np.float32) for _ in range(count)]
    return [rng.integers(0, 256, shape).astype(dtype) for _ in range(count)]


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    return left.keys() == right.keys() and all(
        one.dtype == right[name].dtype and one.tobytes() == right[name].tobytes() for name, one in left.items()
    )


def chosen(cuts: Sequence[str]) -> list[str]:
    """Two cuts of a byte a number, about a third and two thirds of the way."""
    return [cuts[len(cuts) // 3], cuts[2 * len(cuts) // 3]]


def test_every_cut_gives_two_parts_that_are_the_whole_to_the_bit(tmp_path: Path) -> None:
    graph, whole = OnnxGraph(read_onnx(MODEL)), load(MODEL)
    cuts = graph.cuts()
    assert len(cuts) >= 8
    items = inputs(whole, 2)
    wanted = [through(whole, item) for item in items]
    for at, cut in enumerate(cuts):
        head_path, tail_path = tmp_path / f"{at}-head.onnx", tmp_path / f"{at}-tail.onnx"
        head_path.write_bytes(graph.part(None, cut))
        head = load(head_path)
        tail_path.write_bytes(graph.part(head.outputs[0], None))
        tail = load(tail_path)
        for item, whole_outputs in zip(items, wanted, strict=True):
            between = through(head, item)
            assert list(between) == [cut]
            assert same(through(tail, between[cut]), whole_outputs), cut


def test_a_chain_of_three_and_its_file(tmp_path: Path) -> None:
    bundle = load_bundle("zoo:tiny-224")
    cutter = Cutter(bundle, [], tmp_path, lambda data: len(packed(data) or data))
    rows = cutter.cuts()
    cuts = chosen([one.tensor for one in rows])
    written = cutter.write(cuts)
    (split,) = read_splits(str(written)).values()
    assert (split.name, split.digest, split.parts.end) == (bundle.name, bundle.digest, 3)
    assert [port.name for ports in split.ports[1:3] for port in ports] == cuts
    by_tensor = {one.tensor: one for one in rows}
    assert [split.parts.sizes[at] for at in (1, 2)] == [by_tensor[cut].packed_bytes for cut in cuts]
    assert all(one.head_ms > 0 for one in rows)
    paths = {load_bundle(path).digest: path for path in tmp_path.glob("*.onnx")}
    assert len(paths) == len(split.parts.parts) == 6, "nothing else is left behind"
    whole = load(MODEL)
    (item,) = inputs(whole, 1)
    wanted, taken = through(whole, item), 0
    for way in ways(split.parts, 0):
        held = {split.ports[0][0].name: item}
        for part in way:
            backend = load(paths[part.digest.hex()])
            held = through(backend, held[backend.inputs[0].name])
        assert same(held, wanted), way
        taken += 1
    assert taken == 4


def test_what_cannot_be_cut_is_refused_by_name(tmp_path: Path) -> None:
    graph = OnnxGraph(read_onnx(MODEL))
    cuts = graph.cuts()
    with pytest.raises(ArtefactError, match="cannot be cut at 'nothing'"):
        graph.part(None, "nothing")
    cutter = Cutter(load_bundle("zoo:tiny-224"), [], tmp_path, len)
    for tensors in ([], [cuts[3], cuts[1]], [cuts[1], cuts[1]], cuts[:3], ["nothing"]):
        with pytest.raises(ArtefactError, match="name one or two of its cuts"):
            cutter.write(tensors)
    with pytest.raises(ArtefactError, match=r"no \.onnx form"):
        Cutter(load_bundle(ZOO / "tiny-224.tflite"), [], tmp_path, len)
    data = read_onnx(MODEL)
    for broken in (b"", data[:200], data[: len(data) // 2]):
        with pytest.raises(ArtefactError):
            OnnxGraph(broken)


def test_the_command_lists_cuts_writes_parts_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", "cut", "zoo:tiny-224", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    tensors = [one["tensor"] for one in told["cuts"]]
    assert tensors == OnnxGraph(read_onnx(MODEL)).cuts()
    assert all(0 < one["packed_bytes"] <= one["raw_bytes"] for one in told["cuts"])
    assert main(["bundle", "cut", "zoo:tiny-224"]) == 0
    assert tensors[0] in capsys.readouterr().out
    out = tmp_path / "parts"
    assert main(["bundle", "cut", "zoo:tiny-224", "--at", tensors[3], "--out", str(out)]) == 0
    assert "inference.models" in capsys.readouterr().out
    assert len(read_splits(str(out / "solar-tiny-224.split.toml"))) == 1
    assert len(list(out.glob("*.onnx"))) == 3
    for arguments, why in (
        (("--at", tensors[3]), "go together"),
        (("--at", "nothing", "--out", str(out)), "cannot be cut at nothing"),
        (("--picture", str(tmp_path / "none.png")), "No such file"),
        (("--picture", str(out / "solar-tiny-224.split.toml")), "cannot be decoded"),
    ):
        assert main(["bundle", "cut", "zoo:tiny-224", *arguments]) == 1
        assert why in capsys.readouterr().err
