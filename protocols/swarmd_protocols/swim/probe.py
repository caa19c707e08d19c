"""One question about one member, and one on behalf of another: what is known of it so far."""

from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.swim.members import Member

HOST_ONLY = "its host answers, its process does not"


class Probe:
    """One question about one member, from the first ping to the verdict."""

    __slots__ = (
        "attempts",
        "hello_ns",
        "helpers",
        "host",
        "host_asked_ns",
        "indirect_heard",
        "indirect_sent",
        "member",
        "over",
        "refusals",
        "refused_ns",
        "routine",
        "silences",
        "started_ns",
        "suspect_ns",
    )

    def __init__(self, member: Member, started_ns: int, routine: bool) -> None:
        self.member = member
        self.started_ns = started_ns
        self.routine = routine
        self.over = False
        self.attempts = 0
        self.hello_ns = -(2**62)
        self.indirect_sent = False
        self.indirect_heard = False
        self.helpers: list[Member] = []
        """Asked, and not yet answered with a nack."""
        self.host: HostAnswer | None = None
        self.host_asked_ns = -1
        self.silences = 0
        self.refusals = 0
        self.refused_ns = 0
        self.suspect_ns = -1


class Relay:
    """A ping on behalf of another member."""

    __slots__ = ("over", "requester", "sequence", "target")

    def __init__(self, requester: Member, sequence: int, target: Member) -> None:
        self.requester = requester
        self.sequence = sequence
        self.target = target
        self.over = False
