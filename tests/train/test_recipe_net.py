"""The detector and its training, in its environment (`make test-train`)."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.scenes import SceneMaker, SceneOptions
from swarmd_models.synthetic.targets import targets_of
from swarmd_recipes.net import Detector, NetOptions, detector_loss, fold
from swarmd_recipes.train import Recipe, TrainOptions, load_recipe, train

TINY = NetOptions(widths=(8, 8, 16, 16, 16), blocks=(1, 1, 1, 1), neck=16)
SCENE = SceneOptions(width=160, height=128)
RECIPE = Recipe("tiny-test", "1", 3, SCENE, TINY, TrainOptions(steps=6, batch=2, workers=0, teacher_epochs=0))


def test_the_best_kind_carries_the_logit_of_any_fault() -> None:
    net = Detector(TINY).eval()
    x = torch.rand(1, 1, 128, 160)
    with torch.no_grad():
        fault, kind, dist = net.parts(x)
        cls, sides = net(x)
    assert cls.shape == (1, 320, 11)
    assert sides.shape == (1, 320, 4)
    assert torch.allclose(cls.amax(-1), fault.flatten(1), atol=1e-5)
    assert torch.equal(cls.argmax(-1), kind.flatten(2).argmax(1))
    assert (sides >= 0).all()
    assert torch.allclose(sides[0, :, 2], dist[0, 2].flatten())


def test_folding_changes_no_answer() -> None:
    net = Detector(TINY)
    net(torch.rand(4, 1, 128, 160))  # Gives the normalisations something to remember.
    net.eval()
    x = torch.rand(1, 1, 128, 160)
    with torch.no_grad():
        before = net(x)
        after = fold(net)(x)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(before, after, strict=True))
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in net.modules())


def test_the_loss_of_the_truth_is_small_and_falls_with_training() -> None:
    torch.manual_seed(1)
    maker = SceneMaker(dataclasses.replace(SCENE, plain_share=0.0), 1)
    scenes = [maker.scene(i) for i in range(4)]
    targets = [targets_of(s) for s in scenes]
    wanted = [
        torch.from_numpy(np.stack([getattr(t, n) for t in targets])) for n in ("fault", "kind", "weight", "distance")
    ]
    x = torch.from_numpy(np.stack([s.image for s in scenes])[:, None].astype(np.float32) / 255)
    net = Detector(TINY)
    optimiser = torch.optim.AdamW(net.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        loss = sum(detector_loss(net.parts(x), *wanted))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0]


def test_an_interrupted_run_ends_like_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_recipes.train._CHECKPOINT_EVERY", 3)
    whole = train(RECIPE, None, tmp_path / "whole")
    kept = (tmp_path / "whole" / "checkpoint.pt").read_bytes()
    (tmp_path / "cut").mkdir()

    class Stop(Exception):
        pass

    saved = 0

    def stop_after_first(*arguments: object) -> None:
        nonlocal saved
        real_save(*arguments)  # type: ignore[arg-type]
        saved += 1
        raise Stop

    import swarmd_recipes.train as module

    real_save = module._save
    monkeypatch.setattr(module, "_save", stop_after_first)
    with pytest.raises(Stop):
        train(RECIPE, None, tmp_path / "cut")
    monkeypatch.setattr(module, "_save", real_save)
    resumed = train(RECIPE, None, tmp_path / "cut")
    assert saved == 1
    assert kept
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=1e-5)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    train(RECIPE, None, tmp_path)
    with pytest.raises(ArtefactError, match="another recipe"):
        train(dataclasses.replace(RECIPE, seed=4), None, tmp_path)


def test_recipes_that_ship_are_valid_and_unknown_ones_are_named() -> None:
    for name in ("nano-160", "tiny-224", "small-320", "medium-640"):
        for profile in ("full", "short"):
            assert load_recipe(name, profile).name == name
    with pytest.raises(ArtefactError, match=r"known recipes: .*small-320"):
        load_recipe("giant-9000")


def test_an_unknown_key_of_a_recipe_is_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text('name = "odd"\nversion = "1"\nseed = 1\n[train]\nstep = 3\n')
    with pytest.raises(ArtefactError, match="unknown key 'step'"):
        load_recipe(str(path))
