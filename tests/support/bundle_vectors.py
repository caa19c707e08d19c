"""Golden digests of bundles: the line that is hashed and its SHA-256, for each kind of value that a TOML can hold."""

import tomllib
from pathlib import Path
from typing import Any

from swarmd_models.bundle_digest import canonical, digest_of_bare, digest_of_bundle

PATH = Path(__file__).resolve().parents[2] / "models" / "vectors" / "bundle_digest.json"
CASES: dict[str, tuple[str, list[str]]] = {
    "two labels": ('format = 1\nlabels = ["hot", "cold"]\n', ["hot", "cold"]),
    "the labels swapped": ('format = 1\nlabels = ["cold", "hot"]\n', ["cold", "hot"]),
    "labels from a file": ('format = 1\nlabels_file = "names.txt"\n', ["Zürich", "日本"]),
    "numbers": ("[decode]\nscore_threshold = 0.1\niou_threshold = 1e-7\nmax_detections = 100\n", ["a"]),
    "other numbers": ("[decode]\nscore_threshold = 0.2\niou_threshold = 1e-7\nmax_detections = 100\n", ["a"]),
    "nested tables in another order": ("[b]\ny = true\nx = [1, 2]\n[a.c]\nz = -0.5\n", ["a"]),
    "a moment": ("[provenance]\nmade = 2026-05-27T07:32:00Z\nday = 1979-05-27\n", ["a"]),
    "the text of a moment": ('[provenance]\nmade = "2026-05-27T07:32:00Z"\nday = "1979-05-27"\n', ["a"]),
}
BARE = b"\x1c\0\0\0TFL3 a model"


def document() -> dict[str, Any]:
    return {
        "what": "digests of bundles (models/swarmd_models/bundle_digest.py)",
        "vectors": [
            {
                "name": name,
                "toml": toml,
                "labels": labels,
                "line": canonical(
                    {"format": 1, "kind": "bundle", "labels": labels, "toml": tomllib.loads(toml)}
                ).decode(),
                "digest": digest_of_bundle(tomllib.loads(toml), labels),
            }
            for name, (toml, labels) in CASES.items()
        ],
        "bare": [
            {"hex": BARE.hex(), "labels": labels, "digest": digest_of_bare(BARE, labels)}
            for labels in (None, ["hot", "cold"], ["cold", "hot"])
        ],
    }
