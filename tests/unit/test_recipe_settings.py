"""What is set after training: how two stages are joined, thresholds, and on which crops."""

import numpy as np

from swarmd_models.metrics import auroc
from swarmd_models.synthetic.thermal import FAULT_LABELS, HELD_BACK, Crops
from swarmd_recipes.export import best_range
from swarmd_recipes.settings import Opinions, Said, choose, fit_weights

KINDS = len(FAULT_LABELS)


def said(score: np.ndarray, kind: np.ndarray, modules: int) -> Said:
    return Said(np.asarray(score, np.float64), np.asarray(kind, np.int64), modules)


def test_crops_held_back_come_from_the_training_split_alone_and_always_the_same() -> None:
    split = np.array([0] * 80 + [1] * 20, np.uint8)
    crops = Crops(np.zeros((100, 40, 24), np.uint8), ("cell", "no-anomaly"), np.zeros(100, np.int64), split)
    part = crops.with_part_held_back(one_in=8)
    assert (part.split == HELD_BACK).sum() == 10
    assert (part.split[80:] == 1).all()
    assert (part.split == crops.with_part_held_back(one_in=8).split).all()
    assert (crops.split == split).all()


def test_weights_of_two_stages_tell_faults_apart_better_than_either_and_are_calibrated() -> None:
    rng = np.random.default_rng(5)
    faulty = rng.random(6_000) < 0.5
    sign = np.where(faulty, 1.0, -1.0)
    first, second = sign * 0.5 + rng.normal(0, 1, 6_000), sign * 2.0 + rng.normal(0, 2.0, 6_000)
    nothing = np.zeros((6_000, KINDS))
    a, b, bias = fit_weights(Opinions(first, second, nothing, nothing), faulty)
    joined = a * first + b * second + bias
    assert auroc(joined, faulty) > max(auroc(first, faulty), auroc(second, faulty))
    sure = 1.0 / (1.0 + np.exp(-joined))
    upper = sure > 0.8
    assert abs(float(sure[upper].mean()) - float(faulty[upper].mean())) < 0.04


def test_thresholds_keep_the_limit_on_every_set_of_healthy_modules_and_are_low_where_nothing_is_mistaken() -> None:
    rng = np.random.default_rng(7)
    loud = said(rng.uniform(0.5, 0.93, 4_000), np.zeros(4_000), 20_000)  # Healthy ones are taken for the first class.
    quiet = said(rng.uniform(0.3, 0.6, 50), np.full(50, 1), 5_000)
    faulty = said(rng.uniform(0.4, 1.0, 3_000), rng.integers(0, KINDS, 3_000), 4_000)
    chosen = choose(FAULT_LABELS, [(loud, 0.5), (quiet, 0.5)], [faulty])["class_thresholds"]
    for one in (loud, quiet):
        limit = np.array([chosen[FAULT_LABELS[k]] for k in one.kind])
        assert 1000.0 * float((one.score >= limit).sum()) / one.modules <= 0.5
    assert chosen[FAULT_LABELS[0]] > 0.9
    assert chosen[FAULT_LABELS[5]] < chosen[FAULT_LABELS[0]]


def test_a_threshold_from_a_few_hundred_healthy_modules_holds_on_the_others() -> None:
    rng = np.random.default_rng(8)
    over = []
    for _ in range(40):
        few, many = (1.0 / (1.0 + np.exp(4.0 - rng.exponential(1.3, count))) for count in (665, 100_000))
        faulty = said(rng.uniform(0.5, 1.0, 2_000), np.zeros(2_000), 2_000)
        chosen = choose(FAULT_LABELS, [(said(few, np.zeros(665), 665), 0.5)], [faulty])["class_thresholds"]
        over.append(1000.0 * float((many >= chosen[FAULT_LABELS[0]]).mean()))
    assert np.median(over) <= 0.6
    assert np.quantile(over, 0.9) <= 1.0


def test_where_even_the_highest_score_is_mistaken_the_threshold_is_as_high_as_it_goes() -> None:
    hopeless = said(np.full(100, 0.99999), np.zeros(100), 1_000)
    faulty = said(np.full(10, 0.999), np.zeros(10), 10)
    assert choose(FAULT_LABELS, [(hopeless, 0.5)], [faulty])["class_thresholds"]["cell"] >= 0.99


def test_the_range_of_a_tensor_gives_up_an_outlier_where_that_serves_all_others() -> None:
    rng = np.random.default_rng(9)
    values = rng.uniform(0.0, 1.0, 1_000_000).astype(np.float32)
    low, high = best_range(values)
    assert low == 0.0
    assert 0.99 < high <= 1.0
    values[0] = 3.0
    assert best_range(values)[1] < 1.1
    assert best_range(np.array([-1.0, 3.0], np.float32)) == (-1.0, 3.0)
