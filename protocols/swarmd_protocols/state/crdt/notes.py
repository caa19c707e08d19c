"""Operator notes: an add-wins map. A removal takes away exactly the puts it has seen, so a concurrent put survives.

The state is a set of puts and a set of removed dots, both read out of batches; the visible value of a key is the put
that is not removed with the highest (stamp, dot). Removals name exact dots, never "everything up to", so a delta that
arrives out of order cannot act as a deletion.

A dot names one put. An author that says two under one dot (in two batches, each well signed) is a liar, and of what it
said the greatest (stamp, key, value) counts: a function of the batches held, whatever came last.
"""

from collections.abc import Iterator
from typing import NamedTuple

from swarmd_protocols.state.crdt.facts import NoteDot


class _Put(NamedTuple):
    """What a batch says under a dot; the order decides between two."""

    stamp: int
    key: str
    value: bytes


class NoteMap:
    """All puts and removals that the held batches speak of, counted, so that dropping a batch undoes it exactly."""

    def __init__(self) -> None:
        """Empty."""
        self._said: dict[NoteDot, dict[_Put, int]] = {}
        """Dot to what is said under it, and by how many batches; one put, but for liars."""
        self._removed: dict[NoteDot, int] = {}

    def put(self, dot: NoteDot, key: str, value: bytes, stamp: int) -> None:
        """A batch says this put."""
        said = self._said.setdefault(dot, {})
        put = _Put(stamp, key, value)
        said[put] = said.get(put, 0) + 1

    def unput(self, dot: NoteDot, key: str, value: bytes, stamp: int) -> None:
        """A batch that said this put no longer matters."""
        said = self._said.get(dot, {})
        put = _Put(stamp, key, value)
        left = said.pop(put, 0) - 1
        if left > 0:
            said[put] = left
        if not said:
            self._said.pop(dot, None)

    def remove(self, dot: NoteDot) -> None:
        """A batch says that this put is removed."""
        self._removed[dot] = self._removed.get(dot, 0) + 1

    def unremove(self, dot: NoteDot) -> None:
        """A batch that said so no longer matters."""
        left = self._removed.get(dot, 0) - 1
        if left > 0:
            self._removed[dot] = left
        else:
            self._removed.pop(dot, None)

    def dots_of(self, key: str) -> tuple[NoteDot, ...]:
        """The visible puts of a key: what a new put or removal replaces."""
        return tuple(sorted(dot for dot, put in self._visible() if put.key == key))

    def values(self) -> dict[str, bytes]:
        """Key to value, by key."""
        best: dict[str, tuple[int, NoteDot, bytes]] = {}
        for dot, put in self._visible():
            order = (put.stamp, dot, put.value)
            if put.key not in best or order > best[put.key]:
                best[put.key] = order
        return {key: best[key][2] for key in sorted(best) if best[key][2]}

    def _visible(self) -> Iterator[tuple[NoteDot, _Put]]:
        return ((dot, max(said)) for dot, said in self._said.items() if dot not in self._removed)
