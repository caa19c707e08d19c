"""Bundles and boxes for the tests of the eye."""

import hashlib
import shutil
from pathlib import Path

import numpy as np

from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import ZOO, Bundle, DecodeRule
from swarmd_models.types import Detection

ZOO_TOML = ZOO / "small-320.toml"
ZOO_MODEL = ZOO / "small-320.tflite"


def write_bundle(folder: Path, content: bytes | None = None, **changes: str) -> Path:
    """A bundle in `folder` around the zoo's model (or other bytes); `changes` replace whole TOML lines by key."""
    data = ZOO_MODEL.read_bytes() if content is None else content
    (folder / "model.tflite").write_bytes(data)
    lines = {
        "format": "format = 1",
        "decoder": 'decoder = "anchor_free"',
        "labels": "labels = [" + ", ".join(f'"class{i}"' for i in range(11)) + "]",
        "model": f'[model]\nfile = "model.tflite"\nsha256 = "{hashlib.sha256(data).hexdigest()}"',
        "input": '[input]\nwidth = 320\nheight = 256\nchannels = "gray"\nresize = "letterbox"',
        "decode": "[decode]\nstrides = [8]\nscore_threshold = 0.4",
        "extra": "",
    }
    path = folder / "bundle.toml"
    path.write_text("\n".join({**lines, **changes}.values()), encoding="utf-8")
    return path


def copy_what_the_zoo_names(folder: Path) -> None:
    """Every file that `ZOO_TOML` names, beside the bundle that a test writes into `folder`; links out are refused."""
    for file in ZOO.glob(f"{ZOO_TOML.stem}.*"):
        if file.suffix != ".toml":
            shutil.copy(file, folder)


def head_bundle(labels: int = 3, decoder: str = "anchor_free", **decode: object) -> Bundle:
    """A bundle that is never loaded, for decoders."""
    names = tuple(f"class{i}" for i in range(labels))
    return Bundle("m", "1", decoder, names, Path("m.tflite"), "00" * 32, decode=DecodeRule(**decode))  # type: ignore[arg-type]


def spec(name: str, shape: tuple[int, ...], dtype: str = "float32", scale: float = 0.0, zero: int = 0) -> TensorSpec:
    """A tensor of a loaded model."""
    return TensorSpec(name, shape, np.dtype(dtype), scale, zero)


def seen(x: float, y: float, size: float = 20.0, score: float = 0.9, class_index: int = 0) -> Detection:
    """A square detection about a centre."""
    half = size / 2
    return Detection(class_index, f"class{class_index}", score, (x - half, y - half, x + half, y + half))


def unhurried(folder: Path, rename: tuple[str, str] = ("", "")) -> str:
    """Small-320 in a folder of its own, its second stage without a budget of time: on a busy machine the zoo's leaves
    boxes unjudged, so two runs of it differ. `rename` gives a label another name, which makes another bundle."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in ZOO.glob("small-320.*"):
        shutil.copy(file, folder)
    path = folder / ZOO_TOML.name
    text = path.read_text(encoding="utf-8")
    assert text.count("\nbudget_ms = ") == 1
    text = "\n".join("budget_ms = 0.0" if line.startswith("budget_ms = ") else line for line in text.split("\n"))
    old, new = rename
    path.write_text(text.replace(f'"{old}"', f'"{new}"') if old else text, encoding="utf-8")
    return str(path)
