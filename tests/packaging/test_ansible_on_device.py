"""The playbook over SSH against a bare Debian with a real systemd: install, again, a wrong configuration, an upgrade.

Runs where a Debian can be booted (`tests.support.booted`; root), in the device's own network, which reaches no other.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import booted
from tests.support.booted import Device
from tests.support.paths import ROOT

TOOL = ROOT / ".venv-package" / "bin" / "ansible-playbook"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not TOOL.exists(), reason="`make .venv-package/.done` installs Ansible"),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here (apt install openssh-client)"),
]
SOON = "until [ -S /run/swarmd/dev-1.sock ]; do sleep 0.5; done; "


@dataclass
class Fleet:
    """A fleet of one device, and the folder from which it is installed."""

    one: Device
    folder: Path
    package: Path

    def play(self, **more: object) -> "subprocess.CompletedProcess[str]":
        """Run the playbook."""
        given = {
            "swarmd_packages": {platform.machine(): str(self.package)},
            "swarmd_patience_s": 300,
            "swarmd_identities": str(self.folder / "identities"),
            **more,
        }
        environment = os.environ | {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_HOME": str(self.folder / "home")}
        return subprocess.run(
            ["ip", "netns", "exec", self.one.network, str(TOOL), "-i", str(self.folder / "inventory.yml"),
             str(ROOT / "deploy/ansible/swarmd.yml"), "-e", json.dumps(given)],
            env=environment, capture_output=True, text=True, timeout=1200, check=False, cwd=self.folder,
        )  # fmt: skip

    def shell(self, words: str) -> str:
        return self.one.shell(words)

    def pid(self) -> str:
        return self.shell("systemctl show -p MainPID --value swarmd").strip()


def recap(done: "subprocess.CompletedProcess[str]") -> dict[str, int]:
    line = next(row for row in reversed(done.stdout.splitlines()) if row.startswith("dev-1"))
    return {word.split("=")[0]: int(word.split("=")[1]) for word in line.split() if "=" in word}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    for words in (
        ["root", str(folder / "fleet"), "--name", "acme"],
        ["enrol", str(folder / "fleet"), "dev-1", "--swarm", "farm", "--out", str(folder / "identities" / "dev-1")],
    ):
        subprocess.run([sys.executable, "-m", "swarmd", "keys", *words], cwd=ROOT, check=True, capture_output=True)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": "-F /dev/null -o UserKnownHostsFile=/dev/null",
        "swarmd_join": [],
        "swarmd_settings": {"eye": {"enabled": False}},
    }
    (folder / "inventory.yml").write_text(json.dumps({"swarmd": {"hosts": {"dev-1": host}}}))
    with booted.device_or_skip(booted.own_architecture()) as (one, package):
        one.wait("systemctl start ssh && systemctl is-active --quiet ssh && echo up", "up")
        (one.root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        (one.root / "root/.ssh/authorized_keys").write_text(key.with_suffix(".pub").read_text())
        yield Fleet(one, folder, package)


@pytest.fixture(scope="module")
def first(fleet: Fleet) -> "subprocess.CompletedProcess[str]":
    """The first run of the playbook: each test begins with what it has installed, be it run alone."""
    return fleet.play()


def test_it_installs_and_the_device_is_a_member(fleet: Fleet, first: "subprocess.CompletedProcess[str]") -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert recap(first)["changed"] >= 4
    assert "dev-1 of swarm farm" in fleet.shell(f"{SOON}swarmd status")
    assert fleet.shell("systemctl is-enabled swarmd").strip() == "enabled"
    assert fleet.shell("stat -c %a:%U /etc/swarmd/credentials/node.identity").strip() == "600:root"


@pytest.mark.usefixtures("first")
def test_a_second_run_changes_nothing(fleet: Fleet) -> None:
    before = fleet.pid()
    done = fleet.play()
    assert done.returncode == 0, done.stdout + done.stderr
    assert recap(done)["changed"] == 0
    assert fleet.pid() == before


@pytest.mark.usefixtures("first")
def test_a_wrong_configuration_changes_nothing(fleet: Fleet) -> None:
    before = fleet.pid()
    done = fleet.play(swarmd_settings={"log": {"level": "loud"}})
    assert done.returncode != 0
    assert "level" in done.stdout
    assert "loud" not in fleet.shell("cat /etc/swarmd/swarmd.toml.d/*")
    assert fleet.pid() == before


@pytest.mark.usefixtures("first")
def test_another_package_is_an_upgrade(fleet: Fleet) -> None:
    before, tree = fleet.pid(), fleet.folder / "tree"
    subprocess.run(["dpkg-deb", "-R", str(fleet.package), str(tree)], check=True)
    (tree / "usr/share/doc/swarmd/NEWS").write_text("Another one.\n")
    newer = fleet.folder / "newer.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(tree), str(newer)], check=True, capture_output=True
    )
    done = fleet.play(swarmd_packages={platform.machine(): str(newer)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.pid() not in (before, "0", "")
    assert "Another one" in fleet.shell("cat /usr/share/doc/swarmd/NEWS")
    assert "dev-1 of swarm farm" in fleet.shell(f"{SOON}swarmd status")
