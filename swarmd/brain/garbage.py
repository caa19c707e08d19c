"""Python's garbage collections in slices, so that the loop stops for what is new and not for all that a daemon holds.

CPython looks for dead cycles among all objects that could be in one: a quarter of a microsecond each, 40 ms where
48,000 sightings are held, in one go, whenever a quarter more have come. Here:

- The two young generations are collected as ever. The oldest is not collected by itself.
- After `RUNS` collections of the middle one, what has outlived them is looked at once more, between two events, and
  then frozen (`gc.freeze`): no later slice looks at it, but to count it, in a turn of its own (9 ns each: 4 ms where
  436,000 are frozen, three times that on a busy machine). What nothing refers to is freed as ever, frozen or not; only
  a cycle that dies later is not found.
- A daemon that does little makes few objects, and a slice would be hours away: what has outlived the young generations
  and died in a cycle would lie there until then, megabytes of it. So `look_at_new` makes a slice every ten minutes too.
- So that those do not pile up, all is looked at once there are `GROWTH_MAX` more frozen than there were, beside what
  the sightings held since explain (`EACH`): what is dead by then is freed. That look takes as long as there is much to
  look at, 72 ms where 48,000 sightings are held, so what lives must not bring it about: neither one author, who may
  have others hold 51,000 objects (`tests/bench/hostile_garbage.py`), nor a swarm that sees much.

Source:
    `Modules/gcmodule.c` of CPython 3.11 (`gc_collect_main`, `gc_freeze_impl`: lists are spliced, nothing is walked).
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping

RUNS = 4
"""Collections of the middle generation in a slice: 31,000 new objects at most, 4 ms."""
GROWTH_MAX = 100_000
"""Frozen objects more than there were after the last look at all of them, or have been since: twice what one author
may have others hold."""
EACH = 6
"""Objects that a sighting is, at most: its entry, the two waits it stands in, the list of what it leads, its part of a
batch, and of an own one the register and what was said last (2.4 on average as a journal is read, 3 to 4 as they come:
`tests/unit/test_garbage.py`)."""
_NEVER = 1 << 30

_sliced: "Slices | None" = None


class Slices:
    """The collections of this process, which has one loop that must not wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Change nothing yet.

        Args:
            loop: Slices run in it; None: whoever looks at `is_due` calls `run`.
        """
        self._loop = loop
        self._runs = 0
        self._kept = 0
        """Frozen after all of them were looked at, or fewer that there have been since."""
        self.held: Callable[[], int] = int
        """How many sightings are held."""
        self._kept_held = 0
        """How many when as many were frozen as `_kept` says."""
        self._before = gc.get_threshold()
        self.is_due = False
        self._counts = False
        """What is due is to count."""

    def begin(self) -> None:
        """From here on; what there is by now is looked at, and frozen."""
        gc.set_threshold(*self._before[:2], _NEVER)
        gc.callbacks.append(self._on_collection)
        self.run_all()

    def end(self) -> None:
        """As Python does it."""
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def run(self) -> None:
        """One slice: what is new; or, in a turn of its own, how much there is."""
        if self._counts:
            self._counts = self.is_due = False
            self._count()
            return
        self._runs = 0
        gc.collect()
        gc.freeze()
        self._counts = True
        self._due()

    def _count(self) -> None:
        count, held = gc.get_freeze_count(), self.held()
        if count < self._kept:
            self._kept, self._kept_held = count, held
        if count > self._kept + GROWTH_MAX + EACH * max(0, held - self._kept_held):
            self.run_all()

    def _due(self) -> None:
        self.is_due = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.run)

    def run_all(self) -> None:
        """Look at everything."""
        self._runs = 0
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._kept, self._kept_held = gc.get_freeze_count(), self.held()

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Called by the collector, in whichever thread has brought it about."""
        if phase != "stop" or info["generation"] != 1:
            return
        self._runs += 1
        if self._runs >= RUNS and not self.is_due:
            self._due()


@contextlib.contextmanager
def sliced(loop: asyncio.AbstractEventLoop) -> Iterator[Slices]:
    """Collect in slices while this lasts."""
    global _sliced
    _sliced = slices = Slices(loop)
    slices.begin()
    try:
        yield slices
    finally:
        _sliced = None
        slices.end()


def look_at_all(held: Callable[[], int] | None = None) -> None:
    """Where collections are sliced: whatever there is by now is no part of a slice. For the end of a start.

    Args:
        held: Answers how many sightings are held, from now on.
    """
    if _sliced is not None:
        _sliced.held = held or _sliced.held
        _sliced.run_all()


def look_at_new() -> None:
    """Where collections are sliced: a slice, however little has come since the last; for now and then."""
    if _sliced is not None and not _sliced.is_due:
        _sliced.run()
