"""A model that one real daemon has and another, which cannot hear it, borrows."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from swarmd_models.bundle import load_bundle
from tests.support.daemons import PlainDaemon
from tests.support.namespaces import Networks
from tests.support.paths import ROOT
from tests.support.radio_line import Lettered

_MODEL, _NAME, _SHAPE = "zoo:tiny-224", "solar-tiny-224", (1, 192, 224, 1)
_API = '[inference]\nlisten = "127.0.0.1:0"\nmodels = ["{model}"]\n[lending]\n{verb} = true\n'


class Borrowing:
    """The first daemon borrows, the last has the model; neither has begun yet. The input is 43 kB."""

    def __init__(self, networks: Networks, folder: Path, group: Lettered) -> None:
        self._networks, self._folder, self._group = networks, folder, group
        self.input = folder / "in.npy"
        np.save(self.input, np.random.default_rng(1).integers(-128, 128, _SHAPE).astype(np.int8))
        self._digest = load_bundle(_MODEL).digest
        ends = (group.daemons[0], "borrow", "zoo:nano-160"), (group.daemons[-1], "lend", _MODEL)
        for daemon, verb, model in ends:
            config = folder / f"{daemon.name}.toml"
            config.write_text(_API.format(verb=verb, model=model))
            daemon._command += ["--config", str(config)]

    def wait_for_the_offer(self) -> None:
        """Until the first has been offered what it is to borrow."""
        first, last = self._group.daemons[0], self._group.daemons[-1]
        self._group.wait(
            lambda: self._digest in ((first.status().get("lending") or {}).get("lenders") or {}).get(last.name, []),
            "the offer of a far lender",
            lambda: (first.status(), last.log()),
        )

    def infer(self, daemon: PlainDaemon, out: str, *flags: str) -> "subprocess.Popen[str]":
        """`swarmd infer` on a device."""
        index = self._group.daemons.index(daemon) + 1
        command = [*self._networks.prefix(index), sys.executable, "-m", "swarmd", "infer", _NAME]
        command += ["--version", self._digest, "--input", str(self.input), "--deadline-ms", "60000"]
        command += ["--out", str(self._folder / out), "--control", str(daemon.control), *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    def is_whole(self, patience_s: float) -> None:
        """What came back ("far.npz") is what the lender says at home."""
        said = self.infer(self._group.daemons[-1], "near.npz")
        _, error = said.communicate(timeout=patience_s)
        assert said.returncode == 0, error
        far, near = np.load(self._folder / "far.npz"), np.load(self._folder / "near.npz")
        assert sorted(far) == sorted(near)
        assert all(np.array_equal(far[name], near[name]) for name in near)
