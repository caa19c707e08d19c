"""`make recording`: the picture at the top of README.md, a film of the ground view while `swarmd demo` flies.

Real daemons, the page that ships, Chromium. The flight is that of `make demo ARGS=--view` with one seed; when a frame
was taken differs from run to run, what the page shows does not. The film is a GIF, because every page that shows a
README plays one.
"""

import io
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from PIL import Image

from tests.support.browser import chromium, opened, text
from tests.support.daemons import wait_for
from tests.support.ground import CHROMIUM
from tests.support.paths import ROOT

FILM = ROOT / "docs" / "recording.gif"
FILM_MAX_BYTES = 1_500_000
SEED = 7
WIDTH, HEIGHT = 1120, 700
"""Pixels: as wide as a README is shown."""
FRAMES_MAX = 32
EVERY_S = 1.0
"""Seconds between two pictures of a flight of half a minute."""
FRAME_MS, LAST_MS = 400, 3000
"""Milliseconds that the film shows each picture, and the last one."""
COLOURS = 96


def flown(folder: Path) -> list[Image.Image]:
    """Pictures of one flight, from its beginning to its end."""
    command = [sys.executable, "-m", "swarmd", "demo", "--seed", str(SEED), "--json", "--view"]
    command += ["--page", "127.0.0.1:0", "--out", str(folder / "out")]
    log, pictures = folder / "log", list[Image.Image]()
    with chromium() as browser:  # First: it takes longer to start than half of the flight.
        with log.open("wb") as err, (folder / "summary").open("wb") as out:
            demo = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)

        def address() -> str:
            """Of the ground view, once it answers."""
            assert demo.poll() is None, log.read_text()
            lines = [line for line in log.read_text().splitlines() if line.startswith("ground view: ")]
            found = lines[0].removeprefix("ground view: ") if lines else ""
            try:
                return urllib.request.urlopen(found, timeout=10).url if found else ""
            except OSError:
                return ""

        try:
            with opened(browser, wait_for(address, "the page", 300, log.read_text), "dark", WIDTH, HEIGHT) as (page, _):
                while True:
                    began_s = time.monotonic()
                    shot = page.screenshot()
                    if "does not answer" in text(page):
                        break  # The flight is over, and the page says that its server is.
                    pictures.append(Image.open(io.BytesIO(shot)).convert("RGB"))
                    time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))
            assert demo.wait(120) == 0, log.read_text()
        finally:
            if demo.poll() is None:
                demo.terminate()
                demo.wait(60)
    return pictures


def film(pictures: list[Image.Image], path: Path) -> int:
    """Write them as one GIF with one palette, so that what stands still costs nothing; its bytes."""
    step = max(1, -(-len(pictures) // FRAMES_MAX))
    chosen = [*pictures[:-1:step], pictures[-1]]
    palette = pictures[-1].quantize(COLOURS)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in chosen]
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    part = path.with_suffix(".part")
    frames[0].save(part, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=False)
    size_bytes = part.stat().st_size
    part.replace(path)
    return size_bytes


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("no Chromium on the path, in which the film is taken (apt install chromium)")
    with tempfile.TemporaryDirectory() as room:
        taken = flown(Path(room))
        size_bytes = film(taken, FILM)
    print(f"{FILM.relative_to(ROOT)}: {size_bytes} bytes of {len(taken)} pictures")
    sys.exit(size_bytes > FILM_MAX_BYTES)
