"""The control over many seeds goes on from what a stopped run has kept, and from nothing else."""

import json
from dataclasses import asdict
from pathlib import Path

from tests.bench.bench_control import Seed, read_kept


def test_a_run_that_was_stopped_within_a_line_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    whole = json.dumps(asdict(Seed("digest", 1, 200, 4_400)))
    path.write_text(f"{whole}\n{whole[:40]}")
    assert list(read_kept(path)) == [("digest", 1, 200)]
    with path.open("a") as file:
        file.write(whole.replace('"seed": 1', '"seed": 2') + "\n")
    assert list(read_kept(path)) == [("digest", 1, 200), ("digest", 2, 200)]
