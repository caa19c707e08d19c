"""The tensor lane beside a bare CURVE echo: milliseconds of one request between two processes on loopback.

    python -m tests.bench.lane_echo [--rounds 200] [--body 82000] [--answer 19200]

The bare echo is the same ZeroMQ with the same encryption and asyncio: one message with the body there, one with the
answer back, over a connection that stands (`echo`) and over one that is made for the request (`echo_new`). The lane
does what it does for a borrower: lay out, tell where, be fetched from, take the answer, with both SHA-256; what the two
brains would say goes over a pipe. `ours_standing` is the lane with a connection that is kept, as an experiment. The
ways take turns, so that other work on the machine meets each alike: judge the ratios.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils import z85

from swarmd.worker.lane import STALL_S, Fetcher, Shelf, Visit, hashed
from swarmd.worker.lent import Place, token_of

WHO = b"\x01" * 8
HOST = "127.0.0.1"


class Standing(Fetcher):
    """Keeps its connection: what a request would cost without a handshake of its own."""

    _kept: zmq.asyncio.Socket | None = None

    @contextlib.asynccontextmanager
    async def visit(self, host: str, place: Place, stall_s: float | None = None) -> AsyncIterator[Visit]:
        """See `Fetcher.visit`."""
        if self._kept is None:
            sock = self._context.socket(zmq.DEALER)
            sock.curve_serverkey = z85.encode(place.key)
            sock.curve_publickey, sock.curve_secretkey = self._keys
            sock.connect(f"tcp://{host}:{place.port}")
            self._kept = sock
        yield Visit(self._kept, place, self._max_bytes, STALL_S)


async def lend(answer: bytes) -> None:
    """The other process: told on standard input what to do, line by line."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(1 << 22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    fetchers = {"ours": Fetcher(1 << 24), "ours_standing": Standing(1 << 24)}
    context = zmq.asyncio.Context()
    public, secret = zmq.curve_keypair()
    sock = context.socket(zmq.ROUTER)
    sock.curve_server, sock.curve_publickey, sock.curve_secretkey = True, public, secret
    port = sock.bind_to_random_port(f"tcp://{HOST}")

    async def echo() -> None:
        while True:
            sender, _ = await sock.recv_multipart()
            await sock.send_multipart([sender, answer])

    echoing = asyncio.create_task(echo())
    print(json.dumps({"port": port, "key": public.decode()}), flush=True)
    while line := await reader.readline():
        told = json.loads(line)
        place = Place(told["port"], bytes.fromhex(told["key"]), bytes.fromhex(told["token"]), told["size"],
                      bytes.fromhex(told["sha256"]))  # fmt: skip
        async with fetchers[told["way"]].visit(HOST, place) as visit:
            await visit.fetch()
            digest = await visit.leave(answer)
        print(json.dumps({"sha256": digest.hex()}), flush=True)
    echoing.cancel()


async def measure(rounds: int, body: bytes, answer: bytes) -> dict[str, Any]:
    """The borrower's side."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.lane_echo", "--lend", "--answer", str(len(answer)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert other.stdin is not None
    assert other.stdout is not None
    at = json.loads(await other.stdout.readline())
    shelf, context = Shelf(1 << 24), zmq.asyncio.Context()
    shelf.start(f"{HOST}:0")
    keys = zmq.curve_keypair()

    def dealer() -> zmq.asyncio.Socket:
        sock = context.socket(zmq.DEALER)
        sock.curve_serverkey = at["key"].encode()
        sock.curve_publickey, sock.curve_secretkey = keys
        sock.setsockopt(zmq.LINGER, 0)
        sock.connect(f"tcp://{HOST}:{at['port']}")
        return sock

    standing = dealer()

    async def echo(sock: zmq.asyncio.Socket) -> None:
        await sock.send(body)
        assert len(await sock.recv()) == len(answer)

    async def lane(way: str) -> None:
        assert other.stdin is not None
        assert other.stdout is not None
        digest = await hashed(body)
        with shelf.lay_out(body, digest) as place:
            told = {
                "way": way, "port": place.port, "key": place.key.hex(), "size": len(body), "sha256": digest.hex(),
                "token": token_of(place.lane_key, WHO).hex(),
            }  # fmt: skip
            other.stdin.write(json.dumps(told).encode() + b"\n")
            said = bytes.fromhex(json.loads(await other.stdout.readline())["sha256"])
            assert await shelf.take(place, len(answer), said) == answer

    took: dict[str, list[float]] = {"echo": [], "echo_new": [], "ours": [], "ours_standing": []}
    for number in range(rounds + 5):
        for way, times in took.items():
            began = time.perf_counter()
            if way == "echo":
                await echo(standing)
            elif way == "echo_new":
                one = dealer()
                await echo(one)
                one.close()
            else:
                await lane(way)
            if number >= 5:
                times.append((time.perf_counter() - began) * 1e3)
    other.stdin.close()
    await other.wait()
    shelf.close()
    context.destroy(linger=0)
    p50 = {way: statistics.median(times) for way, times in took.items()}
    return {
        "body_bytes": len(body), "answer_bytes": len(answer), "rounds": rounds,
        "p50_ms": {way: round(value, 2) for way, value in p50.items()},
        "least_ms": {way: round(min(times), 2) for way, times in took.items()},
        "of_echo": {way: round(value / p50["echo"], 2) for way, value in p50.items()},
        "of_echo_new": {way: round(value / p50["echo_new"], 2) for way, value in p50.items()},
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> int:
    """Print one row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--body", type=int, default=82_000)
    parser.add_argument("--answer", type=int, default=19_200)
    parser.add_argument("--lend", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    answer = bytes(args.answer)
    if args.lend:
        asyncio.run(lend(answer))
        return 0
    print(json.dumps(asyncio.run(measure(args.rounds, os.urandom(args.body), answer))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
