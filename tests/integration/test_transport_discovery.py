"""mDNS on loopback: members of one swarm find each other, strangers and nonsense are ignored."""

import asyncio
import os

import pytest

from swarmd.brain.discovery import Discovery, announced_address, swarm_tag
from swarmd.errors import TransportError
from swarmd_protocols.ids import NodeId
from tests.support.transport_endpoints import run, until


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big") if number > 255 else bytes([number]) * 16)


def test_two_of_a_swarm_find_each_other_and_a_third_does_not() -> None:
    async def test() -> None:
        found: dict[str, list[str]] = {"a": [], "b": [], "stranger": []}
        farm, lake = f"farm {os.getpid()}", f"lake {os.getpid()}"  # Another test run on this machine hears these too.
        a = Discovery(farm, node(1), "127.0.0.1:7001", found["a"].append)
        b = Discovery(farm, node(2), "127.0.0.1:7002", found["b"].append)
        stranger = Discovery(lake, node(3), "127.0.0.1:7003", found["stranger"].append)
        try:
            await a.start()
            await b.start()
            await stranger.start()
        except TransportError as error:
            pytest.skip(f"no multicast on loopback here: {error}")
        try:
            await until(lambda: found["a"] and found["b"], what="both found each other")
            await until(lambda: stranger.counts["refused"] >= 2, what="the stranger saw and refused both")
        finally:
            await asyncio.gather(a.close(), b.close(), stranger.close())
        await a.close()
        assert found == {"a": ["127.0.0.1:7002"], "b": ["127.0.0.1:7001"], "stranger": []}

    run(test)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {b"v": b"2", b"swarm": swarm_tag("farm").encode(), b"address": b"10.0.0.1:7946"},
        {b"v": b"1", b"swarm": swarm_tag("lake").encode(), b"address": b"10.0.0.1:7946"},
        {b"v": b"1", b"swarm": swarm_tag("farm").encode()},
        {b"v": b"1", b"swarm": swarm_tag("farm").encode(), b"address": None},
        {b"v": b"1", b"swarm": swarm_tag("farm").encode(), b"address": b"evil.example:7946"},
        {b"v": b"1", b"swarm": swarm_tag("farm").encode(), b"address": b"10.0.0.1:0"},
        {b"v": b"1", b"swarm": swarm_tag("farm").encode(), b"address": b"\xff" * 300},
    ],
)
def test_an_announcement_that_is_not_ours_gives_no_address(properties: dict[bytes, bytes | None]) -> None:
    assert announced_address(properties, swarm_tag("farm")) is None


def test_a_good_announcement_gives_its_address() -> None:
    good = {b"v": b"1", b"swarm": swarm_tag("farm").encode(), b"address": b"[::1]:7946"}
    assert announced_address(good, swarm_tag("farm")) == "[::1]:7946"
    assert "farm" not in swarm_tag("farm")
