"""A whole search of two shapes from nothing, drawn modules only: table, trials, a finalist in full, its bundle.

Takes minutes, in the environment of training (`make test-train`).
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from swarmd_models.bench_infer import measure as bench
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.golden import check_golden
from swarmd_recipes.latency import export_grid, measure
from swarmd_recipes.search import main
from swarmd_recipes.space import load_plan

pytestmark = pytest.mark.timeout(1800)

PLAN = """
name = "here"
seed = 4
base = "tiny-224"
member = "nano"
view_m = 14.4
[space]
stem = [2, 4]
depth = [0]
width = [128]
[proxy]
trials = 2
steps = 4
batch = 2
frames = 6
[full]
steps = 8
batch = 2
finalists = 1
neighbour = "zoo:tiny-224"
latency_share = 1e6
"""


def test_a_search_from_nothing_makes_a_bundle_and_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text(PLAN, encoding="utf-8")
    plan, work = load_plan(str(path)), tmp_path / "work"
    grid = export_grid(plan, work)
    # In this environment the daemon's own needs are not installed: what its command runs is called by itself.
    for name, model in [(s.name, str(grid / f"{s.name}.toml")) for s in plan.shapes] + [
        (f"zoo-{name}", f"zoo:{name}") for name in ("tiny-224", "small-320")
    ]:
        said = {"model": name, "backends": [bench(model, "", "litert", 1, 0.1)]}
        (grid / f"{name}.bench.json").write_text(json.dumps(said), encoding="utf-8")
    table = tmp_path / "here.latency.json"
    table.write_text(json.dumps(asdict(measure(plan, work, "this machine"))), encoding="utf-8")
    assert main([str(path), "--work", str(work)]) == 0
    said = json.loads((work / "search-here.json").read_text(encoding="utf-8"))
    assert [row.get("error") for row in said["trials"]] == [None, None]
    assert len(said["full"]) == 1
    bundle = load_bundle(str(work / "zoo" / "nano-128.toml"))
    detector = Detector.open(bundle, DetectorOptions())
    assert check_golden(detector) == ""
    detector.close()
    assert bundle.second is not None
    assert bundle.provenance["data_sha256"] == ""
    before = (work / "search-here.json").read_bytes()
    assert main([str(path), "--work", str(work), "--only-search"]) == 0
    assert json.loads((work / "search-here.json").read_text())["trials"] == json.loads(before)["trials"]
