"""To whom a device lends, and to whom what it borrows may go: rules over what the fleet has signed of a member.

A rule asks for a name, for one of several roles, for attestation and for the same owner; what is set must hold, all of
it. Nothing that a member says of itself is looked at: names and roles are those of the certificate that holds now,
signed by the fleet's enrol keys (`trust/view.py`), and who has none is outside of every rule.

- *Attested* is who has the role `attested`: an officer has signed that the device was attested when it was enrolled.
  That is all that can be known here; nobody shows a quote of its boot to another member. Who lacks the role is refused.
- *The owner* of a member is named by its one role `owner:NAME`. A member with none, or with several, has no owner that
  is known, and is nobody's same: where this device itself has none, such a rule lets nobody in.
"""

from dataclasses import dataclass
from typing import Protocol

ATTESTED = "attested"
"""The role of who was attested at its enrolment."""
OWNER = "owner:"
"""How the role begins that names a member's owner."""
NAME_RULE, ROLE_RULE, ATTESTED_RULE, OWNER_RULE = RULES = ("name", "role", "attested", "same-owner")
"""What a member may be refused by, in the order in which it is looked at."""


class Certified(Protocol):
    """What is signed of a member: a `trust.Certificate`."""

    @property
    def name(self) -> str:
        """It was enrolled under."""
        ...

    @property
    def roles(self) -> tuple[str, ...]:
        """It was given."""
        ...


@dataclass(frozen=True, slots=True)
class Whom:
    """One rule; empty: every member."""

    names: frozenset[str] = frozenset()
    """One of them, if any are named."""
    roles: frozenset[str] = frozenset()
    """Likewise, of its roles one."""
    attested: bool = False
    same_owner: bool = False
    """As this device."""

    def broken_by(self, member: Certified | None, own: Certified | None) -> str:
        """Which of `RULES` leaves a member out; "": it is let in.

        Args:
            member: What is signed of it; None: nothing that holds.
            own: The same of this device.

        >>> from collections import namedtuple
        >>> Signed = namedtuple("Signed", "name roles")
        >>> ours, theirs = Signed("a", ("owner:farm",)), Signed("b", ("owner:port", "attested"))
        >>> Whom(same_owner=True).broken_by(theirs, ours), Whom(attested=True).broken_by(theirs, ours)
        ('same-owner', '')
        """
        if member is None or (self.names and member.name not in self.names):
            return NAME_RULE  # Who has no certificate has no name.
        if self.roles and self.roles.isdisjoint(member.roles):
            return ROLE_RULE
        if self.attested and ATTESTED not in member.roles:
            return ATTESTED_RULE
        if self.same_owner and (not owner_of(own) or owner_of(own) != owner_of(member)):
            return OWNER_RULE
        return ""


EVERYBODY = Whom()
"""Every member."""


def owner_of(member: Certified | None) -> str:
    """The owner that a certificate names; "": none, or not one alone."""
    named = set() if member is None else {role.removeprefix(OWNER) for role in member.roles if role.startswith(OWNER)}
    return named.pop() if len(named) == 1 else ""
