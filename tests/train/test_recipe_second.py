"""The second stage's training, pruning, rounding of weights, in its environment (`make test-train`)."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.scenes import SceneOptions
from swarmd_models.synthetic.thermal import FAULT_LABELS
from swarmd_recipes.judge import ExampleMaker, Judge, JudgeOptions, jittered, stray_boxes, train_judge
from swarmd_recipes.net import Detector, NetOptions, fold, million_macs, private_channels
from swarmd_recipes.prune import pruned
from swarmd_recipes.rounding import equalised, round_weights

SCENE = SceneOptions(width=160, height=128)
SMALL = JudgeOptions(widths=(8, 8, 16, 16), blocks=(1, 1, 1), chunks=3, chunk_frames=3, batch=16)
PLAN = NetOptions(widths=(8, 16, 16, 24, 24), blocks=(1, 1, 1, 1), neck=16)


def net_of(options: NetOptions) -> Detector:
    torch.manual_seed(2)
    net: Detector = Detector(options)
    net(torch.rand(4, 1, 64, 96))  # Gives the normalisations something to remember.
    net.eval()
    return net


def ratio_db(wanted: Any, given: Any) -> float:
    return float(10 * torch.log10((wanted**2).mean() / ((wanted - given) ** 2).mean()))


# --- Second stage ----------------------------------------------------------------------------------------------------


def test_a_chunk_of_examples_is_the_same_every_time_and_holds_probabilities() -> None:
    a, b = (ExampleMaker(SMALL, SCENE, 3, None, None).chunk(1) for _ in range(2))
    assert (a.pixels == b.pixels).all()
    assert (a.wanted == b.wanted).all()
    assert a.pixels.shape[1:] == (24, 48)
    assert a.wanted.shape == (len(a.pixels), len(FAULT_LABELS) + 1)
    assert np.allclose(a.wanted.sum(axis=1), 1.0, atol=1e-5)
    assert not (ExampleMaker(SMALL, SCENE, 3, None, None).chunk(2).pixels[:5] == a.pixels[:5]).all()


def test_jitter_is_a_share_of_the_box() -> None:
    boxes = np.tile(np.array([[100.0, 50.0, 149.0, 72.0]], np.float32), (4_000, 1))
    off = jittered(boxes, 0.05, np.random.default_rng(1)) - boxes
    assert off.std(axis=0).tolist() == pytest.approx([2.45, 1.1, 2.45, 1.1], rel=0.1)


def test_stray_boxes_are_off_every_module() -> None:
    boxes = np.array([[100, 50, 149, 72], [100, 72, 149, 94]], np.float32)
    rng = np.random.default_rng(2)
    stray = np.concatenate([stray_boxes(boxes, 6, (128, 160), rng) for _ in range(200)])
    assert len(stray) > 600
    assert np.allclose(stray[:, 2:] - stray[:, :2], [49, 22], atol=1e-3)
    centre = (stray[:, None, :2] + stray[:, None, 2:]) / 2 - (boxes[None, :, :2] + boxes[None, :, 2:]) / 2
    assert (np.abs(centre / [49, 22]).max(axis=2) > 0.4).all()


def test_an_interrupted_second_stage_ends_like_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_judge(SMALL, SCENE, 3, None, None, tmp_path / "whole")

    class Stop(Exception):
        pass

    import swarmd_recipes.judge as module

    real_chunk = ExampleMaker.chunk

    def stop_at_two(self: ExampleMaker, number: int) -> object:
        if number == 2:
            raise Stop
        return real_chunk(self, number)

    monkeypatch.setattr(module.ExampleMaker, "chunk", stop_at_two)
    with pytest.raises(Stop):
        train_judge(SMALL, SCENE, 3, None, None, tmp_path / "cut")
    monkeypatch.setattr(module.ExampleMaker, "chunk", real_chunk)
    resumed = train_judge(SMALL, SCENE, 3, None, None, tmp_path / "cut")
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=1e-5)
    other = dataclasses.replace(SMALL, learning_rate=1e-3)
    with pytest.raises(ArtefactError, match="another recipe"):
        train_judge(other, SCENE, 3, None, None, tmp_path / "cut")


# --- Pruning ---------------------------------------------------------------------------------------------------------


def test_channels_that_say_nothing_are_the_ones_that_go_and_the_answer_stays() -> None:
    net = net_of(PLAN)
    for stage, silent in ((net.stage8, [1, 4, 7, 15]), (net.stage16, [0, 23])):
        for layer in (stage[0], *(block.spread for block in list(stage)[1:])):
            layer[1].weight.data[silent] = 0.0
            layer[1].bias.data[silent] = -1.0  # ReLU6 makes it nothing.
    small = pruned(net, dataclasses.replace(PLAN, widths=(8, 16, 12, 22, 24))).eval()
    x = torch.rand(1, 1, 64, 96)
    # The blocks' inner halves shrink with their trunk, so only what they do not use can be equal: compare without them.
    for both in (net, small):
        for stage in (both.stage8, both.stage16):
            for block in list(stage)[1:]:
                block.spread[1].weight.data.zero_()
                block.spread[1].bias.data.fill_(-1.0)
    with torch.no_grad():
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(net(x), small(x), strict=True))
    assert million_macs(small, 64, 96) < million_macs(net, 64, 96)


def test_pruning_to_the_same_size_changes_nothing_and_to_a_larger_one_is_refused() -> None:
    net, x = net_of(PLAN), torch.rand(1, 1, 64, 96)
    with torch.no_grad():
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(net(x), pruned(net, PLAN).eval()(x), strict=True))
    for wrong in (dataclasses.replace(PLAN, neck=32), dataclasses.replace(PLAN, blocks=(1, 2, 1, 1))):
        with pytest.raises(ArtefactError, match="cannot be cut out"):
            pruned(net, wrong)


# --- Rounding --------------------------------------------------------------------------------------------------------


def test_rounded_weights_lie_on_the_quantisers_grid_and_answer_far_nearer_than_the_nearest() -> None:
    net = fold(net_of(PLAN))
    torch.manual_seed(3)
    # Bright frames with little contrast: what makes rounding to the nearest so bad.
    frames = 0.5 + 0.2 * torch.rand(8, 1, 1, 1) + 0.03 * torch.randn(8, 1, 64, 96)
    before = copy.deepcopy(net.state_dict())
    rounded = round_weights(net, frames[:6])
    assert all(torch.equal(a, b) for a, b in zip(before.values(), net.state_dict().values(), strict=True))
    nearest = copy.deepcopy(net)
    for layer in nearest.modules():
        if isinstance(layer, torch.nn.Conv2d):
            scale = layer.weight.data.abs().amax((1, 2, 3), keepdim=True) / 127
            layer.weight.data = torch.round(layer.weight.data / scale) * scale
    for layer in rounded.modules():
        if isinstance(layer, torch.nn.Conv2d):
            scale = layer.weight.abs().amax((1, 2, 3), keepdim=True) / 127
            assert torch.allclose(torch.round(layer.weight / scale) * scale, layer.weight, atol=1e-6)
    with torch.no_grad():
        wanted, ours, theirs = (n(frames[6:])[0] for n in (net, rounded, nearest))
    assert ratio_db(wanted, ours) > ratio_db(wanted, theirs) + 3.0


def test_equalised_channels_fill_their_range_and_change_no_answer() -> None:
    net = fold(net_of(PLAN))
    frames = torch.rand(4, 1, 64, 96)
    same = equalised(net, private_channels(net), frames)
    with torch.no_grad():
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(net(frames), same(frames), strict=True))
        used = same.stem(frames).amax((0, 2, 3))
        before = net.stem(frames).amax((0, 2, 3))
    assert (used >= before - 1e-5).all()
    assert float(used[before > 0.5].min()) > 5.0


def test_the_second_stage_answers_one_row_a_cut_whatever_the_batch() -> None:
    net = Judge(SMALL).eval()
    x = torch.rand(5, 1, 24, 48)
    with torch.no_grad():
        together, alone = net(x), torch.cat([net(one) for one in x.split(1)])
    assert together.shape == (5, len(FAULT_LABELS) + 1)
    assert torch.allclose(together, alone, atol=1e-5)
