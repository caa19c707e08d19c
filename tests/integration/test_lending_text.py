"""Real daemons: a text of a model that only others have goes on when the one who makes it is killed."""

import json
import subprocess
import sys
from pathlib import Path

import swarmd
from swarmd.worker.asking import Wish
from swarmd.worker.asking_text import stream
from swarmd_models.bundle import load_bundle
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.paths import ROOT
from tests.unit.test_texts import PROMPT, REPORT

API = ("--no-eye", "--inference", "127.0.0.1:0")
LONG = "drone-9 failed drone-4\nrover-3 failed rover-8\ndrone-2 autopilot link near row 7\n5 soiling review"


def test_a_text_moves_to_another_lender_when_the_first_dies(start: Start, tmp_path: Path) -> None:
    digest = load_bundle("zoo:events-text").digest
    daemons: dict[str, Daemon] = {}
    for name, what in (("a", "lend = true"), ("b", "lend = true"), ("c", "borrow = true")):
        models = 'models = ["zoo:events-text"]' if name != "c" else "models = []"
        config = tmp_path / f"{name}.toml"
        config.write_text(f"[inference]\n{models}\n[lending]\n{what}\n")
        join = daemons["a"].status()["address"] if daemons else ""
        daemons[name] = start(name, *API, "--config", str(config), join=join).up()
    c = daemons["c"]

    def lenders() -> list[str]:
        found = (c.status().get("lending") or {}).get("lenders", {})
        return sorted(name for name, digests in found.items() if digest in digests)

    wait_for(lambda: lenders() == ["a", "b"], "both offers", seen=c.log)
    wait_for(lambda: (c.status()["inference"] or {}).get("address"), "c's worker", seen=c.log)
    address = c.status()["inference"]["address"]
    wish = Wish(digest, deadline_ms=60_000, borrow="yes")

    def said(killed: bool) -> tuple[str, list[str]]:
        pieces, by = [], []
        for row in stream(address, "events-text", LONG, wish):
            pieces.append(row["text_output"])
            by.append(row["parameters"]["lender"])
            if killed and len(by) == 2:
                daemons[by[-1]].kill()
                killed = False
        return "".join(pieces), by

    whole, by = said(killed=False)
    assert whole.strip().endswith(".")
    assert set(by) <= {"a", "b"}
    for _ in range(5):  # Whether the kill falls into the text, and not behind its end, is chance.
        moved, by = said(killed=True)
        assert moved == whole, "who goes on says what the first would have said"
        if len(set(by)) == 2:
            break
        daemons[by[-1]].start()
        wait_for(lambda: lenders() == ["a", "b"], "both offers again", seen=c.log)
    assert len(set(by)) == 2, by

    done = subprocess.run(
        [sys.executable, "-m", "swarmd", "infer", "events-text", "--version", digest, "--borrow", "--stream", "--json",
         "--prompt", PROMPT, "--control", str(c.control)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert "".join(row["text_output"] for row in rows).strip() == REPORT
    pieces = list(swarmd.connect(c.control).write("events-text", PROMPT, version=digest, borrow="yes"))
    assert len(pieces) > 3
    assert "".join(pieces).strip() == REPORT
    refused = subprocess.run(
        [sys.executable, "-m", "swarmd", "infer", "events-text", "--version", digest, "--stream", "--prompt", PROMPT,
         "--control", str(c.control)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (refused.returncode, "404" in refused.stderr) == (1, True), "nothing leaves without a word"
