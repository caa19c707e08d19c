"""A disk without room: what it has refused is asked for again soon, and then ever less often."""

_FIRST_NS = 1_000_000_000
"""A log that was cut, or a file that was removed, makes room in moments."""
MOST_NS = 30_000_000_000
"""A file of 5 MB that is refused costs the chunks that were on their way, once in this time."""


class Room:
    """When the files that a disk has refused are asked for again."""

    def __init__(self) -> None:
        """Nothing was refused yet."""
        self._due_ns = 0
        self._wait_ns = 0

    def due_ns(self, now_ns: int) -> int:
        """A chunk was refused, as others that are on their way will be: when to look again, own monotonic clock."""
        if now_ns >= self._due_ns:
            self._wait_ns = min(MOST_NS, max(_FIRST_NS, 2 * self._wait_ns))
            self._due_ns = now_ns + self._wait_ns
        return self._due_ns

    def found(self) -> None:
        """A file is whole."""
        self._wait_ns = 0
