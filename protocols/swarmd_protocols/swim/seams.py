"""What the parts of membership ask of each other; `membership.py` composes them and answers for the rest."""

from typing import Protocol

from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.members import Member, Probe, Relay
from swarmd_protocols.swim.messages import AliveBody, Record


class Roll(Protocol):
    """Who is admitted and who is forgotten."""

    def on_record(self, message: Record, via: Member | None) -> Member | None:
        """Admit a member, or take its newer record; returns it where it is known afterwards."""
        ...

    def read_record(self, message: Record, via: bytes) -> AliveBody | None:
        """The body of a record that somebody passes on, not verified; None where it is malformed."""
        ...

    def found(self, member: Member) -> None:
        """A member known from the journal is there."""
        ...

    def restore(self, message: Record) -> None:
        """Hold a member for gone until it is heard or a peer vouches for it."""
        ...

    def forget(self, member: Member) -> None:
        """Drop everything about a member."""
        ...


class Judge(Protocol):
    """What is believed of a member."""

    def evaluate(self, member: Member, reason: str, *, joined: bool = False, fresh: bool = False) -> None:
        """Bring table, digest and notifications in line with the facts."""
        ...

    def fail(self, member: Member, reason: str, *, accuse: bool = True, gone: bool = False) -> None:
        """Declare a member failed; `gone` where its host says that no process listens there."""
        ...

    def suspect_silently(self, member: Member, reason: str) -> None:
        """Doubt a member without accusing it."""
        ...

    def answered(self, member: Member) -> None:
        """It answered an own ping directly."""
        ...

    def remind(self, member: Member) -> None:
        """Tell a member that is accused what is said about it."""
        ...

    def clear_doubts(self, member: Member) -> None:
        """What was held against a member no longer concerns this node."""
        ...

    def verify(self, member: Member, *, by_one_ping: bool = False) -> None:
        """Let the prober see for itself, now: with all its questions, or by one ping."""
        ...


class Refuter(Protocol):
    """Answers what is said of this node."""

    def tell(self, via: Member) -> None:
        """Show a member the own record, which is newer than what it passed on."""

    def refute(self, accuser: NodeId, via: Member | None) -> None:
        """Answer an accusation with a higher incarnation."""
        ...


class Asker(Protocol):
    """Who puts the questions that helpers and hosts are part of."""

    open: dict[int, tuple[Probe | Relay | Member, int]]
    """Pings whose answers are awaited, by sequence, and since when."""

    def verify(self, member: Member) -> None:
        """See for ourselves, now."""
        ...

    def ping(self, probe: Probe) -> None:
        """Ask once more."""
        ...

    def send_ping(self, member: Member, purpose: Probe | Relay | Member) -> None:
        """Ping a member, for a probe, for somebody else, or to see whether it lives."""
        ...


class HearsView(Protocol):
    """Who is told that the view has become another: what is said to all is counted another way then."""

    def narrowed(self) -> None:
        """The view has become partial."""
        ...

    def widened(self) -> None:
        """The view has become full."""
        ...
