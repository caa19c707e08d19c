"""A stolen borrower floods its lender, its key is revoked, and its connection stands: nothing more is done for it."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from swarmd.cli.main import main
from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import create_fleet
from swarmd_models.bundle import load_bundle
from tests.support.bundles import unhurried
from tests.support.daemons import PlainDaemon, all_see, wait_for
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

PATIENCE_S = 120


def counts(daemon: PlainDaemon) -> Counter[str]:
    return Counter(daemon.status()["lending"]["counts"])


def test_a_revoked_borrower_on_a_standing_connection_gets_nothing(tmp_path: Path) -> None:
    fleet = create_fleet(tmp_path / "fleet", "acme", {"root": (1, 1), "enrol": (1, 1), "revoke": (1, 1)})
    model = unhurried(tmp_path / "model")
    digest, daemons = load_bundle(model).digest, list[PlainDaemon]()

    def make(name: str, lending: str) -> PlainDaemon:
        home = tmp_path / name
        home.mkdir()
        write_secret_file(home / IDENTITY_FILE, fleet.enrol(name, "farm").to_bytes())
        served = model if "lend = true" in lending else "zoo:tiny-224"
        config = tmp_path / f"{name}.toml"
        config.write_text(f'[inference]\nmodels = ["{served}"]\n[lending]\n{lending}\n')
        flags = ["--identity", str(home), "--listen", "127.0.0.1:0", "--inference", "127.0.0.1:0"]
        daemons.append(PlainDaemon(name, home, [*flags, "--config", str(config)]))
        return daemons[-1]

    lender, stolen, honest = make("a", "lend = true"), make("stolen", "borrow = true"), make("b", "borrow = true")
    command = stolen._command
    command[command.index("swarmd")] = "tests.support.flooding_daemon"
    tiny = tmp_path / "tiny.npy"
    np.save(tiny, np.zeros((1, 16, 16, 1), np.uint8))
    programs: list[subprocess.Popen[str]] = []

    def ask(daemon: PlainDaemon, count: int) -> subprocess.Popen[str]:
        asked = (daemon.status()["inference"]["address"], "solar-small-320", digest, str(count), "4", "20000", "yes")
        programs.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.offload_client", *asked, str(tiny)],
                stdout=subprocess.PIPE if count < 100 else subprocess.DEVNULL, text=True, cwd=ROOT,
            )
        )  # fmt: skip
        return programs[-1]

    try:
        lender.start()
        stolen.start([lender.address])
        honest.start([lender.address])
        all_see([lender, stolen, honest], {"a": "alive", "stolen": "alive", "b": "alive"})
        for one in (stolen, honest):
            wait_for(
                lambda who=one: digest in ((who.status().get("lending") or {}).get("lenders") or {}).get("a", []),
                "the offer", PATIENCE_S, one.log,
            )  # fmt: skip
            wait_for(lambda who=one: (who.status()["inference"] or {}).get("address"), "a worker", PATIENCE_S, one.log)
        ask(stolen, 200_000)
        wait_for(lambda: counts(lender)["lent_answered"] >= 5, "it is lent to", PATIENCE_S, lender.log)

        arguments = ["keys", "revoke", str(fleet.folder), "stolen", "--swarm", "farm", "--reason", "lost over the sea"]
        assert main([*arguments, "--control", str(lender.control)]) == 0
        wait_for(
            lambda: lender.members().get("stolen") not in ("alive", "suspect", "degraded")
            and lender.status()["lending"]["jobs"] == 0,
            "it is out, and nothing is done for it", PATIENCE_S, lender.log,
        )  # fmt: skip
        before, sent = counts(lender), counts(stolen)["borrow_requests"]
        # Its process lives, its sockets stand, and its program asks on: by the end of it an honest one was served.
        program = ask(honest, 20)
        said, _ = program.communicate(timeout=PATIENCE_S)
        assert said.count('"status": 200') == 20, (said, honest.status()["lending"])
        after = counts(lender)
        again = counts(honest)["borrow_asked_again"]  # What broke with its connection may have been answered there.
        assert 20 <= after["lent_answered"] - before["lent_answered"] <= 20 + again, (before, after, again)
        wait_for(
            lambda: counts(stolen)["borrow_requests"] > sent or stolen.members().get("a") != "alive",
            "the stolen one asks in vain, or has given the lender up", PATIENCE_S, stolen.log,
        )  # fmt: skip
        assert stolen.process is not None
        assert stolen.process.poll() is None
        assert counts(lender)["lent_answered"] == after["lent_answered"]
    finally:
        for program in programs:
            program.kill()
            program.wait()
            if program.stdout is not None:
                program.stdout.close()
        for daemon in daemons:
            daemon.stop(signal.SIGKILL)
