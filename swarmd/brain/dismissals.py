"""Failed members that an operator dismissed, so that lists leave them out.

A dismissal is a note of the shared state, and any member can write notes. So a dismissal

- is for one life of the member, at most: whatever a note says, who fails in a later life is listed again;
- is shown with the member that wrote it, as long as it hides anything;
- costs a look at one key for each failed member, however many notes anybody writes.
"""

from collections.abc import Callable, Iterable

from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import SetNote
from swarmd_protocols.summary import MemberView
from swarmd_protocols.swim.rules import BOOT_SHIFT

_KEY = "forget/"
"""This and the member's id; the value is the incarnation up to which it is dismissed."""
_DIGITS_MAX = 19
"""Of an incarnation, which is below 2**63."""


def dismiss(member: MemberView) -> SetNote:
    """The note that dismisses a failed member until it returns."""
    return SetNote(_KEY + member.node.hex(), str(member.incarnation).encode())


def dismissed(
    members: Iterable[MemberView], note: Callable[[str], tuple[bytes, NodeId] | None]
) -> dict[NodeId, NodeId]:
    """Which of these failed members are dismissed, and by whom.

    Args:
        members: As membership knows them.
        note: A note's value and who put it, by key.
    """
    found: dict[NodeId, NodeId] = {}
    for member in members:
        if member.state is not MemberState.FAILED:
            continue
        value, by = note(_KEY + member.node.hex()) or (b"", b"")
        if not value.isdigit() or len(value) > _DIGITS_MAX:
            continue
        up_to = int(value)
        if member.incarnation <= up_to and member.incarnation >> BOOT_SHIFT == up_to >> BOOT_SHIFT:
            found[member.node] = NodeId(by)
    return found
