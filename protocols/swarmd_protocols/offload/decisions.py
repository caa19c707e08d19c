"""What the dispatcher (`dispatcher.py`) is told, and what it decides."""

from dataclasses import dataclass
from typing import TypeAlias

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.placement import Need, Offer

# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A program of this device wants an answer."""

    need: Need


@dataclass(frozen=True, slots=True)
class OfferHeard:
    """A lender said what it has; an offer that is not reachable withdraws the one before."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class Answered:
    """An attempt has its answer; its form has been judged."""

    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt will have none: refused, garbage, connection lost."""

    number: int
    attempt: int
    is_its_fault: bool = True  # Not of a lender that was never asked, for want of money.


@dataclass(frozen=True, slots=True)
class Left:
    """An attempt that had to wait for a ticket is on its way only now: what it takes counts from here."""

    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Checked:
    """The own model has judged an answer of a lender's."""

    lender: NodeId
    is_right: bool


@dataclass(frozen=True, slots=True)
class Doubted:
    """The connection to a lender has broken: it may be dead, long before membership can tell."""

    lender: NodeId


@dataclass(frozen=True, slots=True)
class Moved:
    """A lender has come near, or is near no more: what its connection held is lost then."""

    lender: NodeId
    is_far: bool


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Nobody waits for a request any more; harmless for one that is through."""

    number: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of `SetTimer`; late and stale firings are harmless."""

    number: int
    what: str


Event: TypeAlias = Asked | OfferHeard | Answered | Failed | Left | Checked | Doubted | Moved | Abandoned | TimerFired

# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attempt:
    """Ask for an answer, of a lender or of the own model."""

    number: int
    attempt: int
    lender: NodeId | None
    """None: the own model."""
    digest: bytes
    """Of the bundle that is to answer."""
    until_ns: int
    held_until_ns: int = 0
    """The lender begins then, unless it is cancelled; in the past: at once."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Nobody else works on the request any more: who holds this attempt is to begin now."""

    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for this attempt any more."""

    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """The answer of an attempt is the request's; None: there is no answer."""

    number: int
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """Hold this answer against the own model when there is time, and say `Checked`."""

    number: int
    attempt: int
    lender: NodeId


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire at this time; one with the same number and word replaces the old one."""

    number: int
    what: str
    due_ns: int


Effect: TypeAlias = Attempt | Begin | Cancel | Deliver | Check | SetTimer
