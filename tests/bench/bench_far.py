"""What a stream to a far member takes: `python -m tests.bench.bench_far`. Virtual time; a minute of CPU.

One message over a line, of whose frames some are lost on each hop; the hops' own retries are all there are. Beside it
what one member that hands it on sends for others, and what is sent a second time.
"""

from random import Random

from swarmd_protocols.effects import Command
from swarmd_protocols.subprotocol import Priority, Send
from tests.support.relay_net import formed, heard
from tests.support.swim_net import S

PATIENCE_S = 400.0
CASES = [(hops, size, loss) for hops in (2, 4) for size in (20_000, 100_000, 250_000) for loss in (0.02, 0.1, 0.3)]


def measure(hops: int, size: int, loss: float) -> tuple[float | None, int, int]:
    """Seconds until it has come whole (None: not), bytes that the first hop sent for it, units sent again."""
    net = formed(hops + 1)
    net.loss = loss
    payload = Random(hops).randbytes(size)
    source, first = net.hosts[0].node._core.counters, net.hosts[1].node._core.counters
    begun, spent = net.now, first["relay_bytes"]
    net.feed(0, Command("echo", Send(net.hosts[hops].node.node, payload, True, Priority.BULK)))
    while not heard(net, hops)[payload] and net.now - begun < PATIENCE_S * S and not source["far_streams_failed"]:
        net.run(0.1)
    took_s = (net.now - begun) / S if heard(net, hops)[payload] else None
    return took_s, first["relay_bytes"] - spent, source["far_units_again"]


def main() -> None:
    print("hops  bytes   loss  seconds  first hop's bytes / message  units again")
    for hops, size, loss in CASES:
        took_s, spent, again = measure(hops, size, loss)
        took = "failed" if took_s is None else f"{took_s:.1f}"
        print(f"{hops:4}  {size:6}  {loss:4.0%}  {took:>7}  {spent / size:27.2f}  {again:11}", flush=True)


if __name__ == "__main__":
    main()
