"""Real daemons in the emulated radio network beside the checkout (`../shared/lab/netlab`), which needs root."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from swarmd.identity.files import dev_fleet_secret
from tests.support.daemons import PlainDaemon, all_see
from tests.support.paths import ROOT

NETLAB = ROOT.parent / "shared" / "lab" / "netlab"


def marks(timeout_s: int) -> list[pytest.MarkDecorator]:
    """What every test in the lab is marked with; it is skipped, and says so, where the lab cannot run."""
    return [
        pytest.mark.netns,
        pytest.mark.shared,
        pytest.mark.slow,
        pytest.mark.timeout(timeout_s),
        pytest.mark.skipif(os.geteuid() != 0, reason="not root here: no network namespaces"),
        pytest.mark.skipif(not NETLAB.exists(), reason="no ../shared beside this checkout (lab/netlab)"),
    ]


class Lab:
    """One emulated network with a daemon on each node."""

    def __init__(self, name: str, folder: Path, count: int, flags: Sequence[str] = ()) -> None:
        self._name = name
        dev_fleet_secret(folder / "fleet")
        self("up", "-n", str(count))
        self.daemons = [
            PlainDaemon(
                f"n{i}",
                folder / f"n{i}",
                [
                    *("--dev-fleet", str(folder / "fleet"), "--name", f"n{i}"),
                    *("--listen", f"10.77.0.{i}:7946"),
                    *flags,
                ],
                prefix=("ip", "netns", "exec", f"{name}-{i}"),
            )
            for i in range(1, count + 1)
        ]

    def __call__(self, *arguments: str) -> None:
        environment = {**os.environ, "NETLAB": self._name}
        done = subprocess.run(
            [str(NETLAB), *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"netlab {arguments}: {done.stderr}"

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start(["10.77.0.1:7946"])
        all_see(self.daemons, self.everybody("alive"))

    def everybody(self, state: str, **others: str) -> dict[str, str]:
        return {daemon.name: others.get(daemon.name, state) for daemon in self.daemons}

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.stop(signal.SIGKILL)
        self("down")
