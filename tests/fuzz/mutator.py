"""A small coverage-guided mutator for the ordinary test run; `make fuzz` gives the same targets to libFuzzer."""

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any


class Fuzzer:
    """Mutates a corpus, keeps what reaches new lines of our own code."""

    def __init__(self, target: Callable[[bytes], None], corpus: list[bytes], seed: int) -> None:
        self.target = target
        self.corpus = list(corpus)
        self.rng = Random(seed)
        self.seen: set[tuple[str, int]] = set()

    def run(self, count: int) -> None:
        for item in list(self.corpus):
            self.reaches_more(item)
        for step in range(count):
            data = self.mutate(self.rng.choice(self.corpus))
            # Tracing costs fivefold: every eighth input pays it.
            if step % 8 == 0:
                if self.reaches_more(data) and len(self.corpus) < 2_000:
                    self.corpus.append(data)
            else:
                self.target(data)

    def reaches_more(self, data: bytes) -> bool:
        before = len(self.seen)

        def trace(frame: FrameType, event: str, _: object) -> Any:
            if "swarmd" not in frame.f_code.co_filename:
                return None
            if event == "line":
                self.seen.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        earlier = sys.gettrace()
        sys.settrace(trace)
        try:
            self.target(data)
        finally:
            sys.settrace(earlier)
        return len(self.seen) > before

    def mutate(self, data: bytes) -> bytes:
        rng, out = self.rng, bytearray(data)
        for _ in range(1 + int(rng.random() * 4)):
            at = int(rng.random() * (len(out) + 1))
            action = int(rng.random() * 7)
            if action == 0 and at < len(out):
                out[at] ^= 1 << int(rng.random() * 8)
            elif action == 1 and at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0x90, 0x9F, 0xC0, 0xC4, 0xCF, 0xD9, 0xDD, 0xFF))
            elif action == 2:
                del out[at : at + int(rng.random() * 16)]
            elif action == 3:
                out[at:at] = rng.randbytes(int(rng.random() * 16))
            elif action == 4:
                out = out[:at]
            elif action == 5:
                other = rng.choice(self.corpus)
                out[at:] = other[int(rng.random() * (len(other) + 1)) :]
            else:
                out[at:at] = out[at : at + int(rng.random() * 64)]
        return bytes(out[:70_000])
