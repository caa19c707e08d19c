"""The page that is committed is the page that its sources make, byte for byte, and fetches nothing from elsewhere."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

UI, STATIC = ROOT / "ui", ROOT / "swarmd" / "ground" / "static"
NODE = shutil.which("node", path=f"{ROOT / '.venv' / 'bin'}:/usr/bin:/usr/local/bin:/bin")
BUNDLE_MAX_BYTES = 100_000
"""Of the page, packed: what a slow link carries in a second or two."""

has_modules = pytest.mark.skipif(
    NODE is None or not (UI / "node_modules" / "esbuild").is_dir(), reason="no node modules here (make setup-extras)"
)


@has_modules
def test_the_committed_page_is_what_its_sources_make(tmp_path: Path) -> None:
    assert NODE is not None
    subprocess.run([NODE, "build.mjs", str(tmp_path)], cwd=UI, check=True, timeout=120)
    assert {one.name for one in STATIC.iterdir()} == {one.name for one in tmp_path.iterdir()}
    for one in sorted(tmp_path.iterdir()):
        assert one.read_bytes() == (STATIC / one.name).read_bytes(), f"{one.name} is old: make ui, and commit"


@has_modules
def test_its_types_hold() -> None:
    assert NODE is not None
    tsc = UI / "node_modules" / "typescript" / "bin" / "tsc"
    done = subprocess.run([NODE, str(tsc), "--noEmit"], cwd=UI, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(one.read_bytes())) for one in STATIC.iterdir()) < BUNDLE_MAX_BYTES


def test_the_page_names_no_other_host() -> None:
    """What a licence or a namespace names is no address that anything fetches."""
    known = {"http://www.w3.org/"}
    for one in STATIC.iterdir():
        for url in re.findall(r"https?://[^\s\"'`)]+", one.read_text()):
            assert any(url.startswith(prefix) for prefix in known), f"{one.name}: {url}"


def test_every_package_of_the_build_is_pinned_by_its_hash() -> None:
    lock = json.loads((UI / "package-lock.json").read_text())
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    for name, one in packages.items():
        assert one["integrity"].startswith("sha512-"), name
        assert "resolved" not in one, f"{name}: run make lock, which names no registry"


def test_what_ships_is_licensed_as_the_page_says() -> None:
    """The two libraries in the bundle are MIT; what only builds it does not ship."""
    lock = json.loads((UI / "package-lock.json").read_text())["packages"]
    shipped = {name: one["license"] for name, one in lock.items() if name and not one.get("dev")}
    assert set(shipped) == {
        "node_modules/preact",
        "node_modules/@preact/signals",
        "node_modules/@preact/signals-core",
    }
    assert set(shipped.values()) == {"MIT"}
