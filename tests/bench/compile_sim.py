"""A compiled copy of protocols and simulator beside the checkout: the same runs and digests in half the time.

    python tests/bench/compile_sim.py [FOLDER]        prints the PYTHONPATH that uses it

The modules that take most of a run's time are compiled with mypyc, which comes with mypy; it needs a C compiler and
about four CPU minutes. Nothing in the checkout changes: a compiled module beside its source would hide every later
edit. A digest that differs from the plain one would be a bug of the compiler or of ours
(`tests/sim/test_sim_compiled.py`).
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "out" / "compiled"
MODULES = {
    "swarmd_protocols": (
        "channel/bucket channel/budget channel/channel channel/codec channel/contact channel/dissemination crypto node "
        "releases/exchange releases/fetching releases/policy releases/releases releases/rollout releases/swarming "
        "releases/versions sends state/anti_entropy state/author state/claims/claims state/clock "
        "state/crdt/log state/crdt/store state/dedup/own state/dedup/undecided state/dedup/view state/holdings "
        "state/intake state/pauses state/projection state/quota state/replica state/shown state/survey "
        "swim/accusations swim/allowance swim/core swim/event_ledgers swim/event_log swim/first_contact swim/full_view "
        "swim/helpers swim/hosts swim/members swim/membership swim/mesh/mesh_view swim/metadata swim/neighbors "
        "swim/overlay swim/own_record swim/partial_view swim/passive swim/prober swim/pushes swim/repair swim/rules "
        "swim/sender swim/sizing swim/standing swim/swim swim/user_events swim/voice"
    ),
    "swarmd_sim": (
        "faults/clocks faults/links radio/network radio/radio run/choices run/cpu run/engine run/host run/timers"
    ),
}
"""What a swarm spends its time in: each at least 0.2 % of a fuzz seed, or of an idle swarm with partial views.

What holds wire structs stays as it is (`messages`, `facts`, `trust/*`): msgspec fills them itself. So does
`state/crdt/batch`: with its enum compiled, keys that hold one are refused where Python takes them.
"""
ROOMS = {"swarmd_protocols": "protocols", "swarmd_sim": "sim", "swarmd_models": "models", "swarmd": "."}


def build(folder: Path = FOLDER, optimise: int = 1, limit_s: float | None = None) -> Path:
    """Copy the packages and compile the modules in the copy.

    Args:
        folder: Where to; replaced.
        optimise: What the C compiler does, 0 to 3. More than 1 takes it longer than a thousand seeds gain; with 0 the
            program is as mypyc made it, in a fraction of the time.
        limit_s: Seconds that it may take; None: without end.

    Returns:
        The folder, to be put first on PYTHONPATH.

    Raises:
        subprocess.TimeoutExpired: It took longer.
        SystemExit: It cannot be compiled.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package, room in ROOMS.items():
        shutil.copytree(ROOT / room / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    # Without the project's own configuration, whose paths are those of the checkout.
    (folder / "mypy.ini").write_text("[mypy]\nexplicit_package_bases = True\nignore_missing_imports = True\n")
    modules = [f"{package}/{name}.py" for package, names in MODULES.items() for name in names.split()]
    options = {"opt_level": str(optimise), "debug_level": "0"}
    setup = (
        "from setuptools import setup; from mypyc.build import mypycify; "
        f"setup(ext_modules=mypycify({modules}, **{options}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", setup, "build_ext", "--inplace"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as compiling:
        try:
            said, _ = compiling.communicate(timeout=limit_s)
        except BaseException:
            os.killpg(compiling.pid, signal.SIGKILL)  # The C compiler too.
            raise
    if compiling.returncode:
        raise SystemExit(said[-4_000:])
    shutil.rmtree(folder / "build")
    return folder


if __name__ == "__main__":
    print(f"PYTHONPATH={build(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)}")
