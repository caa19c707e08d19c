"""The search of an architecture: plan, latency table, trials. What trains is in tests/train."""

import dataclasses
import fcntl
import json
import os
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from swarmd_models.bench_infer import measure
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_recipes import search as searching
from swarmd_recipes.latency import Cost, LatencyTable, cost_of, load_table, table_path
from swarmd_recipes.latency import measure as measure_grid
from swarmd_recipes.pareto import picture
from swarmd_recipes.pipeline import committed_second
from swarmd_recipes.search import MAX_BROKEN, Trial, document, finalists, front, search
from swarmd_recipes.space import Plan, Shape, load_plan, recipe_of, recipe_toml, searches
from tests.support.paths import ROOT

optuna = pytest.importorskip("optuna", reason="Optuna is not installed; it is an extra (search)")

PLAN = """
name = "here"
seed = {seed}
base = "tiny-224"
member = "nano"
view_m = 14.4
[space]
stem = [2, 4, 6, 8]
depth = [0, 1]
width = [96, 128]
[proxy]
trials = {trials}
steps = 1
batch = 1
frames = 1
[full]
steps = 1
batch = 1
finalists = 1
neighbour = "zoo:tiny-224"
latency_share = 0.5
"""


def plan_of(folder: Path, seed: int = 4, trials: int = 6, text: str = PLAN) -> Plan:
    path = folder / "here.toml"
    path.write_text(text.format(seed=seed, trials=trials), encoding="utf-8")
    return load_plan(str(path))


def table_of(plan: Plan) -> LatencyTable:
    costs = {shape.name: Cost(shape.stem * shape.width / 1000, 0.1, shape.stem * 1000) for shape in plan.shapes}
    return LatencyTable("a drawn device", "none", costs, {"zoo:tiny-224": Cost(2.0, 1.9, 400_000)})


def judged(shape: Shape) -> dict[str, float]:
    """Larger is better, with less and less to gain."""
    return {"score": 1.0 - 1.0 / (shape.stem + shape.depth + shape.width / 64)}


def quiet(text: str) -> None:
    pass


class Judge:
    """Counts what it is asked, breaks or is killed where it is told to."""

    def __init__(self, breaks: tuple[int, ...] = (), killed_at: int = -1) -> None:
        self.shapes: list[Shape] = []
        self._breaks, self._killed_at = breaks, killed_at

    def __call__(self, shape: Shape) -> dict[str, float]:
        number = len(self.shapes)
        self.shapes.append(shape)
        if number == self._killed_at:
            raise KeyboardInterrupt
        if number in self._breaks:
            raise RuntimeError(f"{shape.name} does not converge")
        return judged(shape)


def test_the_same_seed_gives_the_same_trials_and_no_shape_twice(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    judges = [Judge(), Judge()]
    a, b = (search(plan, table_of(plan), "drawn", tmp_path / str(i), judge, quiet) for i, judge in enumerate(judges))
    assert a == b
    assert len(a) == len({trial.shape for trial in a}) == len(judges[0].shapes) == 6
    other = plan_of(tmp_path, seed=5)
    assert [t.shape for t in search(other, table_of(other), "drawn", tmp_path / "c", judged, quiet)] != judges[0].shapes


@pytest.mark.parametrize("killed_at", [0, 2, 5])
def test_a_search_that_was_killed_goes_on_to_the_trials_of_one_that_was_not(tmp_path: Path, killed_at: int) -> None:
    plan = plan_of(tmp_path)
    whole = search(plan, table_of(plan), "drawn", tmp_path / "whole", judged, quiet)
    first, second = Judge(killed_at=killed_at), Judge()
    with pytest.raises(KeyboardInterrupt):
        search(plan, table_of(plan), "drawn", tmp_path / "cut", first, quiet)
    assert search(plan, table_of(plan), "drawn", tmp_path / "cut", second, quiet) == whole
    assert first.shapes[:killed_at] + second.shapes == [trial.shape for trial in whole]
    third = Judge()
    assert search(plan, table_of(plan), "drawn", tmp_path / "cut", third, quiet) == whole
    assert third.shapes == []


def test_a_trial_that_breaks_is_written_down_and_the_search_goes_on(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    trials = search(plan, table_of(plan), "drawn", tmp_path / "work", Judge(breaks=(1, 3)), quiet)
    assert [bool(trial.error) for trial in trials] == [False, True, False, True, False, False]
    assert "does not converge" in trials[1].error
    again = search(plan, table_of(plan), "drawn", tmp_path / "work", Judge(), quiet)
    assert again == trials
    said = document(plan, table_of(plan), trials, {})
    assert said["trials"][1]["error"] == trials[1].error
    assert not said["trials"][1]["front"]
    assert all(not trial.error for trial in finalists(plan, table_of(plan), trials))


def test_a_search_whose_every_trial_breaks_ends_and_says_the_last_reason(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    judge = Judge(breaks=tuple(range(10)))
    with pytest.raises(ArtefactError, match="does not converge"):
        search(plan, table_of(plan), "drawn", tmp_path / "work", judge, quiet)
    assert len(judge.shapes) == MAX_BROKEN


@pytest.mark.parametrize("score", [float("nan"), 1.5, -0.1])
def test_a_score_that_is_none_breaks_its_trial(tmp_path: Path, score: float) -> None:
    plan = plan_of(tmp_path, trials=1)
    (trial,) = search(plan, table_of(plan), "drawn", tmp_path / "work", lambda shape: {"score": score}, quiet)
    assert "score" in trial.error


def test_a_table_that_lacks_a_size_is_refused_by_its_name(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    table = table_of(plan)
    fewer = dataclasses.replace(table, shapes={n: c for n, c in table.shapes.items() if n != "w4-d1-128"})
    with pytest.raises(ArtefactError, match="has no w4-d1-128; measure it"):
        search(plan, fewer, "drawn", tmp_path / "work", judged, quiet)
    assert not (tmp_path / "work").exists()
    with pytest.raises(ArtefactError, match="zoo:tiny-224"):
        dataclasses.replace(table, zoo={}).covers(plan)
    with pytest.raises(ArtefactError, match="has no w4-d1-128"):
        fewer.of(Shape(4, 1, 128))


def test_a_study_of_something_else_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=1)
    table = table_of(plan)
    search(plan, table, "drawn", tmp_path / "work", judged, quiet)
    with pytest.raises(ArtefactError, match="of another data"):
        search(plan, table, "others", tmp_path / "work", judged, quiet)
    with pytest.raises(ArtefactError, match="of another table"):
        search(plan, dataclasses.replace(table, device="b"), "drawn", tmp_path / "work", judged, quiet)
    with pytest.raises(ArtefactError, match="of another plan"):
        search(plan_of(tmp_path, trials=2), table, "drawn", tmp_path / "work", judged, quiet)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "study.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 99)
    with pytest.raises(ArtefactError, match="cannot be used as a study"):
        search(plan, table, "drawn", tmp_path / "torn", judged, quiet)


def test_two_searches_do_not_share_a_work_directory(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=1)
    (tmp_path / "work").mkdir()
    handle = os.open(tmp_path / "work" / "search.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(ArtefactError, match="in use by another search"):
        search(plan, table_of(plan), "drawn", tmp_path / "work", judged, quiet)
    os.close(handle)
    assert len(search(plan, table_of(plan), "drawn", tmp_path / "work", judged, quiet)) == 1


def test_the_front_is_what_optuna_calls_best(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=8)
    trials = search(plan, table_of(plan), "drawn", tmp_path / "work", judged, quiet)
    study = optuna.load_study(study_name="here", storage=f"sqlite:///{tmp_path / 'work' / 'study.sqlite'}")
    on = front([(t.score, t.cost.p50_ms, float(t.cost.size_bytes)) for t in trials])
    ours = {trial.shape.name for trial, is_on in zip(trials, on, strict=True) if is_on}
    assert ours == {Shape(**trial.params).name for trial in study.best_trials}
    assert 0 < len(ours) < len(trials)


def test_finalists_keep_to_the_share_of_the_neighbours_time(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    table = table_of(plan)
    trials = [Trial(i, s, table.of(s), judged(s)) for i, s in enumerate(plan.shapes)]
    (best,) = finalists(plan, table, trials)
    assert best.cost.p50_ms <= 1.0
    slow = dataclasses.replace(table, zoo={"zoo:tiny-224": Cost(0.01, 0.01, 1)})
    with pytest.raises(ArtefactError, match="no shape of the front"):
        finalists(plan, slow, trials)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("stem = [2, 4, 6, 8]", "stem = [3]"), "stem 3"),
        (("width = [96, 128]", "width = [100]"), "width 100"),
        (("depth = [0, 1]", "depth = [9]"), "depth 9"),
        (("depth = [0, 1]", "depth = []"), "has 0 shapes"),
        (("depth = [0, 1]", "depth = [0]\nkernel = [3]"), "kernel"),
        (("trials = {trials}", "trials = 99"), "99"),
        (("finalists = 1", "finalists = 7"), "finalists is 7"),
        (("frames = 1", "frames = 0"), "at least 1"),
        (("frames = 1", "frames = 1\nspeed = 2"), "speed"),
        (('member = "nano"', ""), "member"),
    ],
)
def test_an_impossible_plan_is_refused_by_what_is_wrong(tmp_path: Path, wrong: tuple[str, str], said: str) -> None:
    assert wrong[0] in PLAN
    with pytest.raises(ArtefactError, match=said):
        plan_of(tmp_path, text=PLAN.replace(*wrong))


def test_no_plan_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="known searches: slow-core"):
        load_plan("fast-core")


def test_what_bench_infer_says_becomes_a_cost_and_what_is_none_is_refused() -> None:
    figures = measure("zoo:tiny-224", "", "litert", 1, 0.05)
    said = {"model": "solar-tiny-224", "digest": "0", "backends": [figures]}
    cost, runtime = cost_of(json.loads(json.dumps(said)), 7)
    assert 0.0 < cost.infer_ms < cost.p50_ms
    assert cost.size_bytes == 7
    assert runtime == figures["runtime"]
    with pytest.raises(ArtefactError, match="no memory"):
        cost_of({"model": "m", "backends": [{"backend": "litert", "error": "no memory"}]}, 1)
    with pytest.raises(ArtefactError, match="no answer"):
        cost_of({"model": "m", "backends": []}, 1)


def test_answers_that_a_device_gave_elsewhere_make_its_table(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    grid = tmp_path / "grid"
    grid.mkdir()
    figures = measure("zoo:tiny-224", "", "litert", 1, 0.02)
    answer = json.dumps({"model": "m", "digest": "0", "backends": [figures]})
    for shape in plan.shapes:
        (grid / f"{shape.name}.toml").write_text("untrained")
        (grid / f"{shape.name}.tflite").write_bytes(bytes(shape.stem))
        (grid / f"{shape.name}.bench.json").write_text(answer)
    for name in ("zoo-tiny-224", "zoo-small-320"):
        (grid / f"{name}.bench.json").write_text(answer)
    table = measure_grid(plan, tmp_path, "a board")
    table.covers(plan)
    assert table.of(Shape(4, 1, 96)).size_bytes == 4
    path = tmp_path / "table.json"
    path.write_text(json.dumps(dataclasses.asdict(table)), encoding="utf-8")
    assert load_table(path) == table
    (grid / "w4-d1-96.toml").unlink()
    with pytest.raises(ArtefactError, match=r"w4-d1-96\.toml is missing"):
        measure_grid(plan, tmp_path, "a board")


@pytest.mark.parametrize("text", ["", "[]", '{"device": 1}', '{"device":"a","runtime":"b","shapes":{"x":1},"zoo":{}}'])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text, encoding="utf-8")
    with pytest.raises(ArtefactError, match="no latency table"):
        load_table(tmp_path / "t.json")


def test_the_picture_shows_every_trial_and_survives_any_name(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    table = dataclasses.replace(table_of(plan), device="<a & b>")
    trials = search(plan, table, "drawn", tmp_path / "work", Judge(breaks=(2,)), quiet)
    said = document(plan, table, trials, {trials[0].shape.name: {"score": 0.9, "p50_ms": 1.0, "size_bytes": 9000}})
    said["zoo"]["zoo:tiny-224"]["score"] = 0.95
    drawn = ET.fromstring(picture(said))
    titles = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "<a & b>" in titles[0]
    for trial in trials:
        assert any(title.startswith(f"{trial.shape.name}:") for title in titles) != bool(trial.error)
    assert any(title.startswith("zoo:tiny-224:") for title in titles)
    ET.fromstring(picture(document(plan, table, [], {})))


def test_a_recipe_that_is_written_is_read_again(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    recipe = recipe_of(plan, Shape(4, 1, 128), is_full=True)
    assert tomllib.loads(recipe_toml(recipe, "A line.\nAnother.")) == recipe
    assert (recipe["name"], recipe["scene"]["height"]) == ("nano-128", 96)
    assert recipe["scene"]["pixel_m"] * 128 == pytest.approx(plan.view_m, rel=1e-3)


def test_the_second_stage_of_the_zoo_is_taken_as_it_is_committed() -> None:
    second = committed_second("zoo:small-320")
    rule = load_bundle("zoo:tiny-224").second
    assert rule is not None
    assert second.exported.int8_path.read_bytes() == rule.path.read_bytes()
    assert (second.name, second.size, second.margin) == ("small-320.second", (48, 24), rule.margin)
    assert second.exported.float_path.name == "small-320.second.float.tflite"
    with pytest.raises(ArtefactError, match="zoo:events-text"):
        committed_second("zoo:events-text")


def test_the_plan_that_ships_has_a_table_of_all_its_shapes_in_which_more_work_takes_longer() -> None:
    plan = load_plan("slow-core")
    table = load_table(table_path("slow-core"))
    table.covers(plan)
    assert set(table.shapes) == {shape.name for shape in plan.shapes}
    for shape in plan.shapes:
        assert table.of(shape).p50_ms < plan.full.latency_share * table.zoo[plan.full.neighbour].p50_ms
        if shape.width == 160:
            assert table.of(shape).p50_ms > table.of(dataclasses.replace(shape, width=128)).p50_ms


def test_the_plan_that_ships_has_its_published_figures_and_its_member() -> None:
    plan, table = load_plan("slow-core"), load_table(table_path("slow-core"))
    said = json.loads((ROOT / "docs/performance/search-slow-core.json").read_text(encoding="utf-8"))
    assert said["plan_sha256"] == plan.fingerprint
    assert len(said["trials"]) == plan.proxy.trials
    for row in said["trials"]:
        assert row["p50_ms"] == table.shapes[row["shape"]].p50_ms
    assert (ROOT / "docs/performance/search-slow-core.svg").read_text(encoding="utf-8") == picture(said)
    best = max(said["full"], key=lambda name: float(said["full"][name]["score"]))
    recipe = recipe_of(plan, next(shape for shape in plan.shapes if shape.name == best), is_full=True)
    member = searches().parent / f"{recipe['name']}.toml"
    assert tomllib.loads(member.read_text(encoding="utf-8")) == recipe
    assert load_bundle(f"zoo:{recipe['name']}").provenance["recipe"]["net"]["widths"] == recipe["net"]["widths"]


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_of(tmp_path)
    assert searching.main([str(tmp_path / "here.toml"), "--work", str(tmp_path / "work")]) == 1
    assert "here.latency.json is no latency table" in capsys.readouterr().err
