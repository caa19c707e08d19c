"""The image of `systemd/Containerfile`, built by buildah, run by runc: a member of a swarm, read-only, without rights.

Runs where that can be done: root, buildah, runc, mmdebstrap, a mirror of Debian and an index of packages that answer in
a container. The base image is a Debian 12 made here, so that no registry of images is asked. What fails without
anything of ours (the base, a bare container, an index that answers nobody) is a fact about this machine.
SWARMD_IMAGE_BUILD holds further words for `buildah build`, such as the volumes that a build behind a proxy needs.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import create_fleet
from tests.support import booted
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.exclusive import own_port
from tests.support.paths import ROOT

TOOLS = ("buildah", "runc", "mmdebstrap")
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Whom this machine believes: a proxy that it stands behind may have an authority of its own."""
BUILD_S = 1500
"""Seconds that a build may take: fifteen minutes on a machine with seven times as much to do as it has cores."""
NEEDS = (
    "apt-get update && apt-get install -y --no-install-recommends python3 python3-venv python3-pip && "
    "python3 -m venv /try && /try/bin/pip install --no-cache-dir 'hatchling>=1.27'"
)
"""What a build asks of mirror and index, with nothing of ours."""
BASE = "docker.io/library/debian:12-slim"
USER = 999
"""Of the Containerfile."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root here: no container can be run"),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason=f"no image can be built here without {', '.join(TOOLS)}"
    ),
]


def call(*command: str, timeout_s: float = 120) -> str:
    found = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT)
    assert found.returncode == 0, f"{shlex.join(command)}\n{found.stdout[-2000:]}\n{found.stderr[-4000:]}"
    return found.stdout


class Store:
    """Images of this test alone."""

    def __init__(self, folder: Path) -> None:
        self._buildah = ["buildah", "--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]

    def __call__(self, *words: str, timeout_s: float = 600) -> str:
        return call(*self._buildah, *words, timeout_s=timeout_s).strip()


class Unable(Exception):
    """This machine cannot do it, and why; nothing of swarmd was in it."""


def trial(done: Callable[[], object]) -> None:
    """Do what has nothing of ours in it.

    Raises:
        Unable: It fails.
    """
    try:
        done()
    except (AssertionError, subprocess.TimeoutExpired, booted.NoDevice) as error:
        raise Unable(" ".join(str(error).split())[-140:]) from error


def made_base(store: Store) -> None:
    """A bare Debian as the image that the Containerfile begins with, and a container of it that has run."""
    base = booted.debian("debian-12-minbase.tar", booted.own_architecture())
    container = store("from", "scratch")
    store("add", container, str(base), "/")
    store("commit", "--rm", container, BASE)
    bare = store("from", "--pull-never", BASE)
    store("run", "--isolation", "chroot", bare, "--", "true", timeout_s=120)
    store("rm", bare)


def bare_container_runs(store: Store, bundle: Path) -> None:
    """runc starts and ends a bare Debian, as it does the image."""
    bundle.mkdir()
    bare = store("from", "--pull-never", BASE)
    image = {"Env": ["PATH=/usr/bin:/bin"], "Entrypoint": ["true"], "Cmd": []}
    specification(bundle, store("mount", bare), image, {})
    call("runc", "run", "--bundle", str(bundle), f"swarmd-bare-{os.getpid()}")
    store("umount", bare)
    store("rm", bare)


def index_answers(store: Store, words: list[str]) -> None:
    """Mirror and index answer a bare container."""
    bare = store("from", "--pull-never", BASE)
    store("run", "--isolation", "chroot", "--network", "host", *words, bare, "--", "sh", "-c", NEEDS, timeout_s=600)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("image")
    made = Store(folder)
    words = shlex.split(os.environ.get("SWARMD_IMAGE_BUILD", ""))
    if AUTHORITIES.exists():
        (folder / "pip.conf").write_text("[global]\ncert = /etc/ssl/machine.crt\n")
        words += [
            "--volume",
            f"{AUTHORITIES}:/etc/ssl/machine.crt:ro",
            "--volume",
            f"{folder}/pip.conf:/etc/pip.conf:ro",
        ]
    # Steps in a chroot, since a machine that is a container itself may start no other; docker's form has health checks.
    build = ["build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--pull-never", *words]
    try:
        trial(lambda: made_base(made))
        trial(lambda: bare_container_runs(made, folder / "bare"))
        try:
            made(*build, "-f", "systemd/Containerfile", "-t", "swarmd", ".", timeout_s=BUILD_S)
        except subprocess.TimeoutExpired as error:
            raise Unable(f"it is not built in {BUILD_S / 60:.0f} min") from error
        except AssertionError:
            trial(lambda: index_answers(made, words))
            raise
        yield made
    except Unable as error:
        pytest.skip(f"no image can be built here: {error}")
    finally:
        booted.remove(folder)  # A gigabyte that pytest would keep.


def specification(bundle: Path, root: str, image: dict[str, Any], binds: dict[str, tuple[Path, str]]) -> None:
    """What podman asks with --network host --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges."""
    call("runc", "spec", "--bundle", str(bundle))
    spec = json.loads((bundle / "config.json").read_text())
    spec["root"] = {"path": root, "readonly": True}
    process = spec["process"]
    process.pop("rlimits", None)
    nothing: dict[str, list[str]] = {kind: [] for kind in process["capabilities"]}
    process |= {"terminal": False, "noNewPrivileges": True, "capabilities": nothing}
    process |= {"user": {"uid": USER, "gid": USER}, "env": image["Env"], "args": [*image["Entrypoint"], *image["Cmd"]]}
    spec["linux"]["namespaces"] = [one for one in spec["linux"]["namespaces"] if one["type"] != "network"]
    spec["mounts"] = [one for one in spec["mounts"] if one["destination"] != "/sys/fs/cgroup"]
    spec["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]})
    for inside, (outside, mode) in binds.items():
        spec["mounts"].append(
            {"destination": inside, "type": "bind", "source": str(outside), "options": ["rbind", mode]}
        )
    (bundle / "config.json").write_text(json.dumps(spec))


@pytest.fixture
def container(store: Store, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A container's name that nobody else has, and its OCI bundle; what still runs at the end is killed."""
    name = f"swarmd-{os.getpid()}"
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    yield name, bundle
    subprocess.run(["runc", "delete", "--force", name], capture_output=True)


def test_the_image_is_a_member_beside_a_daemon_of_the_host(
    store: Store, container: tuple[str, Path], tmp_path: Path
) -> None:
    image = json.loads(store("inspect", "--type", "image", "swarmd"))["Docker"]["config"]
    assert image["User"] == "swarmd"
    assert image["StopSignal"] == "SIGTERM"
    health = image["Healthcheck"]["Test"]
    assert health == ["CMD", "swarmd", "status"]

    fleet = create_fleet(tmp_path / "fleet", "acme", dict.fromkeys(("root", "enrol", "revoke", "release"), (1, 1)))
    etc, state, port = tmp_path / "etc", tmp_path / "state", own_port()
    for folder in (etc / "identity", state):
        folder.mkdir(parents=True)
        os.chown(folder, USER, USER)
    write_secret_file(etc / "identity" / IDENTITY_FILE, fleet.enrol("boxed", "farm").to_bytes())
    os.chown(etc / "identity" / IDENTITY_FILE, USER, USER)
    (etc / "swarmd.toml").write_text(
        '[node]\nname = "boxed"\n[swarm]\nidentity = "/etc/swarmd/identity"\n'
        f'[transport]\nlisten = "127.0.0.1:{port}"\n'
        '[eye]\nsource = "sim://farm?of=1&drone=1&laps=1000"\nmodel = "zoo:small-320"\n[http]\nlisten = "off"\n'
    )
    name, bundle = container
    working = store("from", "--pull-never", "swarmd")
    binds = {"/etc/swarmd": (etc, "ro"), "/var/lib/swarmd": (state, "rw")}
    specification(bundle, store("mount", working), image, binds)
    hosted = tmp_path / "hosted"
    hosted.mkdir()
    write_secret_file(hosted / IDENTITY_FILE, fleet.enrol("hosted", "farm").to_bytes())
    with (tmp_path / "boxed.log").open("w") as log:
        boxed = subprocess.Popen(["runc", "run", "--bundle", str(bundle), name], stdout=log, stderr=log)
        member = PlainDaemon("hosted", hosted, ["--identity", str(hosted), "--listen", "127.0.0.1:0"])
        try:
            member.start([f"127.0.0.1:{port}"])

            def both() -> bool:
                return member.members() == {"boxed": "alive", "hosted": "alive"}

            wait_for(both, "the host's daemon sees the container", seen=(tmp_path / "boxed.log").read_text)
            wait_for(lambda: member.status()["detections"] > 0, "what the container's eye saw", seen=member.log)
            said = call("runc", "exec", name, *health[1:])
            assert "eye         running" in said, said
            call("runc", "kill", name, "TERM")
            assert boxed.wait(timeout=30) == 0, (tmp_path / "boxed.log").read_text()
            wait_for(lambda: member.members()["boxed"] == "left", "it says good-bye", seen=member.members)
        finally:
            boxed.kill()
            member.stop(signal.SIGKILL)
    assert list(state.iterdir()), "what it knows outlives the container"
