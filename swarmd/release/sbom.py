"""A CycloneDX 1.6 bill of materials of the distribution, from the lock: names, versions, hashes, package URLs.

    python -m swarmd.release.sbom requirements/all.lock out/swarmd.cdx.json

Deterministic: the same lock gives the same bytes, so the file can be compared and signed. No network, no environment.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from swarmd.errors import DaemonError

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)\s*(?:;\s*([^\\]*))?")
_HASH = re.compile(r"--hash=(sha\d+):([0-9a-f]+)")
_ALGORITHMS = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}


def components(lock: str) -> list[dict[str, Any]]:
    """The pinned packages of a pip lock with hashes.

    Args:
        lock: The file's text, as `pip --require-hashes` reads it.

    Returns:
        CycloneDX components, sorted by name.

    Raises:
        DaemonError: A line pins nothing, or a pin has no hash: such a lock proves nothing.
    """
    found = []
    for block in _blocks(lock):
        pin = _PIN.match(block)
        if pin is None:
            raise DaemonError(f"the lock holds a line that pins nothing: {block[:60]!r}")
        name, version, marker = re.sub(r"[-_.]+", "-", pin[1]).lower(), pin[2], (pin[3] or "").strip()
        hashes = [{"alg": _ALGORITHMS[kind], "content": value} for kind, value in _HASH.findall(block)]
        if not hashes:
            raise DaemonError(f"the lock pins {name} {version} without a hash; run `make lock`")
        purl = f"pkg:pypi/{name}@{version}"
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            # Of every file of the release that may be installed; a machine installs one of them.
            "hashes": hashes,
        }
        if marker:
            component["properties"] = [{"name": "swarmd:marker", "value": marker}]
        found.append(component)
    return sorted(found, key=lambda one: (one["name"], one["version"]))


def _blocks(lock: str) -> list[str]:
    """Logical lines: continuation lines joined, comments and options left out."""
    joined = re.sub(r"\\\n\s*", " ", lock)
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith(("#", "-"))]


def bill(lock: str, project: dict[str, Any]) -> dict[str, Any]:
    """The whole document.

    Args:
        lock: The lock's text.
        project: The `[project]` table of pyproject.toml.
    """
    parts = components(lock)
    name, version = project["name"], project["version"]
    own = f"pkg:pypi/{name}@{version}"
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(parts, sort_keys=True) + own)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in parts]}],
    }


def main(arguments: list[str]) -> int:
    """Write the bill; arguments: lock, output."""
    lock, out = Path(arguments[0]), Path(arguments[1])
    project = tomllib.loads((lock.parent.parent / "pyproject.toml").read_text())["project"]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(bill(lock.read_text(), project), indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
