"""A compiled copy of protocols and simulator beside the checkout: the same runs and digests in half the time.

    python tests/bench/compile_sim.py [FOLDER]        prints the PYTHONPATH that uses it

The modules that take most of a run's time are compiled with mypyc, which comes with mypy; it needs a C compiler and
about 100 CPU seconds. Nothing in the checkout changes: a compiled module beside its source would hide every later
edit. A digest that differs from the plain one would be a bug of the compiler or of ours
(`tests/sim/test_sim_compiled.py`).
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "out" / "compiled"
MODULES = {
    "swarmd_protocols": (
        "channel/bucket channel/budget channel/channel channel/codec channel/contact channel/dissemination "
        "node state/anti_entropy state/replica state/crdt/store swim/core swim/members swim/membership "
        "swim/event_log swim/sender swim/standing swim/prober swim/repair swim/user_events swim/metadata "
        "swim/accusations swim/own_record swim/first_contact swim/swim "
        "swim/helpers swim/hosts swim/passive swim/neighbors swim/neighbor_news "
        "swim/links swim/overlay swim/full_view swim/partial_view swim/event_ledgers swim/rules swim/sizing "
        "releases/releases releases/policy releases/rollout releases/versions releases/fetching releases/exchange "
        "releases/swarming crypto"
    ),
    "swarmd_sim": (
        "run/engine run/cpu run/timers run/host run/fleet run/watch run/ledger radio/network radio/radio run/choices "
        "faults/clocks"
    ),
}
"""What an idle swarm spends its time in; the rest stays as it is."""
ROOMS = {"swarmd_protocols": "protocols", "swarmd_sim": "sim", "swarmd_models": "models", "swarmd": "."}


def build(folder: Path = FOLDER) -> Path:
    """Copy the packages and compile the modules in the copy.

    Args:
        folder: Where to; replaced.

    Returns:
        The folder, to be put first on PYTHONPATH.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package, room in ROOMS.items():
        shutil.copytree(ROOT / room / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    # Without the project's own configuration, whose paths are those of the checkout.
    (folder / "mypy.ini").write_text("[mypy]\nexplicit_package_bases = True\nignore_missing_imports = True\n")
    modules = [f"{package}/{name}.py" for package, names in MODULES.items() for name in names.split()]
    setup = f"from setuptools import setup; from mypyc.build import mypycify; setup(ext_modules=mypycify({modules}))"
    done = subprocess.run(
        [sys.executable, "-c", setup, "build_ext", "--inplace"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout[-2_000:] + done.stderr[-2_000:])
    shutil.rmtree(folder / "build")
    return folder


if __name__ == "__main__":
    print(f"PYTHONPATH={build(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)}")
