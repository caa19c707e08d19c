"""Each tutorial typed on a bare Debian, installation included: how long a newcomer waits for a first swarm.

    python -m tests.bench.bench_tutorials [--pages mqtt laptop] [--bar-s 300]

The device is the lab's (../shared/lab/devicelab): Debian 12 with Python, make, git, systemd and sudo, booted, with a
person of its own who may use sudo. Its network is a namespace of its own with a way out (slirp4netns), so that what
Debian starts by itself is there as on a real device and nothing of this machine is in the way. `swarmd` comes from this
tree's wheel, everything else from the package index and Debian's mirror, downloaded anew for each page. The device
itself (debootstrap, boot) is not timed; it is what the person has.

Prints JSON: for each page the seconds of the installation, until the first thing that the page says comes has come, and
of the whole page; `within_bar` for all. Ends with 1 where a page does not do what it says or takes longer than the bar.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.exclusive import own_name
from tests.support.paths import ROOT
from tests.support.tutorials import PAGES, Block, blocks, shows

LAB = ROOT.parent / "shared" / "lab" / "devicelab"
LABS = Path(os.environ.get("DEVICELAB_DIR", "/var/tmp/devicelab"))
BASE = "swarmd-bare"
"""The device as it comes, made once and copied for each page."""
INSTALL = ROOT / "docs" / "install.md"
"""Typed only where it is asked for: it wants the package too."""
PERSON = "sam"
PATIENCE_S = 180.0
"""Seconds until what a page promises must have come."""


class Disappointed(Exception):
    """A page does not do what it says."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(*command: str, timeout_s: float = 1800) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise Disappointed(f"{' '.join(command)[:300]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


@dataclass
class Device:
    """A booted device in a network of its own."""

    name: str
    network: str

    @property
    def root(self) -> Path:
        return LABS / self.name

    @property
    def inside(self) -> list[str]:
        """What runs a command as root on the device, in this machine's network."""
        return [str(LAB), "exec", self.name, "--"]

    def command(self, words: str) -> list[str]:
        """What types `words` at a shell of the person's."""
        return ["nsenter", f"--net=/run/netns/{self.network}", *self.inside, "su", "-", PERSON, "-c", words]

    def typed(self, words: str) -> str:
        """What is printed; the first word is `exit` where it failed."""
        done = subprocess.run(
            self.command(f"set -e -o pipefail; cd try; [ ! -e swarm ] || . swarm/bin/activate; {words}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            cwd=ROOT,
            check=False,
        )
        return done.stdout if done.returncode == 0 else f"exit {done.returncode}\n{done.stdout}"


@contextlib.contextmanager
def network() -> Iterator[str]:
    """A namespace that reaches the outside through slirp4netns.

    Yields:
        Its name.
    """
    name = own_name("b")
    run("ip", "netns", "add", name)
    slirp = None
    try:
        run("ip", "-n", name, "link", "set", "lo", "up", "multicast", "on")
        slirp = subprocess.Popen(
            ["slirp4netns", "--configure", "--netns-type=path", f"/run/netns/{name}", "tap0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until_s = time.monotonic() + 30
        while "default" not in run("ip", "-n", name, "route"):
            if time.monotonic() > until_s or slirp.poll() is not None:
                raise Disappointed("slirp4netns gives no network here")
            time.sleep(0.1)
        yield name
    finally:
        if slirp is not None:
            slirp.terminate()
            slirp.wait(30)
        subprocess.run(["ip", "netns", "delete", name], check=False)


@contextlib.contextmanager
def device(name: str, *built: Path) -> Iterator[Device]:
    """A copy of the bare device, booted, with what was built and the examples on it and a person to type."""
    base, root = LABS / BASE, LABS / name
    if not (base / "usr").exists():
        say(f"making {base}")
        run(str(LAB), "up", BASE, "amd64", "sudo")
    subprocess.run([str(LAB), "down", name], check=False, capture_output=True)
    run("cp", "-a", "--reflink=auto", str(base), str(root))
    (root / "dist").mkdir()
    for artefact in built:
        shutil.copy(artefact, root / "dist")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("nameserver 10.0.2.3\n")  # slirp4netns answers there.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (root / "etc/sudoers.d/sam").write_text(f"{PERSON} ALL=(ALL) NOPASSWD: ALL\nDefaults !fqdn\n")
    (root / "etc/pip.conf").write_text("[global]\nfind-links = /dist\ncert = /etc/ssl/certs/ca-certificates.crt\n")
    with network() as own:
        try:
            run("nsenter", f"--net=/run/netns/{own}", str(LAB), "boot", name, timeout_s=180)
            one = Device(name, own)
            inside = ["nsenter", f"--net=/run/netns/{own}", str(LAB), "exec", name, "--"]
            run(*inside, "useradd", "-m", "-s", "/bin/bash", PERSON)
            shutil.copytree(ROOT / "examples", root / "home" / PERSON / "try" / "examples")
            for artefact in built:
                if artefact.suffix == ".deb":
                    shutil.copy(artefact, root / "home" / PERSON / "try")
            run(*inside, "chown", "-R", PERSON, f"/home/{PERSON}")
            run(*inside, "apt-get", "update", "-q")
            yield one
        finally:
            subprocess.run([str(LAB), "down", name], check=False, capture_output=True, timeout=900)


def page_of(page: Path, *built: Path) -> dict[str, object]:
    """Type one page; what it took.

    Raises:
        Disappointed: Something did not do what the page says.
    """
    times: dict[str, object] = {"page": page.stem}
    stay: list[tuple[Block, subprocess.Popen[bytes], Path]] = []
    with device(f"swarmd-tut-{page.stem}", *built) as one:
        began = time.monotonic()

        def since() -> float:
            return round(time.monotonic() - began, 1)

        try:
            for block in blocks(page):
                say(f"{page.stem}: {since():6.1f} s: {block.commands.strip().splitlines()[0]}")
                if block.title in ("with ROS 2", "container"):
                    continue  # No ROS 2 and no registry of images here.
                if "leave it running" in block.title:
                    log = LABS / f"{one.name}.terminal-{len(stay)}"
                    words = f"cd try; [ ! -e swarm ] || . swarm/bin/activate; exec {block.commands.strip()}"
                    with log.open("wb") as out:
                        process = subprocess.Popen(one.command(words), stdout=out, stderr=out, cwd=ROOT)
                    stay.append((block, process, log))
                    continue
                _type(one, block, stay)
                if page == INSTALL:
                    ways = times.setdefault("ways_s", {})
                    assert isinstance(ways, dict)
                    ways[_way(block)] = round(since() - sum(ways.values()), 1)
                    times["first_swarm_s"] = max(ways.values())
                elif block.title == "install":
                    times["install_s"] = since()
                elif block.expected:
                    times.setdefault("first_swarm_s", since())
            times["whole_page_s"] = since()
        finally:
            for _, process, _ in stay:
                process.terminate()
                process.wait(60)
    return times


def _way(block: Block) -> str:
    for word, way in (("pipx install", "pipx"), ("pip install", "pip"), (".deb", "deb")):
        if word in block.commands:
            return way
    raise Disappointed(f"no way to install that is known here: {block.commands}")


def package() -> Path:
    """This tree's Debian package, built."""
    return ROOT / run("systemd/deb/build", "amd64").split()[-1]


def _type(one: Device, block: Block, stay: list[tuple[Block, "subprocess.Popen[bytes]", Path]]) -> None:
    words = block.commands.replace("apt install", "apt-get install -y -q")
    until_s = time.monotonic() + PATIENCE_S
    while (said := one.typed(words)).startswith("exit ") or not shows(said, block.expected):
        logs = "\n".join(f"{held.commands}{path.read_text()[-1500:]}" for held, _, path in stay)
        ended = any(process.poll() is not None for _, process, _ in stay)
        if not stay or ended or block.title == "install" or time.monotonic() > until_s:
            raise Disappointed(f"{block.commands}said:\n{said[-3000:]}\nthe other terminals:\n{logs}")
        time.sleep(1.0)


def missing() -> list[str]:
    """What this machine lacks for it."""
    lacks = []
    if not LAB.exists():
        lacks.append("no ../shared beside this checkout: lab/devicelab gives the bare Debian")
    if os.geteuid() != 0:
        lacks.append("not root: no device can be booted")
    lacks += [
        f"{name} is not installed (apt install {package})"
        for name, package in (("ip", "iproute2"), ("slirp4netns", "slirp4netns"))
        if shutil.which(name) is None
    ]
    return lacks


def main() -> int:
    """Type the pages; 2 where this machine cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", nargs="*", default=[page.stem for page in PAGES])
    parser.add_argument("--bar-s", type=float, default=300.0, help="seconds from install to first swarm")
    arguments = parser.parse_args()
    if lacks := missing():
        say("bench-tutorials: " + "; ".join(lacks))
        return 2
    dist = ROOT / "out" / "dist"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist))
    wheel = max(dist.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    told: list[dict[str, object]] = []
    for page in (*PAGES, INSTALL):
        if page.stem in arguments.pages:
            try:
                told.append(page_of(page, *([wheel, package()] if page == INSTALL else [wheel])))
            except (Disappointed, subprocess.TimeoutExpired) as problem:
                told.append({"page": page.stem, "problem": str(problem)})
    well = all(
        isinstance(one.get("first_swarm_s"), float) and float(str(one["first_swarm_s"])) <= arguments.bar_s
        for one in told
    )
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"bar_s": arguments.bar_s, "within_bar": well, "load": load, "pages": told}, indent=1))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
