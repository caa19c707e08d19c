"""How a model gets a narrow place: `python -m swarmd_recipes.narrow --crops FILE.npz --out DIR`.

What lies at a cut of the zoo's models is larger than the frame as a JPEG. A linear encoder and decoder are learnt for
blocks of that tensor, from composed frames of the training split, with the model itself as it is: the directions in
which the blocks vary most (principal components), as many as are kept, in steps so large that the mean of what is lost
in them hardly moves the outputs; the 8-bit numbers pack well, since most are small. What comes out is a bundle of its
own, with its own digest and its scores beside those of the model that it was made of: `swarmd bundle cut` cuts it at
`narrow_QuantizeLinear_Output`, and a head on a weak device sends that instead of the frame. Numpy and ONNX Runtime
alone: equal frames give equal bytes.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import brotli
import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.backends.base import Array, Artefact
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import ZOO, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import FrameSpec, evaluate_frames, frames_of
from swarmd_models.onnx_file import read_onnx
from swarmd_models.onnx_narrow import NARROW, Coder, levels_of, narrowed
from swarmd_models.onnx_parts import OnnxGraph
from swarmd_models.types import Image

BLOCK = 2
"""Places of the tensor, across and down, that one set of numbers stands for."""
NUMBERS = 96
"""Kept of each block."""
COARSE = 32.0
"""The step of all numbers, in those by which the largest would just fit 8 bits: larger packs smaller and loses more."""
TRAIN_SEED, TEST_SEED = 11, 5
TRAIN_FRAMES, TEST_FRAMES = 120, 200
FAULTS = 0.085
"""Share of faulty modules in the frames that scores are taken on."""
_SCORES = ("modules", "faults", "ap", "precision", "recall", "false_per_1000_normal")
ONNX = DetectorOptions(backends=("onnx",))


def learn(blocks: npt.NDArray[np.float32], channels: int, mean: npt.NDArray[np.float32], numbers: int) -> Coder:
    """An encoder and a decoder.

    Args:
        blocks: Shape (n, channels * BLOCK * BLOCK), without the mean.
        channels: Of the tensor.
        mean: Shape (channels,).
        numbers: To keep of each block.
    """
    values, vectors = np.linalg.eigh(blocks.T.astype(np.float64) @ blocks / len(blocks))
    order = np.argsort(-values)[:numbers]
    found = vectors[:, order]
    found = found * np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
    maps = np.asarray(found.T.reshape(-1, channels, BLOCK, BLOCK), np.float32)
    return Coder(maps, maps, mean, float(np.sqrt(values[order[0]]) / 127 * COARSE))


def coder_for(model: bytes, tensor: str, fitted: Iterable[Array], numbers: int = NUMBERS) -> Coder:
    """The coder for a tensor of a model, from inputs of the model; raises `ArtefactError`."""
    graph = OnnxGraph(model)
    scale, zero = levels_of(model, tensor)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.onnx"
        path.write_bytes(graph.part(None, tensor))
        head = load(path)
        seen = np.stack([run(head, one)[0] for one in fitted]).astype(np.float32)
        head.close()
    if seen.ndim != 4 or seen.shape[2] % BLOCK or seen.shape[3] % BLOCK:
        raise ArtefactError(f"the tensor {tensor!r} has shape {seen.shape[1:]}; channels and whole blocks are wanted")
    seen = (seen - zero) * scale
    mean = np.asarray(seen.mean(axis=(0, 2, 3)), np.float32)
    count, channels, rows, columns = seen.shape
    blocks = (seen - mean[None, :, None, None]).reshape(count, channels, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    flat = blocks.transpose(0, 2, 4, 1, 3, 5).reshape(-1, channels * BLOCK * BLOCK)
    return learn(flat, channels, mean, min(numbers, flat.shape[1]))


def make(bundle: Bundle, source: Path, tensor: str, crops: Path | None, out: Path, frames: int) -> dict[str, Any]:
    """Write the bundle; what it costs and what it loses.

    Args:
        bundle: The model that gets a narrow place, with an ONNX form.
        source: Its TOML.
        tensor: Where.
        crops: Real modules; None: all are drawn.
        out: Folder for the bundle.
        frames: To score on.

    Raises:
        ArtefactError: It has no such place.
    """
    onnx = bundle.artefact().onnx
    if onnx is None:
        raise ArtefactError(f"{bundle.name} has no .onnx form")
    model, detector = read_onnx(onnx), Detector.open(bundle, ONNX)

    def images(seed: int, split: int, count: int) -> list[Image]:
        spec = FrameSpec(FAULTS, count, seed, str(crops or ""), split)
        return [scene.image for scene in frames_of(spec, bundle)]

    coder = coder_for(model, tensor, [detector.fitted(one) for one in images(TRAIN_SEED, 0, TRAIN_FRAMES)])
    name = f"{onnx.name.removesuffix('.onnx').removesuffix('.qdq')}-narrow"
    path = out / f"{name}.onnx"
    path.write_bytes(narrowed(model, tensor, coder))
    held = images(TEST_SEED, 1, 40)
    said = _sizes(path, [detector.fitted(one) for one in held]) | _jpegs(held)
    detector.close()
    text = _toml(source.read_text("utf-8"), bundle, path)
    made = out / f"{name}.toml"
    if bundle.second is not None:
        for one in (bundle.second_artefact(),):
            for file in (one.tflite, one.onnx) if one is not None else ():
                if file is not None:
                    shutil.copy(file, out / file.name)
    made.write_text(text, "utf-8")
    if bundle.golden is not None:
        text = text.replace(
            "\n[provenance]", _golden(load_bundle(made), bundle.golden.path, out / f"{name}.golden.npz")
        )
        made.write_text(text, "utf-8")
    spec = FrameSpec(FAULTS, frames, TEST_SEED, str(crops or ""), 1)
    for key, judged in (("whole", bundle), ("narrow", load_bundle(made))):
        found = evaluate_frames(judged, frames_of(spec, judged), ONNX)
        said[key] = {score: found[score] for score in _SCORES}
    said["seed"], said["data_sha256"] = TRAIN_SEED, sha256(crops.read_bytes()).hexdigest() if crops else ""
    row = json.dumps(said).replace('": ', '" = ').replace("null", '""')
    made.write_text(f"{text}narrow = {row}\n", "utf-8")
    cv2.imwrite(str(out / f"{name}.png"), held[0])
    return {"bundle": str(made), "cut": NARROW} | said


def load(path: Path) -> OnnxBackend:
    """A bare graph."""
    return OnnxBackend.load(Artefact(path.stem, None, path), 1, lambda text: None)


def run(backend: OnnxBackend, item: Array) -> list[Array]:
    """Outputs for one input."""
    np.copyto(backend.input_view(), item, casting="no")
    backend.infer()
    return [np.array(view) for view in backend.output_views()]


def _sizes(path: Path, fitted: Sequence[Array]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        head = Path(folder) / "head.onnx"
        head.write_bytes(OnnxGraph(path.read_bytes()).part(None, NARROW))
        backend = load(head)
        outs = [run(backend, one)[0] for one in fitted]
        backend.close()
    return {
        "raw_bytes": int(outs[0].nbytes),
        "packed_bytes": round(float(np.mean([len(brotli.compress(out.tobytes(), quality=1)) for out in outs]))),
        "clipped": round(float(np.mean([np.abs(out.astype(np.int16)) >= 127 for out in outs])), 6),
    }


def _jpegs(images: Sequence[Image]) -> dict[str, Any]:
    return {
        f"jpeg_{quality}_bytes": round(
            float(np.mean([cv2.imencode(".jpg", one, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].size for one in images]))
        )
        for quality in (95, 80)
    }


def _golden(made: Bundle, whole: Path, path: Path) -> str:
    """Write what the new graph gives for the whole's golden picture; the section that names it, and what follows."""
    with np.load(whole, allow_pickle=False) as arrays:
        stored = {name: arrays[name] for name in arrays.files}
    detector = Detector.open(made, ONNX)
    outputs = {one.shape: one for one in detector.raw_outputs(stored["image"])}
    detector.close()
    for name in stored.keys() - {"image", "second_image", "second_cls"}:
        stored[name] = outputs[stored[name].shape]
    np.savez_compressed(path, **stored)
    digest = sha256(path.read_bytes()).hexdigest()
    return f'\n[golden]\nfile = "{path.name}"\nsha256 = "{digest}"\ntolerance_steps = 8\n\n[provenance]'


def _toml(text: str, bundle: Bundle, path: Path) -> str:
    """The source's TOML with the new file and name, and without what was measured of its graph: this is another."""
    sections = {part.partition("]")[0]: part for part in ("\n" + text).split("\n[") if "]" in part.split("\n")[0]}
    head = text[: text.index("\n[")].replace(f'name = "{bundle.name}"', f'name = "{bundle.name}-narrow"')
    sections["model"] = f'model]\nfile = "{path.name}"\nsha256 = "{sha256(path.read_bytes()).hexdigest()}"\n'
    kept = [line for line in sections.get("provenance", "").splitlines() if line.startswith(("about", "recipe"))]
    for name in [name for name in sections if name.split(".")[0] in ("golden", "reference", "curve", "provenance")]:
        del sections[name]
    made_of = [f"made_of = {json.dumps(bundle.name)}", f'made_of_digest = "{bundle.digest}"']
    last = "\n".join(["provenance]", *kept, *made_of])
    return "\n[".join([head, *sections.values(), last]).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="zoo:tiny-224", help="a bundle with its TOML and an ONNX form")
    parser.add_argument("--at", default="hardtanh_4_QuantizeLinear_Output", metavar="TENSOR")
    parser.add_argument("--crops", type=Path, help="npz of real module crops; without it all modules are drawn")
    parser.add_argument("--frames", type=int, default=TEST_FRAMES, help="to score on")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    bundle = load_bundle(options.model)
    is_ours = options.model.startswith("zoo:")
    source = ZOO / f"{options.model.removeprefix('zoo:')}.toml" if is_ours else Path(options.model)
    try:
        said = make(bundle, source, options.at, options.crops, options.out, options.frames)
    except ArtefactError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
