"""Eight bytes in every ping: four over the view, four over what the sub-protocols would have compared.

Rules this file keeps:

- Who asks says only what it would compare now; who answers shows its sums only where that differs. So a difference that
  is looked at now and then costs nothing in between.
- What is due is the asker's to say: the answerer takes any selection that the sub-protocols name for equal.
"""

from collections.abc import Sequence
from itertools import product
from zlib import crc32

from swarmd_protocols.subprotocol import ComparesInTurn, SubProtocol
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.view import View


class Digests:
    """What this node's pings say of what it knows, and whether another's says the same."""

    def __init__(self, core: Core, subprotocols: Sequence[SubProtocol]) -> None:
        """Nothing was said."""
        self._core = core
        self._subs = [(sub, sub if isinstance(sub, ComparesInTurn) else None) for sub in subprotocols]
        self._sections: list[int] = []
        self._view: View | None = None
        """The view covers some of the sections, or all."""
        self._view_digest = b""
        self._summaries: list[bytes] = []
        self._equal: frozenset[bytes] = frozenset()

    def said(self) -> bytes:
        """For a ping: of the view, and of what is due for comparison."""
        now_ns = self._core.now_ns
        due = [sub.summary() if in_turn is None else in_turn.due(now_ns) for sub, in_turn in self._subs]
        return self._of_view() + _checksum(due)

    def differ(self, said: bytes) -> tuple[bool, bool]:
        """Whether a ping says something else of the view, and of the sub-protocols, than what this node knows."""
        return said[:4] != self._of_view(), said[4:] not in self._of_subs()

    def _of_view(self) -> bytes:
        sections, view = self._core.table.sections, self._core.view
        if sections != self._sections or view is not self._view:
            self._view_digest = self._core.table.digest(view.digest_sections).to_bytes(4, "big")
            self._sections, self._view = sections.copy(), view
        return self._view_digest

    def _of_subs(self) -> frozenset[bytes]:
        summaries = [sub.summary() for sub, _ in self._subs]
        if summaries != self._summaries or not self._equal:
            choices = [(sub.summary(),) if in_turn is None else in_turn.selections() for sub, in_turn in self._subs]
            self._equal = frozenset(_checksum(selection) for selection in product(*choices))
            self._summaries = summaries
        return self._equal


def _checksum(parts: Sequence[bytes]) -> bytes:
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return crc.to_bytes(4, "big")
