"""Streams over relays between real daemons: an inference is borrowed from a lender that the borrower cannot hear.

The input (43 kB) is larger than one frame that is handed on, so it crosses as a stream, at 3 kB/s; that is why each of
these takes a quarter of a minute.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from swarmd_models.bundle import load_bundle
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.namespaces import Networks
from tests.support.paths import ROOT
from tests.support.radio_line import RadioLine, marks

pytestmark = [*marks(600), pytest.mark.slow]
PATIENCE_S = 60.0
MODEL, NAME, SHAPE = "zoo:tiny-224", "solar-tiny-224", (1, 192, 224, 1)
API = '[inference]\nlisten = "127.0.0.1:0"\nmodels = ["{model}"]\n[lending]\n{verb} = true\n'


class Farm:
    """The first borrows, the last has the model; those between hand on what both say."""

    def __init__(self, networks: Networks, folder: Path) -> None:
        self._networks, self._folder = networks, folder
        self.input = folder / "in.npy"
        np.save(self.input, np.random.default_rng(1).integers(-128, 128, SHAPE).astype(np.int8))
        self.lines: list[RadioLine] = []

    def line(self, names: str, reach: int) -> RadioLine:
        """Daemons of which each hears so many on each side; the borrower has been offered the model."""
        line = RadioLine(self._networks, self._folder, PATIENCE_S, names=names, reach=reach)
        self.lines.append(line)
        first, last = line.daemons[0], line.daemons[-1]
        for daemon, verb, model in ((first, "borrow", "zoo:nano-160"), (last, "lend", MODEL)):
            config = self._folder / f"{daemon.name}.toml"
            config.write_text(API.format(verb=verb, model=model))
            daemon._command += ["--config", str(config)]
        line.start()
        digest = load_bundle(MODEL).digest
        line.wait(
            lambda: digest in ((first.status().get("lending") or {}).get("lenders") or {}).get(last.name, []),
            "the offer of a far lender",
            lambda: (first.status(), last.log()),
        )
        return line

    def infer(self, index: int, daemon: PlainDaemon, out: str, *flags: str) -> "subprocess.Popen[str]":
        """`swarmd infer` on a device."""
        command = [*self._networks.prefix(index), sys.executable, "-m", "swarmd", "infer", NAME]
        command += ["--version", load_bundle(MODEL).digest, "--input", str(self.input), "--deadline-ms", "60000"]
        command += ["--out", str(self._folder / out), "--control", str(daemon.control), *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    def borrow(self, line: RadioLine) -> "subprocess.Popen[str]":
        """The borrower asks; given when a part of the input is on its way, and the rest is not."""
        first = line.daemons[0]
        wanted = far_segments(first) + 15
        asked = self.infer(1, first, "far.npz", "--borrow")
        line.wait(lambda: far_segments(first) >= wanted or asked.poll() is not None, "a stream under way", first.log)
        assert asked.poll() is None, asked.communicate()
        return asked

    def is_whole(self, line: RadioLine) -> None:
        """What came back is what the lender says at home."""
        said = self.infer(len(line.names), line.daemons[-1], "near.npz")
        _, error = said.communicate(timeout=PATIENCE_S)
        assert said.returncode == 0, error
        far, near = np.load(self._folder / "far.npz"), np.load(self._folder / "near.npz")
        assert sorted(far) == sorted(near)
        assert all(np.array_equal(far[name], near[name]) for name in near)


def far_segments(daemon: PlainDaemon) -> int:
    return int(daemon.ask("counters")["own"].get("node_far_segments", 0))


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    """Nobody yet."""
    with Networks() as networks:
        made = Farm(networks, tmp_path)
        try:
            yield made
        finally:
            for line in made.lines:
                line.close()


def test_an_inference_is_borrowed_whole_and_at_the_next_the_only_relay_dies(farm: Farm) -> None:
    """The next is asked for at once: what the first took, 15 s, says nothing of the short words before it."""
    line = farm.line("abc", 1)
    asked = farm.borrow(line)
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode == 0, error
    farm.is_whole(line)
    first = line.daemons[0]
    counts = first.ask("counters")["own"]
    assert counts["node_far_streams_sent"] == 1
    assert not counts.get("node_far_streams_failed")
    asked = farm.borrow(line)
    line.kill("b")  # Nobody else leads to the lender.
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode != 0
    assert "503" in error
    wait_for(lambda: "far-stream" in first.log(), "the error of the stream", PATIENCE_S, first.log)
    said = next(row for row in first.log().splitlines() if "far-stream" in row)
    assert re.search(r"\d+ of \d+ bytes \(offload\) came to c: .* behind b\b", said), said


def test_where_a_relay_dies_another_takes_over(farm: Farm) -> None:
    """Of two that both ends hear, the one that has handed on what came so far is killed."""
    line = farm.line("abcd", 2)
    asked = farm.borrow(line)
    counts = {name: line.daemons["abcd".index(name)].ask("counters")["own"] for name in "bc"}
    line.kill(max(counts, key=lambda name: counts[name].get("node_relay_bytes", 0)))
    _, error = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode == 0, error
    farm.is_whole(line)
    assert not line.daemons[0].ask("counters")["own"].get("node_far_streams_failed")
