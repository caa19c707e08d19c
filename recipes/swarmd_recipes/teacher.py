"""The teacher: large crop classifiers that see one module at a time and whose opinion the small models learn.

`python -m swarmd_recipes.teacher --crops FILE.npz --work DIR`. The labels of the crop set are noisy (byte-equal
crops carry different labels), so a student learns from probabilities too. The members differ in their seed alone; each
is trained on the whole training split with mixed crops and softened labels, so that none of them learns the labels by
heart, and a crop's opinion is the mean over members and flips. The validation split is judged for nothing but the
figures. Needs PyTorch (extra `train`); resumable member by member.
"""

import argparse
import hashlib
import itertools
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
from swarmd_models.metrics import auroc, macro_f1
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops

CLASSES = (*FAULT_LABELS, NORMAL_LABEL)
"""Order of the teacher's probabilities: the fault labels, then the healthy class."""


@dataclass(frozen=True, slots=True)
class TeacherOptions:
    """How the teacher is trained."""

    members: int = 2
    epochs: int = 24
    batch: int = 128
    widths: tuple[int, ...] = (24, 48, 96, 160)
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    mixup: float = 0.2
    smoothing: float = 0.05
    seed: int = 11


class _Block(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.skip = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(
                nn.AvgPool2d(stride, ceil_mode=True), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.b(self.a(x)) + self.skip(x))


class Teacher(nn.Module):  # type: ignore[misc]
    """A small residual net over one 40 x 24 crop; 1.2 million parameters at the default widths."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        """Build it with random weights."""
        super().__init__()
        w = widths
        self.stem = nn.Sequential(nn.Conv2d(1, w[0], 3, 1, 1, bias=False), nn.BatchNorm2d(w[0]), nn.ReLU())
        self.body = nn.Sequential(
            *(block for a, b in itertools.pairwise(w) for block in (_Block(a, b, 2), _Block(b, b, 1)))
        )
        self.head = nn.Linear(2 * w[-1], len(CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes) of crops (batch, 1, rows, columns), centred and scaled."""
        y = self.body(self.stem(x))
        return self.head(torch.cat([y.mean((2, 3)), y.amax((2, 3))], 1))


def crop_tensor(crops: Crops, index: npt.NDArray[np.int64]) -> torch.Tensor:
    """Crops as (n, 1, rows, columns), about zero mean and unit size; absolute level is kept, it tells a little."""
    return torch.from_numpy((crops.images[index].astype(np.float32)[:, None] - 150.0) / 40.0)


def class_index(crops: Crops) -> npt.NDArray[np.int64]:
    """Class of every crop in the order of `CLASSES`."""
    order = np.array([CLASSES.index(label) for label in crops.labels])
    return np.asarray(order[crops.label_index], dtype=np.int64)


def augment(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each picture of a batch flipped, moved, stretched, brightened and made noisy by its own chance."""
    count = len(x)
    mirror = torch.randint(0, 2, (count, 2), generator=generator) * 2.0 - 1.0
    stretch = 1.0 + 0.06 * (2.0 * torch.rand(count, 2, generator=generator) - 1.0)
    reach = torch.tensor([3.0 / x.shape[3], 3.0 / x.shape[2]])  # A pixel and a half to every side.
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = mirror[:, 0] * stretch[:, 0], mirror[:, 1] * stretch[:, 1]
    theta[:, :, 2] = reach * (2.0 * torch.rand(count, 2, generator=generator) - 1.0)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    gain = torch.exp(0.1 * torch.randn(count, 1, 1, 1, generator=generator))
    shift = 0.15 * torch.randn(count, 1, 1, 1, generator=generator)
    return x * gain + shift + 0.03 * torch.randn(x.shape, generator=generator)


def _train_member(
    x: torch.Tensor, y: torch.Tensor, options: TeacherOptions, seed: int, device: Any, say: Any
) -> Teacher:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    net = Teacher(options.widths).to(device, memory_format=torch.channels_last)
    steps = options.epochs * (len(x) // options.batch)
    optimiser = torch.optim.AdamW(net.parameters(), options.learning_rate, weight_decay=options.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.learning_rate, total_steps=steps, pct_start=0.15)
    counts = torch.bincount(y, minlength=len(CLASSES)).float().clamp(min=1)
    class_weight = (counts.sum() / counts) ** 0.25
    class_weight /= (class_weight * counts).sum() / counts.sum()
    one_hot = F.one_hot(y, len(CLASSES)).float()
    one_hot = one_hot * (1 - options.smoothing) + options.smoothing / len(CLASSES)
    started, step = time.monotonic(), 0
    for epoch in range(options.epochs):
        order = torch.randperm(len(x), generator=generator)
        for part in order[: len(x) // options.batch * options.batch].split(options.batch):
            inputs = augment(x[part], generator)
            wanted = one_hot[part] * class_weight[y[part]][:, None]
            mix = float(np.random.default_rng([seed, step]).beta(options.mixup, options.mixup))
            other = torch.randperm(len(part), generator=generator)
            inputs = (mix * inputs + (1 - mix) * inputs[other]).to(device).contiguous(memory_format=torch.channels_last)
            wanted = (mix * wanted + (1 - mix) * wanted[other]).to(device)
            with torch.autocast(device.type, torch.bfloat16):
                logits = net(inputs)
            loss = -(wanted * F.log_softmax(logits.float(), 1)).sum(1).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            step += 1
        left_s = (time.monotonic() - started) / step * (steps - step)
        say(f"epoch {epoch + 1}/{options.epochs} loss {float(loss.detach()):.3f}, {left_s:.0f} s left for it")
    trained: Teacher = net.eval()
    return trained


@torch.no_grad()  # type: ignore[untyped-decorator]
def predict(net: Teacher, x: torch.Tensor, device: Any) -> npt.NDArray[np.float32]:
    """Probabilities (n, classes), the mean over the four flips."""
    out = []
    for part in x.split(512):
        part = part.to(device)
        views = [part, part.flip(2), part.flip(3), part.flip(2, 3)]
        out.append(sum(net(view).float().softmax(1) for view in views).cpu() / len(views))
    return np.asarray(torch.cat(out).numpy(), dtype=np.float32)


def teach(crops: Crops, work: Path, options: TeacherOptions, say: Any) -> npt.NDArray[np.float32]:
    """Train all members and judge every crop.

    Args:
        crops: With both splits.
        work: Where each finished member is kept; a second call goes on where the first stopped.
        options: How to train.
        say: Told about progress.

    Returns:
        Shape (crops, classes): mean probabilities over members and flips. Those of training crops are in sample.
    """
    work.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    labels = class_index(crops)
    train, rest = np.flatnonzero(crops.split == 0), np.flatnonzero(crops.split != 0)
    soft = np.zeros((len(labels), len(CLASSES)), dtype=np.float32)
    for member in range(options.members):
        path = work / f"member{member}-{_mark(options)}.pt"
        net = Teacher(options.widths).to(device)
        if path.exists():
            net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        else:
            x, y = crop_tensor(crops, train), torch.from_numpy(labels[train])
            net = _train_member(
                x, y, options, options.seed + member, device, lambda t, m=member: say(f"teacher {m}: {t}")
            )
            torch.save(net.state_dict(), path)
        own = predict(net.eval(), crop_tensor(crops, np.arange(len(labels))), device)
        soft += own / options.members
        alone, known = _figures(own[rest], labels[rest]), _figures(own[train], labels[train])
        say(f"teacher {member}: alone {alone}; on its own crops {known}")
    say(f"teacher: {options.members} members {_figures(soft[rest], labels[rest])}")
    return soft


def _mark(options: TeacherOptions) -> str:
    """A short name for a set of options."""
    return hashlib.sha256(repr(options).encode()).hexdigest()[:8]


def _figures(probability: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> str:
    healthy = CLASSES.index(NORMAL_LABEL)
    if not len(labels):
        return "no crops"
    area = auroc(1.0 - probability[:, healthy], labels != healthy)
    return f"AUROC {area:.4f}, macro F1 {macro_f1(labels, probability.argmax(1), len(CLASSES)):.3f}"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.teacher")
    parser.add_argument("--crops", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/model/teacher"))
    parser.add_argument("--epochs", type=int, default=TeacherOptions().epochs)
    parser.add_argument("--members", type=int, default=TeacherOptions().members)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        crops = Crops.load(options.crops)
    except ArtefactError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if options.threads:
        torch.set_num_threads(options.threads)
    chosen = TeacherOptions(epochs=options.epochs, members=options.members)

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    soft = teach(crops, options.work, chosen, say)
    np.savez_compressed(options.work / "soft.npz", probability=soft, classes=np.array(CLASSES))
    validation = crops.split == 1
    say(json.dumps({"validation": _figures(soft[validation], class_index(crops)[validation])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
