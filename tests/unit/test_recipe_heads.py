"""Fine-tuning the heads of the shipped detector with numpy alone: gradient, quantiser, a real short training."""

from pathlib import Path

import numpy as np
import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.golden import check_golden
from swarmd_models.heads import F64, TuneOptions, Weights, find_heads, loss_and_gradient, read_head, write_head
from swarmd_models.synthetic.targets import Targets
from swarmd_recipes import heads
from swarmd_recipes.heads import Scores

CLASSES = 11


def some_cells(seed: int, count: int = 40) -> tuple[Weights, F64, Targets]:
    rng = np.random.default_rng(seed)
    weights = {
        name: (rng.normal(0, 0.4, (outputs, 8)), rng.normal(1.0 if name == "dist" else 0.0, 0.3, outputs))
        for name, outputs in (("fault", 1), ("kind", CLASSES), ("dist", 4))
    }
    kind = rng.random((count, CLASSES)).astype(np.float32)
    kind /= kind.sum(axis=1, keepdims=True)
    distance = rng.uniform(0.2, 3, (count, 4)).astype(np.float32)
    distance[rng.random(count) < 0.4] = -1
    fault = rng.choice([0.0, 0.7, 1.0], count).astype(np.float32)
    weight = rng.choice([0.0, 1.0], count, p=[0.2, 0.8]).astype(np.float32)
    return weights, rng.normal(0, 1, (count, 8)), Targets(fault, kind, weight, distance)


@pytest.mark.parametrize("name", ["fault", "kind", "dist"])
def test_the_gradient_is_that_of_the_loss(name: str) -> None:
    """By differences; the focal factor is a constant to the gradient, so it is held while the loss moves."""
    weights, features, wanted = some_cells(3)
    logit = (features @ weights["fault"][0].T + weights["fault"][1])[:, 0]
    focus = np.abs(1 / (1 + np.exp(-logit)) - wanted.fault) * wanted.weight
    count = max(float((wanted.fault * wanted.weight).sum()), 1.0)

    def loss() -> float:
        total, _ = loss_and_gradient(weights, features, wanted)
        logit = (features @ weights["fault"][0].T + weights["fault"][1])[:, 0]
        entropy = np.logaddexp(0.0, logit) - logit * wanted.fault
        now = np.abs(1 / (1 + np.exp(-logit)) - wanted.fault) * wanted.weight
        return total + float((entropy * (focus - now)).sum() / count)

    _, gradient = loss_and_gradient(weights, features, wanted)
    for part in (0, 1):
        values, slopes = weights[name][part], gradient[name][part]
        for place in list(np.ndindex(values.shape))[:: max(1, values.size // 12)]:
            was, step = values[place], 1e-6
            values[place] = was + step
            above = loss()
            values[place] = was - step
            below = loss()
            values[place] = was
            assert slopes[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-7)


def test_cells_without_a_box_or_a_fault_teach_nothing_about_them() -> None:
    weights, features, wanted = some_cells(4)
    empty = Targets(np.zeros_like(wanted.fault), wanted.kind, wanted.weight, np.full_like(wanted.distance, -1))
    _, gradient = loss_and_gradient(weights, features, empty)
    assert not gradient["dist"][0].any()
    assert not gradient["kind"][0].any()


def test_a_head_reads_back_as_it_was_quantised() -> None:
    data = bytearray(load_bundle("zoo:small-320").model_path.read_bytes())
    _, found = find_heads(bytes(data), CLASSES)
    kernel, bias = read_head(bytes(data), found["kind"])
    changed = write_head(data, found["kind"], kernel * 1.5, bias - 0.25)
    again, shifted = read_head(bytes(data), found["kind"])
    step = np.abs(kernel * 1.5).max(axis=1, keepdims=True) / 127
    assert (np.abs(again - kernel * 1.5) <= 0.51 * step).all()
    assert np.abs(shifted - (bias - 0.25)).max() < 1e-3
    assert changed < kernel.size, "a scale takes up a common factor"


def test_a_model_of_another_make_is_refused() -> None:
    data = load_bundle("zoo:small-320").model_path.read_bytes()
    with pytest.raises(ArtefactError, match="three heads"):
        find_heads(data, CLASSES + 1)


@pytest.mark.slow
def test_a_short_training_makes_a_sound_bundle_that_is_better_on_other_frames(tmp_path: Path) -> None:
    tuned = heads.tune_heads("zoo:small-320", tmp_path / "new", "9", TuneOptions(frames=64, held_out=16))
    assert tuned.after.loss < tuned.before.loss
    assert tuned.changed > 0
    bundle = load_bundle(tuned.path)
    assert bundle.version == "9"
    assert bundle.onnx_path is None
    check_golden(Detector.open(bundle, DetectorOptions()))


def test_a_training_that_does_harm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter((Scores(1.0, None, None, None), Scores(1.5, None, None, None)))
    monkeypatch.setattr(heads, "_scores", lambda *arguments: next(said))
    with pytest.raises(ArtefactError, match="made it worse"):
        heads.tune_heads("zoo:small-320", tmp_path / "new", "9", TuneOptions(frames=2, held_out=1, steps=2))
