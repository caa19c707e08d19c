"""What a view answers where one radio reaches everybody it knows, or where views are partial: there is no mesh."""

from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import Address
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.messages import Beacon, Near


class NoMesh:
    """Half of a `View`."""

    weighs_links = False
    routes = Routes()

    def probes(self, member: Member, state: MemberState) -> bool:
        """See `View.probes`."""
        return state in REACHABLE

    def answered(self, member: Member) -> None:
        """See `View.answered`."""

    def hears_far(self, member: Member) -> None:
        """See `View.hears_far`."""

    def is_hidden(self, member: Member, *, helped: bool) -> None:
        """See `View.is_hidden`."""

    def loses_link(self, member: Member, *, gone: bool) -> bool:
        """See `View.loses_link`: it is a verdict."""
        return False

    def freezes(self, member: Member) -> None:
        """See `View.freezes`."""

    def hangs_on(self, member: Member) -> bool:
        """See `View.hangs_on`."""
        return False

    def is_cut_off(self, member: Member) -> bool:
        """See `View.is_cut_off`: whoever is silent has failed."""
        return False

    def is_heard(self, member: Member) -> bool:
        """See `View.is_heard`: whoever is heard is near."""
        return False

    def unheard_since_ns(self, member: Member) -> int | None:
        """See `View.unheard_since_ns`: states are of what is heard now."""
        return None

    def asks_lost(self) -> bool:
        """See `View.asks_lost`."""
        return True

    def forgotten(self, member: Member) -> None:
        """See `View.forgotten`."""

    def on_beacon(self, message: Beacon, source: Address) -> None:
        """See `View.on_beacon`."""

    def on_near(self, message: Near, via: Member | None, nonce: bytes = b"") -> None:
        """See `View.on_near`."""
