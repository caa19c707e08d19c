"""Two laptops, both cut off, each with an operator who reviews: after the cut both are shown, and both are audited.

Real daemons in network namespaces; a cut is a cable that is pulled.
"""

import ctypes
import http.client
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.release.audit import verify_folder
from tests.integration.test_ground_operators import PLACE, Operator, signed_in
from tests.integration.test_ground_swarm import GroundProcess
from tests.support import namespaces
from tests.support.daemons import PATIENCE_S, PlainDaemon, wait_for
from tests.support.namespaces import Networks

CLONE_NEWNET = 0x4000_0000
"""Source: linux/sched.h; Python has `os.setns` from 3.12 on."""
pytestmark = namespaces.marks(300)


class Inside(http.client.HTTPConnection):
    """A connection to loopback of a namespace, which is another than this process's."""

    def __init__(self, namespace: str, port: int) -> None:
        super().__init__("127.0.0.1", port, timeout=PATIENCE_S)
        self._namespace = namespace

    def connect(self) -> None:
        """A socket belongs to the namespace of the thread that made it."""
        made: list[socket.socket] = []

        def make() -> None:
            with open(f"/run/netns/{self._namespace}") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns {self._namespace}")
            made.append(socket.create_connection((self.host, self.port), timeout=PATIENCE_S))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        assert made, f"nobody listens at port {self.port} of {self._namespace}"
        self.sock = made[0]


class Laptop(GroundProcess):
    """One `swarmd ground` in a namespace, and its operator."""

    def __init__(self, folder: Path, net: Networks, index: int, join: str) -> None:
        self.name = f"laptop-{index}"
        self.space = net.device(index)
        self.folder = folder / self.name
        self.folder.mkdir()
        flags = ["--name", self.name, "--listen", f"10.78.0.{index + 1}:7946", "--dev-fleet", str(folder / "fleet")]
        super().__init__(self.folder, join, *flags)
        self.command = [*net.prefix(index), *self.command]
        self.begin()

    def connect(self, port: int) -> http.client.HTTPConnection:
        return Inside(self.space, port)

    def get(self, path: str) -> Any:
        connection = self.connect(self.port)
        connection.request("GET", f"/api/v1/{path}")
        body = connection.getresponse().read()
        connection.close()
        return json.loads(body)

    def shown(self) -> set[tuple[str, str, str]]:
        return {(one["operator"], one["verdict"], one["text"]) for row in self.rows("object") for one in row["reviews"]}

    def written(self) -> set[tuple[str, str, str]]:
        lines = self.get("audit?limit=500")["lines"]
        return {(line["what"], line["by"], line["verdict"]) for line in lines if "verdict" in line}


def test_two_laptops_review_offline_and_both_are_shown_and_audited(tmp_path: Path) -> None:
    running: list[Any] = []
    with Networks() as net:
        net.network("air")
        for index in range(3):
            net.plug(index, "air", "eth0", f"10.78.0.{index + 1}/24")
        flags = ["--dev-fleet", str(tmp_path / "fleet"), "--name", "drone-1", "--listen", "10.78.0.1:7946"]
        try:
            drone = PlainDaemon(
                "drone-1", tmp_path / "drone-1", [*flags, "--set", "node.origin=48.0,11.0"], net.prefix(0)
            )
            running.append(drone)
            drone.start()
            laptops = []
            for index in (1, 2):
                laptops.append(Laptop(tmp_path, net, index, "10.78.0.1:7946"))
                running.append(laptops[-1])
            one, two = laptops
            command = [
                "keys",
                "role",
                tmp_path / "fleet",
                "operator",
                "--need",
                1,
                "--keys",
                2,
                "--control",
                drone.control,
            ]
            subprocess.run([sys.executable, "-m", "swarmd", *map(str, command)], check=True, timeout=120)
            keys = sorted((tmp_path / "fleet" / "keys").glob("operator*"))
            alice, bob = (
                Operator(laptop, key, name, laptop.connect)
                for laptop, key, name in zip(laptops, keys, ("alice", "bob"), strict=True)
            )
            wait_for(lambda: signed_in(alice) and signed_in(bob), "both are operators", seen=one.log)
            drone.ask("observe", detections=[PLACE])
            for laptop in laptops:
                wait_for(lambda laptop=laptop: laptop.rows("object"), f"the object at {laptop.name}", seen=laptop.log)

            # Every cable is pulled: each operator sees and says what there is, alone.
            for index in (1, 2):
                net.ip(net.hub, "link", "set", f"air{index}", "down")
            alice.review(one.rows("object")[0], "relabel", "crack")
            bob.review(two.rows("object")[0], "reject")
            wait_for(lambda: one.shown() == {("alice", "relabel", "crack")}, "alone", seen=lambda: str(one.shown()))
            wait_for(lambda: two.shown() == {("bob", "reject", "")}, "alone", seen=lambda: str(two.shown()))
            assert one.rows("object")[0]["label"] == "crack"
            assert two.rows("object")[0]["review"] == "rejected"

            # The cables are back: nothing is lost, nobody is overruled, and each chain holds both.
            for index in (1, 2):
                net.ip(net.hub, "link", "set", f"air{index}", "up")
            both = {("alice", "relabel", "crack"), ("bob", "reject", "")}
            for laptop in laptops:
                wait_for(
                    lambda laptop=laptop: laptop.shown() == both, "both", seen=lambda laptop=laptop: str(laptop.shown())
                )
                row = laptop.rows("object")[0]
                assert (row["review"], row["label"]) == ("disputed", "hot-spot")
            wait_for(lambda: len(drone.ask("objects")["objects"][0]["reviews"]) == 2, "both at the drone")
            mine, theirs = ("review", "alice", "relabel"), ("review", "bob", "reject")
            wait_for(lambda: one.written() == {mine, ("heard", *theirs[1:])}, "one", seen=lambda: str(one.written()))
            wait_for(lambda: two.written() == {theirs, ("heard", *mine[1:])}, "two", seen=lambda: str(two.written()))
            for laptop in laptops:
                sound, _, problem = verify_folder(laptop.folder / "laptop" / "operators")
                assert problem is None
                assert sound >= 3
        finally:
            for one_running in reversed(running):
                one_running.close()
