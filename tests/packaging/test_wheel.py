"""The wheel, built and run beside a folder that would love to be imported instead."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return next(out.glob("*.whl"))


def test_what_code_reads_at_run_time_is_inside(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not [name for name in names if "recipes" in name or name.endswith("ruff.toml")], "no device trains or lints"
    assert {f"{package}/py.typed" for package in ("swarmd", "swarmd_protocols", "swarmd_models", "swarmd_sim")} <= names
    assert any(name.startswith("swarmd_models/zoo/") and name.endswith(".tflite") for name in names)
    assert any(name.startswith("swarmd_sim/scenarios/") and name.endswith(".toml") for name in names)
    assert "swarmd/bridges/record/msgdef/std_msgs.String.txt" in names
    assert not any(name.startswith(("tests/", "docs/", "models/", "protocols/", "sim/")) for name in names)


def test_every_model_is_at_most_five_megabytes(wheel: Path) -> None:
    sizes = {
        one.filename: one.file_size for one in zipfile.ZipFile(wheel).infolist() if one.filename.endswith(".tflite")
    }
    assert sizes
    assert all(size <= 5_000_000 for size in sizes.values()), sizes


def test_runs_beside_a_hostile_models_folder(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    hostile = tmp_path / "hostile"
    for name in ("models", "sim", "protocols", "tests"):
        (hostile / name).mkdir(parents=True)
        (hostile / name / "__init__.py").write_text("raise SystemExit('hijacked')\n")
    # -S and our own path: nothing of the editable install helps; the environment's libraries stay importable.
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{libraries}"}
    program = "import swarmd, swarmd_models, swarmd_sim, swarmd_protocols, sys; print(swarmd.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=hostile, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))
    done = subprocess.run(
        [sys.executable, "-S", "-m", "swarmd", "version"],
        cwd=hostile,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "0.1.0" in done.stdout


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = (
        "import sys, swarmd.cli.main as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('numpy', 'cv2', 'zmq', 'ai_edge_litert', 'asyncio', 'rich') if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
