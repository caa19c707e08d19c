"""An act on another member goes through that member's own door, is done there under the operator's name, and audited.

Real daemons in network namespaces, since a door listens at one port of its host.
"""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.release.audit import verify_folder
from tests.integration.test_ground_operators import Operator, Refused, signed_in
from tests.integration.test_review_netlab import Laptop
from tests.support import namespaces
from tests.support.authority import Authority
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.namespaces import Networks

pytestmark = [
    *namespaces.marks(300),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"),
]
HOST = "10.78.0.1"
ORIGIN = ("--set", "node.origin=48.0,11.0")


def door(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Flags of a daemon with a door that lets alice in; who runs `swarmd ground` holds her certificate."""
    operators, devices = (Authority(folder, name).make() for name in ("operators", "devices"))
    certificate, key = devices.issue("drone-1", "extendedKeyUsage=serverAuth\n", address=HOST)
    mine = folder / "alice"
    mine.mkdir(mode=0o700)
    for source, name in zip((*operators.issue("alice", "extendedKeyUsage=clientAuth\n"), devices.certificate),
                            ("operator.pem", "operator.key", "ca.pem"), strict=True):  # fmt: skip
        shutil.copy(source, mine / name)
    patch.setenv("SWARMD_OPERATOR", str(mine))
    config = folder / "drone-1.toml"
    config.write_text(
        f'[operators]\nlisten = "{HOST}:7981"\nca_file = "{operators.certificate}"\ncert_file = "{certificate}"\n'
        f'key_file = "{key}"\nallow = ["alice"]\n'
    )
    return ["--config", str(config)]


def test_an_act_goes_through_the_members_own_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Networks() as net, contextlib.ExitStack() as ends:
        net.network("air")
        for index in range(2):
            net.plug(index, "air", "eth0", f"10.78.0.{index + 1}/24")
        fleet = ["--dev-fleet", str(tmp_path / "fleet"), *ORIGIN]
        flags = [*fleet, "--name", "drone-1", "--listen", f"{HOST}:7946", *door(tmp_path, monkeypatch)]
        drone = PlainDaemon("drone-1", tmp_path / "drone-1", flags, net.prefix(0))
        ends.callback(drone.close)
        drone.start()
        # Another member of the same host has no door: what listens there is not its.
        flags = [*fleet, "--name", "drone-2", "--listen", f"{HOST}:7947", "--join", f"{HOST}:7946"]
        other = PlainDaemon("drone-2", tmp_path / "drone-2", flags, net.prefix(0))
        ends.callback(other.close)
        other.start()
        laptop = Laptop(tmp_path, net, 1, f"{HOST}:7946")
        ends.callback(laptop.close)
        command = ["keys", "role", tmp_path / "fleet", "operator", "--need", 1, "--keys", 1, "--control", drone.control]
        subprocess.run([sys.executable, "-m", "swarmd", *map(str, command)], check=True, timeout=120)
        [key] = (tmp_path / "fleet" / "keys").glob("operator*")
        alice = Operator(laptop, key, "alice", laptop.connect)
        wait_for(lambda: signed_in(alice), "alice is an operator", seen=laptop.log)
        everybody = {"drone-1": "alive", "drone-2": "alive", "laptop-1": "alive"}
        wait_for(lambda: laptop.states() == everybody, "everybody", seen=laptop.states)

        with pytest.raises(Refused, match="is that of 'drone-1'; nothing was done"):
            alice.post("act", {"what": "away", "member": "drone-2", "seconds": 600})
        with pytest.raises(Refused, match="no eye"):
            alice.post("act", {"what": "eye_stop", "member": "drone-1"})
        done = alice.post("act", {"what": "away", "member": "drone-1", "seconds": 600})
        assert done["text"] == f"drone-1: away, through its door at {HOST}"
        wait_for(lambda: laptop.states() == {**everybody, "drone-1": "away"}, "it is away", seen=laptop.states)

        # At the drone it is an event that names whose certificate came in; here it is in the chain of what was done.
        told = [row["reason"] for row in drone.ask("events", kinds=["command"])["events"] if row["subject"] == "away"]
        assert len(told) == 1
        assert told[0].startswith("by operator alice from 10.78.0.2 (certificate ")
        assert not [row for row in other.ask("events", kinds=["command"])["events"] if row["subject"] == "away"]
        lines = [line for line in laptop.get("audit?limit=500")["lines"] if line["what"] in ("away", "eye_stop")]
        outcomes = {(line["what"], line["by"], line["member"], line["outcome"].partition(":")[0]) for line in lines}
        assert outcomes == {
            ("away", "alice", "drone-1", "begun"),
            ("away", "alice", "drone-1", "done"),
            ("away", "alice", "drone-2", "begun"),
            ("away", "alice", "drone-2", "refused"),
            ("eye_stop", "alice", "drone-1", "begun"),
            ("eye_stop", "alice", "drone-1", "refused"),
        }
        assert verify_folder(laptop.folder / "laptop" / "operators")[2] is None
