"""Really trained pairs of `.tflite` files for the delta bars: base, gentle full fine-tune, head-only fine-tune.

Needs the training environment (`make model`) and a checkpoint of `swarmd_recipes.train`:

    .venv-train/bin/python -m tests.bench.release_pairs CHECKPOINT.pt OUT [--steps 200]

Writes base, gentle (all weights, learning rate 1e-4), strong (1e-3) and head .tflite files into OUT, the last
with only the output layers trained, each exported by the recipe's own INT8 export.
"""

import argparse
import copy
import dataclasses
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from swarmd_recipes.export import sample_frames, to_int8, to_tflite, with_ramp
from swarmd_recipes.net import Detector, fold
from swarmd_recipes.train import Frames, _step, load_recipe


def tuned(base: Detector, recipe, steps: int, rate: float, only: str) -> Detector:
    """The model after a short fine-tune on frames it has not seen; batch statistics stay as they are."""
    net = copy.deepcopy(base).to(memory_format=torch.channels_last)
    names = [name for name, _ in net.named_parameters()]
    heads = {name for name in names if any(part in name for part in only.split(","))} if only else set(names)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name in heads)
    optimiser = torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], rate, weight_decay=0.0)
    unseen = dataclasses.replace(recipe, seed=recipe.seed + 77)
    loader = DataLoader(Frames(unseen, None, None, 0), batch_size=4, num_workers=0)
    frozen = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    train = net.train

    def train_without_statistics(mode: bool = True) -> Detector:
        train(mode)
        for module in frozen:
            module.eval()
        return net

    net.train = train_without_statistics  # type: ignore[method-assign]
    for step, (images, *targets) in enumerate(loader, 1):
        loss = _step(net, images, targets, optimiser, recipe.train, torch.device("cpu"))
        if step % 20 == 0:
            print(only or "all", rate, step, [round(one, 3) for one in loss], flush=True)
        if step >= steps:
            break
    del net.train
    return net.float().eval()


def export(net: Detector, recipe, out: Path, frames) -> None:
    """INT8 by the recipe's own export, with the same calibration frames for every version."""
    net = copy.deepcopy(net)
    fold(net)
    float_path = out.with_suffix(".float.tflite")
    to_tflite(net, frames.shape[1:], float_path)
    to_int8(float_path, out, frames)
    float_path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipe", default="small-320")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--heads", default="head,cls,dist,fault,kind,box", help="parts of parameter names of the head")
    options = parser.parse_args()
    recipe = load_recipe(options.recipe)
    base = Detector(recipe.net)
    base.load_state_dict(torch.load(options.checkpoint, map_location="cpu", weights_only=True)["average"])
    base.eval()
    options.out.mkdir(parents=True, exist_ok=True)
    print([name for name, _ in base.named_parameters()][-14:], flush=True)
    frames = np.stack([with_ramp(frame) for frame in sample_frames(recipe, None, 32, 1 << 20)])
    export(base, recipe, options.out / "base.tflite", frames)
    for name, rate, only in (("gentle", 1e-4, ""), ("head", 1e-4, options.heads), ("strong", 1e-3, "")):
        net = tuned(base, recipe, options.steps, rate, only)
        export(net, recipe, options.out / f"{name}.tflite", frames)
        print("wrote", options.out / f"{name}.tflite", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
