"""Devices as network namespaces on any number of networks, without default routes. Needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from types import TracebackType

import pytest

from tests.support.exclusive import own_name


def marks(timeout_s: int) -> list[pytest.MarkDecorator]:
    """What a test with namespaces is marked with; it is skipped, and says so, where there can be none."""
    return [
        pytest.mark.netns,
        pytest.mark.timeout(timeout_s),
        pytest.mark.skipif(os.geteuid() != 0, reason="not root here: no network namespaces"),
        pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed (apt install iproute2)"),
    ]


class Networks:
    """A context: each network is a bridge in a namespace of its own, each device a namespace with cables to some."""

    def __init__(self) -> None:
        self._name = own_name("w")
        self._made: list[str] = []

    def __enter__(self) -> "Networks":
        self._add(self.hub)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):  # type: ignore[no-untyped-def]
        for name in self._made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    @property
    def hub(self) -> str:
        """The namespace of the bridges."""
        return f"{self._name}-hub"

    def device(self, index: int) -> str:
        """The namespace of a device, made when it is first asked for."""
        name = f"{self._name}-{index}"
        if name not in self._made:
            self._add(name)
        return name

    def network(self, name: str) -> None:
        """A new network without any device."""
        self.ip(self.hub, "link", "add", name, "type", "bridge")
        self.ip(self.hub, "link", "set", name, "up")

    def plug(self, index: int, network: str, interface: str, address: str = "", *, ipv6: bool = False) -> None:
        """A cable from a device to a network; with an address such as "10.7.0.1/24", or none yet."""
        device, far = self.device(index), f"{network}{index}"
        self.ip(self.hub, "link", "add", far, "type", "veth", "peer", "name", interface, "netns", device)
        self.ip(self.hub, "link", "set", far, "master", network, "up")
        if not ipv6:
            self.exec(device, "sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")
        self.ip(device, "link", "set", interface, "up")
        if address:
            self.ip(device, "address", "add", address, "dev", interface)

    def part(self, network: str, pairs: Iterable[tuple[int, int]]) -> None:
        """From here on nothing passes between these pairs of devices of a network, either way; needs nftables."""
        ends = ", ".join(f'"{network}{a}" . "{network}{b}"' for pair in pairs for a, b in (pair, pair[::-1]))
        rule = f"iifname . oifname {{ {ends} }} drop" if ends else ""
        lines = (
            f"table bridge {network} {{",
            "chain forwarding {",
            "type filter hook forward priority 0",
            rule,
            "}",
            "}",
        )
        fresh = f"table bridge {network} {{ }}", f"delete table bridge {network}"
        self.exec(self.hub, "nft", "\n".join((*fresh, *lines)))

    def ip(self, where: str, *arguments: str) -> str:
        """Run iproute2 in a namespace; what it prints."""
        return self._run("ip", "-n", where, *arguments)

    def exec(self, where: str, *command: str) -> str:
        """Run a command in a namespace; what it prints."""
        return self._run("ip", "netns", "exec", where, *command)

    def prefix(self, index: int) -> tuple[str, ...]:
        """What starts a command on a device."""
        return ("ip", "netns", "exec", self.device(index))

    def _add(self, name: str) -> None:
        self._run("ip", "netns", "add", name)
        self._made.append(name)
        self.ip(name, "link", "set", "lo", "up")

    @staticmethod
    def _run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
        return done.stdout
