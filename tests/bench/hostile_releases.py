"""What one certified member can make another one pay through releases: votes, reports, questions, chunks.

    python -m tests.bench.hostile_releases            prints one JSON object

Each attack runs for `SECONDS` of virtual time against one victim with libsodium's arithmetic and a promoted release.
`messages_s` is the rate of the attack, `cpu_share` the victim's process time over the virtual time, `longest_ms` its
longest event (thread CPU), `memory_mb` the growth of the process (RSS, all four nodes in it),
`answered_bytes_per_byte` what the victim sent for a byte that it got, `alarms` how often it named the attacker, `rows`
what of the attacker's it holds at the end.
Neither the channel (decryption) nor the disk is in it.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import short
from swarmd_protocols.releases.messages import (
    AskChunk,
    AskList,
    Chunk,
    Have,
    Push,
    TellChunks,
    encode_message,
)
from swarmd_protocols.releases.reports import Report, Verdict
from swarmd_protocols.subprotocol import Send
from swarmd_protocols.trust.envelopes import Envelope, KeyId, key_id, signed_bytes
from tests.support.release_world import MODEL, World, make_release

SECONDS = 20
CHUNK = 65_536


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


class Bench:
    """A fleet of four whose third member is a thief; the first is measured."""

    def __init__(self) -> None:
        self.world = World(4, crypto=NaClCrypto())
        self.data = bytes(range(256)) * (8 << 12)  # 8 MiB
        release = make_release(self.data)
        self.envelope = self.world.keys.sign("release", release.payload(), "release")
        self.blob = release.bundle[0].blob
        self.world.publish(0, [self.envelope], self.data)
        self.world.run(60)
        assert self.world.versions() == [1] * 4
        self.sequence = 10**6

    def vote(self, about: bytes, model: str = MODEL) -> bytes:
        """A report of the thief, well signed."""
        self.sequence += 1
        public = self.world.crypto.public_key(self.world.seeds[2])
        payload = Report(public, model, self.sequence, b"", 0, 0, "failed", about, Verdict.FAIL, 1, 1, "x").payload()
        signature = self.world.crypto.sign(self.world.seeds[2], signed_bytes("health", payload))
        return Envelope("health", payload, ((KeyId(key_id(public)), signature),)).encode()

    def votes(self) -> Iterator[bytes]:
        """100 pushes a second, each of 100 verdicts on what nobody published."""
        pool = [
            encode_message(
                Push((), (), tuple(self.vote((at * 100 + one).to_bytes(32, "big"), f"m{one}") for one in range(100)))
            )
            for at in range(50)
        ]
        while True:
            yield pool[self.sequence % len(pool)]
            self.sequence += 1

    def forged(self) -> Iterator[bytes]:
        """1,000 pushes a second of a statement that nobody signed."""
        bare = Envelope("release", make_release(b"evil" * 100, 9).payload(), self.envelope.signatures).encode()
        while True:
            yield encode_message(Push((), (bare,), ()))

    def questions(self) -> Iterator[bytes]:
        """1,000 a second: tell me everything."""
        while True:
            yield encode_message(Have(0, b"", b"", reply=True))

    def asks(self) -> Iterator[bytes]:
        """1,000 a second: the same chunk again."""
        tag = self.blob.sha256[:8]
        yield encode_message(TellChunks(tag, b""))
        while True:
            yield encode_message(AskChunk(tag, 0))

    def lists(self) -> Iterator[bytes]:
        """1,000 a second: the list of chunks."""
        while True:
            yield encode_message(AskList(self.blob.sha256[:8]))

    def chunks(self) -> Iterator[bytes]:
        """200 a second, 13 MB/s: chunks that nobody asked for."""
        message = encode_message(Chunk(self.blob.sha256[:8], 1, bytes(CHUNK)))
        while True:
            yield message

    def masks(self) -> Iterator[bytes]:
        """1,000 a second: I have everything, I have nothing."""
        tag, full = self.blob.sha256[:8], b"\xff" * (self.blob.chunk_count // 8)
        while True:
            yield encode_message(TellChunks(tag, full))
            yield encode_message(TellChunks(tag, b""))

    def run(self, name: str, messages: Iterator[bytes], per_s: int) -> dict[str, object]:
        """One attack."""
        world, victim = self.world, self.world.nodes[0]
        world.alarms.clear()
        gc.collect()
        before = rss_bytes()
        spent = longest = 0.0
        sent = got = 0
        for at in range(SECONDS * per_s):
            message = next(messages)
            got += len(message)
            began = time.thread_time()
            effects = victim.on_message(world.ids[2], message, world.now)
            took = time.thread_time() - began
            spent, longest = spent + took, max(longest, took)
            sent += sum(len(one.payload) for one in effects if isinstance(one, Send))
            world.perform(0, [one for one in effects if isinstance(one, Alarm) or not isinstance(one, Send)])
            if at % per_s == per_s - 1:
                world.run(1.0)
        gc.collect()
        grown = rss_bytes() - before
        rows = [key for key in victim.book.votes if key[1] == world.ids[2]]
        rows += [key for key in victim.book.statuses if key[0] == world.ids[2]]  # type: ignore[misc]
        return {
            "name": name,
            "messages_s": per_s,
            "cpu_share": round(spent / SECONDS, 4),
            "longest_ms": round(longest * 1e3, 2),
            "memory_mb": round(max(0, grown) / 1e6, 2),
            "answered_bytes_per_byte": round(sent / got, 3),
            "alarms": sum(short(world.ids[2]) in alarm.text for at, alarm in world.alarms if at == 0),
            "rows": len(rows),
            "works": self._works(),
        }

    def _works(self) -> bool:
        """Whether honest members are served as before: nothing is halted, and the promoted release runs."""
        self.world.run(20)
        return self.world.versions() == [1] * 4


ATTACKS: dict[str, tuple[Callable[[Bench], Iterator[bytes]], int]] = {
    "votes": (Bench.votes, 100),
    "forged statements": (Bench.forged, 1_000),
    "questions": (Bench.questions, 1_000),
    "one chunk again and again": (Bench.asks, 1_000),
    "lists": (Bench.lists, 1_000),
    "unasked chunks": (Bench.chunks, 200),
    "lying masks": (Bench.masks, 1_000),
}


def main() -> None:
    """Print one JSON object."""
    found = []
    for name, (make, per_s) in ATTACKS.items():
        bench = Bench()
        found.append(bench.run(name, make(bench), per_s))
    print(json.dumps({"seconds": SECONDS, "attacks": found}))


if __name__ == "__main__":
    main()
