"""The second stage's net, its training examples and its training: one module, cut out of a composed frame.

The first stage sees a wide frame and must find modules and judge them at once; most of its work goes to places without
a fault. This net sees one box at a time, so the same minutes of training show it every crop a hundred times. Examples
are cut (`swarmd_models.second.cut_out`, as in flight) from composed frames, around boxes that miss by as much as the
first stage's do. It learns from the labels and from the teacher's opinion.

Chunk `k` of the examples depends on the seed and `k` alone, so an interrupted run goes on as if nothing had happened.
Needs PyTorch (extra `train`).
"""

import copy
import dataclasses
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from swarmd_models.errors import ArtefactError
from swarmd_models.second import cut_out
from swarmd_models.synthetic.scenes import SceneMaker, SceneOptions
from swarmd_models.synthetic.thermal import Crops
from swarmd_recipes.net import Residual, conv
from swarmd_recipes.teacher import CLASSES

HEALTHY = len(CLASSES) - 1
_SETTLING_REAL_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The `[second]` table of a recipe."""

    take_from: str = ""
    """Another recipe, made before in the same work directory, whose second stage serves here too; or a bundle of the
    zoo, such as "zoo:small-320", whose second stage is taken as it is committed."""
    width: int = 48
    height: int = 24
    margin: float = 0.08
    """Of the cut around a box, on every side, as a share of the box."""
    widths: tuple[int, ...] = (24, 48, 88, 128)
    """Channels at strides 1, 2, 4, 8."""
    blocks: tuple[int, ...] = (1, 2, 2)
    """Residual blocks at strides 2, 4, 8."""
    chunks: int = 24
    chunk_frames: int = 430
    """Frames a chunk of examples is cut from; about 40 modules each."""
    batch: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 0.04
    ema: float = 0.998
    teacher_trust: float = 0.7
    smoothing: float = 0.04
    fault_share: float = 0.5
    real_share: float = 0.85
    coarse_share: float = 0.2
    """Of the frames that are as coarse as tiny-224's."""
    dense_share: float = 0.8
    box_jitter: float = 0.04
    """How far a box misses, standard deviation, as a share of its sides."""
    stray_boxes: int = 6
    """A frame, beside the modules': on soil, between modules, over the end of a table; all of them are no fault."""
    settle_chunks: int = 4
    """More chunks after the others, at a tenth of the rate, half of their frames drawn: labels of drawn modules are
    exact and are not softened here, so that the sure is told apart from what a softened label never lets be sure."""
    flips: int = 2
    """Views of a cut that are averaged in flight."""


class Judge(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where types are checked.
    """Dense residual net over one cut; mean and maximum over places, one linear layer. 20 MMAC at these widths."""

    def __init__(self, options: JudgeOptions) -> None:
        """Build it with random weights."""
        super().__init__()
        w, b = options.widths, options.blocks
        self.stem = conv(1, w[0], 3)
        self.body = nn.Sequential(
            *(
                nn.Sequential(conv(w[i], w[i + 1], 3, 2), *(Residual(w[i + 1]) for _ in range(b[i])))
                for i in range(len(b))
            )
        )
        self.places = (options.height // 8, options.width // 8)
        self.head = nn.Conv2d(2 * w[-1], len(CLASSES), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes), faults in label order, the healthy class last.

        Args:
            x: Shape (batch, 1, rows, columns), pixels / 255.
        """
        y = self.body(self.stem(x))
        pooled = torch.cat([F.avg_pool2d(y, self.places), F.max_pool2d(y, self.places)], 1)
        return self.head(pooled).flatten(1)


@dataclass(frozen=True, slots=True)
class Examples:
    """Cuts and what is to be said of them."""

    pixels: npt.NDArray[np.uint8]
    """Shape (n, height, width)."""
    wanted: npt.NDArray[np.float32]
    """Shape (n, classes): probabilities."""


class ExampleMaker:
    """Cuts examples out of composed frames. Not thread-safe."""

    def __init__(
        self,
        options: JudgeOptions,
        scene: SceneOptions,
        seed: int,
        crops: Crops | None,
        soft: npt.NDArray[np.float32] | None,
    ) -> None:
        """Prepare the frames' makers.

        Args:
            options: Of the second stage.
            scene: Of the first stage's frames.
            seed: Of every chunk.
            crops: Real crops (split 0 is used), or None.
            soft: A teacher's probabilities per crop, or None.
        """
        self._options, self._seed, self._soft = options, seed, soft
        self._makers = self._two(scene, options.real_share, crops)
        self._settling = self._two(scene, _SETTLING_REAL_SHARE, crops)

    def _two(self, scene: SceneOptions, real_share: float, crops: Crops | None) -> list[SceneMaker]:
        """Of frames at the first stage's scale, and at tiny-224's."""
        fine = dataclasses.replace(
            scene,
            fault_share=self._options.fault_share,
            plain_share=0.0,
            real_share=real_share,
            dense_share=self._options.dense_share,
        )
        coarse = dataclasses.replace(fine, width=224, height=192, pixel_m=scene.pixel_m / 0.7)
        return [SceneMaker(fine, self._seed + 3000, crops), SceneMaker(coarse, self._seed + 4000, crops)]

    def chunk(self, number: int) -> Examples:
        """All examples of one chunk, shuffled."""
        options = self._options
        rng = np.random.default_rng([self._seed, 31, number])
        settles = number >= options.chunks
        makers = self._settling if settles else self._makers
        pixels, wanted = [], []
        for index in range(number * options.chunk_frames, (number + 1) * options.chunk_frames):
            scene = makers[int(rng.random() < options.coarse_share)].scene(index)
            if not len(scene.boxes):
                continue
            stray = stray_boxes(scene.boxes, options.stray_boxes, scene.image.shape, rng)
            boxes = np.concatenate([jittered(scene.boxes, options.box_jitter, rng), stray])
            cuts = cut_out(scene.image, boxes, options.margin, "none", options.width, options.height)
            mirror = rng.integers(0, 2, (len(cuts), 2))
            cuts[mirror[:, 0] == 1] = cuts[mirror[:, 0] == 1][:, ::-1]
            cuts[mirror[:, 1] == 1] = cuts[mirror[:, 1] == 1][:, :, ::-1]
            pixels.append(cuts)
            nothing = np.full(len(stray), -1)
            labels, of_crop = np.append(scene.label_index, nothing), np.append(scene.crop_index, nothing)
            wanted.append(self._wanted(labels, of_crop, exact=settles and not scene.real))
        order = rng.permutation(sum(len(p) for p in pixels))
        return Examples(np.concatenate(pixels)[order], np.concatenate(wanted)[order])

    def _wanted(
        self, labels: npt.NDArray[np.int64], of_crop: npt.NDArray[np.int64], exact: bool
    ) -> npt.NDArray[np.float32]:
        options = self._options
        smoothing = 0.0 if exact else options.smoothing
        out = np.full((len(labels), len(CLASSES)), smoothing / len(CLASSES), np.float32)
        out[np.arange(len(labels)), np.where(labels < 0, HEALTHY, labels)] += 1.0 - smoothing
        if self._soft is not None:
            said = self._soft[np.maximum(of_crop, 0)]
            told = (of_crop >= 0) & said.any(axis=1)
            out[told] = (1 - options.teacher_trust) * out[told] + options.teacher_trust * said[told]
        return out


def jittered(boxes: npt.NDArray[np.float32], jitter: float, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Boxes (n, 4) that miss: moved, and larger or smaller, by a share `jitter` of their sides."""
    size = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    return np.asarray(boxes + rng.normal(0.0, jitter, boxes.shape) * size, dtype=np.float32)


def stray_boxes(
    boxes: npt.NDArray[np.float32], count: int, size: tuple[int, ...], rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """At most `count` boxes (n, 4) of a module's size around which no module is: each centre is off every module's.

    Half of them lie anywhere in a frame of `size` (rows, columns), half beside a module. What a box off its module
    shows of a fault belongs to the box that is on it.
    """
    sides = boxes[:, 2:] - boxes[:, :2]
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    like = rng.integers(0, len(boxes), count)
    at = rng.uniform(0.0, 1.0, (count, 2)) * np.array([size[1], size[0]])
    beside = centres[like] + rng.uniform(-1.1, 1.1, (count, 2)) * sides[like]
    at[::2] = beside[::2]
    off = np.abs(at[:, None] - centres[None]) / sides[None]
    free = (off.max(axis=2) > 0.42).all(axis=1)
    half = sides[like] / 2
    return np.asarray(np.concatenate([at - half, at + half], axis=1)[free], dtype=np.float32)


def train_judge(
    options: JudgeOptions,
    scene: SceneOptions,
    seed: int,
    crops: Crops | None,
    soft: npt.NDArray[np.float32] | None,
    work: Path,
) -> Judge:
    """Train the second stage; a checkpoint after every chunk.

    Args:
        options: What to train.
        scene: How the first stage's frames are composed.
        seed: Of all chance.
        crops: Real crops (split 0 is used), or None: drawn modules only.
        soft: Teacher's probabilities per crop, or None.
        work: Directory for the checkpoint; one of the same options is resumed.

    Returns:
        The averaged net in eval mode, on the CPU.
    """
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = Judge(options).to(device, memory_format=torch.channels_last)
    average = copy.deepcopy(net).eval()
    optimiser = torch.optim.AdamW(net.parameters(), options.learning_rate, weight_decay=options.weight_decay)
    trained = dataclasses.replace(options, flips=1, take_from="", settle_chunks=0)
    mark = json.dumps([dataclasses.asdict(trained), dataclasses.asdict(scene), seed], sort_keys=True)
    path, done = work / "judge.pt", 0
    if path.exists():
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["options"] != mark:
            raise ArtefactError(f"{path} is of another recipe; name another --work directory or remove it")
        net.load_state_dict(state["net"])
        average.load_state_dict(state["average"])
        optimiser.load_state_dict(state["optimiser"])
        done = int(state["chunks"])
        _say(f"second stage: goes on from chunk {done}")
    maker = ExampleMaker(options, scene, seed, crops, soft)
    started, first = time.monotonic(), done
    total = options.chunks + options.settle_chunks
    for number in range(done, total):
        loss = _train_chunk(net, average, optimiser, maker.chunk(number), number, options, device)
        done = number + 1
        left_s = (time.monotonic() - started) / (done - first) * (total - done)
        _say(f"second stage: chunk {done}/{total} loss {loss:.4f}, {left_s:.0f} s left")
        state = {
            "options": mark, "chunks": done, "net": net.state_dict(),
            "average": average.state_dict(), "optimiser": optimiser.state_dict(),
        }  # fmt: skip
        torch.save(state, work / "judge.tmp")
        (work / "judge.tmp").replace(path)
    result: Judge = average.cpu().float().eval()
    return result


def _train_chunk(
    net: Judge, average: Judge, optimiser: Any, examples: Examples, number: int, options: JudgeOptions, device: Any
) -> float:
    losses = []
    batches = len(examples.pixels) // options.batch
    net.train()
    for index in range(batches):
        rate = options.learning_rate * _share_of_rate(number + index / batches, options)
        for group in optimiser.param_groups:
            group["lr"] = max(rate, 1e-6)
        rows = slice(index * options.batch, (index + 1) * options.batch)
        x = torch.from_numpy(examples.pixels[rows])[:, None].to(device).float().div_(255.0)
        wanted = torch.from_numpy(examples.wanted[rows]).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = net(x.contiguous(memory_format=torch.channels_last))
        loss = -(wanted * F.log_softmax(logits.float(), 1)).sum(1).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimiser.step()
        step = number * batches + index
        _average(average, net, min(options.ema, (1 + step) / (10 + step)))
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


def _share_of_rate(chunk: float, options: JudgeOptions) -> float:
    """Of the learning rate, after so many chunks: up, down along a cosine; once more, ten times lower, to settle."""
    if chunk >= options.chunks:
        return 0.1 * (0.5 + 0.5 * float(np.cos(np.pi * (chunk - options.chunks) / options.settle_chunks)))
    progress = chunk / options.chunks
    return min(1.0, progress / 0.08) * (0.5 + 0.5 * float(np.cos(np.pi * max(progress - 0.08, 0.0) / 0.92)))


@torch.no_grad()  # type: ignore[untyped-decorator]
def _average(average: nn.Module, net: nn.Module, keep: float) -> None:
    for mean, now in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
        if mean.dtype.is_floating_point:
            mean.lerp_(now, 1.0 - keep)
        else:
            mean.copy_(now)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
