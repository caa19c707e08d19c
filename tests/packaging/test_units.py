"""The units: what systemd itself says of their sandbox, offline."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

EXPOSURE_MAX = 1.5
"""systemd's own scale from 0 to 10; below 2 it says OK, and what is left here is the network, which the swarm is."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (apt install systemd)"
)


def exposure(unit: Path) -> float:
    """The overall exposure level of a unit file.

    Raises:
        AssertionError: systemd cannot read it.
    """
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found.group(1))


@needs_systemd
@pytest.mark.parametrize("name", ["swarmd.service", "swarmd@.service"])
def test_the_sandbox_is_as_tight_as_said(name: str) -> None:
    assert exposure(ROOT / "systemd" / name) <= EXPOSURE_MAX


@needs_systemd
@pytest.mark.parametrize(
    "line", ["PrivateMounts=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectHome=yes"]
)
def test_a_line_that_is_missing_shows(tmp_path: Path, line: str) -> None:
    text = (ROOT / "systemd" / "swarmd.service").read_text()
    assert f"\n{line}\n" in text
    (tmp_path / "swarmd.service").write_text(text.replace(f"\n{line}\n", "\n"))
    assert exposure(tmp_path / "swarmd.service") > EXPOSURE_MAX
