"""The registry of control verbs: one table behind the control socket, the bridges and the tests.

A handler takes the request's arguments and returns a JSON-able mapping at once, on the loop; long lists in it are
`Parts` (`parts.py`). It raises `DaemonError` with a sentence for people; the registry turns the protocols' own refusals
into that.
"""

from collections.abc import Callable, Mapping
from typing import Any

from swarmd.api.parts import whole
from swarmd.errors import DaemonError
from swarmd_protocols.errors import ProtocolError

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Verbs:
    """Verb to handler."""

    def __init__(self) -> None:
        """Start with none."""
        self._handlers: dict[str, Handler] = {}
        self._internal: dict[str, Handler] = {}
        self.changing: set[str] = set()
        """Verbs that change something: who used them is written down."""

    def add(self, verb: str, handler: Handler, *, internal: bool = False, changes: bool = False) -> None:
        """Register a handler, once a verb.

        Args:
            verb: Its name.
            handler: Answers it.
            internal: It is for bridges in this process, never for the socket.
            changes: It changes something, so whoever uses it is written down.
        """
        assert verb not in self._handlers
        assert verb not in self._internal
        (self._internal if internal else self._handlers)[verb] = handler
        if changes:
            self.changing.add(verb)

    def begin(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run one verb; what is long in its answer is `Parts`, for who writes them out. Raises as `answer` does."""
        handler = self._handlers.get(verb)
        if handler is None:
            raise DaemonError(f"this daemon knows no verb {verb[:40]!r}; it knows {', '.join(sorted(self._handlers))}")
        try:
            return handler(arguments)
        except ProtocolError as error:
            raise DaemonError(str(error)) from error

    def answer_inside(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run one verb for a bridge, internal ones included; raises `DaemonError` as `answer` does."""
        handler = self._internal.get(verb)
        return self.answer(verb, arguments) if handler is None else whole(handler(arguments))

    def answer(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run one verb and make all of its answer.

        Raises:
            DaemonError: The verb is unknown, an argument is wrong, or the request is refused.
        """
        return whole(self.begin(verb, arguments))


def text_argument(arguments: Mapping[str, Any], name: str, default: str | None = None, most: int = 1024) -> str:
    """A text argument of at most `most` characters; raises `DaemonError` where it is missing or no text."""
    value = arguments.get(name, default)
    if not isinstance(value, str) or len(value) > most:
        raise DaemonError(f"argument {name!r} is missing or no text of at most {most} characters")
    return value


def number_argument(arguments: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A finite number; raises `DaemonError` where it is missing or none."""
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 1e15:
        raise DaemonError(f"argument {name!r} is missing or no number")
    return float(value)
