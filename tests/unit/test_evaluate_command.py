"""`python -m swarmd_models.evaluate`: the contract of its output, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import choose_split, main, parse_spec
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops, draw_module

pytestmark = pytest.mark.slow


def drawn_crops(path: Path, per_class: int = 6) -> Path:
    """Crops drawn by procedure, in the real file's format (portrait, 40 x 24)."""
    rng = np.random.default_rng(5)
    labels = [*FAULT_LABELS, *[""] * 11]
    images = [np.rot90(draw_module(label, 24, 40, rng) + 120, -1) for label in labels for _ in range(per_class)]
    index = [FAULT_LABELS.index(label) if label else 11 for label in labels for _ in range(per_class)]
    np.savez(
        path,
        images=np.clip(np.array(images), 0, 255).astype(np.uint8),
        label=np.array(index, np.uint8),
        classes=np.array([*FAULT_LABELS, "No-Anomaly"]),
    )
    return path


def test_crops_it_has_never_seen_are_just_this_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--crops", str(drawn_crops(tmp_path / "crops.npz")), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n"] == 6 * 22
    assert {"auroc", "macro_f1", "recall", "int8_minus_float"} <= result.keys()
    assert result["auroc"] > 0.85
    assert set(result["recall"]) == set(FAULT_LABELS)
    assert min(result["recall"].values()) >= 0.0


def test_frames_have_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--frames", "composed://?prevalence=0.085&frames=25&seed=3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {
        "ap",
        "precision",
        "recall",
        "false_per_1000_normal",
        "recall_per_class",
        "recall_per_range",
    } <= result.keys()
    assert result["frames"] == 25
    assert result["ap"] > 0.9


def test_the_control_has_no_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--frames", "composed://?prevalence=0&frames=20", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["faults"] == 0
    assert result["ap"] is None
    assert result["false_per_1000_normal"] <= 5.0


def test_people_get_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--frames", "composed://?frames=1"]) == 0
    assert "recall: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("composed://?prevalance=0.1", "did you mean 'prevalence'"),
        ("composed://?zz=0.1", "known keys"),
        ("composed://?frames=0", "frames 1 to"),
        ("composed://?frames=x", "must be a number"),
        ("composed://?prevalence=2", "prevalence 0 to 1"),
        ("composed://?prevalence=nan", "prevalence 0 to 1"),
        ("sim://farm", "composed://"),
        ("composed://host?frames=1", "composed://"),
    ],
)
def test_a_wrong_spec_is_named(spec: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArtefactError, match=said.replace("?", r"\?")):
        parse_spec(spec)
    assert main(["--frames", spec]) == 1
    assert "error: " in capsys.readouterr().err


def test_a_missing_file_is_an_error_not_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--crops", str(tmp_path / "none.npz")]) == 1
    assert "none.npz" in capsys.readouterr().err


def test_the_validation_split_is_judged_where_there_is_one() -> None:
    image = np.zeros((4, 40, 24), np.uint8)
    labels, index = (NORMAL_LABEL,), np.zeros(4, np.int64)
    both = Crops(image, labels, index, np.array([0, 1, 1, 0], np.uint8))
    assert choose_split(both, None).tolist() == [1, 2]
    assert choose_split(both, "train").tolist() == [0, 3]
    one = Crops(image, labels, index, np.zeros(4, np.uint8))
    assert choose_split(one, None).tolist() == [0, 1, 2, 3]
