"""Which thumbnails a recording wants, and when it asks for them.

Rules this file keeps: what is written is a picture by its name and its form, whoever gave it; of one object each
picture is written once; a recording holds `PICTURES_MAX` and asks for `ASKED_A_LOOK` in one look, so that others'
pictures come over the air no faster than a person would look at them.
"""

from collections.abc import Callable, Iterable

from swarmd_protocols.state.observations import ObjectView
from swarmd_protocols.thumbs.form import name_of, problem_of
from swarmd_protocols.thumbs.requests import ThumbLearned

PICTURES_MAX = 2_000
"""Pictures of one recording: 12 MB at the largest, 4 MB of what eyes make."""
ASKED_A_LOOK = 2
"""Pictures that are asked for in one look, once a second: 4 kB/s of what eyes make."""
AGAIN_LOOKS = 60
"""Looks after which a picture that has not come is asked for again, a minute: its author may be back."""


class ThumbTaker:
    """See the module.

    Args:
        ask: Asks for a picture by its name; False where this node has no part in them.
    """

    def __init__(self, ask: Callable[[bytes], bool]) -> None:
        self._ask = ask
        self._wanted: dict[bytes, dict[str, None]] = {}
        """Name to the objects whose picture it is."""
        self._written: dict[str, bytes] = {}
        """Object to the picture that was written last."""
        self._left = PICTURES_MAX
        self._looks = 0
        self._asked: dict[bytes, int] = {}
        """Name to the look at which it was asked for last."""

    def know(self, objects: Iterable[ObjectView]) -> None:
        """What there is now; what is gone or has another picture is wanted no more."""
        wanted: dict[bytes, dict[str, None]] = {}
        here: dict[str, bytes] = {}
        for view in objects:
            here[view.object_id] = view.thumb
            if view.thumb and self._written.get(view.object_id) != view.thumb:
                wanted.setdefault(view.thumb, {})[view.object_id] = None
        self._wanted = wanted
        self._asked = {name: look for name, look in self._asked.items() if name in wanted}
        self._written = {name: thumb for name, thumb in self._written.items() if name in here}

    def look(self) -> None:
        """Once a second: ask for some of what is wanted."""
        self._looks += 1
        count = 0
        # Whoever was asked for longest ago first: names that nobody gives keep no other's picture out.
        for name in sorted(self._wanted, key=lambda name: self._asked.get(name, -AGAIN_LOOKS)):
            if count == ASKED_A_LOOK or not self._left:
                return
            if self._looks - self._asked.get(name, -AGAIN_LOOKS) >= AGAIN_LOOKS:
                self._asked[name] = self._looks
                count += 1
                if not self._ask(name):
                    return

    def take(self, learned: ThumbLearned) -> list[str]:
        """A picture has come, for whoever asked; of which objects it is to be written now."""
        if learned.name not in self._wanted or problem_of(learned.jpeg) or name_of(learned.jpeg) != learned.name:
            return []
        objects = list(self._wanted.pop(learned.name))[: self._left]
        self._left -= len(objects)
        self._written |= dict.fromkeys(objects, learned.name)
        return objects
