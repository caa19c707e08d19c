"""Module appearance: drawn kinds, and real crops that are checked before they are used."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops, draw_module


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("label", ["", *FAULT_LABELS])
def test_every_kind_is_drawn_and_repeats(label: str) -> None:
    patch = draw_module(label, 22, 49, rng())
    assert patch.shape == (22, 49)
    assert patch.dtype == np.float32
    assert np.isfinite(patch).all()
    assert np.array_equal(patch, draw_module(label, 22, 49, rng()))


@pytest.mark.parametrize("label", FAULT_LABELS)
def test_a_fault_stands_out_from_a_healthy_module(label: str) -> None:
    """The same random numbers without the fault: somewhere the two differ by far more than the noise."""
    for seed in range(20):
        difference = np.abs(draw_module(label, 22, 49, rng(seed)) - draw_module("", 22, 49, rng(seed)))
        assert difference.max() > 15.0


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError):
        draw_module("rust", 22, 49, rng())


def write(path: Path, **changes: object) -> Path:
    arrays: dict[str, object] = {
        "images": rng().integers(0, 255, (6, 40, 24)).astype(np.uint8),
        "label": np.array([0, 1, 1, 0, 1, 0], dtype=np.uint8),
        "split": np.array([0, 0, 0, 0, 1, 1], dtype=np.uint8),
        "classes": np.array(["Hot-Spot", "No-Anomaly"]),
    } | changes
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    return path


def test_crops_are_read(tmp_path: Path) -> None:
    crops = Crops.load(write(tmp_path / "crops.npz"))
    assert crops.labels == ("hot-spot", NORMAL_LABEL)
    assert crops.where("hot-spot", split=0).tolist() == [0, 3]
    assert crops.where("diode").tolist() == []
    patch, level = crops.patch(2)
    assert patch.shape == (24, 40)
    assert np.median(patch) == 0.0
    assert level == float(np.median(crops.images[2]))


def test_a_file_without_split_is_all_train(tmp_path: Path) -> None:
    assert not Crops.load(write(tmp_path / "crops.npz", split=None)).split.any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": None}, "images"),
        ({"images": np.zeros((6, 40, 24), np.float32)}, "expected uint8"),
        ({"images": np.zeros((6, 4, 4), np.uint8)}, "expected 8 to 512"),
        ({"images": np.zeros((0, 40, 24), np.uint8)}, "expected uint8"),
        ({"label": np.zeros(5, np.uint8)}, "not as long"),
        ({"label": np.full(6, 2, np.uint8)}, "outside `classes`"),
        ({"classes": np.array(["Hot-Spot", "Rust"])}, "unknown classes rust"),
        ({"classes": np.array([{}, {}], dtype=object)}, "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ArtefactError, match=said):
        Crops.load(write(tmp_path / "crops.npz", **changes))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"none\.npz"):
        Crops.load(tmp_path / "none.npz")


@settings(max_examples=60, deadline=None)
@given(cut=st.floats(0, 1), flip=st.integers(0, 255), where=st.floats(0, 1))
def test_damaged_bytes_never_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int, where: float
) -> None:
    folder = tmp_path_factory.mktemp("crops")
    data = bytearray(write(folder / "whole.npz").read_bytes())
    data[int(where * (len(data) - 1))] ^= flip
    damaged = folder / "damaged.npz"
    damaged.write_bytes(bytes(data[: max(1, int(cut * len(data)))]))
    try:
        Crops.load(damaged)
    except ArtefactError as error:
        message = str(error)
    else:
        message = "damaged.npz"  # The flipped bit was one that nobody reads.
    assert "damaged.npz" in message


@pytest.mark.shared
def test_the_real_crops_are_what_the_readme_says(shared: Path) -> None:
    crops = Crops.load(shared / "data/modules_ir/modules_ir_visible.npz")
    assert len(crops.images) == 13257
    assert (crops.split == 0).sum() == 10645
    assert set(crops.labels) == {*FAULT_LABELS, NORMAL_LABEL}
