"""A bare Debian 12 that is booted, with systemd as its first process and a network of its own. Needs root.

Its files are made once by mmdebstrap from the mirror that this machine uses, kept in `out/devices`, and copied for each
device; nothing is downloaded by a device. Its network is a namespace with a loopback only, so that its ports are its
own. What fails before anything of ours is on it (no root, no tool, no mirror, a kernel that starts no container) is a
fact about this machine: `NoDevice` says it, and the test is skipped for it.
"""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.exclusive import own_name
from tests.support.paths import ROOT

FOLDER = ROOT / "out" / "devices"
TOOLS = ("mmdebstrap", "systemd-nspawn", "nsenter", "setpriv", "ip")
PACKAGES = "systemd,systemd-sysv,dbus,ca-certificates,python3,openssh-server"
"""What a Debian that somebody installed by hand has, an SSH server included."""
MIRROR = "http://deb.debian.org/debian"
MAKE_S = 600
"""Seconds to make the files: 17 s of CPU; four minutes where five programs want each core."""
BOOT_S = 120
"""Seconds until systemd is up: two on a machine that has nothing else to do."""
PATIENCE_S = 240.0
"""Seconds that a test waits for something on a device: many times what it takes."""
_INDEX = [sys.executable, "-m", "pip", "download", "-q", "--no-cache-dir", "--no-deps", "-d", str(FOLDER), "iniconfig"]
"""Whether the index gives anything."""
_MIRROR = re.compile(r"^(?:URIs:|deb)\s+(\S+/debian/?)(?:\s|$)", re.MULTILINE)
_HIERARCHIES = [Path("/sys/fs/cgroup", name) for name in ("systemd", "unified", "")]
"""Where systemd keeps processes apart: in a hierarchy of its own, in both of a hybrid machine, or in the only one."""
_ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"'
"""A shell that enters control groups and becomes the command behind them."""
_turns = iter(range(1_000))


class NoDevice(Exception):
    """This machine boots no Debian, and why; nothing of swarmd has run."""


def own_architecture() -> str:
    """Debian's name for this machine's processor."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def mirror() -> str:
    """The mirror of Debian in this machine's sources, or Debian's own."""
    folder = Path("/etc/apt")
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))):
        if path.is_file() and (found := _MIRROR.search(path.read_text(errors="replace"))):
            return found[1]
    return MIRROR


@contextlib.contextmanager
def alone(name: str) -> Iterator[Path]:
    """A name in `out/devices` that one process at a time works on."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield FOLDER / name


def debian(name: str, architecture: str, packages: str = "") -> Path:
    """A Debian 12 made by mmdebstrap, once; a later run finds it.

    Args:
        name: Of the folder, or of the archive where it ends with `.tar`.
        architecture: Debian's word.
        packages: What it has besides what every Debian has, separated by commas.

    Raises:
        NoDevice: It cannot be made here.
    """
    with alone(name) as path:
        if path.exists():
            return path
        new = path.with_name(f"new-{name}")
        remove(new)
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--architectures={architecture}"]
        command += ["--aptopt=Acquire::Retries 3", "--dpkgopt=force-unsafe-io"]
        command += [f"--include={packages}"] if packages else []
        if reason := _failure([*command, "bookworm", str(new), mirror()], MAKE_S):
            remove(new)
            raise NoDevice(f"mmdebstrap makes none: {reason}")
        return new.rename(path)


def package(architecture: str) -> Path:
    """This tree's .deb, built once in a run of the tests, by whoever needs it first.

    Raises:
        NoDevice: The index of packages answers nobody, so that none can be built.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process {os.getpid()}")
    with alone(f"package-{architecture}") as mark:
        if not mark.exists() or mark.read_text().splitlines()[0] != run:
            build = ["systemd/deb/build", architecture]
            built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
            if built.returncode and (reason := _failure(_INDEX, 120)):
                raise NoDevice(f"the index of packages does not answer: {reason}")
            assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-4000:]
            mark.write_text(f"{run}\n{built.stdout.split()[-1]}\n")
        return ROOT / mark.read_text().splitlines()[1]


@dataclass
class Device:
    """One booted device."""

    architecture: str
    root: Path
    network: str
    leader: int
    """The number of its systemd on this machine."""

    @property
    def is_emulated(self) -> bool:
        """Whether its processor is another one than this machine's."""
        return self.architecture != own_architecture()

    @property
    def inside(self) -> list[str]:
        """What runs a command as root on the device, in its network."""
        return ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-p", "-n", "--"]

    def shell(self, script: str, timeout_s: float = 300) -> str:
        """What the words print, whatever their status."""
        return subprocess.run(
            [*self.inside, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        ).stdout

    def wait(self, script: str, wanted: str, timeout_s: float = PATIENCE_S) -> str:
        """Ask until the answer has `wanted` in it; the answer."""
        deadline = time.monotonic() + timeout_s
        while wanted not in (said := self.shell(script)):
            assert time.monotonic() < deadline, f"{script}: {wanted!r} is not in\n{said}\n{self._journal()}"
            time.sleep(0.5)
        return said

    def install(self, package: Path) -> None:
        """Put a .deb on it."""
        shutil.copyfile(package, self.root / "root" / "swarmd.deb")
        said = self.shell("dpkg -i /root/swarmd.deb; echo status $?", timeout_s=900)
        assert "status 0" in said, said

    def _journal(self) -> str:
        return self.shell("journalctl -u 'swarmd*' --no-pager -n 60")


@contextlib.contextmanager
def booted(architecture: str) -> Iterator[Device]:
    """A device of a test's own; it is halted and removed at the end.

    Raises:
        NoDevice: This machine boots none.
    """
    if os.geteuid() != 0:
        raise NoDevice("not root")
    if lacks := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise NoDevice(f"without {', '.join(lacks)}")
    base = debian(f"debian-12-{architecture}-{zlib.crc32(PACKAGES.encode()):08x}", architecture, PACKAGES)
    turn = next(_turns)
    root, network = FOLDER / f"{os.getpid()}-{turn}", f"{own_name('d')}-{turn}"
    try:
        for command in (
            ["cp", "-a", "--reflink=auto", str(base), str(root)],
            ["ip", "netns", "add", network],
            ["ip", "-n", network, "link", "set", "lo", "up", "multicast", "on"],
        ):
            if reason := _failure(command, 300):
                raise NoDevice(f"{command[0]}: {reason}")
        (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")  # It lives for minutes.
        # Multicast of the daemons on it finds a way, as on a device whose network is down.
        _failure(["ip", "-n", network, "route", "add", "default", "dev", "lo"], 30)
        with _own_groups(network) as groups, _running(root, network, groups) as leader:
            yield Device(architecture, root, network, leader)
    finally:
        _failure(["ip", "netns", "delete", network], 30)
        remove(root)


@contextlib.contextmanager
def _own_groups(name: str) -> Iterator[list[str]]:
    """Control groups of a device's own: two whose systemds share theirs take each other's processes for their own.

    Raises:
        NoDevice: This machine gives none.
    """
    groups = [base / f"swarmd-{name}" for base in _HIERARCHIES if (base / "cgroup.procs").exists()]
    try:
        try:
            for group in groups:
                group.mkdir()
        except OSError as error:
            raise NoDevice(f"no control group of its own: {error.strerror}") from error
        yield [str(group) for group in groups]
    finally:
        for group in groups:
            for folder in sorted(group.rglob("*"), reverse=True):  # What is below first.
                if folder.is_dir():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
            with contextlib.suppress(OSError):
                group.rmdir()


@contextlib.contextmanager
def _running(root: Path, network: str, groups: list[str]) -> Iterator[int]:
    """The container of a tree, up; the number of its first process."""
    console = root.with_suffix(".console")
    command = ["setpriv", "--pdeathsig", "TERM", "sh", "-c", _ENTER, "sh", *groups, "--"]  # It ends with the tests.
    command += ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit"]
    command += [f"--network-namespace-path=/run/netns/{network}", "--suppress-sync=yes", "-D", str(root), "-b"]
    with console.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )
    leader = 0
    try:
        deadline = time.monotonic() + BOOT_S
        while not (leader and _is_up(leader)):
            if process.poll() is not None or time.monotonic() > deadline:
                said = " ".join(console.read_text(errors="replace").split())[-120:]
                raise NoDevice(f"systemd is not up in a container: {said}")
            time.sleep(0.25)
            leader = leader or _child(process.pid)
        yield leader
    finally:
        # Its power is cut: a poweroff would write all that this machine has not written yet to its disk.
        if leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)  # The first of its processes: the others end with it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        process.kill()
        process.wait(60)
        console.unlink()


def _is_up(leader: int) -> bool:
    """Whether systemd has started everything, be it that some of it failed."""
    command = ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-p", "-n", "--", "systemctl", "is-system-running"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except subprocess.TimeoutExpired:
        return False
    return said.strip() in ("running", "degraded")


def _child(process: int) -> int:
    """The number of a process's only child, or 0."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0


def _failure(command: list[str], timeout_s: float) -> str:
    """Run a command; why it failed, in one line, or ""."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done in {timeout_s:.0f} s"
    except OSError as error:
        return str(error)
    if not done.returncode:
        return ""
    return " ".join((done.stderr or done.stdout).split())[-120:] or f"status {done.returncode}"


def remove(path: Path) -> None:
    """Remove a tree, or an archive, and nothing that is mounted below it."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=False, timeout=300)


@contextlib.contextmanager
def device_or_skip(architecture: str) -> Iterator[tuple[Device, Path]]:
    """A booted device and this tree's package, or a skip that says what this machine lacks for them."""
    with contextlib.ExitStack() as stack:
        try:
            one, built = stack.enter_context(booted(architecture)), package(architecture)
        except NoDevice as error:
            pytest.skip(f"no booted Debian here: {error}")
        yield one, built
