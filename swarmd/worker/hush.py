"""Borrowers whose coded pictures are not read for a while, since too many of them were none.

Reading a form costs time before its inference is paid for, so who keeps sending what cannot be read is not decoded for
`HUSH_NS`. It is told so, by name and reason, each time; its pictures in their own bytes are taken as ever, and so is
whatever others send.
"""

from dataclasses import dataclass

BAD_MAX = 4
"""Forms that could not be read within `HUSH_NS` of which the last one hushes: a program's mistake is one or two."""
HUSH_NS = 30_000_000_000
"""A ticket's life: whoever is hushed has asked for a new one meanwhile, and may begin anew."""
BORROWERS_MAX = 64
"""Remembered; the one that was wrong longest ago goes. As many as have tickets."""


@dataclass(slots=True)
class _Bad:
    at_ns: int
    count: int = 0
    until_ns: int = 0


class Hush:
    """Who has sent what could not be read."""

    def __init__(self) -> None:
        """Nobody."""
        self._bad: dict[str, _Bad] = {}

    def note(self, borrower: str, now_ns: int) -> None:
        """A form of this borrower's could not be read."""
        one = self._bad.pop(borrower, None)
        if one is None or now_ns - one.at_ns > HUSH_NS:
            one = _Bad(now_ns)
        one.count += 1
        if one.count >= BAD_MAX:
            one.at_ns, one.count, one.until_ns = now_ns, 0, now_ns + HUSH_NS
        self._bad[borrower] = one
        while len(self._bad) > BORROWERS_MAX:
            del self._bad[next(iter(self._bad))]

    def left_s(self, borrower: str, now_ns: int) -> float:
        """For how long its forms are not read; 0.0: they are."""
        one = self._bad.get(borrower)
        return 0.0 if one is None else max(0, one.until_ns - now_ns) / 1e9
