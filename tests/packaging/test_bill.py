"""The bill of materials of `make package`: each pin of the lock and of the page, with hashes, the same each time."""

import base64
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


@pytest.mark.skipif(not TOOL.exists(), reason="`make package` installs the tool")
def test_what_the_page_is_made_of_is_listed_too(tmp_path: Path) -> None:
    """Each package whose code the bundle holds, with the hash that npm installs it by; and nothing else changes."""
    before = json.loads(bill(tmp_path / "bill.json"))
    command = [str(TOOL.with_name("python")), "requirements/page_bill.py", str(tmp_path / "bill.json")]
    command.append("ui/package-lock.json")
    subprocess.run(command, check=True, cwd=ROOT)
    once = (tmp_path / "bill.json").read_bytes()
    told = json.loads(once)
    page = [one for one in told["components"] if one["purl"].startswith("pkg:npm/")]
    wanted = json.loads((ROOT / "ui" / "package.json").read_text())
    names = {one["name"]: one["version"] for one in page}
    assert wanted["dependencies"].items() <= names.items()
    assert not wanted["devDependencies"].keys() & names.keys()
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())["packages"]
    for one in page:
        [told_hash] = one["hashes"]
        assert told_hash["alg"] == "SHA-512"
        integrity = "sha512-" + base64.b64encode(bytes.fromhex(told_hash["content"])).decode()
        assert integrity == lock[f"node_modules/{one['name']}"]["integrity"]
    assert [one for one in told["components"] if one not in page] == before["components"]
    subprocess.run(command, check=True, cwd=ROOT)
    assert (tmp_path / "bill.json").read_bytes() == once
