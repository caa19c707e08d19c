"""A worker whose descriptors are all taken: nothing new is begun, and nothing that ran has ended when they are back."""

import asyncio
import contextlib
import os
import resource
from collections.abc import Iterator
from hashlib import sha256

import pytest

from swarmd.errors import TransportError
from swarmd.worker import lane
from swarmd.worker.lane import Fetcher
from swarmd.worker.oip import OipError
from tests.integration.test_lending_lane import DATA, MIB, _serves, shelf
from tests.unit.test_inference_api_laws import law


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing."""
    before, taken = resource.getrlimit(resource.RLIMIT_NOFILE), [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for one in taken:
            os.close(one)


@law
async def test_without_a_descriptor_left_nothing_is_begun_and_the_watch_goes_on() -> None:
    fetcher = Fetcher(MIB)
    async with shelf() as one:
        try:
            with one.lay_out(DATA, sha256(DATA).digest()) as place:
                async with fetcher.visit("127.0.0.1", place) as lender:
                    assert await lender.fetch() == DATA
                with no_descriptors():
                    await asyncio.sleep(3 * lane.WATCH_S)
                with no_descriptors():
                    with pytest.raises(OipError, match="Too many open files"):
                        async with fetcher.visit("127.0.0.1", place):
                            pass
                    with one.lay_out(DATA, bytes(32)), pytest.raises(TransportError):
                        one._bind("127.0.0.1", 0)
            assert fetcher.held_bytes == 0
            assert not any(task.done() for task in one._tasks)
            await _serves(one)
        finally:
            fetcher.close()
