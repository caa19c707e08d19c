"""The compiled copy of `make bench-sim-compiled` is the same program: equal digests, event for event."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
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
LIMIT_S = 1_200.0
"""Seconds to compile in: it takes three and a half minutes of one core."""
HAS_COMPILER = bool(shutil.which("cc")) and Path(sysconfig.get_paths()["include"], "Python.h").exists()


def _digests(path: str) -> tuple[list[bool], list[object]]:
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    compiled, outcomes = json.loads(done.stdout)
    return compiled, outcomes


def test_what_is_compiled_exists() -> None:
    for package, names in MODULES.items():
        for name in names.split():
            assert (ROOT / ROOMS[package] / package / f"{name}.py").is_file(), name


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler with Python's headers here")
def test_compiled_runs_have_the_digests_of_plain_ones(tmp_path: Path) -> None:
    try:
        # Not optimised: what is judged is mypyc's reading of the modules, not the C compiler's.
        folder = build(tmp_path / "compiled", optimise=0, limit_s=LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"no C compiler with Python's headers here that is done in {LIMIT_S / 60:.0f} min")
    rooms = os.pathsep.join(str(ROOT / room) for room in ROOMS.values())
    plain, wanted = _digests(rooms)
    compiled, seen = _digests(str(folder))
    assert plain == [False, False]
    assert compiled == [True, True]
    assert seen == wanted
