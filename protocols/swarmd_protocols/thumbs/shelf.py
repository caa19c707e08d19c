"""This node's own pictures: how many it keeps, for how long, and how many it gives away.

Rules this file keeps:

- A picture stays as long as an own sighting names it, within a bound of count and bytes; where there are more, those
  that no sighting names go first, then the oldest.
- Who asks gets so many a second: the rest is not answered, and asks again. All who ask together get `all_per_s` a
  second, however many they are, one each in turn: whose last answer is longest ago is next, so that no askers, however
  they agree, take what is another's. What waits for longer than it is waited for is let go.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.ids import NodeId
from swarmd_protocols.thumbs.form import name_of, problem_of

ASKED_PER_S = 4.0
"""Pictures a second that one member may ask of another: a page's first screen of findings comes in three seconds."""
ASKED_AT_ONCE = 8
"""Of them at once, and so many questions of one member wait."""
WAIT_NS = 2_500_000_000
"""A question waits no longer for its turn, nanoseconds: whoever asked asks again after three seconds."""
TURN_NS = 125_000_000
"""Between two looks at questions that wait, nanoseconds: at the default rate one more is answered."""


@dataclass(frozen=True, slots=True)
class ShelfConfig:
    """Bounds; they may differ between nodes."""

    count_max: int = 512
    """Pictures; a flight of an hour sees some hundred things."""
    bytes_max: int = 1 << 20
    """Of all pictures together: half of what a ground view may cost a drone's brain."""
    all_per_s: float = 8.0
    """Given away in a second, to all: 17 kB/s of the usual pictures, 49 kB/s of the largest."""
    all_at_once: int = 16


@dataclass(slots=True)
class _Asker:
    """One member that asks."""

    pace: TokenBucket = field(default_factory=lambda: TokenBucket(ASKED_PER_S, ASKED_AT_ONCE))
    turn: int = 0
    """Number of its last answer."""
    names: dict[bytes, int] = field(default_factory=dict)
    """What waits, and since when."""


class Shelf:
    """See the module.

    Args:
        config: Bounds.
        restored: Name to picture, as an earlier life kept them; what is none is left out.
        live: Names that own sightings bear.
    """

    def __init__(
        self, config: ShelfConfig, restored: Mapping[bytes, bytes], live: Callable[[], Container[bytes]]
    ) -> None:
        self._config = config
        self._live = live
        self._held = {name: jpeg for name, jpeg in restored.items() if name_of(jpeg) == name and not problem_of(jpeg)}
        self._bytes = sum(map(len, self._held.values()))
        self._all = TokenBucket(config.all_per_s, config.all_at_once)
        self._askers: dict[NodeId, _Asker] = {}
        self._turns = 0

    def __len__(self) -> int:
        """How many pictures there are."""
        return len(self._held)

    @property
    def size_bytes(self) -> int:
        """Of all pictures together."""
        return self._bytes

    def get(self, name: bytes) -> bytes | None:
        """A picture, for this device itself."""
        return self._held.get(name)

    def put(self, name: bytes, jpeg: bytes) -> list[bytes]:
        """Keep a picture; returns the names of those that had to go."""
        if name in self._held:
            return []
        gone: list[bytes] = []
        if self._is_full(len(jpeg)):
            gone += self.sweep()
        while self._held and self._is_full(len(jpeg)):
            gone.append(self._drop(next(iter(self._held))))
        self._held[name] = jpeg
        self._bytes += len(jpeg)
        return gone

    def sweep(self) -> list[bytes]:
        """Let go of what no own sighting names any more; returns the names."""
        live = self._live()
        return [self._drop(name) for name in [name for name in self._held if name not in live]]

    def ask(self, asker: NodeId, name: bytes, now_ns: int) -> bool:
        """A member asks for a picture; False: it has asked too often, and gets no answer."""
        one = self._askers.setdefault(asker, _Asker())
        if not one.pace.take(now_ns) or (len(one.names) >= ASKED_AT_ONCE and name not in one.names):
            return False
        one.names[name] = now_ns
        return True

    def answers(self, now_ns: int) -> Iterator[tuple[NodeId, bytes, bytes]]:
        """(asker, name, picture) of those whose turn it is; b"" where there is no such picture."""
        for one in self._askers.values():
            for name in [name for name, since_ns in one.names.items() if now_ns - since_ns > WAIT_NS]:
                del one.names[name]
        while self.waits and self._all.take(now_ns):
            asker = self._next()
            one = self._askers[asker]
            self._turns += 1
            one.turn = self._turns
            name = next(iter(one.names))
            del one.names[name]
            yield asker, name, self._given(name)

    @property
    def waits(self) -> bool:
        """Whether a question waits for its turn."""
        return any(one.names for one in self._askers.values())

    def _next(self) -> NodeId:
        return min((asker for asker, one in self._askers.items() if one.names), key=lambda one: self._askers[one].turn)

    def _given(self, name: bytes) -> bytes:
        # What nobody has said is answered without a look at what own sightings name.
        return self._held[name] if name in self._held and name in self._live() else b""

    def forget_askers(self, here: Container[NodeId]) -> None:
        """Who is no member asks no more."""
        for asker in [asker for asker in self._askers if asker not in here]:
            del self._askers[asker]

    def _is_full(self, more_bytes: int) -> bool:
        return len(self._held) >= self._config.count_max or self._bytes + more_bytes > self._config.bytes_max

    def _drop(self, name: bytes) -> bytes:
        self._bytes -= len(self._held.pop(name))
        return name
