"""A candidate: better where it was judged, or nothing is written; and it says where it is from."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from swarmd_models import learned_head
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.golden import check_golden
from swarmd_models.head_rows import HeadNet, drawn_scenes, one_hot, trained
from swarmd_models.labelling.training_set import TrainingSet
from swarmd_models.learned_head import Lineage, make_candidate
from tests.support.label_sets import CONTRAST, MODEL, drawn_set

UNIT = 1 << 24


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return drawn_set(tmp_path_factory.mktemp("judge") / "set", 51, 4, held_share=1.0)


@pytest.fixture(scope="module")
def moved() -> list[int]:
    """What three rounds on drawn labels make of the head."""
    bundle = load_bundle(MODEL)
    net = HeadNet(bundle)
    rows, drawn = net.rows(drawn_scenes(bundle, 52, 5, CONTRAST)), net.rows(drawn_scenes(bundle, 53, 5))
    head = net.head
    for _ in range(3):
        head = trained(head, rows, one_hot(rows.labels, len(head)), drawn)
    return [round(float(one) * UNIT) for one in (head - net.head).ravel()]


@pytest.fixture(autouse=True)
def few_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_head, "DRAWN_SCENES", 4)


def lineage(**changes: object) -> Lineage:
    digest = load_bundle(MODEL).digest
    values = {
        "model": digest, "session": "5e" * 16, "round": 15, "rounds": 15, "authors": ("lea", 'l"eo\n[x]\x7f'),
        "liars": ("eve",), "rows": 300, "epsilon": 5.3,
    }  # fmt: skip
    return Lineage(**(values | changes))  # type: ignore[arg-type]


def test_a_better_head_becomes_a_bundle(judge: TrainingSet, moved: list[int], tmp_path: Path) -> None:
    made = make_candidate(MODEL, moved, tmp_path / "new", "9", lineage(), [judge])
    assert made.after.loss < made.before.loss
    assert made.after.right >= made.before.right
    assert made.changed > 100
    assert made.held > 80
    bundle = load_bundle(made.path)
    assert bundle.version == "9"
    detector = Detector.open(bundle, DetectorOptions())
    assert check_golden(detector) == ""
    detector.close()
    told = tomllib.loads(made.path.read_text())["provenance"]["learning"]
    assert told["authors"] == ["lea", 'l"eo?[x]?']  # Names come from members: quoted, they end no table.
    assert (told["from"], told["liars"], told["epsilon"]) == (load_bundle(MODEL).digest, ["eve"], 5.3)
    assert told["judged_by"] == [judge.digest]
    # The head is what was said, but for its INT8 steps.
    wanted = np.array(moved).reshape(HeadNet(bundle).head.shape) / UNIT
    assert np.abs(HeadNet(bundle).head - HeadNet(load_bundle(MODEL)).head - wanted).max() < 0.05


def law_a_worse_head_leaves_nothing(judge: TrainingSet, moved: list[int], folder: Path) -> None:
    with pytest.raises(ArtefactError, match="no better on what was held back"):
        make_candidate(MODEL, [-one for one in moved], folder / "new", "9", lineage(), [judge])
    assert list(folder.iterdir()) == []


def test_law_a_worse_head_leaves_nothing(judge: TrainingSet, moved: list[int], tmp_path: Path) -> None:
    law_a_worse_head_leaves_nothing(judge, moved, tmp_path)


def law_a_head_that_forgot_is_refused(moved: list[int], folder: Path) -> None:
    """Also where no labels judge."""
    with pytest.raises(ArtefactError, match="it has forgotten"):
        make_candidate(MODEL, [-20 * one for one in moved], folder / "new", "9", lineage(), [])
    assert list(folder.iterdir()) == []


def test_law_a_head_that_forgot_is_refused(moved: list[int], tmp_path: Path) -> None:
    law_a_head_that_forgot_is_refused(moved, tmp_path)


def test_only_the_bundle_that_was_learned_from_is_moved(moved: list[int], tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="is not the bundle that was learned from"):
        make_candidate(MODEL, moved, tmp_path / "new", "9", lineage(model="0" * 64), [])
    with pytest.raises(ArtefactError, match="3 weights for a head of 715"):
        make_candidate(MODEL, [0, 0, 0], tmp_path / "new", "9", lineage(), [])
    with pytest.raises(ArtefactError, match="is there already"):
        make_candidate(MODEL, moved, tmp_path, "9", lineage(), [])


@pytest.mark.parametrize("version", ["\\1", 'a"b\\'])
def test_a_version_is_a_name_and_no_pattern(version: str, moved: list[int], tmp_path: Path) -> None:
    made = make_candidate(MODEL, moved, tmp_path / "new", version, lineage(), [])
    assert load_bundle(made.path).version == version


def test_a_version_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no version that can be written down"):
        make_candidate(MODEL, [0], tmp_path / "new", "\ud800", lineage(), [])


def test_a_head_that_nobody_has_moved_is_no_candidate(tmp_path: Path) -> None:
    """As where two devices learn: nothing is merged of fewer than three."""
    head = HeadNet(load_bundle(MODEL)).head
    with pytest.raises(ArtefactError, match="no weight has moved: of fewer than three"):
        make_candidate(MODEL, [0] * head.size, tmp_path / "new", "9", lineage(), [])
    assert not (tmp_path / "new").exists()
