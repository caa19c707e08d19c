"""The .deb on a bare Debian with a real systemd: READY, reload, watchdog, two instances, a leave at stop, purge.

Needs root, the lab beside the checkout (../shared/lab/devicelab) and some minutes: runs only with SWARMD_DEVICELAB=1
(`make soak`).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT.parent / "shared" / "lab" / "devicelab"
NAME = "swarmd-deb"
DEVICE = Path(os.environ.get("DEVICELAB_DIR", "/var/tmp/devicelab")) / NAME

pytestmark = [
    pytest.mark.shared,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("SWARMD_DEVICELAB") != "1", reason="takes minutes: set SWARMD_DEVICELAB=1"),
    pytest.mark.skipif(not LAB.exists(), reason="../shared/lab/devicelab is not here"),
]


def lab(*arguments: str, timeout_s: float = 120) -> str:
    done = subprocess.run(
        [str(LAB), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
    )
    return done.stdout


def shell(script: str, timeout_s: float = 120) -> str:
    return lab("exec", NAME, "--", "sh", "-c", script, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def device() -> Iterator[None]:
    package = subprocess.run(
        ["systemd/deb/build"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    ).stdout.split()[-1]
    lab("up", NAME, timeout_s=400)
    (DEVICE / "root" / "swarmd.deb").write_bytes((ROOT / package).read_bytes())
    lab("boot", NAME)
    shell("dpkg -i /root/swarmd.deb")
    # A throw-away fleet, so that nothing has to be enrolled for the test.
    shell('sed -i "s#^. dev_fleet#dev_fleet#; s#^name = .*#name = \\"dev-1\\"#" /etc/swarmd/swarmd.toml')
    yield
    lab("halt", NAME)
    lab("down", NAME)


def test_ready_status_and_sandbox(device: None) -> None:
    shell("systemctl start swarmd")
    assert "ActiveState=active" in shell("systemctl show -p ActiveState swarmd")
    assert "StatusText=1 alive" in shell("sleep 2; systemctl show -p StatusText swarmd")
    score = shell("systemd-analyze security swarmd | tail -1")
    assert float(score.split(":")[-1].split()[0]) <= 1.5
    assert "verify 0" in shell("systemd-analyze verify /lib/systemd/system/swarmd*.service; echo verify $?")


def test_reload_keeps_the_process(device: None) -> None:
    before = shell("systemctl show -p MainPID swarmd")
    shell("systemctl reload swarmd")
    assert shell("systemctl show -p MainPID swarmd") == before
    assert '"reloaded"' in shell("sleep 1; journalctl -u swarmd --no-pager")


def test_a_frozen_brain_is_killed_by_the_watchdog_and_started_again(device: None) -> None:
    shell("kill -STOP $(systemctl show -p MainPID --value swarmd); sleep 14")
    shown = shell("systemctl show -p NRestarts -p ActiveState swarmd")
    assert "NRestarts=1" in shown
    assert "ActiveState=active" in shown


def test_two_instances_find_each_other_and_stop_with_a_leave(device: None) -> None:
    for name, port, other in (("a", 7955, 7957), ("b", 7957, 7955)):
        text = (
            f'[node]\nname = "{name}"\n[swarm]\ndev_fleet = "/var/lib/swarmd/fleet"\njoin = ["127.0.0.1:{other}"]\n'
            f'[transport]\nlisten = "127.0.0.1:{port}"\n[eye]\nenabled = false\n'
        )
        (DEVICE / "etc" / "swarmd" / f"{name}.toml").write_text(text)
    # One fleet for both: the folder is shared by a drop-in.
    shell(
        "mkdir -p /etc/swarmd/credentials/a /etc/swarmd/credentials/b /etc/systemd/system/swarmd@.service.d; "
        "printf '[Service]\\nReadWritePaths=/var/lib/swarmd\\n' > /etc/systemd/system/swarmd@.service.d/fleet.conf; "
        "systemctl daemon-reload; systemctl start swarmd@a swarmd@b; sleep 4"
    )
    members = shell("swarmd members --control /run/swarmd/a/a.sock")
    assert [line.split()[:2] for line in members.splitlines()[1:3]] == [["a", "alive"], ["b", "alive"]]
    shell("systemctl stop swarmd@b; sleep 1")
    assert "left" in shell("swarmd members --control /run/swarmd/a/a.sock")


def test_an_enrolled_identity_comes_from_systemds_credentials(device: None, tmp_path: Path) -> None:
    fleet, out = tmp_path / "fleet", tmp_path / "out"
    for arguments in (
        ["root", str(fleet), "--name", "acme"],
        ["enrol", str(fleet), "real-1", "--swarm", "farm", "--out", str(out)],
    ):
        subprocess.run([sys.executable, "-m", "swarmd", "keys", *arguments], cwd=ROOT, check=True, timeout=60)
    identity = DEVICE / "etc" / "swarmd" / "credentials" / "node.identity"
    identity.write_bytes((out / "node.identity").read_bytes())
    identity.chmod(0o600)
    shell('sed -i "s#^dev_fleet.*##; s#^name = .*#name = \\"\\"#" /etc/swarmd/swarmd.toml')
    shell("systemctl restart swarmd; sleep 3")
    assert "real-1 of swarm farm" in shell("swarmd status --control /run/swarmd/real-1.sock")


def test_purge_leaves_nothing(device: None) -> None:
    shell("dpkg --purge swarmd")
    assert shell("ls -d /etc/swarmd /var/lib/swarmd /opt/swarmd 2>/dev/null; getent passwd swarmd").strip() == ""
    assert "0 loaded units" in shell("systemctl list-units 'swarmd*' --all --no-pager")
