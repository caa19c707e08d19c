"""What the driver and the sub-protocol `offload` tell each other: commands in, orders out.

```
 driver ── Stock ──────────────▶ offload      what the device could lend now
 driver ── Borrow ─────────────▶ offload      a program wants an answer ──▶ Settle, exactly once
 driver ◀───────────── Infer ── offload      run this: for another, or for a request of this device's own
 driver ── Ran ────────────────▶ offload      what came of it
 driver ◀────────────── Drop ── offload      nobody waits for it any more
 driver ── Judged ─────────────▶ offload      a borrowed answer was held against the own model
 driver ── Withheld ───────────▶ offload      a lender keeps a tensor and is silent about it
 driver ── Doubt ──────────────▶ offload      the connection to a lender has broken
 driver ── Abandon ────────────▶ offload      the program has gone ──▶ Settle, without an answer
```
"""

from typing import TypeAlias

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.turns import NORMAL


class Held(msgspec.Struct, frozen=True, gc=False):
    """One bundle of this device."""

    digest: bytes
    unit_ns: int
    """Measured time of one inference; 0: not measured yet."""
    ability: str = ""
    """What it is able to, by its recipe; "": it does not say."""
    grade_milli: int = 0
    """How well, by its recipe's own measure, thousandths."""


class Stock(msgspec.Struct, frozen=True):
    """What the device could lend; replaces what was said before."""

    held: tuple[Held, ...]
    queue_ns: int
    """Its own work before a new request."""
    battery_milli: int | None
    """None: it has none, or does not know."""
    charge_ppb_s: int = 0
    """What a second of inference takes of the charge, billionths; 0: nothing, or nobody knows."""
    asks: tuple[bytes, ...] = ()
    """Bundles that its programs will ask others for: tickets of theirs are had before anybody waits for one."""


class Borrow(msgspec.Struct, frozen=True):
    """A program of this device wants an answer."""

    number: int
    """The driver's own, never used twice in a life."""
    digest: bytes
    """Of the bundle that is to answer; with `ability` of the own one that `local_ns` is about, or empty."""
    data: bytes
    units: int
    deadline_ns: int
    local_ns: int = 0
    """What the own model takes for it; 0: it has none, or none that could answer in time."""
    may_leave: bool = True
    lane_bytes: int = 0
    """Of its input beside `data`, which the lender's worker fetches from this device's."""
    local_wait_ns: int = 0
    """What the own model has to do first, as things stand; by the last moment the nearest deadline goes first."""
    ability: str = ""
    """Any bundle that is able to it may answer; `Settle.digest` says which did."""
    grade_min_milli: int = 0
    """The least grade of a lender's bundle, with `ability`."""
    copies: int = 1
    """2: two lenders have it at once, of whom the second begins when the first is late or fails."""
    keep_ns: int = 0
    """An answer may be kept for so long, and one that was kept serves this request; 0: neither. Not with `ability`."""
    recipe: bytes = b""
    """What else the answer depends on, such as a digest of the preprocessing; answers are kept for each apart."""
    only: NodeId | None = None
    """This lender or none; where its connection breaks the request ends at once, since there is nobody else."""
    may_check: bool = False
    """The own model does not answer (`local_ns` is 0), and answers may be held against it."""
    lane_key: bytes = b""
    """With `lane_bytes`: each lender is told a token of its own (`messages.lane_token`) in place of the one in `data`;
    empty: all are told the same."""
    lane_at: int = 0
    """Where in `data` the token stands."""
    but: tuple[NodeId, ...] = ()
    """Lenders that are not to answer: what they said of the same input is in doubt."""
    priority: int = NORMAL
    """Among what its lender does for others (`turns.py`)."""

    def not_asked(self, far: frozenset[NodeId]) -> tuple[NodeId, ...]:
        """Who may not answer: a lender that has to fetch the input needs a connection, which nobody hands on."""
        return (*self.but, *sorted(far)) if self.lane_bytes or self.lane_key else self.but


class Ran(msgspec.Struct, frozen=True):
    """What came of an `Infer`; None: nothing."""

    job: int
    data: bytes | None


class Judged(msgspec.Struct, frozen=True, gc=False):
    """Whether a lender's answer was right, by the own model, or at least of the right form."""

    lender: NodeId
    is_right: bool


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """A lender keeps a tensor, was reached, and is silent about it. It is written down; a frozen process is no liar."""

    lender: NodeId


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A borrower has sent what is in no form that can be read."""

    borrower: NodeId


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """The connection to a lender has broken: what waits for it is asked of another at once. No word against it."""

    lender: NodeId


class Abandon(msgspec.Struct, frozen=True, gc=False):
    """Nobody waits for the answer of a `Borrow` any more."""

    number: int


Command: TypeAlias = Stock | Borrow | Ran | Judged | Withheld | Malformed | Doubt | Abandon


class Infer(msgspec.Struct, frozen=True):
    """Run this; answered by `Ran`."""

    job: int
    digest: bytes
    data: bytes
    units: int
    deadline_ns: int
    borrower: NodeId | None
    """Who asked; None: this device, and then it comes before all borrowed work."""
    lane_bytes: int = 0
    """To be fetched from the borrower's worker, at most."""
    turn_ns: int = 0
    """Of others' work the one with the earliest turn runs first (`turns.py`)."""
    request: int = 0
    """The borrower's number of it, as it was on the wire; 0: it came from nobody else."""
    own: int = 0
    """`Borrow.number` of what came back to this device; 0: it is another's."""


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Nobody waits for this job any more; a `Ran` about it is harmless."""

    job: int


class Settle(msgspec.Struct, frozen=True):
    """A request is through."""

    number: int
    data: bytes | None
    """None: there is no answer."""
    lender: NodeId | None
    """Who answered; None: this device."""
    digest: bytes
    """Of the bundle that answered."""
    is_check_wanted: bool
    """Hold it against the own model when there is time, and say `Judged`."""
    is_kept: bool = False
    """The answer was kept from an equal request; `lender` gave it then."""
    proof: bytes = b""
    """`messages.proof_of` a lender's answer, by which another member can see that it gave it."""
    request: int = 0
    """The number that its lender knows it by; 0: it was answered by nobody else."""
    way_ns: int = 0
    """There and back to its lender, by a word that no work stands behind; 0: not measured."""


Order: TypeAlias = Infer | Drop | Settle
