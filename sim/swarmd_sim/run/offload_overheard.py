"""The daemon's own `Offload`, with an ear at its lender: what it was told, and what it made of that.

A lender says nothing to its driver of what it holds, so that checkers could not tell what it held and dropped from what
it never had.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarmd_protocols.effects import TimerKey
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages
from swarmd_protocols.offload.offload import Offload
from swarmd_protocols.subprotocol import SubEffect

LenderWord = messages.Ask | messages.Request | messages.Cancel


@dataclass(frozen=True, slots=True)
class Turned:
    """One event of a lender."""

    effects: list[SubEffect]
    now_ns: int
    """By the lender's clock."""
    sender: NodeId | None = None
    """Who spoke; None: time passed, or others came and went."""
    message: LenderWord | None = None


class Overheard(Offload):
    """See the module."""

    def __init__(self, *arguments: Any) -> None:
        """The arguments are those of `Offload`; nobody listens yet."""
        super().__init__(*arguments)
        self.heard: Callable[[Turned], None] = lambda turned: None

    def lends_to(self, node: NodeId) -> bool:
        """Whether anything may be done for a member now: it is reached, and no rule leaves it out."""
        return node in self._borrowers

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """As it is; whoever is gone takes along what was held for it."""
        effects = super().on_trust(now_ns)
        self.heard(Turned(effects, now_ns))
        return effects

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """As it is; what is held begins, or a job's deadline has passed."""
        effects = super().on_timer(key, now_ns)
        if key[1] in ("held", "job"):
            self.heard(Turned(effects, now_ns))
        return effects

    def _on_lender(self, sender: NodeId, message: LenderWord, now_ns: int) -> list[SubEffect]:
        effects = super()._on_lender(sender, message, now_ns)
        self.heard(Turned(effects, now_ns, sender, message))
        return effects
