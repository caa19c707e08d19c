"""The story of `make demo-federation` with one swarm of real daemons: one pipe and one gateway die."""

import asyncio
import sys
import time
from importlib.util import find_spec

import pytest

from swarmd.demo.federation import WAIT_S, FederationDemo, Process
from swarmd.errors import DaemonError
from tests.support.bridge_world import mosquitto_binary

NO_BROKER = pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")
NO_ROUTER = pytest.mark.skipif(find_spec("zenoh") is None, reason="eclipse-zenoh is not installed (extra zenoh)")


@pytest.mark.slow
def test_what_cannot_start_is_told_at_once_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router without its library was waited for, for two minutes."""

    async def start(self: FederationDemo, port: int) -> Process:
        command = (sys.executable, "-m", "swarmd", "region", "router", "carrier-pigeon://")
        return await self._spawn(Process(f"router-{port}", self.folder / "none"), *command)

    monkeypatch.setattr(FederationDemo, "_start_pipe", start)
    began = time.monotonic()
    with pytest.raises(DaemonError, match=r"router-\d+ has ended: .*carrier-pigeon"):
        asyncio.run(FederationDemo(lambda text: None, ["north"], 1, "zenoh").run())
    assert time.monotonic() - began < WAIT_S / 2


@pytest.mark.slow
@pytest.mark.parametrize("pipe", [pytest.param("mqtt", marks=NO_BROKER), pytest.param("zenoh", marks=NO_ROUTER)])
@pytest.mark.timeout(300)
def test_a_pipe_and_a_gateway_die_and_nothing_is_lost(pipe: str) -> None:
    """Brokers of mosquitto, or Zenoh's own routers."""
    summary = asyncio.run(FederationDemo(lambda text: None, ["north"], 4, pipe).run())
    assert (summary["said"], summary["lost"], summary["duplicates"], summary["dropped"]) == (4, 0, 0, 0)
    assert summary["sites"] == {"north": 4}
    assert summary["after_kill_s"].keys() == {"router" if pipe == "zenoh" else "broker", "gateway"}
    if pipe == "zenoh":
        assert (summary["objects_live"], summary["stale_live"]) == (4, [])
