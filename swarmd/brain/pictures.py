"""Who wants to see pictures: wishes of several are one for the eye, and each gets no more than it asked for."""

from collections.abc import Callable

from swarmd.api.daemon import PictureSeen
from swarmd.eye import ipc

_EARLY = 0.9
"""A picture that is a tenth of the interval early still counts: frames do not come when one wants them."""


class Pictures:
    """The brain's list of those who asked for pictures; while it is empty the eye sends none."""

    def __init__(self, send: Callable[[ipc.ToEye], None]) -> None:
        """Nobody has asked yet.

        Args:
            send: Gives a message to the eye, if there is one.
        """
        self._send = send
        self._watchers: dict[int, tuple[ipc.ShowFrames, Callable[[PictureSeen], None], int]] = {}
        self._next = 0

    def watch(self, wish: ipc.ShowFrames, callback: Callable[[PictureSeen], None]) -> Callable[[], None]:
        """Call back with pictures from now on; the returned function ends it."""
        number = self._next
        self._next += 1
        self._watchers[number] = (wish, callback, -(1 << 62))
        self.ask()

        def end() -> None:
            if self._watchers.pop(number, None) is not None:
                self.ask()

        return end

    def ask(self) -> None:
        """Tell the eye what is wanted now; also after it has started anew."""
        wishes = [wish for wish, _, _ in self._watchers.values()]
        if not wishes:
            self._send(ipc.ShowFrames())
            return
        self._send(
            ipc.ShowFrames(
                min(wish.interval_ms for wish in wishes),
                max(wish.width for wish in wishes),
                max(wish.quality for wish in wishes),
            )
        )

    @property
    def wanted(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watchers)

    def take(self, picture: ipc.Picture) -> None:
        """Hand a picture on to those whose turn it is."""
        seen = PictureSeen(picture.jpeg, picture.width, picture.height, picture.captured_ns)
        for number, (wish, callback, last_ns) in list(self._watchers.items()):
            if seen.captured_ns - last_ns >= wish.interval_ms * 1_000_000 * _EARLY:
                self._watchers[number] = (wish, callback, seen.captured_ns)
                callback(seen)
