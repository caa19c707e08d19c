"""The compiled copy of `make bench-sim-compiled` is the same program: equal digests, event for event."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.compile_sim import MODULES, ROOMS, ROOT, build

RUN = """
import json, sys
import swarmd_protocols.node, swarmd_sim.run.engine
from swarmd_sim.run.fuzz import FuzzPlan, run_seed
compiled = [module.__file__.endswith(".so") for module in (swarmd_protocols.node, swarmd_sim.run.engine)]
seeds = [run_seed(FuzzPlan("fuzz", {}), seed) for seed in range(1, 7)]
print(json.dumps([compiled, [[outcome.trace_digest, outcome.rules] for outcome in seeds]]))
"""


def _digests(path: str) -> tuple[list[bool], list[object]]:
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    compiled, outcomes = json.loads(done.stdout)
    return compiled, outcomes


def test_what_is_compiled_exists() -> None:
    for package, names in MODULES.items():
        for name in names.split():
            assert (ROOT / ROOMS[package] / package / f"{name}.py").is_file(), name


@pytest.mark.timeout(1800)
@pytest.mark.skipif("SWARMD_COMPILED" not in os.environ, reason="four CPU minutes of compiling: SWARMD_COMPILED=1")
def test_compiled_runs_have_the_digests_of_plain_ones(tmp_path: Path) -> None:
    folder = build(tmp_path / "compiled")
    rooms = os.pathsep.join(str(ROOT / room) for room in ROOMS.values())
    plain, wanted = _digests(rooms)
    compiled, seen = _digests(str(folder))
    assert plain == [False, False]
    assert compiled == [True, True]
    assert seen == wanted
