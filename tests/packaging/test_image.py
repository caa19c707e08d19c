"""The image of `systemd/Containerfile`, built by buildah, run by runc: a member of a swarm, read-only, without rights.

Needs root, buildah, runc, mmdebstrap, a network and some minutes: runs only with SWARMD_IMAGE=1 (`make test-long`,
`CI_LONG=1 .ci/run`). The base image is a Debian 12 made here, so that no registry of images is asked.
SWARMD_IMAGE_BUILD holds further words for `buildah build`, such as the volumes that a build behind a proxy needs.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import create_fleet
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.exclusive import own_port
from tests.support.paths import ROOT

TOOLS = ("buildah", "runc", "mmdebstrap")
BASE = "docker.io/library/debian:12-slim"
USER = 999
"""Of the Containerfile."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(os.environ.get("SWARMD_IMAGE") != "1", reason="takes minutes: set SWARMD_IMAGE=1"),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root here: no container can be run"),
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"not all here: {', '.join(TOOLS)}"),
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


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("image")
    made = Store(folder)
    base = folder / "base.tar"
    call("mmdebstrap", "--variant=minbase", "bookworm", str(base), timeout_s=900)
    container = made("from", "scratch")
    made("add", container, str(base), "/")
    made("commit", "--rm", container, BASE)
    base.unlink()
    words = shlex.split(os.environ.get("SWARMD_IMAGE_BUILD", ""))
    # Steps in a chroot, since a machine that is a container itself may start no other; docker's form has health checks.
    build = ["build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--pull-never", *words]
    made(*build, "-f", "systemd/Containerfile", "-t", "swarmd", ".", timeout_s=2400)
    yield made
    made("rm", "--all")
    made("rmi", "--all", "--force")  # A gigabyte that pytest would keep.


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
