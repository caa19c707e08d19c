"""The bill of materials is complete, deterministic, and refuses a lock that proves nothing."""

import json
import tomllib
from pathlib import Path

import pytest

from swarmd.errors import DaemonError
from swarmd.release import sbom

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements" / "all.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_pin_of_the_lock_is_listed() -> None:
    bill = sbom.bill(LOCK, PROJECT)
    names = {one["name"] for one in bill["components"]}
    pins = [line for line in LOCK.splitlines() if "==" in line and not line.lstrip().startswith(("#", "-"))]
    assert len(bill["components"]) == len(pins)
    assert {"msgspec", "numpy", "pynacl", "pyzmq"} <= names
    assert all(one["hashes"] for one in bill["components"])
    assert len({one["bom-ref"] for one in bill["components"]}) == len(bill["components"])


def test_the_same_lock_gives_the_same_bill(tmp_path: Path) -> None:
    assert sbom.bill(LOCK, PROJECT) == sbom.bill(LOCK, PROJECT)
    out = tmp_path / "deep" / "swarmd.cdx.json"
    assert sbom.main([str(ROOT / "requirements" / "all.lock"), str(out)]) == 0
    assert json.loads(out.read_text())["bomFormat"] == "CycloneDX"


@pytest.mark.parametrize(("lock", "text"), [("thing==1.0\n", "without a hash"), ("thing>=1\n", "pins nothing")])
def test_a_lock_that_proves_nothing_is_refused(lock: str, text: str) -> None:
    with pytest.raises(DaemonError, match=text):
        sbom.components(lock)
