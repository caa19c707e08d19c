"""A connection that stood and ends is told at once, and only if the other side ended it."""

import pytest

from swarmd.transports.factory import make_transport
from tests.support.transport_endpoints import Endpoint, KeyRing, run, until


@pytest.mark.parametrize("kind", ["udp", "zmq"])
def test_who_ends_a_connection_is_told_of_and_who_hangs_up_is_not(kind: str) -> None:
    async def body() -> None:
        keys = KeyRing()
        a, b, c = [await Endpoint(make_transport(kind, "127.0.0.1:0", keys.member())).start() for _ in range(3)]
        for bulk in (False, True):
            a.stream(b.address, b"to b", bulk=bulk)
            a.stream(c.address, b"to c", bulk=bulk)
        await until(lambda: len(b.streams) == len(c.streams) == 2, what="all frames")
        assert (a.losses, b.losses, c.losses) == ([], [], [])
        await b.transport.close()
        await until(lambda: len(a.losses) >= 2, what="both connections to b to be told of")
        assert set(a.losses) == {b.address}
        a.stream(b.address, b"to nobody")
        await until(lambda: any(to == b.address for to, _ in a.failures), what="the refusal")
        assert a.losses == [b.address] * 2, "what never stood is no loss"
        await a.transport.close()
        assert c.losses == [], "c dialled nobody"
        await c.transport.close()

    run(body)
