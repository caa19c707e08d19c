"""The story of `make demo-federation` with one swarm of real daemons: one broker and one gateway die."""

import asyncio

import pytest

from swarmd.demo.federation import FederationDemo
from tests.support.bridge_world import mosquitto_binary


@pytest.mark.slow
@pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")
@pytest.mark.timeout(300)
def test_a_broker_and_a_gateway_die_and_nothing_is_lost() -> None:
    summary = asyncio.run(FederationDemo(lambda text: None, ["north"], 4).run())
    assert (summary["said"], summary["lost"], summary["duplicates"], summary["dropped"]) == (4, 0, 0, 0)
    assert summary["sites"] == {"north": 4}
