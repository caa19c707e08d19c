"""Train a detector from a recipe: `python -m swarmd_recipes small-320 --crops FILE.npz --work DIR`.

Frames are composed as they are needed; frame `i` depends on the seed and `i` alone, so a run that was interrupted goes
on from its last checkpoint as if nothing had happened. A GPU is used when there is one; on CPUs with bfloat16 units
(AMX) a step takes a quarter of the time. Needs PyTorch (extra `train`).
"""

import copy
import dataclasses
import json
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.scenes import SceneOptions
from swarmd_models.synthetic.targets import targets_of
from swarmd_models.synthetic.thermal import FAULT_LABELS, Crops
from swarmd_recipes.drawing import labels_of, maker_of
from swarmd_recipes.judge import JudgeOptions
from swarmd_recipes.net import Detector, NetOptions, detector_loss
from swarmd_recipes.prune import pruned
from swarmd_recipes.traffic_scenes import TrafficOptions

ZOO_RECIPES = ("small-320", "tiny-224", "medium-640", "nano-160")
"""In this order: the other two begin with the weights of the first."""

_CHECKPOINT_EVERY = 500
_REPORT_EVERY = 100
SHORT_SHARE = 0.15
"""Of the frames for thresholds and figures, in the short profile."""


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The `[train]` table of a recipe."""

    steps: int = 12_000
    batch: int = 8
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    workers: int = 1
    kind_weight: float = 0.5
    box_weight: float = 1.0
    ema: float = 0.999
    teacher_trust: float = 0.5
    """Weight of the teacher's opinion against the label."""
    teacher_epochs: int = 24
    """0 trains without a teacher."""
    teacher_members: int = 2
    start_from: str = ""
    """Another recipe, made before in the same work directory, whose weights are the beginning. Where its net is wider,
    the channels that matter most are kept (`prune.py`)."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what a model becomes, but for the data."""

    name: str
    version: str
    seed: int
    scene: SceneOptions | TrafficOptions = field(default_factory=SceneOptions)
    net: NetOptions = field(default_factory=NetOptions)
    train: TrainOptions = field(default_factory=TrainOptions)
    second: JudgeOptions | None = None
    """The second stage; None: the model has one stage."""


def load_recipe(name: str, profile: str = "full") -> Recipe:
    """Read a recipe that ships with the package, or one at a path.

    Args:
        name: Such as "small-320", or a path ending in .toml.
        profile: "full", or "short": the `[short]` table overrides `[train]`.

    Returns:
        The recipe.

    Raises:
        ArtefactError: There is no such recipe, or it holds something unknown.
    """
    path = Path(name) if name.endswith(".toml") else Path(__file__).with_name(f"{name}.toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        known = ", ".join(sorted(p.stem for p in Path(__file__).parent.glob("*.toml")))
        raise ArtefactError(f"recipe {name}: {error}; known recipes: {known}") from error
    short = data.get("short", {}) if profile == "short" else {}
    train = data.get("train", {}) | {k: v for k, v in short.items() if k != "second"}
    second = data.get("second")
    if second is not None:
        second = second | short.get("second", {})
    try:
        is_traffic = "traffic" in data
        scene = _table(*((TrafficOptions, data["traffic"]) if is_traffic else (SceneOptions, data.get("scene", {}))))
        return Recipe(
            str(data["name"]),
            str(data["version"]),
            int(data["seed"]),
            scene,
            _table(NetOptions, {**data.get("net", {}), "classes": len(labels_of(scene))}),
            _table(TrainOptions, train),
            None if second is None else _table(JudgeOptions, second),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"recipe {path}: {error}") from error


def _table(kind: Any, values: dict[str, Any]) -> Any:
    known = {f.name for f in dataclasses.fields(kind)}
    for key in values:
        if key not in known:
            raise ValueError(f"unknown key {key!r}; known: {', '.join(sorted(known))}")
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})


class Frames(Dataset[tuple[Any, ...]]):  # type: ignore[misc]
    """Composed frames with their targets, by number."""

    def __init__(self, recipe: Recipe, crops: Crops | None, soft: npt.NDArray[np.float32] | None, first: int) -> None:
        """Frames `first` and up of the recipe's seed."""
        self._maker, self._classes = maker_of(recipe.scene, recipe.seed, crops), recipe.net.classes
        self._soft, self._trust = soft, recipe.train.teacher_trust
        self._first = first
        self._count = recipe.train.steps * recipe.train.batch - first

    def __len__(self) -> int:
        """Frames that are left to train on."""
        return self._count

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """One frame: pixels (1, H, W) uint8 and the four arrays of `Targets`."""
        scene = self._maker.scene(self._first + index)
        targets = targets_of(scene, self._soft, self._trust, self._classes)
        return scene.image[None], targets.fault, targets.kind, targets.weight, targets.distance


def load_soft(path: Path, crops: Crops | None) -> npt.NDArray[np.float32]:
    """A teacher's probabilities, one row a crop; raises `ArtefactError` when they are not of these crops."""
    try:
        with np.load(path, allow_pickle=False) as data:
            soft = np.asarray(data["probability"], dtype=np.float32)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ArtefactError(f"{path}: cannot be read as a teacher's probabilities ({error})") from error
    if crops is None or soft.shape != (len(crops.images), len(FAULT_LABELS) + 1):
        raise ArtefactError(f"{path}: {soft.shape} probabilities do not fit the crops")
    return soft


def pick_device() -> torch.device:
    """The GPU when there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(recipe: Recipe, crops: Crops | None, work: Path, soft: npt.NDArray[np.float32] | None = None) -> Detector:
    """Train until the recipe's last step; checkpoints and progress go to `work`.

    Args:
        recipe: What to train.
        crops: Real crops (their train split is used), or None: procedural modules only.
        work: Directory for checkpoints; one of the same recipe is resumed.
        soft: Teacher's probabilities per crop and class, or None.

    Returns:
        The averaged net in eval mode, on the CPU.
    """
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    device, options = pick_device(), recipe.train
    net = Detector(recipe.net).to(device, memory_format=torch.channels_last)
    if options.start_from:
        net.load_state_dict(_beginning(work.parent, options.start_from, recipe.net))
    average = copy.deepcopy(net).eval()
    if options.steps == 0:  # The weights serve as they are, in frames of another size.
        unchanged: Detector = average.cpu().float()
        return unchanged
    optimiser = torch.optim.AdamW(net.parameters(), options.learning_rate, weight_decay=options.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.learning_rate, total_steps=options.steps + 1, pct_start=0.1
    )
    step = _resume(work, recipe, net, average, optimiser, schedule)
    frames = Frames(recipe, crops, soft, step * options.batch)
    loader = DataLoader(frames, batch_size=options.batch, num_workers=options.workers, persistent_workers=False)
    started, losses = time.monotonic(), []
    first = step
    for images, *targets in loader:
        losses.append(_step(net, images, targets, optimiser, options, device))
        schedule.step()
        step += 1
        _average(average, net, min(options.ema, (1 + step) / (10 + step)))
        if step % _REPORT_EVERY == 0 or step == options.steps:
            left_s = (time.monotonic() - started) / (step - first) * (options.steps - step)
            mean = np.mean(losses, axis=0)
            figures = f"fault {mean[0]:.3f} kind {mean[1]:.3f} box {mean[2]:.3f}"
            say(f"{recipe.name}: step {step}/{options.steps} {figures}, {left_s:.0f} s left")
            losses.clear()
        if step % _CHECKPOINT_EVERY == 0 or step == options.steps:
            _save(work, recipe, step, net, average, optimiser, schedule)
    trained: Detector = average.cpu().float().eval()
    return trained


def _step(net: Detector, images: Any, targets: Any, optimiser: Any, options: TrainOptions, device: Any) -> list[float]:
    x = images.to(device).float().div_(255.0).contiguous(memory_format=torch.channels_last)
    wanted = [t.to(device) for t in targets]
    net.train()
    with torch.autocast(device.type, torch.bfloat16):
        parts = net.parts(x)
    fault_loss, kind_loss, box_loss = detector_loss(parts, *wanted)
    optimiser.zero_grad(set_to_none=True)
    (fault_loss + options.kind_weight * kind_loss + options.box_weight * box_loss).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimiser.step()
    return [float(fault_loss.detach()), float(kind_loss.detach()), float(box_loss.detach())]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _average(average: Detector, net: Detector, keep: float) -> None:
    for mean, now in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
        if mean.dtype.is_floating_point:
            mean.lerp_(now, 1.0 - keep)
        else:
            mean.copy_(now)


def fingerprint(recipe: Recipe) -> str:
    """All that decides the first stage."""
    return json.dumps(dataclasses.asdict(dataclasses.replace(recipe, second=None)), sort_keys=True)


def _save(work: Path, recipe: Recipe, step: int, net: Any, average: Any, optimiser: Any, schedule: Any) -> None:
    state = {
        "recipe": fingerprint(recipe),
        "step": step,
        "net": net.state_dict(),
        "average": average.state_dict(),
        "optimiser": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
    }
    torch.save(state, work / "checkpoint.tmp")
    (work / "checkpoint.tmp").replace(work / "checkpoint.pt")


def _beginning(work: Path, name: str, wanted: NetOptions) -> Any:
    """Weights of another recipe's net, cut down to the net that is wanted."""
    path = work / name / "checkpoint.pt"
    if not path.exists():
        raise ArtefactError(f"{path} is missing; make {name} first, with the same --work")
    state = torch.load(path, map_location="cpu", weights_only=True)
    options = _table(NetOptions, json.loads(state["recipe"])["net"])
    if options == wanted:
        return state["average"]
    net = Detector(options)
    net.load_state_dict(state["average"])
    return pruned(net.eval(), wanted).state_dict()


def _resume(work: Path, recipe: Recipe, net: Any, average: Any, optimiser: Any, schedule: Any) -> int:
    path = work / "checkpoint.pt"
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    if state["recipe"] != fingerprint(recipe):
        raise ArtefactError(f"{path} is of another recipe; name another --work directory or remove it")
    net.load_state_dict(state["net"])
    average.load_state_dict(state["average"])
    optimiser.load_state_dict(state["optimiser"])
    schedule.load_state_dict(state["schedule"])
    say(f"{recipe.name}: goes on from step {state['step']}")
    return int(state["step"])


def say(text: str) -> None:
    """One line on standard error, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
