"""The only source of randomness: `choose(kind, n)`, recordable, replayable, shrinkable.

Rules that this file keeps:

- Every draw names its kind, and each kind is a stream of its own, derived from the seed. Removing one fault from a
  script therefore does not shift the losses of later packets, which is what makes shrinking work.
- 0 is always the benign answer (not lost, no delay, no fault), so "all zeros" is the quietest run there is.
- Draws are integers. `random.Random.random` and one IEEE 754 multiplication give the same integer on every CPU and
  every Python, which `randrange` does not promise.
"""

import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

Draw: TypeAlias = Callable[[int], int]
"""`draw(n)` gives an integer in [0, n)."""

_MAX_SPAN = 1 << 53
MILLION = 1_000_000
"""Probabilities are parts per million."""


def derived_seed(seed: int, label: str) -> int:
    """A 128-bit seed that belongs to this seed and label, on every machine.

    Args:
        seed: The run's seed.
        label: What the derived seed is for.

    Returns:
        An integer of 128 bits.
    """
    return int.from_bytes(
        blake2b(f"{seed}/{label}".encode(), digest_size=16, person=b"swarmd-sim-seed").digest(), "big"
    )


class Choices:
    """All randomness of one run.

    Args:
        seed: Decides every draw that nothing below overrides.
        record: Keep every draw, for `recorded`.
        given: Streams that are replayed from a list; past its end they give 0.
        zeroed: Kinds, or prefixes ending in ".", that always give 0.
    """

    def __init__(
        self,
        seed: int,
        *,
        record: bool = False,
        given: Mapping[str, Sequence[int]] | None = None,
        zeroed: Sequence[str] = (),
    ) -> None:
        self.seed = seed
        self._record = record
        self._given = dict(given or {})
        self._zeroed = tuple(sorted(zeroed))
        self._streams: dict[str, Draw] = {}
        self._recorded: dict[str, array[int]] = {}

    def choose(self, kind: str, n: int) -> int:
        """One draw.

        Args:
            kind: Names the stream, such as "radio.loss".
            n: Number of possible answers; 1 <= n <= 2**53.

        Returns:
            An integer in [0, n).
        """
        return self.stream(kind)(n)

    def stream(self, kind: str) -> Draw:
        """The draws of one kind as a function, for hot loops.

        Args:
            kind: Names the stream.

        Returns:
            A function from n to an integer in [0, n).
        """
        draw = self._streams.get(kind)
        if draw is None:
            draw = self._streams[kind] = self._new_stream(kind)
        return draw

    def chance(self, kind: str, ppm: int) -> bool:
        """True with a probability in parts per million; a draw of 0 gives False.

        Args:
            kind: Names the stream.
            ppm: 0..1,000,000.

        Returns:
            Whether it happens.
        """
        return self.stream(kind)(MILLION) >= MILLION - ppm

    def rng(self, kind: str) -> random.Random:
        """A generator for code of ours that takes a `random.Random`, such as a node.

        Args:
            kind: Names the stream from which the generator's seed is drawn.

        Returns:
            A new generator.
        """
        return random.Random(self.choose(kind, _MAX_SPAN))

    def sample(self, kind: str, population: Sequence[int], count: int) -> list[int]:
        """Distinct members of a population, in the order drawn.

        Args:
            kind: Names the stream.
            population: What to draw from.
            count: How many; at most the population.

        Returns:
            The members drawn.
        """
        left = list(population)
        draw = self.stream(kind)
        return [left.pop(draw(len(left))) for _ in range(min(count, len(left)))]

    def recorded(self) -> dict[str, list[int]]:
        """Every draw so far by kind; empty unless `record` was set."""
        return {kind: list(draws) for kind, draws in sorted(self._recorded.items())}

    def _is_zeroed(self, kind: str) -> bool:
        return any(kind == zero or (zero.endswith(".") and kind.startswith(zero)) for zero in self._zeroed)

    def _new_stream(self, kind: str) -> Draw:
        if self._is_zeroed(kind):
            draw: Draw = _zero
        elif kind in self._given:
            draw = _replayed(self._given[kind])
        else:
            draw = _seeded(random.Random(derived_seed(self.seed, kind)))
        if self._record:
            draw = _recording(draw, self._recorded.setdefault(kind, array("Q")))
        return draw


def _zero(n: int) -> int:
    return 0


def _seeded(source: random.Random) -> Draw:
    uniform = source.random

    def draw(n: int) -> int:
        return int(uniform() * n)

    return draw


def _replayed(values: Sequence[int]) -> Draw:
    remaining = iter(values)

    def draw(n: int) -> int:
        # A shrunk list may hold answers of another question; taken modulo n, every list is a valid run.
        return next(remaining, 0) % n

    return draw


def _recording(inner: Draw, log: "array[int]") -> Draw:
    def draw(n: int) -> int:
        value = inner(n)
        log.append(value)
        return value

    return draw
