"""The .deb on a bare Debian with a real systemd: READY, reload, watchdog, two instances, a leave at stop, purge.

Runs where a Debian can be booted (`tests.support.booted`; root), on this machine's processor.
SWARMD_DEVICE_ARCH=arm64 takes the other one, under qemu's emulation (Debian's qemu-user-static).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import booted
from tests.support.booted import Device
from tests.support.paths import ROOT

ARCHITECTURE = os.environ.get("SWARMD_DEVICE_ARCH", booted.own_architecture())

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with booted.device_or_skip(ARCHITECTURE) as (one, package):
        if one.is_emulated:
            # The emulator knows no clone(CLONE_NEWNS), with which systemd sets credentials up; its own units fail too.
            for unit in ("swarmd.service.d", "swarmd@.service.d"):
                folder = one.root / "etc" / "systemd" / "system" / unit
                folder.mkdir(parents=True)
                (folder / "emulated.conf").write_text("[Service]\nLoadCredential=\nLoadCredentialEncrypted=\n")
        one.install(package)
        # A throw-away fleet, so that nothing has to be enrolled for the test.
        one.shell('sed -i "s#^. dev_fleet#dev_fleet#; s#^name = .*#name = \\"dev-1\\"#" /etc/swarmd/swarmd.toml')
        one.shell("systemctl start swarmd")
        one.wait("systemctl show -p ActiveState swarmd", "ActiveState=active")
        yield one


def test_ready_status_and_sandbox(device: Device) -> None:
    assert {"amd64": "x86_64", "arm64": "aarch64"}[device.architecture] in device.shell("uname -m")
    device.wait("systemctl show -p StatusText swarmd", "StatusText=1 alive")
    score = device.shell("systemd-analyze security swarmd | tail -1")
    assert float(score.split(":")[-1].split()[0]) <= 1.5
    assert "verify 0" in device.shell("systemd-analyze verify /lib/systemd/system/swarmd*.service; echo verify $?")


def test_reload_keeps_the_process(device: Device) -> None:
    before = device.shell("systemctl show -p MainPID swarmd")
    device.shell("systemctl reload swarmd")
    device.wait("journalctl -u swarmd --no-pager", '"reloaded"')
    assert device.shell("systemctl show -p MainPID swarmd") == before


def test_a_refused_reload_fails_and_the_daemon_runs_on(device: Device) -> None:
    before = device.shell("systemctl show -p MainPID swarmd")
    slip = device.root / "etc" / "swarmd" / "swarmd.toml.d" / "slip.toml"
    slip.write_text('[log]\nlevel = "loud"\n')
    assert "status 0" not in device.shell("systemctl reload swarmd; echo status $?")
    slip.unlink()
    assert "status 0" in device.shell("systemctl reload swarmd; echo status $?")
    assert device.shell("systemctl show -p MainPID swarmd") == before


def test_a_frozen_brain_is_killed_by_the_watchdog_and_started_again(device: Device) -> None:
    device.shell("kill -STOP $(systemctl show -p MainPID --value swarmd)")
    device.wait("[ $(systemctl show -p NRestarts --value swarmd) -ge 1 ] && echo started again", "started again")
    device.wait("systemctl show -p ActiveState swarmd", "ActiveState=active")
    assert "Watchdog timeout" in device.shell("journalctl -u swarmd --no-pager")


def test_an_eye_runs_in_the_sandbox(device: Device) -> None:
    """The model's runtime maps memory and starts threads: nothing of the sandbox may be in its way."""
    eye = '[eye]\nenabled = true\nsource = "sim://farm?seed=7"\nmodel = "zoo:small-320"\n'
    (device.root / "etc" / "swarmd" / "swarmd.toml.d" / "eye.toml").write_text(eye)
    device.shell("systemctl restart swarmd")
    device.wait("swarmd status | grep -E ', [1-9][0-9]* frames' && echo sees", "sees", 240)
    device.shell("rm /etc/swarmd/swarmd.toml.d/eye.toml; systemctl restart swarmd")


def test_two_instances_find_each_other_and_stop_with_a_leave(device: Device) -> None:
    for name, port, other in (("a", 7955, 7957), ("b", 7957, 7955)):
        text = (
            f'[node]\nname = "{name}"\n[swarm]\ndev_fleet = "/var/lib/swarmd/fleet"\njoin = ["127.0.0.1:{other}"]\n'
            f'[transport]\nlisten = "127.0.0.1:{port}"\n[eye]\nenabled = false\n'
        )
        (device.root / "etc" / "swarmd" / f"{name}.toml").write_text(text)
    # One fleet for both: the folder is shared by a drop-in.
    device.shell(
        "mkdir -p /etc/swarmd/credentials/a /etc/swarmd/credentials/b /etc/systemd/system/swarmd@.service.d; "
        "printf '[Service]\\nReadWritePaths=/var/lib/swarmd\\n' > /etc/systemd/system/swarmd@.service.d/fleet.conf; "
        "systemctl daemon-reload; systemctl start swarmd@a swarmd@b"
    )
    members = "swarmd members --control /run/swarmd/a/a.sock | awk '{print $1, $2}'"
    assert "a alive" in device.wait(members, "b alive")
    # Each has heard the other: a leave is said to those whom one knows.
    device.wait("swarmd members --control /run/swarmd/b/b.sock | awk '{print $1, $2}'", "a alive")
    device.shell("systemctl stop swarmd@b")
    device.wait(members, "b left")


def test_an_upgrade_goes_on_with_what_ran(device: Device) -> None:
    before = device.shell("systemctl show -p MainPID --value swarmd")
    assert "Setting up swarmd" in device.shell("dpkg -i /root/swarmd.deb", timeout_s=600)
    device.wait("systemctl show -p ActiveState swarmd", "ActiveState=active")
    assert device.shell("systemctl show -p MainPID --value swarmd") != before


def test_an_enrolled_identity_comes_from_systemds_credentials(device: Device, tmp_path: Path) -> None:
    fleet, out = tmp_path / "fleet", tmp_path / "out"
    for arguments in (
        ["root", str(fleet), "--name", "acme"],
        ["enrol", str(fleet), "real-1", "--swarm", "farm", "--out", str(out)],
    ):
        subprocess.run([sys.executable, "-m", "swarmd", "keys", *arguments], cwd=ROOT, check=True, timeout=60)
    folder = device.root / "etc" / "swarmd" / "credentials"
    identity = folder / "node.identity"
    identity.write_bytes((out / "node.identity").read_bytes())
    identity.chmod(0o600)
    device.shell('sed -i "s#^dev_fleet.*##; s#^name = .*#name = \\"\\"#" /etc/swarmd/swarmd.toml')
    if device.is_emulated:
        # Without credentials the identity is a file of the daemon's own.
        device.shell(
            "install -d -o swarmd -m 0700 /var/lib/swarmd/id; "
            "install -o swarmd -m 0600 /etc/swarmd/credentials/node.identity /var/lib/swarmd/id/; "
            "printf '[swarm]\\nidentity = \"/var/lib/swarmd/id\"\\n' > /etc/swarmd/swarmd.toml.d/id.toml"
        )
    device.shell("systemctl restart swarmd")
    device.wait("swarmd status --control /run/swarmd/real-1.sock", "real-1 of swarm farm")


def test_purge_leaves_nothing(device: Device) -> None:
    device.shell("dpkg --purge swarmd", timeout_s=300)
    left = "ls -d /etc/swarmd /var/lib/swarmd /opt/swarmd /etc/systemd/system/swarmd* 2>/dev/null; getent passwd swarmd"
    assert device.shell(left).strip() == ""
    # systemd forgets a unit that is no more when it comes to it.
    device.wait("systemctl list-units 'swarmd*' --all --no-pager", "0 loaded units")
