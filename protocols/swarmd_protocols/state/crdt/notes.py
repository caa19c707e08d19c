"""Operator notes: an add-wins map. A removal takes away exactly the puts it has seen, so a concurrent put survives.

The state is a set of puts and a set of removed dots, both read out of batches; the visible value of a key is the put
that is not removed with the highest (stamp, dot). Removals name exact dots, never "everything up to", so a delta that
arrives out of order cannot act as a deletion. Nobody has seen what is said later: a removal takes away only puts of
an earlier stamp than its batch's, so that no member removes the notes that another has yet to write. Who wrote a note
removes it in any case.

A dot names one put. An author that says two under one dot (in two batches, each well signed) is a liar, and of what it
said the greatest (stamp, key, value) counts: a function of the batches held, whatever came last.

What one key costs to look at is what was said under it, however much anybody says under others.
"""

from collections.abc import Iterator
from typing import NamedTuple

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.note_rows import NoteDot


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
        self._removed: dict[NoteDot, dict[int, int]] = {}
        """Dot to the stamps of the batches that say that it is removed, and how many say so with each."""
        self._under: dict[str, dict[NoteDot, int]] = {}
        """Key to the dots under which it is said, and how many different puts of each dot do."""

    def put(self, dot: NoteDot, key: str, value: bytes, stamp: int) -> None:
        """A batch says this put."""
        said = self._said.setdefault(dot, {})
        put = _Put(stamp, key, value)
        said[put] = said.get(put, 0) + 1
        if said[put] == 1:
            under = self._under.setdefault(key, {})
            under[dot] = under.get(dot, 0) + 1

    def unput(self, dot: NoteDot, key: str, value: bytes, stamp: int) -> None:
        """A batch that said this put no longer matters."""
        said = self._said.get(dot, {})
        put = _Put(stamp, key, value)
        left = said.pop(put, 0) - 1
        if left > 0:
            said[put] = left
        elif left == 0:
            self._take_from_key(key, dot)
        if not said:
            self._said.pop(dot, None)

    def _take_from_key(self, key: str, dot: NoteDot) -> None:
        under = self._under.get(key, {})
        under[dot] = under.get(dot, 0) - 1
        if under[dot] <= 0:
            del under[dot]
        if not under:
            self._under.pop(key, None)

    def remove(self, dot: NoteDot, stamp: int) -> None:
        """A batch of this stamp says that this put is removed."""
        stamps = self._removed.setdefault(dot, {})
        stamps[stamp] = stamps.get(stamp, 0) + 1

    def unremove(self, dot: NoteDot, stamp: int) -> None:
        """A batch that said so no longer matters."""
        stamps = self._removed.get(dot, {})
        left = stamps.pop(stamp, 0) - 1
        if left > 0:
            stamps[stamp] = left
        if not stamps:
            self._removed.pop(dot, None)

    def _is_removed(self, dot: NoteDot, put: _Put) -> bool:
        return max(self._removed.get(dot, ()), default=-1) > put.stamp

    def dots_of(self, key: str) -> tuple[NoteDot, ...]:
        """The visible puts of a key: what a new put or removal replaces."""
        return tuple(sorted(dot for dot, _ in self._visible_under(key)))

    def newest(self, key: str) -> tuple[bytes, NodeId] | None:
        """The value of one key, as `values` has it, and whose put it is."""
        best = max(((put.stamp, dot, put.value) for dot, put in self._visible_under(key)), default=None)
        return None if best is None or not best[2] else (best[2], NodeId(best[1][0]))

    def values(self) -> dict[str, bytes]:
        """Key to value, by key."""
        best: dict[str, tuple[int, NoteDot, bytes]] = {}
        for dot, put in self._visible():
            order = (put.stamp, dot, put.value)
            if put.key not in best or order > best[put.key]:
                best[put.key] = order
        return {key: best[key][2] for key in sorted(best) if best[key][2]}

    def _visible(self) -> Iterator[tuple[NoteDot, _Put]]:
        shown = ((dot, max(said)) for dot, said in self._said.items())
        return ((dot, put) for dot, put in shown if not self._is_removed(dot, put))

    def _visible_under(self, key: str) -> Iterator[tuple[NoteDot, _Put]]:
        shown = ((dot, max(self._said.get(dot, ()), default=None)) for dot in self._under.get(key, ()))
        return ((dot, put) for dot, put in shown if put and put.key == key and not self._is_removed(dot, put))
