"""Who has said what this node says to all: near members pass it on, and so hold it. Pure."""

from collections.abc import Hashable

_HELD_MAX = 512
"""News of which it is kept who has said it; the oldest is forgotten first, and then everybody counts as having it."""
_HOLDERS_MAX = 64
"""Of one of them, members: more than are near."""


class Echoes:
    """By what news is about, the members that have said it."""

    def __init__(self) -> None:
        self._held: dict[Hashable, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, about: Hashable, holder: bytes | None = None) -> None:
        """It is news here, brought by a member, or said by this node."""
        if about not in self._held:
            if len(self._held) >= _HELD_MAX:
                del self._held[next(iter(self._held))]
            self._held[about] = {}
        if holder is not None:
            self.heard(about, holder)

    def heard(self, about: Hashable, holder: bytes) -> None:
        """A member says what is known here."""
        holders = self._held.get(about)
        if holders is not None and len(holders) < _HOLDERS_MAX:
            holders[holder] = None

    def lacks(self, about: Hashable, member: bytes) -> bool:
        """Whether a member has not said it, as far as is known."""
        holders = self._held.get(about)
        return holders is not None and member not in holders
