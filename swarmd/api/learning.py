"""Learning in the swarm for people: the verbs `learning` and `learning_head`, over a narrow view of who learns."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from swarmd.api.verbs import Verbs
from swarmd.errors import DaemonError


class Learns(Protocol):
    """Who learns here."""

    def status(self) -> dict[str, Any]:
        """Where it stands."""

    def head(self) -> dict[str, Any]:
        """The same and what is merged; raises `DaemonError` where nothing is."""


def register_learning(verbs: Verbs, learns: Callable[[], Learns | None]) -> None:
    """Add the verbs.

    Args:
        verbs: The registry.
        learns: Who learns; None: learning is off.
    """

    def status(_: Mapping[str, Any]) -> Mapping[str, Any]:
        one = learns()
        return {"enabled": False} if one is None else {"enabled": True, **one.status()}

    def head(_: Mapping[str, Any]) -> Mapping[str, Any]:
        one = learns()
        if one is None:
            raise DaemonError("this daemon does not learn: set learning.enabled = true and start it again")
        return one.head()

    verbs.add("learning", status)
    verbs.add("learning_head", head)
