"""Heights read by a process of its own: GDAL holds the interpreter for tens of milliseconds, in which no frame is seen.

    stdin: nothing; arguments: FILE LATITUDE LONGITUDE; stdout: one line of JSON, and the heights as float32, row by row

The child lives for one patch, and its memory goes with it.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from swarmd_models.errors import SourceError
from swarmd_models.geo.heights import GeoTiff, HeightReader, Patch, open_heights

LIMIT_S = 120.0
"""Seconds after which a child is ended: twenty times what a fine survey takes on a loaded board."""


class ReadApart:
    """A `HeightReader`; one child at a time is its caller's concern."""

    def __init__(self, path: Path) -> None:
        """Of a file that `open_heights` has looked at."""
        self._path = path

    def patch(self, latitude_deg: float, longitude_deg: float) -> Patch:
        """The heights about a place, by a child.

        Raises:
            SourceError: It says why it cannot read them, or it died, or never ended.
        """
        # -P: nothing of the current folder is imported.
        words = [sys.executable, "-P", "-m", __spec__.name, str(self._path), repr(latitude_deg), repr(longitude_deg)]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            data, _ = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"height model {self._path} was not read within {LIMIT_S:.0f} s") from error
        finally:
            if child.poll() is None:
                child.kill()
                child.communicate()
        line, _, raw = data.partition(b"\n")
        try:
            head = json.loads(line)
            if why := head.get("why"):
                raise SourceError(why)
            heights = np.frombuffer(raw, np.float32).reshape(head["shape"])
            return Patch(head["south"], head["west"], (head["step"][0], head["step"][1]), heights)
        except (ValueError, KeyError, AttributeError) as error:
            raise SourceError(f"the reader of height model {self._path} ended with {child.returncode}") from error


def apart(reader: HeightReader, path: Path) -> HeightReader:
    """Who reads this file beside frames: a child for what GDAL reads, and a thread is enough for tiles."""
    return ReadApart(path) if isinstance(reader, GeoTiff) else reader


def main(words: list[str]) -> int:
    """Read one patch, and say it."""
    out = sys.stdout.buffer
    try:
        found = open_heights(Path(words[0])).patch(float(words[1]), float(words[2]))
    except SourceError as error:
        out.write(json.dumps({"why": str(error)}).encode() + b"\n")
        return 1
    head = {
        "south": found.south_deg, "west": found.west_deg, "step": found.step_deg, "shape": found.heights_m.shape
    }  # fmt: skip
    out.write(json.dumps(head).encode() + b"\n" + np.ascontiguousarray(found.heights_m, np.float32).tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
