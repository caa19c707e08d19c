"""How long five real daemons on a line (namespaces, UDP, blocked pairwise) take for what a mesh promises; needs root.

    sudo .venv/bin/python -m tests.bench.bench_mesh_line [--quiet 120]

Prints one JSON object: seconds of each step, and how often anybody was called failed while nothing happened.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from tests.support.namespaces import Networks
from tests.support.radio_line import ALL_ALIVE, CUT, KILLED, RadioLine

_PATIENCE_S = 120.0


def measure(quiet_s: float, folder: Path) -> dict[str, float]:
    """One line, from its start to its end.

    Args:
        quiet_s: How long nothing happens, seconds.
        folder: For keys, states and logs.
    """
    took: dict[str, float] = {}
    with Networks() as networks:
        line = RadioLine(networks, folder, _PATIENCE_S)
        try:
            begun = time.monotonic()
            line.start()
            took["formed_s"] = time.monotonic() - begun
            time.sleep(quiet_s)
            took["failed_while_quiet"] = len(line.failures())
            took["event_s"] = line.tell("over-four-hops")
            line.cut("cd")
            took["cut_told_s"] = line.see(CUT)
            time.sleep(5)
            line.cut()
            took["healed_s"] = line.see(ALL_ALIVE)
            line.kill("c")
            took["kill_told_s"] = line.see(KILLED)
            line.restart("c")
            took["restarted_s"] = line.see(ALL_ALIVE)
            took["failed_but_c"] = sum(1 for _, about in line.failures() if about != "c")
        finally:
            line.close()
    return {name: round(value, 2) for name, value in took.items()}


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", type=float, default=120.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options.quiet, Path(folder))))


if __name__ == "__main__":
    main()
