"""`swarmd install`: configuration, identity and systemd unit on a device, and a line for everything that was done.

Nothing that is there already is overwritten but what `swarmd install` wrote itself: a second run is harmless. Units of
a package stay the package's, so that an upgrade brings the new ones: what differs goes into a drop-in. With a root
other than `/` the files are only written, for images and packages.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from swarmd.errors import ConfigError, DaemonError
from swarmd.identity.files import IDENTITY_FILE, IdentityFileError, load_identity, write_public_file, write_secret_file

_UNITS = {"swarmd.service": "swarmd", "swarmd@.service": "%i"}
"""Unit to the name of its configuration file."""
_PACKAGE_FOLDERS = ("usr/lib/systemd/system", "lib/systemd/system")
_OWN_FOLDER = "usr/local/lib/systemd/system"
"""Where units go without a package; systemd prefers `/etc` to it."""
_DROP_IN = "10-install.conf"
_PROGRAM = "/usr/bin/swarmd"


class Installer:
    """Writes below one root and remembers what it did."""

    def __init__(self, root: Path, program: Path, dry_run: bool = False) -> None:
        """Install below `root`; the unit will start `program`."""
        self._root = root
        self._program = program
        self._dry_run = dry_run
        self.done: list[str] = []

    def configuration(self, settings: Mapping[str, str]) -> None:
        """Write `/etc/swarmd/swarmd.toml`, unless there is one; settings go to `swarmd.toml.d/50-install.toml`.

        Args:
            settings: "section.key" to a TOML value.

        Raises:
            DaemonError: A file cannot be written.
        """
        self._write("etc/swarmd/swarmd.toml", _source("swarmd.toml").read_text(), 0o644, keep=True)
        if not settings:
            return
        sections: dict[str, list[str]] = {}
        for name, value in settings.items():
            section, _, key = name.partition(".")
            sections.setdefault(section, []).append(f"{key} = {value}")
        text = "\n".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())
        self._write("etc/swarmd/swarmd.toml.d/50-install.toml", text, 0o644)

    def identity(self, source: Path) -> None:
        """Copy a node's identity to where systemd hands it over as a credential; checked first.

        Raises:
            DaemonError: It does not hold, or the copy cannot be written.
        """
        identity = load_identity(source)
        path = source / IDENTITY_FILE if source.is_dir() else source
        target = "etc/swarmd/credentials/" + IDENTITY_FILE
        self._write(target, path.read_bytes(), 0o600)
        self.done.append(f"this device is {identity.name!r} of swarm {identity.swarm!r}")

    def units(self) -> None:
        """See to units, user and directories; the unit starts the program that is running now."""
        packaged = any((self._root / folder / "swarmd.service").is_file() for folder in _PACKAGE_FOLDERS)
        for name, config in _UNITS.items():
            self._unshadow(self._root / "etc/systemd/system" / name)
            if packaged:
                self._unshadow(self._root / _OWN_FOLDER / name)
                self._drop_in(f"etc/systemd/system/{name}.d/{_DROP_IN}", config)
            else:
                text = _source(name).read_text().replace(_PROGRAM, str(self._program))
                self._write(f"{_OWN_FOLDER}/{name}", text, 0o644)
        if not packaged:
            self._write("usr/local/lib/sysusers.d/swarmd.conf", _source("swarmd.sysusers.conf").read_text(), 0o644)
            self._write("usr/local/lib/tmpfiles.d/swarmd.conf", _source("swarmd.tmpfiles.conf").read_text(), 0o644)

    def _drop_in(self, target: str, config: str) -> None:
        if str(self._program) == _PROGRAM:
            path = self._root / target
            if path.exists():
                self.done.append(f"removed {path}")
                if not self._dry_run:
                    path.unlink()
            return
        start = f"{self._program} run --config /etc/swarmd/{config}.toml"
        reload = f"{self._program} reload --config /etc/swarmd/{config}.toml"
        self._write(target, f"[Service]\nExecStart=\nExecStart={start}\nExecReload=\nExecReload={reload}\n", 0o644)

    def _unshadow(self, path: Path) -> None:
        """Put a whole unit out of the way: it would hide the package's for ever, also after an upgrade."""
        if path.is_symlink() or not path.is_file():
            return
        kept = path.with_name(path.name + ".old")
        self.done.append(f"moved {path} to {kept.name}: it hid the unit of the installed version")
        if not self._dry_run:
            try:
                path.replace(kept)
            except OSError as error:
                raise DaemonError(f"{path}: cannot be moved: {error.strerror}; run as root") from error

    def activate(self, start: bool) -> None:
        """Make the running systemd take it up; only below `/`.

        Raises:
            DaemonError: A command fails; its own words are in the message.
        """
        if self._root != Path("/") or not Path("/run/systemd/system").is_dir():
            self.done.append("no systemd was told (another root, or none runs here)")
            return
        commands = [["systemd-sysusers"], ["systemd-tmpfiles", "--create"], ["systemctl", "daemon-reload"]]
        commands += [["systemctl", "enable", "--now", "swarmd.service"]] if start else []
        for command in commands:
            self._run(command)
        if not start:
            self.done.append("start it with: systemctl enable --now swarmd")

    def _run(self, command: list[str]) -> None:
        self.done.append("ran " + " ".join(command))
        if self._dry_run:
            return
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DaemonError(f"{' '.join(command)}: {error}") from error
        if result.returncode:
            raise DaemonError(f"{' '.join(command)}: {result.stderr.strip() or result.returncode}")

    def _write(self, target: str, content: str | bytes, mode: int, keep: bool = False) -> None:
        path = self._root / target
        data = content.encode() if isinstance(content, str) else content
        if keep and path.exists():
            self.done.append(f"kept {path}")
            return
        self.done.append(f"wrote {path} ({mode:04o})")
        if self._dry_run:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            if mode == 0o600:
                path.parent.chmod(0o700)
            (write_secret_file if mode == 0o600 else write_public_file)(path, data)
        except (OSError, IdentityFileError) as error:
            why = str(error) if isinstance(error, IdentityFileError) else f"{path}: cannot be written: {error.strerror}"
            raise DaemonError(f"{why}; run as root, or give --root DIR") from error


def _source(name: str) -> Path:
    """A file of ours: in the installed package, else in the checkout."""
    here = Path(__file__).resolve().parents[1]
    places = [here / "systemd" / name, here.parent / "systemd" / name, here.parent / "systemd" / "deb" / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DaemonError(f"this installation lacks {name}; install swarmd again")
    return found


def program_path() -> Path:
    """The `swarmd` command that runs now, for the unit.

    Raises:
        ConfigError: It cannot be found.
    """
    found = shutil.which("swarmd") or shutil.which("swarmd", path=str(Path(sys.executable).parent))
    if found is None:
        raise ConfigError("the command `swarmd` is not on the PATH; install the package, or give --program PATH")
    return Path(found).resolve()
