"""A daemon that writes down what each frame of its eye took: one line of JSON a frame, into a file.

python -m tests.support.timed_eye_daemon FILE run …      the rest as for `python -m swarmd`
"""

import json
import sys
import time

from swarmd.brain.eye_telemetry import EyeTelemetry
from swarmd.cli.main import main
from swarmd.eye import ipc

_WHOLE = EyeTelemetry.on_frame


def _timed(self: EyeTelemetry, frame: ipc.FrameDone) -> None:
    _WHOLE(self, frame)
    if frame.frame_index >= 0:
        _FILE.write(json.dumps({"at_ns": time.monotonic_ns(), "took_ns": sum(frame.stage_ns.values())}) + "\n")


if __name__ == "__main__":
    with open(sys.argv.pop(1), "w", buffering=1) as _FILE:
        EyeTelemetry.on_frame = _timed  # type: ignore[method-assign]
        status = main(sys.argv[1:])
    sys.exit(status)
