"""Host probes on loopback where this process has no descriptor left: nobody was asked, so nobody is silent."""

import asyncio
import errno
import os
import socket
from collections import Counter
from typing import Any

import pytest

from swarmd.transports import host_probe
from swarmd.transports.host_probe import HostProber
from swarmd.transports.reach import Reach
from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.ids import Address
from tests.support.transport_endpoints import run, until

TIMEOUT_NS = 200_000_000


class Lacking:
    """The module `socket` of a process that gets no descriptor, for so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def socket(self, *arguments: int) -> socket.socket:
        self.times -= 1
        if self.times >= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(*arguments)


def asked(times: int, patch: pytest.MonkeyPatch) -> tuple[list[HostAnswer], Counter[str]]:
    """What a host that is open answers while so many descriptors are refused, and what was counted."""
    answers: list[HostAnswer] = []
    counts: Counter[str] = Counter()

    def answered(_: Address, answer: HostAnswer) -> None:
        answers.append(answer)

    async def test() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            prober = HostProber(Reach("127.0.0.1", 1), answered, counts)
            patch.setattr(host_probe, "socket", Lacking(times))
            prober.probe(f"127.0.0.1:{listener.getsockname()[1]}", TIMEOUT_NS)
            await until(lambda: answers or counts["host_probes_unasked"], what="an answer, or that there is none")
            await asyncio.sleep(0)
            assert not prober._open
            prober.close()

    run(test)
    return answers, counts


def test_who_could_not_be_asked_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, counts = asked(1_000, monkeypatch)
    assert answers == []
    assert counts["host_probes_unasked"] == 1


def test_it_is_asked_as_soon_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, counts = asked(3, monkeypatch)
    assert answers == [HostAnswer.OPEN]
    assert counts["host_probes_unasked"] == 0
