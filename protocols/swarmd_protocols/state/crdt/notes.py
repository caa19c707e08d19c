"""Operator notes: an add-wins map. A removal takes away exactly the puts it has seen, so a concurrent put survives.

The state is a set of puts and a set of removed dots, both read out of batches; the visible value of a key is the put
that is not removed with the highest (stamp, dot). Removals name exact dots, never "everything up to", so a delta that
arrives out of order cannot act as a deletion.
"""

from dataclasses import dataclass

from swarmd_protocols.state.crdt.facts import NoteDot


@dataclass(frozen=True, slots=True)
class _Put:
    key: str
    value: bytes
    stamp: int


class NoteMap:
    """All puts and removals that the held batches speak of, counted, so that dropping a batch undoes it exactly."""

    def __init__(self) -> None:
        """Empty."""
        self._puts: dict[NoteDot, _Put] = {}
        self._said: dict[NoteDot, int] = {}
        self._removed: dict[NoteDot, int] = {}

    def put(self, dot: NoteDot, key: str, value: bytes, stamp: int) -> None:
        """A batch says this put."""
        self._puts[dot] = _Put(key, value, stamp)
        self._said[dot] = self._said.get(dot, 0) + 1

    def unput(self, dot: NoteDot) -> None:
        """A batch that said this put no longer matters."""
        left = self._said.get(dot, 0) - 1
        if left > 0:
            self._said[dot] = left
        else:
            self._said.pop(dot, None)
            self._puts.pop(dot, None)

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
        return tuple(sorted(dot for dot, put in self._puts.items() if put.key == key and dot not in self._removed))

    def values(self) -> dict[str, bytes]:
        """Key to value, by key."""
        best: dict[str, tuple[int, NoteDot, bytes]] = {}
        for dot, put in self._puts.items():
            if dot in self._removed:
                continue
            order = (put.stamp, dot, put.value)
            held = best.get(put.key)
            if held is None or order[:2] > held[:2]:
                best[put.key] = order
        return {key: best[key][2] for key in sorted(best) if best[key][2]}
