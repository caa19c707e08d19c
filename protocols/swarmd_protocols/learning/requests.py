"""What the daemon asks of the sub-protocol `learning`, and what it is told."""

from collections.abc import Sequence

import msgspec

from swarmd_protocols.learning.form import Session

NAME = "learning"
JOURNAL = b"learning/"
"""What begins the keys of the journal's records, of own deltas: no restart makes a node contradict itself."""


class Learn(msgspec.Struct, frozen=True):
    """The model that runs here from now on; None: nothing is to be learned. Where it differs, a session begins."""

    session: Session | None


class Trained(msgspec.Struct, frozen=True):
    """Answers `Train`: by how much this node's labels would move each weight from where it was given."""

    session: bytes
    round: int
    change: Sequence[float]
    rows: int
    """Labelled rows; with none, nothing is said."""


class Train(msgspec.Struct, frozen=True):
    """Order: train the head from here on own labels."""

    session: Session
    round: int
    moved: Sequence[int]
    """By how much the swarm has moved each weight of the model that runs, in 2^-24."""


class HeadMerged(msgspec.Struct, frozen=True):
    """Detail of `StateChanged("learning", …)`: a round is merged."""

    session: Session
    round: int
    """Rounds that are merged; `session.rounds`: it is over, and this is what it came to."""
    moved: Sequence[int]
    authors: int
    """That said anything which counts."""
    rows: int
    """That they say to have learned from."""
    liars: int


class LearningView(msgspec.Struct, frozen=True):
    """What people read."""

    session: Session | None
    round: int
    deltas: Sequence[int]
    """By round, how many are here."""
    liars: Sequence[bytes]
    """Authors that said two things in one round."""
    rows: int
    counts: dict[str, int]
    epsilon: float | None
    """Of what this node says in the session, for δ = 1e-5; None without noise."""
    authors: Sequence[bytes] = ()
    """That said anything which counts."""
