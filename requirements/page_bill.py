"""Add to a bill of materials what the ground view's page is made of: the bundle in the wheel holds these packages.

    .venv-package/bin/python requirements/page_bill.py BILL.json ui/package-lock.json

The lock is npm's, version 3. Packages with which the page is only built or tested are left out, as none of their code
ships. The bill is written anew, checked against CycloneDX's schema, and is the same each time.
"""

import base64
import json
import sys
from pathlib import Path
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def components(lock: str) -> list[dict[str, object]]:
    """Of each package that ships: name, version, licence and the hash of its archive."""
    found = []
    for path, entry in sorted(json.loads(lock)["packages"].items()):
        if not path or entry.get("dev") or entry.get("optional"):
            continue
        name, version = path.rpartition("node_modules/")[2], entry["version"]
        algorithm, _, digest = entry["integrity"].partition("-")
        found.append(
            {
                "bom-ref": f"npm:{name}@{version}",
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:npm/{quote(name, safe='/')}@{version}",
                "hashes": [{"alg": f"SHA-{algorithm[3:]}", "content": base64.b64decode(digest).hex()}],
                "licenses": [{"license": {"id": entry["license"]}}],
                "description": "bundled into the page of the ground view",
            }
        )
    return found


def main(bill: Path, lock: Path) -> None:
    """Read, add, check, write."""
    told = json.loads(bill.read_text())
    added = components(lock.read_text())
    known = {one["bom-ref"] for one in added}
    told["components"] = [one for one in told["components"] if one["bom-ref"] not in known] + added
    told["dependencies"] = [one for one in told["dependencies"] if one["ref"] not in known]
    told["dependencies"] += [{"ref": one["bom-ref"]} for one in added]
    text = json.dumps(told, indent=2, sort_keys=True) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        sys.exit(f"{bill}: {problem}")
    bill.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
