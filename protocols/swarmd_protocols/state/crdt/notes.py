"""Operator notes: an add-wins map. A removal takes away exactly the puts it has seen, so a concurrent put survives.

The state is a set of puts and a set of removed dots, both read out of batches; the visible value of a key is the put
that is not removed with the highest (stamp, dot). Removals name exact dots, never "everything up to", so a delta that
arrives out of order cannot act as a deletion. Nobody has seen what is said later: a removal takes away only puts of
an earlier stamp than its batch's, so that no member removes the notes that another has yet to write. Who wrote a note
removes it in any case.

A dot names one put. An author that says two under one dot (in two batches, each well signed) is a liar, and of what it
said the greatest (stamp, key, value) counts: a function of the batches held, whatever came last.

What one key costs to look at is what was said under it, however much anybody says under others.

Of one origin's puts under one key the latest dot alone counts, seen by others or not: nobody writes a note beside their
own. An earlier one may lie in a later batch (it was said again), so the latest goes only once no earlier one is held.

What is replaced is let go of by whoever said it, and nothing that was replaced may show again by that. A put that is
not visible is *spent* once each put of others that it names is gone, has a later one of its origin beside it, or is
removed by a removal or by a later put (by stamp and dot: the last to name it relies on nobody, and stays). So that it
is named by later ones, each put and removal names what those name that it replaces, as far as it is still there
(`replaced_by`). A removal is spent once what it names is gone. Gone is what is not held though all that its origin says
is: what is lacking for a while (an origin without a certificate, batches set aside) comes back, and must stay hidden.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.note_rows import NOTE_DOTS_MAX, NoteDot


class _Put(NamedTuple):
    """What a batch says under a dot; the order decides between two."""

    stamp: int
    key: str
    value: bytes


class NoteMap:
    """All puts and removals that the held batches speak of, counted, so that dropping a batch undoes it exactly."""

    def __init__(self) -> None:
        """Empty."""
        self.whole: Collection[bytes] = frozenset()
        """Origins all of whose word is here or shut out for good: what is not held of them is gone for good."""
        self._said: dict[NoteDot, dict[_Put, int]] = {}
        """Dot to what is said under it, and by how many batches; one put, but for liars."""
        self._removed: dict[NoteDot, dict[tuple[int, NoteDot | None], int]] = {}
        """Dot to what says that it is removed: the stamp of its batch and the put that does (None: a removal), and how
        many batches say it."""
        self._names: dict[NoteDot, tuple[NoteDot, ...]] = {}
        """Put to those that it removes, where there are any; of a liar's two the one that came last."""
        self._under: dict[str, dict[bytes, list[NoteDot]]] = {}
        """Key to origin to the dots under which it is said, sorted, each as often as different puts of it do: which is
        the latest must not cost more where one says thousands."""

    def put(self, dot: NoteDot, key: str, value: bytes, stamp: int, removes: tuple[NoteDot, ...] = ()) -> None:
        """A batch says this put, which removes others; `remove` is called for each of them."""
        if removes:
            self._names[dot] = removes
        said = self._said.setdefault(dot, {})
        put = _Put(stamp, key, value)
        said[put] = said.get(put, 0) + 1
        if said[put] == 1:
            insort(self._under.setdefault(key, {}).setdefault(dot[0], []), dot)

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
            self._names.pop(dot, None)

    def _take_from_key(self, key: str, dot: NoteDot) -> None:
        under = self._under[key]
        dots = under[dot[0]]
        del dots[bisect_left(dots, dot)]
        if not dots:
            del under[dot[0]]
        if not under:
            del self._under[key]

    def remove(self, dot: NoteDot, stamp: int, by: NoteDot | None = None) -> None:
        """A batch of this stamp says that this put is removed, by another put or (None) by a removal."""
        saying = self._removed.setdefault(dot, {})
        saying[stamp, by] = saying.get((stamp, by), 0) + 1

    def unremove(self, dot: NoteDot, stamp: int, by: NoteDot | None = None) -> None:
        """A batch that said so no longer matters."""
        saying = self._removed.get(dot, {})
        left = saying.pop((stamp, by), 0) - 1
        if left > 0:
            saying[stamp, by] = left
        if not saying:
            self._removed.pop(dot, None)

    def _is_removed(self, dot: NoteDot, put: _Put) -> bool:
        return any(stamp > put.stamp for stamp, _ in self._removed.get(dot, ()))

    def _order(self, dot: NoteDot) -> tuple[int, NoteDot] | None:
        """Which of two puts is later; None: it is gone."""
        said = self._said.get(dot)
        return None if said is None else (max(said).stamp, dot)

    def _beside(self, dot: NoteDot) -> list[NoteDot]:
        """What its origin has put under its key, in order; for a put that is held."""
        return self._under[max(self._said[dot]).key][dot[0]]

    def _is_outdone(self, dot: NoteDot) -> bool:
        """Whether its origin has put something later under its key."""
        return self._beside(dot)[-1] > dot

    def _hides_earlier(self, dot: NoteDot) -> bool:
        """Whether an earlier put of its origin under its key is held."""
        return self._beside(dot)[0] < dot

    def _stays_hidden(self, dot: NoteDot, without: tuple[int, NoteDot] | None) -> bool:
        """Whether a put is gone, or will not show when something that names it goes: a put, or (None) a removal."""
        order = self._order(dot)
        if order is None:
            return dot[0] in self.whole
        if self._is_outdone(dot):
            return True
        return without is not None and any(
            stamp > order[0] and (by is None or (self._order(by) or (-1, by)) > without)
            for stamp, by in self._removed.get(dot, ())
        )

    def is_spent_put(self, dot: NoteDot) -> bool:
        """Whether nothing changes for anybody when this put is let go of."""
        order = self._order(dot)
        if order is None:
            return False  # Set aside: it shows when its time has come.
        if not self._is_outdone(dot) and (self._hides_earlier(dot) or not self._is_removed(dot, max(self._said[dot]))):
            return False
        return all(named[0] == dot[0] or self._stays_hidden(named, order) for named in self._names.get(dot, ()))

    def is_spent_removal(self, removes: Iterable[NoteDot]) -> bool:
        """Whether nothing changes for anybody when a removal of these is let go of."""
        return all(self._stays_hidden(named, None) for named in removes)

    def replaced_by(self, key: str) -> tuple[NoteDot, ...]:
        """What a new put or removal of a key names: the visible puts, then the latest of each other origin that these
        name and that is still there; at most `NOTE_DOTS_MAX`."""
        visible = self.dots_of(key)
        named: dict[bytes, NoteDot] = {}
        for dot in visible:
            for one in self._names.get(dot, ()):
                if one in self._said:
                    named[one[0]] = max(one, named.get(one[0], one))
        for dot in visible:
            named.pop(dot[0], None)
        return (*visible, *sorted(named.values()))[:NOTE_DOTS_MAX]

    def dots_of(self, key: str) -> tuple[NoteDot, ...]:
        """The visible puts of a key."""
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
        for key in self._under:
            yield from self._visible_under(key)

    def _visible_under(self, key: str) -> Iterator[tuple[NoteDot, _Put]]:
        latest = (dots[-1] for dots in self._under.get(key, {}).values())
        shown = ((dot, max(self._said.get(dot, ()), default=None)) for dot in latest)
        return ((dot, put) for dot, put in shown if put and put.key == key and not self._is_removed(dot, put))
