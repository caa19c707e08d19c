"""What one node remembers of a peer with which it exchanges chunks of one blob."""

from dataclasses import dataclass


@dataclass(slots=True)
class Neighbour:
    """Who shows and asks for what, and since when."""

    has: int = 0
    shown: int = 0
    """What we have told it."""
    shrank_ns: int = 0
    """Since when it shows less than before: an older word that a newer one overtook, or chunks that it has lost."""
    has_spoken: bool = False
    """What it was told before it first spoke may have come before it knew of the file, and have been ignored."""
    asked: int | None = None
    asked_ns: int = 0
    ask_again_ns: int = 0
    """How long after `asked_ns` the request is said again."""
    gave: int | None = None
    gave_ns: int = 0
    """The chunk it was sent last, and when."""
    silences: int = 0
    """Requests in a row that it has let time out: of the holders of a chunk one with the fewest is asked."""
    not_before_ns: int = 0
    """Refused: not to be asked before then."""
    wants: int | None = None
    """The one chunk it has asked us for and we have not sent."""
    wants_ns: int = 0
    """Since when: it waits for so long, and then asks somebody else."""
    heard_ns: int = 0
    repeat_ns: int = 0
    repeat_at_ns: int = 0


@dataclass(slots=True)
class Account:
    """Bytes exchanged with one peer about one blob."""

    received: int = 0
    sent: int = 0
    wasted: int = 0
    """Received twice, unasked, or bad."""
