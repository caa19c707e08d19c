"""What the sub-protocol `past` and its driver tell each other: the driver keeps pages, the protocol decides.

order (to the driver)      answered by the command
FindRows(ticket)           Rows(ticket, rows)
FindPages(ticket, …)       Pages(ticket, pages, more, floor_ms)
KeepPages(author, pages)   Held(author, …) where room for them took others away
Forget(author)             –
–                          Held(author, spans, floor_ms): at the start, and whenever the own pages grow
–                          Want(from_ms, to_ms)
"""

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.past.messages import Row


class FindRows(msgspec.Struct, frozen=True):
    """What is kept of each author, this node first, then the newest words, `messages.ROWS_MAX` at most?"""

    ticket: int


class FindPages(msgspec.Struct, frozen=True):
    """Pages of an author that touch [from_ms, to_ms], by (end, number) from the highest down.

    Only those below the cursor, as many as make `bytes_max` (one at least) and `messages.PAGES_MAX`.
    """

    ticket: int
    author: NodeId
    from_ms: int
    to_ms: int
    below_ms: int
    below_number: int
    bytes_max: int


class KeepPages(msgspec.Struct, frozen=True):
    """Verified pages of one author. Of two of one number the one with the lower `digest_of` stays."""

    author: NodeId
    pages: tuple[bytes, ...]


class Forget(msgspec.Struct, frozen=True):
    """An author is revoked: what is kept of it is shown and given to nobody."""

    author: NodeId


class Rows(msgspec.Struct, frozen=True):
    """Answers `FindRows`."""

    ticket: int
    rows: tuple[Row, ...]


class Pages(msgspec.Struct, frozen=True):
    """Answers `FindPages`."""

    ticket: int
    pages: tuple[bytes, ...]
    more: bool
    floor_ms: int
    is_failed: bool = False
    """The disk did not answer; it may later."""


class Held(msgspec.Struct, frozen=True):
    """Of which times this node has an author's pages, instead of what was said of it before."""

    author: NodeId
    spans: tuple[tuple[int, int], ...]
    """(from, to), in order, apart."""
    floor_ms: int
    """What ended before it went, and is not asked for again."""


class Want(msgspec.Struct, frozen=True):
    """Fetch what everybody wrote down between two moments, as far as anybody keeps it."""

    from_ms: int
    to_ms: int
