"""What the rest of membership asks about how much of the swarm this node knows: everybody, or a few neighbours.

`full_view.py`, `mesh/mesh_view.py` and `partial_view.py` answer; `overlay.py` alone decides which of them is asked, and
sets `Core.view`.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Protocol

from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import Address
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.messages import Beacon, ForwardJoin, Near, Neighbor, Record, Shuffle, SizeEstimate


class Hops(Protocol):
    """What silence means: a verdict where one radio reaches everybody, a lost link in a mesh (`mesh/mesh_view.py`)."""

    weighs_links: bool
    """A member's silence is a lost link, and nobody is accused; otherwise it is a suspicion."""
    routes: Routes
    """Who leads to members that are not near."""

    # --- who is probed, and what silence means ---------------------------------------------------------------------

    def probes(self, member: Member, state: MemberState) -> bool:
        """Whether a member in this state is probed and told news."""
        ...

    def answered(self, member: Member) -> None:
        """A member answered an own ping directly."""
        ...

    def is_hidden(self, member: Member, *, helped: bool) -> None:
        """A member lives, as a helper or it itself says, and this node has not heard it while it asked."""
        ...

    def loses_link(self, member: Member, *, gone: bool) -> bool:
        """A member is silent, or its host refuses (`gone`); whether that is no verdict about it."""
        ...

    def freezes(self, member: Member) -> None:
        """A member does not answer, beyond what losses explain, and its host does."""
        ...

    def hangs_on(self, member: Member) -> bool:
        """Whether nobody else leads to a member, so that its link is given up on stronger evidence."""
        ...

    def is_cut_off(self, member: Member) -> bool:
        """Whether a member's part of the swarm cannot be reached."""
        ...

    def is_heard(self, member: Member) -> bool:
        """Whether a member that is not near is in reach all the same: what is for it needs nobody to hand it on."""
        ...

    def unheard_since_ns(self, member: Member) -> int | None:
        """Since when nobody who is reached has heard a member; None while somebody does."""
        ...

    def hears_far(self, member: Member) -> None:
        """A frame came from a member that is not probed."""
        ...

    def asks_lost(self) -> bool:
        """Whether members that are not probed are asked in turn."""
        ...

    def forgotten(self, member: Member) -> None:
        """A member is no longer held."""
        ...

    # --- messages of a mesh ----------------------------------------------------------------------------------------

    def on_beacon(self, message: Beacon, source: Address) -> None:
        """Somebody is in this radio's reach, and its view is a mesh."""
        ...

    def on_near(self, message: Near, via: Member | None, nonce: bytes = b"") -> None:
        """A member reports whom it hears; `nonce` tells the cast that it came in from all others."""
        ...


class View(Hops, Protocol):
    """How this node sees the swarm."""

    partial: bool
    """For reports alone; membership asks the questions below."""
    probes_ring: bool
    """Every second probe goes to the ring successor; neighbours in a partial view watch each other already."""
    all_verify: bool
    """Who hears an accusation sees for itself; otherwise a few of the swarm do."""
    forgets_lost: bool
    """Who is gone is forgotten after `forget_ns`; otherwise a few of them are tried for ever."""
    digest_sections: Sequence[int]
    """Sections that the digest covers: those that all nodes hold alike."""
    opening_sections: Sequence[int]
    """Sections that a newcomer compares with its first contact."""
    own_sections: Sequence[int]
    """Sections of which a peer is shown this node's own items alone."""
    unasked_sections: Sequence[int]
    """Sections of which a peer's items are not asked for."""

    # --- size ------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Members of the swarm, this node included: counted or estimated."""
        ...

    def swarm(self) -> int:
        """The same, where members are not all known; 0 where they are, and can be counted."""
        ...

    def crowded(self) -> bool:
        """Whether more members are reachable than this view is for."""
        ...

    def relieve(self) -> None:
        """Do something about it."""
        ...

    # --- who is kept, and who is told ------------------------------------------------------------------------------

    def takes(self, member: Member) -> bool:
        """Whether somebody new becomes a member that is probed and told news; otherwise it is met, and forgotten."""
        ...

    def shelved(self) -> list[Record]:
        """Records kept of others than the members."""
        ...

    def on_trust(self) -> None:
        """Forget whose certificate no longer holds."""
        ...

    def carries(self, about: Hashable) -> bool:
        """Whether news about this is passed on."""
        ...

    def push_fanout(self) -> int:
        """Members that fresh news is pushed to."""
        ...

    def stream_fanout(self) -> int:
        """Members that news too large for a datagram is sent to."""
        ...

    def compared(self, member: Member) -> Collection[int]:
        """Sections that are compared with a member's, where the digests differ."""
        ...

    # --- what rides ------------------------------------------------------------------------------------------------

    def riders(self, member: Member) -> list[bytes]:
        """What rides in a ping."""
        ...

    def ack_riders(self, member: Member) -> list[bytes]:
        """What rides in an ack."""
        ...

    def answer_riders(self, member: Member) -> list[bytes]:
        """What rides in an answer to a first question."""
        ...

    def introduction(self, member: Member) -> list[bytes]:
        """What a helper must know of a member to ask it."""
        ...

    def warn(self, member: Member, accusation: bytes) -> None:
        """This node accuses a member: tell those who look at once."""
        ...

    # --- contacts --------------------------------------------------------------------------------------------------

    def greeted(self, member: Member) -> None:
        """Somebody greets, and has been shown this node's record."""
        ...

    def on_hello_from(self, member: Member) -> None:
        """Somebody who may be asked something did not know this node, and does by now."""
        ...

    def refused(self, member: Member) -> None:
        """No process listens where somebody is met who is no member proper."""
        ...

    def choose_seed(self, strange: list[Address]) -> Address | None:
        """Which of the seeds that are no members to greet this time, if any."""
        ...

    # --- messages --------------------------------------------------------------------------------------------------

    def on_neighbor(self, member: Member, message: Neighbor) -> None:
        """A question, an answer or a good-bye about being neighbours."""
        ...

    def on_forward_join(self, member: Member, message: ForwardJoin) -> None:
        """A newcomer's record on its way."""
        ...

    def on_shuffle(self, member: Member, message: Shuffle) -> None:
        """Records of others."""
        ...

    def on_size_estimate(self, member: Member, message: SizeEstimate) -> None:
        """A neighbour's pulse: minima for the size of the swarm, and fingerprints of what it says of itself."""
        ...
