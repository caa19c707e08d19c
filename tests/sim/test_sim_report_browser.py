"""The report of a run, opened in a real browser: it draws what it promises and asks nobody for anything."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from swarmd_sim.report.report import write_report
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--window-size=1000,2400"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    overrides = {"swarm.seconds": 60, "checks.settle_s": 20.0, "faults.kinds": [], "release.next_at_s": 34.0}
    overrides |= {"release.chance": 1.0, "fault": [{"kind": "kill", "at_s": 8.0, "duration_s": 9.0, "nodes": [2]}]}
    simulation = Simulation(load_scenario("fuzz", overrides), 3, Options(timeline=True))
    path = tmp_path_factory.mktemp("report") / "page.html"
    write_report(simulation, simulation.run(), path)
    return path


def browse(page: Path, profile: Path, *arguments: str) -> str:
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *arguments, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_the_browser_reads_the_whole_page(page: Path, tmp_path: Path) -> None:
    dom = browse(page, tmp_path / "profile", "--dump-dom")
    headings = re.findall(r"<h2>(.*?)</h2>", dom)
    assert headings == ["Map", "Timeline", "Convergence", "Traffic", "Models", "Figures", "What happened"]
    assert dom.count("<svg") == 6
    assert "kill [n2]" in dom
    assert "n2: process gone: killed" in dom
    assert not re.search(r"(src|href)=.?https?:", dom)


def test_the_browser_draws_it(page: Path, tmp_path: Path) -> None:
    shot = tmp_path / "page.png"
    browse(page, tmp_path / "profile", f"--screenshot={shot}")
    data = shot.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1000, 2400)
    # An empty page of this size compresses to a few kilobytes.
    assert len(data) > 50_000
