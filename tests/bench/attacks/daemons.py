"""The one attack of the review that drove real daemons: a stranger's junk while a newcomer joins."""

import os
import socket
import tempfile
import threading
import time
from pathlib import Path

from tests.bench.attacks.seen import Seen
from tests.support.daemons import Daemon, alive_members, wait_for

PER_S = 10_000
JOIN_S = 45.0


def _flood(targets: list[tuple[str, int]], stop: threading.Event, sent: list[int]) -> None:
    """One frame of 25 bytes from 900 ports, to each of the targets."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(900)]
    frame, began = b"\x11" + os.urandom(24), time.monotonic()
    while not stop.is_set():
        for target in targets:
            sockets[sent[0] % 900].sendto(frame, target)
        sent[0] += 1
        ahead = began + sent[0] / PER_S - time.monotonic()
        if ahead > 0.001:
            time.sleep(ahead)
    for each in sockets:
        each.close()


def junk_flood_real() -> Seen:
    """10,000 such frames a second, or as many as this machine sends, at each of two members; then a third starts."""
    with tempfile.TemporaryDirectory() as name:
        folder, stop, sent = Path(name), threading.Event(), [0]
        first = Daemon(folder, "a", "--no-eye").up()
        daemons = [first]
        thread: threading.Thread | None = None
        try:
            seed = first.status()["address"]
            daemons.append(Daemon(folder, "b", "--no-eye", join=seed).up())
            wait_for(lambda: all(alive_members(one) == 2 for one in daemons), "two members")
            targets = [(host, int(port)) for host, port in (one.status()["address"].rsplit(":", 1) for one in daemons)]
            thread = threading.Thread(target=_flood, args=(targets, stop, sent))
            thread.start()
            flooded = time.monotonic()
            newcomer = Daemon(folder, "c", "--no-eye", join=seed)
            daemons.append(newcomer)
            newcomer.up()
            up = time.monotonic()
            while alive_members(newcomer) < 3 and time.monotonic() - up < JOIN_S:
                time.sleep(0.1)
            took, rate = time.monotonic() - up, sent[0] / (time.monotonic() - flooded)
        finally:
            stop.set()
            if thread is not None:
                thread.join()
            for one in daemons:
                one.close()
    return Seen(
        "at 10,000/s a newcomer does not join in 45 s",
        took >= JOIN_S,
        f"under {rate:,.0f} frames a second at each of two members it joined {took:.1f} s after it was up",
    )
