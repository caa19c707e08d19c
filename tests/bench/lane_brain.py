"""What one request over the tensor lane costs the two brains: the protocols alone, without a socket.

    python -m tests.bench.lane_brain [--requests 3000]

The borrower's `Offload` takes a request whose input lies with its worker, the lender's admits it and answers; all words
are encoded and decoded as on the wire, signatures are real. Sealing of frames and the pipes to the workers come on top.
CPU microseconds a request, the median of ten slices; `token_us` is the lane's token by itself, `sign_us` and
`verify_us` the signature of an answer. What signatures could save at most: `one_for_16_us` is the same with a real one
for every sixteenth answer alone, `unsigned_us` with none at all.
"""

import argparse
import json
import statistics
import sys
import time

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import Order
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.tickets import GrantsConfig
from swarmd_protocols.subprotocol import Send, SubEffect
from tests.support import offload_swarm
from tests.support.offload_swarm import DIGEST, NODES, SEEDS, S, Swarm

_SLICES = 10
_LANE_BYTES = 82_000


class _Fewer(NaClCrypto):
    """Signs and verifies every so many answers alone: what fewer signatures would save, and nothing to lend with."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every, self._signed, self._verified = every, 0, 0

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """See `Crypto.sign`."""
        self._signed += 1
        return super().sign(seed, message) if self._every and self._signed % self._every == 0 else bytes(64)

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """See `Crypto.verify`."""
        self._verified += 1
        if self._every and self._verified % self._every == 0:
            super().verify(public_key, message, signature)
        return True


class _Quick(Swarm):
    """The same, and nobody reads along."""

    def perform(self, node: NodeId, effects: list[SubEffect]) -> None:
        """What a driver does; timers are not wanted here."""
        for effect in effects:
            if isinstance(effect, Send):
                self.wire.append((node, effect.to, effect.payload))
            elif isinstance(effect, Order):
                self.orders[node].append(effect.request)


def _cpu_us(what: object, count: int) -> float:
    assert callable(what)
    began = time.process_time_ns()
    for _ in range(count):
        what()
    return (time.process_time_ns() - began) / 1e3 / count


def brains_us(count: int, crypto: NaClCrypto) -> float:
    """Of both, a request; raises `AssertionError` where one has no answer."""
    usual, offload_swarm.CRYPTO = offload_swarm.CRYPTO, crypto
    try:
        return _brains_us(count)
    finally:
        offload_swarm.CRYPTO = usual


def _brains_us(count: int) -> float:
    swarm = _Quick(2, lending=LendingConfig(grants=GrantsConfig(tickets_max=8, request_bytes_max=1 << 20)))
    me, lender = NODES[0], NODES[1]
    swarm.stock(lender)
    number, slices = 0, []
    for _ in range(_SLICES):
        settled, began = 0, time.process_time_ns()
        for _ in range(count // _SLICES):
            number += 1
            swarm.now_ns += 40_000_000
            if number % 20 == 0:
                swarm.stock(lender)
            swarm.command(
                me,
                requests.Borrow(
                    number, DIGEST, bytes(150), 1, swarm.now_ns + S, lane_bytes=_LANE_BYTES, lane_key=bytes(32),
                    lane_at=42,
                ),
            )  # fmt: skip
            swarm.turn()
            settled += sum(isinstance(one, requests.Settle) and one.data is not None for one in swarm.orders[me])
            swarm.orders[me].clear()
        slices.append((time.process_time_ns() - began) / 1e3 / (count // _SLICES))
        assert settled >= 0.9 * (count // _SLICES), f"{settled} of {count // _SLICES} were answered"
    return round(statistics.median(slices), 1)


def measure(count: int) -> dict[str, float]:
    """Microseconds of CPU."""
    crypto = NaClCrypto()
    public = crypto.public_key(SEEDS[1])
    asked = [(one.to_bytes(120, "big"), crypto.sign(SEEDS[1], one.to_bytes(120, "big"))) for one in range(1_000)]
    waiting = iter(asked)
    return {
        "both_brains_us": brains_us(count, NaClCrypto()),
        "one_for_16_us": brains_us(count, _Fewer(16)),
        "unsigned_us": brains_us(count, _Fewer(0)),
        "token_us": round(_cpu_us(lambda: messages.lane_token(bytes(32), NODES[1]), 5_000), 2),
        "sign_us": round(_cpu_us(lambda: crypto.sign(SEEDS[1], bytes(120)), 1_000), 1),
        "verify_us": round(_cpu_us(lambda: crypto.verify(public, *next(waiting)), 1_000), 1),
    }


def main() -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=3_000)
    sys.stdout.write(json.dumps(measure(parser.parse_args().requests)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
