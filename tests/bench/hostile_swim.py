"""Measures what a mad accuser, a chatterer and strangers without a key can do to membership; prints one JSON object.

`python -m tests.bench.hostile_swim` (also by `make bench-hostile`). Virtual time, real cryptography for the costs; the
laws are `tests/property/test_{accuser,own_word,stranger}_laws.py`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from random import Random

from swarmd_protocols.crypto import Crypto, NaClCrypto
from swarmd_protocols.effects import DatagramReceived, Started
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.messages import Message
from tests.property import test_accuser_laws as accuser
from tests.property import test_author_laws as author
from tests.property import test_own_word_laws as own_word
from tests.property import test_stranger_laws as stranger
from tests.support.swim_chatter import Chatter
from tests.support.swim_net import MS, Net, S

COST_FRAMES = 10_000
FLOOD_WORDS = 4_000
"""Messages of one frame: nearly as many as are read."""
CHATTERS = tuple((kind, per_s) for kind in own_word.LOUD for per_s in (8, 80))
"""Kinds of newer words, and how many of them are said a second."""
CHATTER_S = (240, 60)
"""For so many seconds first, in which what is passed on once is used up, and so many that are counted."""


def accusers(seeds: int) -> dict[str, object]:
    """One mad member among eight: doubted pairs, health, traffic after the first 20 s, and a real blackout."""
    doubted, rates, usual, mad, health = [], [], [], [], 0
    for seed in range(seeds):
        net = accuser.swarm(seed)
        net.run(20)
        usual.append(accuser.blackout_s(net))
        net = accuser.swarm(seed)
        accuser.Mad(net, seed)
        doubted.append(accuser.doubted_share(net, 20))
        health = max(health, *(host.node.summary().local_health for host in net.hosts))
        before = sum(host.bytes_out for host in net.hosts)
        net.run(20)
        rates.append((sum(host.bytes_out for host in net.hosts) - before) / 20 / len(net.hosts))
        mad.append(accuser.blackout_s(net))
    return {
        "pairs_in_doubt": round(statistics.mean(doubted), 5),
        "local_health_worst": health,
        "bytes_per_node_s": round(statistics.mean(rates)),
        "blackout_s": round(statistics.mean(mad), 2),
        "blackout_usual_s": round(statistics.mean(usual), 2),
        "blackout_ratio": round(statistics.mean(mad) / statistics.mean(usual), 2),
        "bars": {"pairs_in_doubt": 0.01, "blackout_ratio": 1.2, "bytes_per_node_s": 1_000},
    }


def join_s(kind: "Callable[[Random, Net], bytes] | None", rate_per_s: int) -> float | None:
    """How long a newcomer takes to be known by all, with this flood at every node; None: not in 15 s."""
    net, rng, number, step_ns = stranger.swarm(), Random(9), 0, MS

    def send() -> None:
        nonlocal number
        for host in net.hosts:
            if host.up and kind is not None:
                for _ in range(rate_per_s * step_ns // S):
                    number += 1
                    net.feed(host.index, DatagramReceived(stranger.source(number), kind(rng, net)))
        net.at(net.now + step_ns, send)

    send()
    net.run(1)
    net.hosts[stranger.MEMBERS].up = True
    net.feed(stranger.MEMBERS, Started())
    return net.run_until(net.formed, 15, 0.01)


def cost(kind: Callable[[Random, Net], bytes]) -> dict[str, float]:
    """CPU of one node for a frame of this kind, with real cryptography, and what is sent for it."""
    net, rng = stranger.swarm(crypto=NaClCrypto()), Random(10)
    frames = [kind(rng, net) for _ in range(COST_FRAMES)]
    node, sent = net.hosts[0].node, 0
    began = time.process_time()
    for number, frame in enumerate(frames):
        net.now += S // 10_000
        sent += stranger.sent_bytes(node.handle(DatagramReceived(stranger.source(number), frame), net.now))
    spent = time.process_time() - began
    return {
        "cpu_us": round(spent / COST_FRAMES * 1e6, 1),
        "core_at_10000_s": round(spent / COST_FRAMES * 10_000, 4),
        "bytes_out_per_byte_in": round(sent / sum(map(len, frames)), 4),
    }


def floods() -> dict[str, dict[str, float]]:
    """One frame of 4,000 newer own words, of words that do not hold, of accusations: what its receiver pays."""
    found = {}
    for kind in own_word.KINDS:
        count = FLOOD_WORDS // (5 if kind == "large event" else 1)
        found[f"own: {kind}"] = paid(lambda net, chatter, kind=kind, count=count: chatter.words(kind, count))
    for kind in ("links", "meta", "events", "statements"):
        count = FLOOD_WORDS // (4 if kind == "statements" else 1)
        found[f"refused: {kind}"] = paid(lambda net, _, kind=kind, count=count: own_word.bad_words(net, kind, count))
    for kind in accuser.BAD_KINDS:
        found[f"accused: {kind}"] = paid(
            lambda net, _, kind=kind: list(accuser.bad_accusations(net, kind, FLOOD_WORDS))
        )
    return found


def formed(crypto: Crypto) -> Net:
    """Eight members that know each other."""
    net = Net(author.COUNT, 3, crypto=crypto)
    net.run_until(net.formed, 15)
    net.run(3)
    return net


def paid(words: Callable[..., list[Message]]) -> dict[str, float]:
    """What the dearest frame cost its receiver, the least of three runs, and whether its sender was named for it."""
    longest_ms, checks, named = [], 0, True
    for _ in range(3):
        net = formed(NaClCrypto())
        chatter = Chatter(net, author.FLOODER)
        chatter.tell(net.hosts[0], words(net, chatter))
        net.run(1)
        texts = [text for who, text in author.names_of_flooders(net) if who == 0]
        named = named and any(f"n{author.FLOODER:03d}" in text for text in texts)
        longest_ms.append(chatter.longest_s * 1e3)
        checks = max(checks, chatter.most_checks)
    return {"longest_ms": round(min(longest_ms), 1), "checks": checks, "named_at_the_receiver": int(named)}


def chatterers() -> dict[str, dict[str, float]]:
    """A member says newer words without end, to one member or other ones to each: what the others send, beside."""
    found = {}
    for kind, per_s in CHATTERS:
        found[f"{kind}, {per_s}/s"] = {
            whom: round(own_word.goes_on(kind, whom, per_s, *CHATTER_S)[0]) for whom in ("one", "each other")
        }
    return found


def event_bytes() -> int:
    """Bytes held of one origin's events, of the largest that can travel, with and without gaps."""
    log = EventLog(0)
    for number in range(1, 400):
        log.offer(number if number < 200 else 2 * number, "x", bytes(65_000), bytes(65_100))
        for _ in log.due():
            pass
    return log.held_bytes


def strangers() -> dict[str, object]:
    """Every kind of junk at 10,000/s to every node."""
    kinds = {kind.__name__: kind for kind in stranger.KINDS}
    return {
        "rate_per_node_s": stranger.RATE_PER_S,
        "join_s": {
            "quiet": join_s(None, 0),
            **{name: join_s(kind, stranger.RATE_PER_S) for name, kind in kinds.items()},
        },
        "cost": {name: cost(kind) for name, kind in kinds.items()},
        "bars": {"join_s": 5, "bytes_out_per_byte_in": 1},
    }


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="runs with a mad accuser, and as many without")
    parser.add_argument("--json", action="store_true", help="the output is JSON in any case")
    arguments = parser.parse_args()
    figures = {
        "accuser": accusers(arguments.seeds),
        "floods": floods(),
        "chatterers_bytes_s": chatterers(),
        "event_bytes": event_bytes(),
        "strangers": strangers(),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
