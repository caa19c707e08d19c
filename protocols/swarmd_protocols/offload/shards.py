"""A model in parts: which run here and which elsewhere, and what becomes of a part whose device dies.

```
 position 0 ──part──▶ 1 ──part──▶ … ──▶ n          a part leads from one position to a later one; some skip a position
    the input           a cut             the outputs

 Walk: at each position the quickest way to the end, its first part ──done──▶ the next position
                                                               └─failed──▶ another way from the same position
```

- A way is a list of parts, each run here or lent. Its time is what the parts take, and for each lent part the way there
  and back of what lies at its two ends, all by measure. There are at most 18 ways through a chain of three, so all are
  looked at.
- What was never measured counts as quick, so it is tried once. A way there whose measure is old is tried again, else a
  link that has become good would never be found out; each walk pays four hundredths of its time into a budget for it,
  so a way that looks ten times as slow is tried once in 225 walks.
- Where this device has parts of its own up to the end, a lent part is given up while they can still answer: borrowing
  is not worse than thinking alone. The last fallback is they, or no answer.
- A lent part that brought nothing is left alone for a second, twice as long each time in a row; the walk goes on from
  the position that it holds, so nothing before it is computed again.

It sees positions, sizes and times, never a tensor; which lender runs a lent part is `dispatcher.py`'s to decide.

Source:
    Kang et al. (2017), "Neurosurgeon", for the choice of a cut by measured link and compute; Dean and Barroso (2013).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PARTS_MAX = 8
"""Of one model: a chain of three has six ranges, the whole among them."""
CHAIN_MAX = 3
"""Parts one after the other: each way there and back costs more than a third cut saves."""
TRIES_MAX = 6
"""Lent parts that one walk may see fail: three in a row that are each hedged once."""
_PROBE_SHARE = 0.04
"""Of the time of walks that may be lost by trying a lent way whose measures are old."""
_PROBE_WALKS = 16
"""Walks whose whole time may be saved up for it."""
_STALE_NS = 10_000_000_000
"""Age from which a measure of the way there says little: as a lender's time (`placement.py`)."""
_BAR_NS = 1_000_000_000
"""A lent part that failed is left alone for so long, ..."""
_BAR_MAX_NS = 30_000_000_000
"""... and at most for so long, however often it has failed in a row."""
_NEWEST = 0.3
"""Weight of the newest time in a part's average: some three requests after a change most of it is in."""
_FORGET = 0.98
"""Weight of the older samples of a line for each newer one: the last fifty count, so that sizes which are seldom asked
for are not forgotten at once."""
_ODD, _ODD_MAX = 2.0, 3
"""So many times as long as expected, or as short, is odd; after so many odd ones in a row the old samples are dropped:
the link is another."""
_MARGIN = 1.5
"""Times the expected time of the own parts that they are given before the deadline (`dispatcher.py` gives as much)."""
_RIDGE_BYTES2 = 4096.0**2
"""What is assumed of a byte's time weighs as one sample whose size differs by a page."""
_BASE_NS, _NS_PER_BYTE = 1_000_000.0, 8.0
"""Of a way that was never measured: a good cable, 1 Gbit/s, so that it is tried."""


@dataclass(frozen=True, slots=True)
class Part:
    """One bundle that computes a range of the model."""

    digest: bytes
    begin: int
    """Position whose tensor it takes."""
    end: int
    """Position whose tensors it gives."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A model in parts.

    Attributes:
        sizes: Bytes at each position as they travel; the first is the input's, the last the outputs'.
        parts: At most `PARTS_MAX`.
    """

    sizes: tuple[int, ...]
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` for parts that lead nowhere."""
        last = self.end
        if not 1 <= last <= CHAIN_MAX or min(self.sizes) < 0:
            raise ValueError(f"{last} parts in a row; a chain has 1 to {CHAIN_MAX}")
        digests = {part.digest for part in self.parts}
        if not 1 <= len(self.parts) <= PARTS_MAX or len(digests) != len(self.parts):
            raise ValueError(f"{len(self.parts)} parts; 1 to {PARTS_MAX} are wanted, each another bundle")
        if any(not 0 <= part.begin < part.end <= last for part in self.parts):
            raise ValueError(f"a part leads from one position to a later one, of 0 to {last}")
        if next(ways(self, 0), None) is None:
            raise ValueError("no way leads from the input to the outputs")

    @property
    def end(self) -> int:
        """The last position."""
        return len(self.sizes) - 1


def ways(parts: Parts, position: int) -> Iterator[tuple[Part, ...]]:
    """Every way from a position to the end."""
    if position == parts.end:
        yield ()
        return
    for part in parts.parts:
        if part.begin == position:
            for rest in ways(parts, part.end):
                yield (part, *rest)


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be run now.

    Attributes:
        part: Which.
        is_own: On this device; else at a lender, by the part's digest.
        until_ns: What has not come by then has failed; monotonic.
        has_own_rest: The fallback: this device has parts up to the end from here; else it is "no answer".
        expected_ns: By the measures.
        goes_on: The chosen way lends the next part too, so what comes out may go there by itself.
    """

    part: Part
    is_own: bool
    until_ns: int
    has_own_rest: bool
    expected_ns: int
    goes_on: bool = False


class Line:
    """What a way there and back takes, over the bytes that travel: a base and a time for each byte."""

    def __init__(self) -> None:
        """Nothing measured."""
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._odd = 0

    def note(self, size_bytes: int, took_ns: int, *, is_old: bool = False) -> None:
        """One way there and back; `is_old`: the samples before it are, so that one odd one is enough."""
        expected_ns = self.ns(size_bytes)
        is_odd = not expected_ns / _ODD <= took_ns <= expected_ns * _ODD
        self._odd = (_ODD_MAX if is_old else self._odd + 1) if is_odd else 0
        if self._odd >= _ODD_MAX:
            self._weight = self._x = self._y = self._xx = self._xy = 0.0
            self._odd = 0
        x, y = float(size_bytes), float(took_ns)
        self._weight = self._weight * _FORGET + 1.0
        self._x, self._y = self._x * _FORGET + x, self._y * _FORGET + y
        self._xx, self._xy = self._xx * _FORGET + x * x, self._xy * _FORGET + x * y

    def ns(self, size_bytes: int) -> float:
        """What so many bytes are expected to take."""
        if not self._weight:
            return _BASE_NS + _NS_PER_BYTE * size_bytes
        x, y = self._x / self._weight, self._y / self._weight
        spread, common = self._xx / self._weight - x * x, self._xy / self._weight - x * y
        # Of one size alone nobody can tell base from bytes. What looks quicker then is tried, and tells: more bytes are
        # taken to cost little more, fewer to cost less in proportion.
        prior = _NS_PER_BYTE if size_bytes > x else y / x if x else 0.0
        ridge = _RIDGE_BYTES2 / self._weight
        slope = max(0.0, (common + prior * ridge) / (spread + ridge))
        return max(0.0, y + slope * (size_bytes - x))


@dataclass(slots=True)
class _Bar:
    until_ns: int
    length_ns: int


class Shards:
    """What one device knows about running a model in parts."""

    def __init__(self, parts: Parts) -> None:
        """Nothing is measured of this model."""
        self.parts = parts
        self._sizes = [float(size) for size in parts.sizes]
        self._line = Line()
        self._lent_ns: dict[bytes, float] = {}
        self._line_ns = -_STALE_NS
        """When the way there was last measured."""
        self._bars: dict[bytes, _Bar] = {}
        self._saved_ns = 0.0
        """For trying what is old."""
        self._handing = _Bar(-_STALE_NS, 0)
        """Until when no tensor goes on by itself, since one did not arrive."""
        self.counts: Counter[str] = Counter()
        """probes: walks that have tried it."""

    def may_try(self, best_ns: float, lent_ns: float, now_ns: int) -> bool:
        """Whether a walk is to take the best lent way although it looks slower; asked once for each walk.

        Args:
            best_ns: What the best way is expected to take.
            lent_ns: What the best way with a lent part is.
            now_ns: Monotonic.
        """
        if now_ns - self._line_ns < _STALE_NS:
            return False
        self._saved_ns = min(self._saved_ns + _PROBE_SHARE * best_ns, _PROBE_WALKS * best_ns)
        if lent_ns - best_ns > self._saved_ns:
            return False
        self._saved_ns -= lent_ns - best_ns
        self.counts["probes"] += 1
        return True

    def cost_ns(self, part: Part, own_ns: int | None) -> float:
        """What a part is expected to take.

        Args:
            part: Which.
            own_ns: What it takes here, its wait included; None: it is to be lent.
        """
        if own_ns is not None:
            return float(own_ns)
        size_bytes = round(self._sizes[part.begin] + self._sizes[part.end])
        return self._line.ns(size_bytes) + self._lent_ns.get(part.digest, 0.0)

    def is_barred(self, part: Part, now_ns: int) -> bool:
        """Whether it has just failed where it was lent."""
        bar = self._bars.get(part.digest)
        return bar is not None and now_ns < bar.until_ns

    def note_size(self, position: int, size_bytes: int) -> None:
        """What lay at a position, as it travelled."""
        self._sizes[position] += _NEWEST * (size_bytes - self._sizes[position])

    def note_lent(self, part: Part, size_bytes: int, took_ns: int, ran_ns: int, now_ns: int) -> None:
        """A lent part has answered.

        Args:
            part: Which.
            size_bytes: Of what went and of what came.
            took_ns: From here and back.
            ran_ns: Of it at the lender, by its word; more than it took is not believed.
            now_ns: Monotonic.
        """
        ran_ns = min(max(0, ran_ns), took_ns)
        known = self._lent_ns.get(part.digest)
        self._lent_ns[part.digest] = ran_ns if known is None else known + _NEWEST * (ran_ns - known)
        self._line.note(size_bytes, took_ns - ran_ns, is_old=now_ns - self._line_ns >= _STALE_NS)
        self._line_ns = now_ns
        self._bars.pop(part.digest, None)

    def note_failed(self, part: Part, now_ns: int) -> None:
        """A lent part has brought nothing, or nothing of proper form."""
        self._bars[part.digest] = _longer(self._bars.get(part.digest), now_ns)

    def may_hand_on(self, now_ns: int) -> bool:
        """Whether a lender may keep what it computed for the next one to fetch."""
        return now_ns >= self._handing.until_ns

    def note_handed(self, part: Part, ran_ns: int) -> None:
        """A lent part has answered whose tensor came to it from another lender, which says nothing of the way here.

        Args:
            part: Which.
            ran_ns: At the lender, by its word.
        """
        known = self._lent_ns.get(part.digest)
        self._lent_ns[part.digest] = ran_ns if known is None else known + _NEWEST * (ran_ns - known)
        self._bars.pop(part.digest, None)
        self._handing = _Bar(-_STALE_NS, 0)

    def note_unhanded(self, now_ns: int) -> None:
        """A tensor did not arrive by itself: for a while, twice as long each time in a row, all come here first."""
        self._handing = _longer(self._handing, now_ns)


def _longer(bar: _Bar | None, now_ns: int) -> _Bar:
    length_ns = _BAR_NS if bar is None or not bar.length_ns else min(_BAR_MAX_NS, 2 * bar.length_ns)
    return _Bar(now_ns + length_ns, length_ns)


@dataclass(slots=True)
class Walk:
    """One request on its way through the parts."""

    shards: Shards
    deadline_ns: int
    is_probe: bool | None = None
    """Whether it tries a lent way whose measures are old; None: not decided."""
    position: int = 0
    """What is held: the input, what lies at a cut, or at the last position the answer."""
    failures: int = 0
    """Of lent parts."""
    broken: list[bytes] = field(default_factory=list)
    """Own parts that have failed in this walk."""
    done: list[Step] = field(default_factory=list)

    @property
    def is_through(self) -> bool:
        """Whether the outputs are there."""
        return self.position == self.shards.parts.end

    def next_step(self, own: Mapping[bytes, int], now_ns: int) -> Step | None:
        """What to run now; None: the outputs are there, or nothing could bring them in time.

        Args:
            own: What each part that is here takes on this device, its wait included, nanoseconds.
            now_ns: Monotonic.
        """
        if self.is_through or now_ns >= self.deadline_ns:
            return None
        own = {digest: ns for digest, ns in own.items() if digest not in self.broken}
        own_rest_ns = self._own_rest_ns(own)
        left_ns = self.deadline_ns - now_ns
        may_lend = self.failures < TRIES_MAX
        if own_rest_ns is not None and _MARGIN * own_rest_ns >= left_ns:
            may_lend = False  # The last moment of the own parts.
        found = self._choose(own, now_ns, may_lend=may_lend)
        if found is None:
            return None
        (part, is_own), cost_ns, rest_ns = found.first, found.first_ns, found.cost_ns - found.first_ns
        if is_own:
            return Step(part, True, self.deadline_ns, own_rest_ns is not None, round(cost_ns))
        until_ns = self.deadline_ns - round(rest_ns)
        if own_rest_ns is not None:
            until_ns = self.deadline_ns - round(_MARGIN * own_rest_ns)
        if until_ns <= now_ns:
            until_ns = self.deadline_ns
        return Step(part, False, until_ns, own_rest_ns is not None, round(cost_ns), found.goes_on)

    def on_done(self, step: Step) -> None:
        """Its part has run."""
        assert step.part.begin == self.position
        self.position = step.part.end
        self.done.append(step)

    def on_failed(self, step: Step, now_ns: int) -> None:
        """Its part has brought nothing."""
        if step.is_own:
            self.broken.append(step.part.digest)
        else:
            self.failures += 1
            self.shards.note_failed(step.part, now_ns)

    def on_lost(self, position: int) -> None:
        """What lay beyond a position is gone: it is computed again from there."""
        while self.position > position:
            self.position = self.done.pop().part.begin

    def _own_rest_ns(self, own: Mapping[bytes, int]) -> int | None:
        """What the own parts up to the end take; None: there is no such way."""
        times = [
            sum(own[part.digest] for part in way)
            for way in ways(self.shards.parts, self.position)
            if all(part.digest in own for part in way)
        ]
        return min(times, default=None)

    def _choose(self, own: Mapping[bytes, int], now_ns: int, *, may_lend: bool) -> "_Way | None":
        """The quickest way, placed."""
        shards, found = self.shards, list[_Way]()
        for way in ways(shards.parts, self.position):
            for placed in _placed(way, own, may_lend=may_lend):
                costs = [shards.cost_ns(part, own[part.digest] if is_own else None) for part, is_own in placed]
                lent = [part for part, is_own in placed if not is_own]
                is_barred = any(shards.is_barred(part, now_ns) for part in lent)
                goes_on = len(placed) > 1 and not placed[1][1]
                found.append(_Way(is_barred, sum(costs), placed[0], costs[0], bool(lent), goes_on))
        if not found:
            return None
        # What is barred comes after all that is not, however quick it looks.
        best = min(found, key=lambda one: (one.is_barred, one.cost_ns))
        lends = [one for one in found if one.is_lent and not one.is_barred]
        if not best.is_lent and lends:
            lent_way = min(lends, key=lambda one: one.cost_ns)
            if self.is_probe is None:
                self.is_probe = shards.may_try(best.cost_ns, lent_way.cost_ns, now_ns)
            if self.is_probe and not self.failures and all(step.is_own for step in self.done):
                best = lent_way
        return best


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to the end, placed."""

    is_barred: bool
    cost_ns: float
    first: tuple[Part, bool]
    first_ns: float
    is_lent: bool
    """At least one part of it."""
    goes_on: bool
    """Its second part is lent."""


def _placed(
    way: tuple[Part, ...], own: Mapping[bytes, int], *, may_lend: bool
) -> Iterator[tuple[tuple[Part, bool], ...]]:
    """A way with each of its parts run here or lent."""
    if not way:
        yield ()
        return
    places = ([True] if way[0].digest in own else []) + ([False] if may_lend else [])
    for rest in _placed(way[1:], own, may_lend=may_lend):
        for is_own in places:
            yield ((way[0], is_own), *rest)
