"""A plug-in's own process: `python -m swarmd.bridges.plugins GROUP NAME CONTROL`, its options as JSON on its input."""

import json
import signal
import sys
import traceback
from pathlib import Path

import swarmd
from swarmd.bridges.plugins.found import BRIDGES, described, find, load
from swarmd.errors import DaemonError
from swarmd.eye.link import die_with_parent


def main(group: str, name: str, control: str) -> int:
    """Run the plug-in until it ends or is ended; 1 and a last line that says why where it fails."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the daemon's; it ends its plug-ins itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # So that a plug-in's `finally` runs.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    options: dict[str, str] = json.loads(sys.stdin.readline())
    try:
        plugin = load(group, name)
        node = swarmd.connect(Path(control))
        if group == BRIDGES:
            plugin(node, options)
        else:
            for sightings in plugin(options):
                node.observe(sightings)
    except DaemonError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except Exception as error:  # It is somebody else's program: the daemon tells its last line, and tries again.
        traceback.print_exc()
        sys.stderr.write(f"{described(find(group, name))} raised {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
