"""The bill of materials that `make package` writes names every pin of the lock with its hashes, the same each time."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

LOCK = ROOT / "requirements" / "all.lock"
TOOL = ROOT / ".venv-package" / "bin" / "cyclonedx-py"


def bill(out: Path) -> bytes:
    found = re.search(r"^BILL := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    command = [str(TOOL), "requirements", str(LOCK), *shlex.split(found[1]), "-o", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return out.read_bytes()


@pytest.mark.skipif(not TOOL.exists(), reason="`make package` installs the tool")
def test_every_pin_of_the_lock_is_listed_with_its_hashes(tmp_path: Path) -> None:
    written = bill(tmp_path / "one.json")
    pins = set(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", LOCK.read_text(), re.MULTILINE))
    parts = json.loads(written)["components"]
    assert {(one["name"], one["version"]) for one in parts} == pins
    assert all(any(found.get("hashes") for found in one["externalReferences"]) for one in parts)
    assert bill(tmp_path / "two.json") == written
