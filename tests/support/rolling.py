"""Two programs for a rolling upgrade: an older revision's and this tree's, each as people install it.

Each is a wheel, built from its own sources, in a virtual environment of its own. A revision whose locked libraries are
this tree's borrows them from the interpreter that runs the tests; any other installs its own lock.
"""

import itertools
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swarmd.errors import DaemonError
from tests.support import older
from tests.support.daemons import PlainDaemon
from tests.support.paths import ROOT

LOCK = "requirements/base.lock"
GRID_M = 40.0
"""Between two detections: far more than what one object's detections may differ by, so each is an object of its own."""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command says; fails with it where the command does."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(tree: Path, folder: Path) -> Path:
    """Build a tree's wheel and install it in a virtual environment of its own; the `swarmd` that a person types."""
    venv, dist = folder / "venv", folder / "dist"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, cwd=tree)
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=folder)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", venv, "install", "--quiet"]
    if (tree / LOCK).read_bytes() == (ROOT / LOCK).read_bytes():
        (site,) = venv.glob("lib/python*/site-packages")
        # As a plain folder: this tree's editable install is not followed from there.
        (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        run(*pip, "--require-hashes", "-r", tree / LOCK, cwd=folder)
    run(*pip, "--no-deps", "--no-index", *dist.glob("*.whl"), cwd=folder)
    where = run(
        venv / "bin/python", "-P", "-c", "import swarmd, swarmd_protocols as p; print(swarmd.__file__, p.__file__)",
        cwd=folder,
    )  # fmt: skip
    assert all(path.startswith(str(venv)) for path in where.split()), where
    return venv / "bin" / "swarmd"


class Device(PlainDaemon):
    """A device of the swarm: its folder stays, its program is replaced."""

    def __init__(self, name: str, folder: Path, program: Path, arguments: Sequence[str]) -> None:
        super().__init__(name, folder, arguments)
        at = self._command.index("-m")
        self._after = self._command[at + 2 :]
        self.upgrade(program)

    def upgrade(self, program: Path) -> None:
        """From the next start on it is this program."""
        self.program = program
        self._command = [str(program), *self._after]

    def start(self, join: Sequence[str] = ()) -> "Device":
        super().start(join)
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/cmdline").read_text()
        assert str(self.program.parent) in words, f"{self.name} runs {words!r}"
        return self

    def rows(self) -> list[int]:
        """The numbers of the detections that this device shows."""
        return [round(row["east_m"] / GRID_M) for row in self.ask("detections")["detections"]]


@dataclass
class Feed:
    """Detections that flow into every device that runs, each at a place of its own, until it is closed."""

    devices: Sequence[Device]
    pause_s: float = 0.05
    taken: dict[int, str] = field(default_factory=dict)
    """Number of a detection to the device that said it has it."""
    unsure: set[int] = field(default_factory=set)
    """Asked of a device that ended before it answered: it may have them or not."""
    refused: list[str] = field(default_factory=list)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Feed":
        self._thread = threading.Thread(target=self._run, name="feed")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def by(self, device: Device) -> int:
        """How many a device has taken."""
        return sum(name == device.name for name in list(self.taken.values()))

    def say(self, device: Device) -> None:
        """One more at a device, whatever becomes of it."""
        with self._lock:
            self._count += 1
            number = self._count
        row = {"label": "crack", "score": 0.8, "east_m": number * GRID_M, "north_m": 2.0}
        try:
            answer = device.ask("observe", detections=[row])
        except (DaemonError, OSError):
            self.unsure.add(number)
            return
        if answer["taken"] == 1:
            self.taken[number] = device.name
        else:
            self.refused.append(f"{device.name}: {number}")

    def _run(self) -> None:
        for device in itertools.cycle(self.devices):
            if self._stop.wait(self.pause_s):
                return
            self.say(device)


def program_of(revision: str, folder: Path) -> Path:
    """The installed program of a revision."""
    tree = older.lay_out(revision, folder / "tree", "systemd", "requirements", "pyproject.toml", "README.md", "LICENSE")
    return install(tree, folder)
