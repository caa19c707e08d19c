"""Which whole files lie on this node, as far as the storage has said: nothing here waits for a disk."""

from collections.abc import Iterable

from swarmd_protocols.effects import Order
from swarmd_protocols.releases.requests import LookFor

MAX_FILES = 8_192
"""Files remembered: more than the releases that are kept of 8 models name. Beyond it, what is absent is forgotten."""
_ASK_AT_ONCE = 256
"""Files in one question: the storage looks at each name, some milliseconds in all."""


class Inventory:
    """What is known of files, and what is still to be asked."""

    def __init__(self) -> None:
        self._here: dict[bytes, bool] = {}
        self._asked: dict[bytes, None] = {}
        self._questions: dict[bytes, None] = {}

    def has(self, digest: bytes) -> bool | None:
        """Whether a file lies here; None while the storage has not said, which then is asked."""
        known = self._here.get(digest)
        if known is None and digest not in self._asked:
            self._questions[digest] = None
        return known

    def questions(self, name: str) -> list[Order]:
        """What the storage is to be asked now."""
        if not self._questions:
            return []
        asked = list(self._questions)[:_ASK_AT_ONCE]
        for digest in asked:
            del self._questions[digest]
            self._asked[digest] = None
        return [Order(name, LookFor(tuple(asked)))]

    def learn(self, digests: Iterable[bytes], here: bool) -> None:
        """The storage has said where these are."""
        for digest in digests:
            self._asked.pop(digest, None)
            self._questions.pop(digest, None)
            self._here[digest] = here
        if len(self._here) > MAX_FILES:
            self._here = {digest: True for digest, is_here in self._here.items() if is_here}
