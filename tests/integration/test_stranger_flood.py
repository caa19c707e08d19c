"""Real daemons on loopback under a bounded flood of a stranger's datagrams: a newcomer still joins."""

import os
import socket
import threading
import time
from pathlib import Path

from swarmd_protocols.channel.channel import DATAGRAM, GROUP, WIRE_VERSION
from tests.support.daemons import Daemon, alive_members, wait_for

_RATE_PER_S = 3_000
_FRAMES = 290 * _RATE_PER_S
"""Five minutes of them, as long as a test may take: it goes on until the newcomer is in, however late."""


def flood(targets: list[tuple[str, int]], stop: threading.Event, sent: list[int]) -> None:
    """Junk from many ports, so that no address has said the same thing before; ends by itself."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
    heads = bytes((WIRE_VERSION << 4 | DATAGRAM,)), bytes((WIRE_VERSION << 4 | GROUP, 0, 0, 0, 1))
    try:
        began = time.monotonic()
        for number in range(_FRAMES):
            if stop.is_set():
                return
            frame = heads[number & 1] + os.urandom(60)
            for target in targets:
                sockets[number % len(sockets)].sendto(frame, target)
            sent[0] += 1
            ahead = began + number / _RATE_PER_S - time.monotonic()
            if ahead > 0.001:
                time.sleep(ahead)
    finally:
        for each in sockets:
            each.close()


def test_a_newcomer_joins_while_strangers_flood_the_members(tmp_path: Path) -> None:
    first = Daemon(tmp_path, "a", "--no-eye").up()
    daemons = [first]
    stop, sent = threading.Event(), [0]
    thread: threading.Thread | None = None
    try:
        seed = first.status()["address"]
        daemons.append(Daemon(tmp_path, "b", "--no-eye", join=seed).up())
        wait_for(lambda: all(alive_members(daemon) == 2 for daemon in daemons), "two members")
        targets = [(host, int(port)) for host, port in (d.status()["address"].rsplit(":", 1) for d in daemons)]
        thread = threading.Thread(target=flood, args=(targets, stop, sent))
        thread.start()
        newcomer = Daemon(tmp_path, "c", "--no-eye", join=seed)
        daemons.append(newcomer)
        newcomer.up()
        wait_for(lambda: all(alive_members(daemon) == 3 for daemon in daemons), "the newcomer under the flood")
        assert thread.is_alive(), f"the flood ended before the newcomer was in: {sent[0]} datagrams"
    finally:
        stop.set()
        if thread is not None:
            thread.join()
        for daemon in daemons:
            daemon.close()
